"""Which shard a store is: its record, written when it is first opened and compared ever after."""

from __future__ import annotations

import secrets
from typing import NamedTuple

from pinlater.backends.base import StoreStatus
from pinlater.backends.sql.recording import record_queues
from pinlater.backends.sql.session import Session
from pinlater.errors import NothingStored, StoreRefused

SCHEMA_VERSION = 2


class Identity(NamedTuple):
    shard_id: str
    store_id: str


class Found(NamedTuple):
    identity: Identity
    schema_version: int


def read_identity(session: Session, shard_id: str) -> Found | None:
    """The store's record, None in an empty store. StoreRefused where it is not what was asked for; changes nothing."""
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
    if schema_version > SCHEMA_VERSION:
        raise StoreRefused(
            f"this store has the tables of a newer PinLater (version {schema_version}, this one knows "
            f"{SCHEMA_VERSION}); upgrade this server"
        )
    return Found(found, schema_version)


def establish_identity(session: Session, shard_id: str) -> Identity:
    """Make the tables and the record where they are missing, and bring those of an older version up to date.

    Of two servers at once one does it, and both read. What fails in the middle is done again by the next one.
    """
    found = read_identity(session, shard_id)
    if found is None and not shard_id:
        raise StoreRefused("this store has no record of its shard id yet; open it with an id once (ID=URL)")
    if found is None or not _is_whole(session, found):
        with session.alone():
            found = _made(session, shard_id)
    record_queues(session)
    return found.identity


def _is_whole(session: Session, found: Found) -> bool:
    return found.schema_version == SCHEMA_VERSION and not session.rows("lacks_columns")[0][0]


def _made(session: Session, shard_id: str) -> Found:
    """Looks again: who was alone before may have done it."""
    found = read_identity(session, shard_id)
    if found is not None and _is_whole(session, found):
        return found
    session.make_tables()
    if found is None:
        session.run("insert_meta", ("shard_id", shard_id))
        session.run("insert_meta", ("schema_version", str(SCHEMA_VERSION)))
        session.run("insert_meta", ("store_id", secrets.token_hex(16)))
    else:
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
        raise StoreRefused(f"the store was {expected} when it was opened and is {found} now: it was wiped or replaced")
    if read_only:
        raise NothingStored("the store is read-only: is it a replica, or did another server take over?")
    return StoreStatus(store_id, int(now_ms), newest_ms=(next_id - 1) // 1000)
