"""Rows of the tables <-> the objects of the model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

from pinlater.backends.sql.session import NewJob, Row, Session
from pinlater.model import MAX_STATUS_CHARS, DequeuedJob, Job, JobInfo, JobState, descriptor_prefix


class Descriptors:
    """Makes the descriptors of one queue; the text before the id is made once per priority."""

    def __init__(self, queue: str, shard_id: str) -> None:
        self._queue = queue
        self._shard_id = shard_id
        self._prefixes: dict[int, str] = {}

    def of(self, priority: int, job_id: int) -> str:
        prefix = self._prefixes.get(priority)
        if prefix is None:
            prefix = self._prefixes[priority] = descriptor_prefix(self._queue, self._shard_id, priority)
        return f"{prefix}{job_id}"


def new_jobs(jobs: Sequence[Job], queue_id: int, first_id: int, now_ms: int) -> list[NewJob]:
    """A row per job, with ids from `first_id` on."""
    ids = count(first_id)
    return [
        NewJob(
            next(ids),
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
        for job in jobs
    ]


def dequeued_job(row: Row, body: Any, descriptors: Descriptors, claim: str, expires_at_ms: int) -> DequeuedJob:
    """From a row of `candidates`."""
    job_id, priority, run_after_ms, allowed, remaining, created_at_ms = row[:6]
    return DequeuedJob(
        descriptors.of(priority, job_id),
        body,
        priority,
        allowed,
        remaining,
        run_after_ms,
        created_at_ms,
        claim,
        expires_at_ms,
    )


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
