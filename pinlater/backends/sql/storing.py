"""Where jobs come in."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.backends.sql.rows import Descriptors, new_jobs
from pinlater.backends.sql.session import Session
from pinlater.model import Job

SMALLEST_ID = 10**15
"""Ids are 16 digits wide, so that their text order is their age."""


def first_new_id(session: Session, count: int, now_ms: int) -> int:
    """The first of `count` ids that follow each other."""
    return session.allocate_ids(count, max(now_ms * 1000, SMALLEST_ID))


def enqueue(session: Session, queue: str, jobs: Sequence[Job], now_ms: int) -> list[str]:
    """The queue is locked against deletion first, so that no job comes in behind the last look at its leftovers."""
    queue_id = session.queue_id(queue, "queue_id_for_enqueue")
    if not jobs:
        return []
    first_id = first_new_id(session, len(jobs), now_ms)
    session.insert_jobs(new_jobs(jobs, queue_id, first_id, now_ms))
    descriptors = Descriptors(queue, session.shard_id)
    return [f"{descriptors[job.priority]}{job_id}" for job_id, job in enumerate(jobs, first_id)]
