"""Where operators look: lookup, count, scan."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import merge
from itertools import islice

from pinlater.backends.base import JobKey, ScanPosition, ScanRequest
from pinlater.backends.sql.rows import Descriptors, bodies, how_many_fit, job_info
from pinlater.backends.sql.session import Row, Session
from pinlater.model import MAX_TIME_MS, JobInfo, JobState

BODY_BYTES = 14
"""Where a row of `infos` has the size of the body."""


def lookup(
    session: Session, queue: str, jobs: Sequence[JobKey], with_body: bool, max_bytes: int, first_bytes: int = 2**63
) -> list[JobInfo | None]:
    """The first job's body comes beyond `max_bytes` too, up to `first_bytes`."""
    session.snapshot()
    rows = _rows_by_id(session, queue, [job.id for job in jobs])
    named = [row if row is not None and row[2] == job.priority else None for job in jobs for row in (rows.get(job.id),)]
    found = {row[0]: row for row in named if row is not None}
    texts: dict[int, bytes] = {}
    if with_body:
        sizes = [row[BODY_BYTES] for row in found.values()]
        fitting = how_many_fit(sizes, max_bytes) if sum(sizes[:1]) <= first_bytes else 0
        texts = bodies(session, list(found)[:fitting])
    descriptors = Descriptors(queue, session.shard_id)
    return [None if row is None else job_info(row, descriptors, texts.get(row[0])) for row in named]


def _rows_by_id(session: Session, queue: str, ids: Sequence[int]) -> dict[int, Row]:
    return {row[0]: row for row in session.rows_of("infos", (queue,), sorted(set(ids)))}


def _bounds(future: bool, now_ms: int) -> tuple[int, int]:
    """The run_after of what counts: exactly now is current."""
    return (now_ms + 1, MAX_TIME_MS) if future else (0, now_ms)


def count(session: Session, queue: str, state: JobState, priorities: Sequence[int], future: bool, now_ms: int) -> int:
    session.snapshot()
    queue_id = session.queue_id(queue)
    between = _bounds(future, now_ms)
    return sum(
        int(session.rows("count_between", (queue_id, int(state), priority, *between))[0][0]) for priority in priorities
    )


def scan(session: Session, queue: str, request: ScanRequest, now_ms: int) -> list[JobInfo]:
    """The places in each priority, merged; only then the rows, and the bodies that fit."""
    session.snapshot()
    queue_id = session.queue_id(queue)
    bounds, state = _bounds(request.future, now_ms), int(request.state)
    places = [
        _places(session, (queue_id, state, priority), bounds, request.after, request.limit)
        for priority in request.priorities
    ]
    ids = [job_id for _, job_id in islice(merge(*places), request.limit)]
    found = _rows_by_id(session, queue, ids)
    rows = [found[job_id] for job_id in ids if job_id in found]
    texts: dict[int, bytes] = {}
    if request.with_body:
        rows = rows[: how_many_fit((row[BODY_BYTES] for row in rows), request.max_bytes)]
        texts = bodies(session, [row[0] for row in rows])
    descriptors = Descriptors(queue, session.shard_id)
    return [job_info(row, descriptors, texts.get(row[0])) for row in rows]


def _places(
    session: Session, which: tuple[int, int, int], bounds: tuple[int, int], after: ScanPosition | None, limit: int
) -> list[tuple[int, int]]:
    """Up to `limit` jobs of one priority as (-run_after, id), in that order.

    The order is down in run_after and up in id, which no index serves. So that a page costs what a page holds, and not
    what the queue holds: first where the page ends, then what lies above (a small sort), then what lies exactly there.
    """
    low, high = bounds
    found: list[tuple[int, int]] = []
    if after is not None:
        high = min(high, after.run_after_ms - 1)
        if low <= after.run_after_ms <= bounds[1]:
            found += _at(session, which, after.run_after_ms, after.id, limit)
    rest = limit - len(found)
    if rest <= 0 or high < low:
        return found
    end = session.rows("scan_time", (*which, low, high, rest - 1))
    above = end[0][0] + 1 if end else low
    between = session.rows("scan_between", (*which, above, high))
    found += sorted((-run_after_ms, job_id) for run_after_ms, job_id in between)
    if end:
        found += _at(session, which, end[0][0], 0, limit - len(found))
    return found


def _at(
    session: Session, which: tuple[int, int, int], run_after_ms: int, after_id: int, limit: int
) -> list[tuple[int, int]]:
    rows = session.rows("scan_at", (*which, run_after_ms, after_id, limit))
    return [(-run_after_ms, job_id) for (job_id,) in rows]
