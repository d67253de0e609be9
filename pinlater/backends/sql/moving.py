"""Where jobs are copied to other queues: dead letters, and their way back; and where a job points to its copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pinlater.backends.base import ClaimKey, DeadLetterTarget, JobKey, buried_status
from pinlater.backends.sql.acking import claims_standing
from pinlater.backends.sql.operating import jobs_named
from pinlater.backends.sql.rows import Descriptors, how_many_fit
from pinlater.backends.sql.session import Row, Session
from pinlater.backends.sql.storing import first_new_id
from pinlater.model import JobState, descriptor_prefix, parse_descriptor

BYTES_PER_STEP = 32 << 20
"""Bodies are copied inside the store; this bounds the transaction."""

BODY_BYTES = 5
"""Where a row of `marked` has the size of the body."""


def dead_letter(session: Session, limit: int, now_ms: int, targets: Mapping[str, DeadLetterTarget]) -> dict[str, int]:
    """Of the queues that have marks and a grave that is there, one after the other."""
    counts: dict[str, int] = {}
    if not targets:
        return counts
    for queue_id, name in session.rows("queues_with_marks", (session.bound_texts(sorted(targets)),)):
        grave = targets[name]
        target = session.rows("queue_id_for_enqueue", (grave.queue,))
        rows = session.rows("marked", (queue_id, limit)) if target and limit > 0 else []
        rows = rows[: how_many_fit((row[BODY_BYTES] for row in rows), BYTES_PER_STEP)]
        if rows:
            _bury(session, rows, name, grave, target[0][0], now_ms)
            counts[name] = len(rows)
            limit -= len(rows)
    return counts


def _bury(
    session: Session, rows: Sequence[Row], queue: str, grave: DeadLetterTarget, target_id: int, now_ms: int
) -> None:
    first_id = first_new_id(session, len(rows), now_ms)
    origins, copies = Descriptors(queue, session.shard_id), Descriptors(grave.queue, session.shard_id)
    for copy_id, (job_id, priority, allowed, crashes, created_at_ms, _) in enumerate(rows, first_id):
        origin = origins.of(priority, job_id)
        history = buried_status(origin, created_at_ms, allowed, crashes, now_ms)
        _copy(session, job_id, copy_id, target_id, grave.attempts_allowed, history, now_ms)
        session.run("put_origin", (copy_id, origin, allowed))
        session.run("put_moved_to", (job_id, copies.of(priority, copy_id)))
    session.run_of("unmark", (now_ms,), sorted(row[0] for row in rows))


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
