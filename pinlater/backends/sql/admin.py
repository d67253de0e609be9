"""The operations of operators and maintenance on jobs: retry, delete, cancel, dead letters and their replay, prune."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pinlater.backends.base import ClaimKey, DeadLetterTarget, JobKey, PerQueue, Retention
from pinlater.backends.sql.attempts import claims_standing
from pinlater.backends.sql.coordination import remove_tombstones
from pinlater.backends.sql.ready_jobs import first_new_id
from pinlater.backends.sql.records import Descriptors, how_many_fit
from pinlater.backends.sql.session import Row, Session
from pinlater.backends.status_lines import dead_letter_status
from pinlater.model import CancelOutcome, JobState, descriptor_prefix, parse_descriptor

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


BYTES_PER_STEP = 32 << 20
"""Bodies are copied inside the store; this bounds the transaction."""

BODY_BYTES = 5
"""Where a row of `dead_letters_pending` has the size of the body."""


def dead_letter(session: Session, limit: int, now_ms: int, targets: Mapping[str, DeadLetterTarget]) -> dict[str, int]:
    """Of the queues that have jobs pending and a target that is there, one after the other."""
    counts: dict[str, int] = {}
    if not targets:
        return counts
    for queue_id, name in session.rows("queues_with_dead_letters_pending", (session.bound_texts(sorted(targets)),)):
        target = targets[name]
        letter_queue = session.rows("queue_id_for_enqueue", (target.queue,))
        rows = session.rows("dead_letters_pending", (queue_id, limit)) if letter_queue and limit > 0 else []
        rows = rows[: how_many_fit((row[BODY_BYTES] for row in rows), BYTES_PER_STEP)]
        if rows:
            _copy_letters(session, rows, name, target, letter_queue[0][0], now_ms)
            counts[name] = len(rows)
            limit -= len(rows)
    return counts


def _copy_letters(
    session: Session, rows: Sequence[Row], queue: str, target: DeadLetterTarget, target_id: int, now_ms: int
) -> None:
    first_id = first_new_id(session, len(rows), now_ms)
    origins, copies = Descriptors(queue, session.shard_id), Descriptors(target.queue, session.shard_id)
    for copy_id, (job_id, priority, allowed, crashes, created_at_ms, _) in enumerate(rows, first_id):
        origin = origins.of(priority, job_id)
        history = dead_letter_status(origin, created_at_ms, allowed, crashes, now_ms)
        _copy(session, job_id, copy_id, target_id, target.attempts_allowed, history, now_ms)
        session.run("put_origin", (copy_id, origin, allowed))
        session.run("put_moved_to", (job_id, copies.of(priority, copy_id)))
    session.run_of("clear_dead_letter_pending", (now_ms,), sorted(row[0] for row in rows))


def _copy(session: Session, job_id: int, copy_id: int, queue_id: int, attempts: int, history: str, now_ms: int) -> None:
    session.run("copy_job", (copy_id, queue_id, now_ms, attempts, attempts, now_ms, now_ms, history, job_id))


def replay(session: Session, queue: str, jobs: Sequence[JobKey], now_ms: int, attempts: int | None) -> list[str | None]:
    session.queue_id(queue)
    letters = Descriptors(queue, session.shard_id)
    rows = jobs_named(session, queue, jobs)
    links = {row[0]: row for row in session.rows_of("links", (), sorted(rows))}
    homes: dict[str, int | None] = {}
    new: list[str | None] = []
    sent: list[int] = []
    for job in jobs:
        row, link = rows.get(job.id), links.get(job.id)
        home = None
        if row is not None and link is not None and _is_letter(row, link, job):
            home = _home(session, link[1], homes)
        if link is None or home is None:
            new.append(None)
            continue
        del rows[job.id]  # named twice, it goes once
        home_queue, home_id = home
        new_id = first_new_id(session, 1, now_ms)
        _copy(session, job.id, new_id, home_id, link[2] if attempts is None else attempts, "", now_ms)
        session.run("put_origin", (new_id, letters.of(job.priority, job.id), None))
        new.append(f"{descriptor_prefix(home_queue, session.shard_id, job.priority)}{new_id}")
        sent.append(job.id)
    session.remove(sorted(sent))
    return new


def _is_letter(row: Row, link: Row, job: JobKey) -> bool:
    """Only `dead_letter` writes down what the origin was allowed."""
    return row[1] == job.priority and row[2] in (JobState.PENDING, JobState.FAILED) and link[2] is not None


def _home(session: Session, origin: str, known: dict[str, int | None]) -> tuple[str, int] | None:
    """The queue that a letter came from, if it is there; locked against deletion."""
    ref = parse_descriptor(origin)
    if ref is None:
        return None
    if ref.queue not in known:
        rows = session.rows("queue_id_for_enqueue", (ref.queue,))
        known[ref.queue] = rows[0][0] if rows else None
    queue_id = known[ref.queue]
    return None if queue_id is None else (ref.queue, queue_id)


def mark_moved(session: Session, queue: str, moved: Sequence[tuple[ClaimKey, str]], now_ms: int) -> list[bool]:
    rows = claims_standing(session, queue, [claim for claim, _ in moved])
    done: list[bool] = []
    ids: list[int] = []
    for claim, descriptor in moved:
        row = rows.get(claim.id)
        done.append(row is not None and (row[1], row[4]) == (claim.priority, claim.claim_descriptor))
        if done[-1]:
            del rows[claim.id]
            session.run("put_moved_to", (claim.id, descriptor))
            ids.append(claim.id)
    session.run_of("succeed", (now_ms, now_ms), sorted(ids))
    return done


LEFTOVERS = ""
QUEUES_PER_STEP = 100


def prune(
    session: Session, limit: int, now_ms: int, retention: PerQueue[Retention], tombstones_before: str
) -> Mapping[str, int]:
    """In bounded numbers; what has been overdue for longest goes first, so that no queue and neither state starves."""
    counts = _collect_ended(session, limit, now_ms, retention)
    leftovers = _collect_leftovers(session, limit)
    if leftovers:
        counts[LEFTOVERS] = leftovers
    if tombstones_before:
        remove_tombstones(session, tombstones_before, limit)
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
            session.run("forget_quota", (queue_id,))
    return removed
