"""Where what has ended is removed, and what deleted queues left behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from heapq import nsmallest

from pinlater.backends.sql.lapsing import queue_names_of
from pinlater.backends.sql.session import Session

LEFTOVERS = ""
QUEUES_PER_STEP = 100


def collect(session: Session, limit: int, now_ms: int, succeeded_ttl_ms: int, failed_ttl_ms: int) -> Mapping[str, int]:
    """One bounded step; of what has ended, the longest overdue first, so that neither state starves the other."""
    counts = _collect_ended(session, limit, now_ms, succeeded_ttl_ms, failed_ttl_ms)
    # what had ended in a deleted queue counts as left over already
    leftovers = _collect_leftovers(session, limit - counts[LEFTOVERS])
    if leftovers:
        counts[LEFTOVERS] += leftovers
    return counts


def _collect_ended(
    session: Session, limit: int, now_ms: int, succeeded_ttl_ms: int, failed_ttl_ms: int
) -> Counter[str]:
    overdue = [
        (finished_at_ms + ttl_ms, job_id, queue_id)
        for statement, ttl_ms in (("succeeded_before", succeeded_ttl_ms), ("failed_before", failed_ttl_ms))
        for finished_at_ms, job_id, queue_id in session.rows(statement, (now_ms - ttl_ms, limit))
    ]
    if not overdue:
        return Counter()
    rows = nsmallest(limit, overdue)
    session.run_of("remove", (), sorted(row[1] for row in rows))
    names = queue_names_of(session, {row[2] for row in rows})
    return Counter(names.get(row[2], LEFTOVERS) for row in rows)


def _collect_leftovers(session: Session, limit: int) -> int:
    """A deleted queue is forgotten only when a look behind its last job finds none."""
    removed = 0
    for (queue_id,) in session.rows("deleted_queues", (QUEUES_PER_STEP,)):
        if removed >= limit:
            break
        ids = sorted(row[0] for row in session.rows("leftovers", (queue_id, limit - removed)))
        removed += session.run_of("remove", (), ids)
        if removed < limit:
            session.run("forget_queue", (queue_id, queue_id))
    return removed
