"""Where records are taken: versioned texts that all shards agree on; those of queues make and delete them."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.backends.base import Record, RecordPage
from pinlater.backends.sql.session import Session, in_slices
from pinlater.errors import StoreRefused

NAMES_PER_STATEMENT = 500


def put_records(session: Session, records: Sequence[Record], now_ms: int) -> list[bool]:
    """Revisions come first: from then on nobody else takes records here until the commit."""
    if not records:
        return []
    revision = session.allocate_revisions(len(records))
    versions = _versions(session, [record.name for record in records])
    taken: list[bool] = []
    for place, record in enumerate(records):
        here = versions.get(record.name, "")
        taken.append(record.version > here)
        if taken[-1]:
            _put(session, record, revision + place)
            if "@" not in record.name:
                _make_and_delete(session, record, here, now_ms)
            versions[record.name] = record.version
    return taken


def _versions(session: Session, names: Sequence[str]) -> dict[str, str]:
    return {
        name: version
        for some in in_slices(sorted(set(names)), NAMES_PER_STATEMENT)
        for name, version in session.rows("versions_of_records", (session.bound_texts(some),))
    }


def _put(session: Session, record: Record, revision: int) -> None:
    session.run("put_record", (record.name, record.version, record.deleted_version, revision, record.text))


def _make_and_delete(session: Session, record: Record, version_here: str, now_ms: int) -> None:
    """Taking the name away is what makes a queue gone; `collect` frees the rows."""
    if record.deleted_version > version_here and session.run("delete_queue", (record.name,)):
        session.run("forget_bucket", (record.name,))
    if not record.is_deleted:
        session.run("create_queue", (record.name, now_ms))


def records(session: Session, store_id: str, since: int, limit: int) -> RecordPage:
    if session.rows("store_id") != [(store_id,)]:
        raise StoreRefused(f"the store was {store_id} when it was opened and is another one now: it was emptied")
    rows = session.rows("records", (since, limit))
    return RecordPage(rows[-1][4] if rows else since, [Record(*row[:4]) for row in rows])


def remove_deletion_marks(session: Session, before: str, limit: int) -> None:
    names = sorted(str(name) for (name,) in session.rows("deletion_marks", (before, limit)))
    for some in in_slices(names, NAMES_PER_STATEMENT):
        session.run("remove_records", (session.bound_texts(some),))


def record_queues(session: Session) -> None:
    """Queues that an older version made get the record that they lack, as of when they were made."""
    rows = session.rows("queues_without_record")
    put_records(session, [Record(name, f"{created_at_ms * 1000:016d}-00000000") for name, created_at_ms in rows], 0)
