"""Where queues are made and jobs come in."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.backends.sql.rows import Descriptors, new_jobs
from pinlater.backends.sql.session import Session
from pinlater.model import Job

SMALLEST_ID = 10**15
"""Ids are 16 digits wide, so that their text order is their age."""


def create_queue(session: Session, queue: str, now_ms: int) -> bool:
    return session.run("create_queue", (queue, now_ms)) == 1


def delete_queue(session: Session, queue: str) -> bool:
    """Take the name away: that is what makes it gone; `collect` frees the rows."""
    return session.run("delete_queue", (queue,)) == 1


def queue_names(session: Session) -> set[str]:
    return {str(name) for (name,) in session.rows("queue_names")}


def enqueue(session: Session, queue: str, jobs: Sequence[Job], now_ms: int) -> list[str]:
    """The queue is locked against deletion first, so that no job comes in behind the last look at its leftovers."""
    queue_id = session.queue_id(queue, "queue_id_for_enqueue")
    if not jobs:
        return []
    first_id = session.allocate_ids(len(jobs), max(now_ms * 1000, SMALLEST_ID))
    rows = new_jobs(jobs, queue_id, first_id, now_ms)
    session.insert_jobs(rows)
    descriptors = Descriptors(queue, session.shard_id)
    return [descriptors.of(row.priority, row.id) for row in rows]
