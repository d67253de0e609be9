"""Where what has ended is removed, and what deleted queues left behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pinlater.backends.base import PerQueue, Retention
from pinlater.backends.sql.recording import remove_deletion_marks
from pinlater.backends.sql.session import Session

LEFTOVERS = ""
QUEUES_PER_STEP = 100


def prune(
    session: Session, limit: int, now_ms: int, retention: PerQueue[Retention], tombstones_before: str
) -> Mapping[str, int]:
    """One bounded step; what has been overdue for longest goes first, so that no queue and neither state starves."""
    counts = _collect_ended(session, limit, now_ms, retention)
    leftovers = _collect_leftovers(session, limit)
    if leftovers:
        counts[LEFTOVERS] = leftovers
    if tombstones_before:
        remove_deletion_marks(session, tombstones_before, limit)
    return counts


def _collect_ended(session: Session, limit: int, now_ms: int, retention: PerQueue[Retention]) -> Counter[str]:
    """The queues are compared by the first job of each that ended, so one with millions costs as little as one."""
    overdue: list[tuple[int, str, int, int, str]] = []
    for queue_id, name, succeeded_ms, failed_ms in session.rows("oldest_ended"):
        kept = retention.get(name)
        for statement, oldest_ms, ttl_ms in (
            ("succeeded_before", succeeded_ms, kept.succeeded_ms),
            ("failed_before", failed_ms, kept.failed_ms),
        ):
            if oldest_ms is not None and oldest_ms + ttl_ms < now_ms:
                overdue.append((oldest_ms + ttl_ms, statement, queue_id, now_ms - ttl_ms, name))
    counts: Counter[str] = Counter()
    ids: list[int] = []
    for _, statement, queue_id, before_ms, name in sorted(overdue)[:QUEUES_PER_STEP]:
        if len(ids) >= limit:
            break
        found = session.rows(statement, (queue_id, before_ms, limit - len(ids)))
        if found:
            counts[name] += len(found)
            ids += [job_id for (job_id,) in found]
    session.remove(sorted(ids))
    return counts


def _collect_leftovers(session: Session, limit: int) -> int:
    """A deleted queue is forgotten only when a look behind its last job finds none."""
    removed = 0
    for (queue_id,) in session.rows("deleted_queues", (QUEUES_PER_STEP,)):
        if removed >= limit:
            break
        removed += session.remove(sorted(row[0] for row in session.rows("leftovers", (queue_id, limit - removed))))
        if removed < limit and session.run("forget_queue", (queue_id, queue_id)):
            session.run("forget_share", (queue_id,))
    return removed
