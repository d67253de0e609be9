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
    return _retry(session, _oldest(session, queue, JobState.FAILED, priority, limit), attempts, run_after_ms, now_ms)


def retry_listed(
    session: Session, queue: str, jobs: Sequence[JobKey], attempts: int | None, run_after_ms: int | None, now_ms: int
) -> int:
    return _retry(session, _listed(session, queue, JobState.FAILED, jobs), attempts, run_after_ms, now_ms)


def _retry(session: Session, ids: Sequence[int], attempts: int | None, run_after_ms: int | None, now_ms: int) -> int:
    session.run_of("clear_moved_to", (), ids)
    return session.run_of("retry_failed", (attempts, now_ms if run_after_ms is None else run_after_ms, now_ms), ids)


def delete_jobs(session: Session, queue: str, state: JobState, priority: int, limit: int) -> int:
    return session.remove(_oldest(session, queue, state, priority, limit))


def _oldest(session: Session, queue: str, state: JobState, priority: int, limit: int) -> list[int]:
    rows = session.rows("oldest", (session.queue_id(queue), int(state), priority, limit))
    return sorted(row[0] for row in rows)


def delete_listed(session: Session, queue: str, state: JobState, jobs: Sequence[JobKey]) -> int:
    return session.remove(_listed(session, queue, state, jobs))


def _listed(session: Session, queue: str, state: JobState, jobs: Sequence[JobKey]) -> list[int]:
    """Those of the jobs that are in that state. QueueNotFound."""
    session.queue_id(queue)
    rows = jobs_named(session, queue, jobs)
    ids = {job.id for job in jobs if (row := rows.get(job.id)) is not None and row[1:] == (job.priority, state)}
    return sorted(ids)


def cancel(session: Session, queue: str, jobs: Sequence[JobKey]) -> list[CancelOutcome]:
    rows = jobs_named(session, queue, jobs)
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
    session.remove(sorted(cancelled))
    return outcomes


def jobs_named(session: Session, queue: str, jobs: Sequence[JobKey]) -> dict[int, Row]:
    """The jobs that are there, by id, locked."""
    return {row[0]: row for row in session.rows_of("named", (queue,), sorted({job.id for job in jobs}))}
