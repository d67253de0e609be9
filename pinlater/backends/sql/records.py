"""The columns of a job, each list named once, and the rows made of them <-> the objects of the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pinlater.backends.sql.session import NewJob, Row, Session
from pinlater.model import MAX_STATUS_CHARS, DequeuedJob, Job, JobInfo, JobState, descriptor_prefix


class Descriptors(dict[int, str]):
    """What stands before the ids in the descriptors of one queue, by priority."""

    def __init__(self, queue: str, shard_id: str) -> None:
        self._queue = queue
        self._shard_id = shard_id

    def __missing__(self, priority: int) -> str:
        prefix = self[priority] = descriptor_prefix(self._queue, self._shard_id, priority)
        return prefix

    def of(self, priority: int, job_id: int) -> str:
        return f"{self[priority]}{job_id}"


def new_jobs(jobs: Sequence[Job], queue_id: int, first_id: int, now_ms: int) -> list[NewJob]:
    """A row per job, with ids from `first_id` on."""
    return [
        (
            job_id,
            queue_id,
            job.priority,
            now_ms if job.run_after_ms is None else job.run_after_ms,
            job.attempts_allowed,
            job.attempts_allowed,
            now_ms,
            now_ms,
            job.custom_status[:MAX_STATUS_CHARS],
            len(job.body),
            job.body,
        )
        for job_id, job in enumerate(jobs, first_id)
    ]


def dequeued_jobs(
    rows: Iterable[Row], large: Mapping[int, bytes], descriptors: Descriptors, claim: str, expires_at_ms: int
) -> list[DequeuedJob]:
    """From rows of `candidates`, and the bodies that were too large to come with them."""
    return [
        DequeuedJob(
            f"{descriptors[priority]}{job_id}",
            large[job_id] if body is None else body,
            priority,
            allowed,
            remaining,
            run_after_ms,
            created_at_ms,
            claim,
            expires_at_ms,
        )
        for job_id, priority, run_after_ms, allowed, remaining, created_at_ms, _, body in rows
    ]


def job_info(row: Row, descriptors: Descriptors, body: bytes | None) -> JobInfo:
    """From a row of `infos`."""
    job_id, state = row[:2]
    info = JobInfo(descriptors.of(row[2], job_id), JobState(state), *row[2:14])
    info.body = body
    info.origin, info.moved_to = row[15:]
    return info


def bodies(session: Session, ids: Sequence[int]) -> dict[int, bytes]:
    """The bodies of these jobs."""
    return {job_id: bytes(body) for job_id, body in session.rows_of("bodies", (), sorted(ids))}


def how_many_fit(sizes: Iterable[int], max_bytes: int) -> int:
    """How many of the first come to no more than `max_bytes`; the first one always does.

    >>> how_many_fit([9, 1, 1], 10), how_many_fit([11, 1], 10), how_many_fit([], 10)
    (2, 1, 0)
    """
    fitting = total = 0
    for size in sizes:
        total += size
        if total > max_bytes and fitting:
            break
        fitting += 1
    return fitting
