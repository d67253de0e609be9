"""Where records are taken: versioned texts that all shards agree on; those of queues make and delete them."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.backends.base import ConfigEntry, ConfigPage
from pinlater.backends.sql.session import Session, in_slices
from pinlater.errors import StoreRefused

NAMES_PER_STATEMENT = 500


def put_config(session: Session, entries: Sequence[ConfigEntry], now_ms: int) -> list[bool]:
    """Revisions come first: from then on nobody else takes records here until the commit."""
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
            versions[entry.name] = entry.version
    return taken


def _versions(session: Session, names: Sequence[str]) -> dict[str, str]:
    return {
        name: version
        for some in in_slices(sorted(set(names)), NAMES_PER_STATEMENT)
        for name, version in session.rows("versions_of_records", (session.bound_texts(some),))
    }


def _put(session: Session, entry: ConfigEntry, revision: int) -> None:
    session.run("put_record", (entry.name, entry.version, entry.deleted_version, revision, entry.text))


def _make_and_delete(session: Session, entry: ConfigEntry, version_here: str, now_ms: int) -> None:
    """Taking the name away is what makes a queue gone; `prune` frees the rows."""
    if entry.deleted_version > version_here and session.run("delete_queue", (entry.name,)):
        session.run("forget_bucket", (entry.name,))
    if not entry.is_deleted:
        session.run("create_queue", (entry.name, now_ms))


def list_config(session: Session, store_id: str, since: int, limit: int) -> ConfigPage:
    if session.rows("store_id") != [(store_id,)]:
        raise StoreRefused(f"the store was {store_id} when it was opened and is another one now: it was emptied")
    rows = session.rows("records", (since, limit))
    return ConfigPage(rows[-1][4] if rows else since, [ConfigEntry(*row[:4]) for row in rows])


def remove_deletion_marks(session: Session, before: str, limit: int) -> None:
    names = sorted(str(name) for (name,) in session.rows("deletion_marks", (before, limit)))
    for some in in_slices(names, NAMES_PER_STATEMENT):
        session.run("remove_records", (session.bound_texts(some),))


def record_queues(session: Session) -> None:
    """Queues that an older version made get the record that they lack, as of when they were made."""
    rows = session.rows("queues_without_record")
    put_config(session, [ConfigEntry(name, f"{created_at_ms * 1000:016d}-00000000") for name, created_at_ms in rows], 0)
