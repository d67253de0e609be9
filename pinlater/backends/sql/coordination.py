"""The state that servers share in a store: its identity, configuration entries, key-value entries, buckets, quotas."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import NamedTuple

from pinlater.backends.base import ConfigEntry, ConfigPage, KvEntry, Quota, StoreStatus, Tokens
from pinlater.backends.group_rules import GROUP_RULES_PREFIX
from pinlater.backends.sql.group_lines import take_rules
from pinlater.backends.sql.held_references import lower_version
from pinlater.backends.sql.records import tables_of
from pinlater.backends.sql.schema_version import GROUPS_VERSION, LAST_VERSION, REFERENCES_VERSION, SCHEMA_VERSION
from pinlater.backends.sql.session import Session, in_slices
from pinlater.backends.store_transfer import MARK_STEP, refuse_closed, refuse_mark
from pinlater.backends.token_bucket import BucketLevel, take
from pinlater.errors import NothingStored, StoreRefused, StoreReplaced


class Identity(NamedTuple):
    shard_id: str
    store_id: str


class Found(NamedTuple):
    identity: Identity
    schema_version: int


def read_identity(session: Session, shard_id: str, opens_marked: bool = False) -> Found | None:
    """The store's identity, None in an empty store. StoreRefused where another one was asked for; changes nothing.

    `opens_marked`: also of a store that is no server's to open (see `refuse_mark`).
    """
    if not session.rows("has_meta")[0][0]:
        return None
    record: dict[str, str] = dict(session.rows("meta"))
    if "store_id" not in record:
        return None
    found = Identity(record["shard_id"], record["store_id"])
    if shard_id not in ("", found.shard_id):
        raise StoreRefused(
            f"this store belongs to shard {found.shard_id!r}, not to {shard_id!r}; correct the address or the id"
        )
    schema_version = int(record["schema_version"])
    if not opens_marked:
        refuse_mark(schema_version)
    if schema_version % MARK_STEP > LAST_VERSION:
        raise StoreRefused(
            f"this store has the tables of a newer PinLater (version {schema_version}, this one knows "
            f"{LAST_VERSION}); upgrade this server"
        )
    return Found(found, schema_version)


def establish_identity(session: Session, shard_id: str, opens_marked: bool = False) -> Identity:
    """Make the tables and the identity where they are missing, and bring those of an older version up to date.

    Of two servers at once one does it, and both read. What fails in the middle is done again by the next one.
    """
    found = read_identity(session, shard_id, opens_marked)
    if found is None and not shard_id:
        raise StoreRefused("this store has no record of its shard id yet; open it with an id once (ID=URL)")
    if found is None or not _is_whole(session, found):
        with session.schema_lock():
            found = _made(session, shard_id)
    if REFERENCES_VERSION <= found.schema_version <= GROUPS_VERSION:
        lower_version(session)
    add_missing_entries(session)
    return found.identity


def _is_whole(session: Session, found: Found) -> bool:
    """Whether the store has each table and column; versions before go on without those that came later."""
    if found.schema_version < SCHEMA_VERSION:
        return False
    tables = {name for (name,) in session.rows("tables")}
    return tables.issuperset(tables_of(session.statements["schema"])) and not any(session.rows("lacks_columns")[0])


def _made(session: Session, shard_id: str) -> Found:
    """Reads it again: another server may have made it before the lock was free."""
    found = read_identity(session, shard_id)
    if found is not None and _is_whole(session, found):
        return found
    session.make_tables()
    if found is None:
        session.run("insert_meta", ("shard_id", shard_id))
        session.run("insert_meta", ("schema_version", str(SCHEMA_VERSION)))
        session.run("insert_meta", ("store_id", secrets.token_hex(16)))
    elif found.schema_version < SCHEMA_VERSION:
        session.run("set_schema_version", (str(SCHEMA_VERSION),))
    found = read_identity(session, shard_id)
    if found is None:
        raise StoreRefused("the record of the shard id cannot be read back; is the store being deleted at this moment?")
    return found


def ping(session: Session, expected: Identity) -> StoreStatus:
    """One statement over the tables that every call needs."""
    shard_id, store_id, now_ms, read_only, next_id = session.rows("ping")[0]
    found = Identity(shard_id, store_id)
    if found != expected:
        refuse_closed(store_id or "")
        raise StoreReplaced.since(expected.store_id, f"{store_id} of shard {shard_id}")
    if read_only:
        raise NothingStored("the store is read-only: is it a replica, or did another server take over?")
    return StoreStatus(store_id, int(now_ms), newest_ms=(next_id - 1) // 1000)


NAMES_PER_STATEMENT = 500


def put_config(session: Session, entries: Sequence[ConfigEntry], now_ms: int) -> list[bool]:
    """Revisions come first: from then on nobody else takes entries here until the commit."""
    if not entries:
        return []
    revision = session.allocate_revisions(len(entries))
    versions = _versions(session, [entry.name for entry in entries])
    taken: list[bool] = []
    for place, entry in enumerate(entries):
        here = versions.get(entry.name, "")
        taken.append(entry.version > here)
        if taken[-1]:
            _put(session, entry, revision + place)
            if "@" not in entry.name:
                _make_and_delete(session, entry, here, now_ms)
            elif entry.name.startswith(GROUP_RULES_PREFIX):
                take_rules(session, entry.name.removeprefix(GROUP_RULES_PREFIX), now_ms)
            versions[entry.name] = entry.version
    return taken


def _versions(session: Session, names: Sequence[str]) -> dict[str, str]:
    return {
        name: version
        for some in in_slices(sorted(set(names)), NAMES_PER_STATEMENT)
        for name, version in session.rows("versions_of_config_entries", (session.bound_texts(some),))
    }


def _put(session: Session, entry: ConfigEntry, revision: int) -> None:
    session.run("put_config_entry", (entry.name, entry.version, entry.deleted_version, revision, entry.text))


def _make_and_delete(session: Session, entry: ConfigEntry, version_here: str, now_ms: int) -> None:
    """Taking the name away is what makes a queue gone; `prune` frees the rows."""
    if entry.deleted_version > version_here and session.run("delete_queue", (entry.name,)):
        session.run("forget_bucket", (entry.name,))
    if not entry.is_deleted:
        session.run("create_queue", (entry.name, now_ms))


def list_config(session: Session, store_id: str, since: int, limit: int) -> ConfigPage:
    if session.rows("store_id") != [(store_id,)]:
        raise StoreReplaced(f"the store was {store_id} when it was opened and is another one now: it was emptied")
    rows = session.rows("config_entries", (since, limit))
    return ConfigPage(rows[-1][4] if rows else since, [ConfigEntry(*row[:4]) for row in rows])


def remove_tombstones(session: Session, before: str, limit: int) -> None:
    names = sorted(str(name) for (name,) in session.rows("tombstones", (before, limit)))
    for some in in_slices(names, NAMES_PER_STATEMENT):
        session.run("remove_config_entries", (session.bound_texts(some),))
    session.run_in("remove_firings", (), [name.encode() for name in names])


def add_missing_entries(session: Session) -> None:
    """Queues that an older version made get the entry that they lack, as of when they were made."""
    rows = session.rows("queues_without_config_entry")
    put_config(session, [ConfigEntry(name, f"{created_at_ms * 1000:016d}-00000000") for name, created_at_ms in rows], 0)


TIDIED_AT_ONCE = 1000


def kv_put(
    session: Session,
    namespace: str,
    name: str,
    body: bytes,
    expires_at_ms: int,
    now_ms: int,
    *,
    expected_version: int | None = None,
    keep: int = 100_000,
) -> int:
    """There is always a row to lock: one of version 0, which nobody sees, where there is no entry yet."""
    session.run("touch_kv_entry", (namespace, name))
    version, expired_at_ms = session.rows("kv_entry", (namespace, name))[0]
    if expired_at_ms <= now_ms:
        version = 0
    is_expected = expected_version in (None, version)
    if is_expected and expires_at_ms > now_ms:
        session.run("write_kv_entry", (version + 1, expires_at_ms, body, namespace, name))
    elif is_expected or version == 0:
        session.run("remove_kv_entries", (namespace, session.bound_texts([name])))
    if not is_expected:
        return 0
    _tidy(session, namespace, now_ms, keep if version == 0 else None)
    return int(version) + 1


def _tidy(session: Session, namespace: str, now_ms: int, keep: int | None) -> None:
    """`keep` None: there are no more entries than before."""
    rows = session.rows("expired_kv_entries", (namespace, now_ms, TIDIED_AT_ONCE))
    if keep is not None:
        rows += session.rows("excess_kv_entries", (namespace, TIDIED_AT_ONCE, keep))
    names = sorted({str(name) for (name,) in rows})
    if names:
        session.run("remove_kv_entries", (namespace, session.bound_texts(names)))


def kv_list(session: Session, namespace: str, now_ms: int) -> dict[str, KvEntry]:
    rows = session.rows("kv_entries", (namespace, now_ms))
    return {name: KvEntry(bytes(body), version, expires_at_ms) for name, body, version, expires_at_ms in rows}


def take_tokens(session: Session, queue: str, wanted: int, per_second: float, capacity: float, now_ms: int) -> Tokens:
    """The bucket is locked until the commit."""
    rows = session.rows("bucket", (queue,))
    if not rows:
        session.run("touch_bucket", (queue, now_ms))
        rows = session.rows("bucket", (queue,))
    taken = take(BucketLevel(*rows[0]), wanted, per_second, capacity, now_ms)
    session.run("fill_bucket", (*taken.level, queue))
    return Tokens(taken.granted, taken.retry_after_ms)


NO_BOUND = 2**31 - 1


def room_for_claims(session: Session, queue_id: int) -> int:
    """How many more may be handed out by this transaction, which holds the lock until its commit."""
    rows = session.rows("locked_quota", (queue_id,))
    quota = rows[0][0] if rows else 0
    return max(0, quota - _in_progress(session, queue_id, quota)) if quota else 0


def _in_progress(session: Session, queue_id: int, at_most: int) -> int:
    return int(session.rows("in_progress_up_to", (queue_id, at_most))[0][0])


def set_quota(session: Session, queue: str, quota: int, version: int, now_ms: int) -> Quota:
    """The queue is locked against deletion first, so that no quota is left behind it."""
    queue_id = session.queue_id(queue, "queue_id_for_enqueue")
    if version == 0:
        rows = session.rows("quota", (queue_id,))
        quota_here, version_here = rows[0] if rows else (0, 0)
        return Quota(quota_here, version_here, _in_progress(session, queue_id, NO_BOUND))
    session.run("touch_quota", (queue_id,))
    quota_here, version_here = session.rows("locked_quota", (queue_id,))[0]
    in_progress = _in_progress(session, queue_id, NO_BOUND)
    if version <= version_here:
        return Quota(quota_here, version_here, in_progress)
    session.run("set_quota", (quota, version, queue_id))
    return Quota(quota, version, in_progress)
