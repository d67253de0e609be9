"""Where operators change many jobs: retry failed ones, delete, cancel."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.backends.base import JobKey
from pinlater.backends.sql.session import Row, Session
from pinlater.model import CancelOutcome, JobState

_CANCEL_OUTCOMES = {
    JobState.PENDING: CancelOutcome.CANCELLED,
    JobState.IN_PROGRESS: CancelOutcome.IN_PROGRESS,
    JobState.SUCCEEDED: CancelOutcome.ENDED,
    JobState.FAILED: CancelOutcome.ENDED,
}


def retry_failed(
    session: Session, queue: str, priority: int, attempts: int, run_after_ms: int | None, limit: int, now_ms: int
) -> int:
    ids = _oldest(session, queue, JobState.FAILED, priority, limit)
    run_after_ms = now_ms if run_after_ms is None else run_after_ms
    return session.run_of("retry_failed", (attempts, run_after_ms, now_ms), ids)


def delete_jobs(session: Session, queue: str, state: JobState, priority: int, limit: int) -> int:
    return session.run_of("remove", (), _oldest(session, queue, state, priority, limit))


def _oldest(session: Session, queue: str, state: JobState, priority: int, limit: int) -> list[int]:
    rows = session.rows("oldest", (session.queue_id(queue), int(state), priority, limit))
    return sorted(row[0] for row in rows)


def delete_listed(session: Session, queue: str, state: JobState, jobs: Sequence[JobKey]) -> int:
    session.queue_id(queue)
    rows = _named(session, queue, jobs)
    ids = {job.id for job in jobs if (row := rows.get(job.id)) is not None and row[1:] == (job.priority, state)}
    return session.run_of("remove", (), sorted(ids))


def cancel(session: Session, queue: str, jobs: Sequence[JobKey]) -> list[CancelOutcome]:
    rows = _named(session, queue, jobs)
    outcomes: list[CancelOutcome] = []
    cancelled: list[int] = []
    for job in jobs:
        row = rows.get(job.id)
        if row is None or row[1] != job.priority:
            outcomes.append(CancelOutcome.NOT_FOUND)
            continue
        outcome = _CANCEL_OUTCOMES[JobState(row[2])]
        if outcome is CancelOutcome.CANCELLED:
            cancelled.append(job.id)
            del rows[job.id]
        outcomes.append(outcome)
    session.run_of("remove", (), sorted(cancelled))
    return outcomes


def _named(session: Session, queue: str, jobs: Sequence[JobKey]) -> dict[int, Row]:
    """The jobs that are there, by id, locked."""
    return {row[0]: row for row in session.rows_of("named", (queue,), sorted({job.id for job in jobs}))}
