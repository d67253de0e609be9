"""The operations of operators and maintenance on jobs: retry, delete, cancel, reschedule, prune."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pinlater.backends.base import JobKey, PerQueue, Retention
from pinlater.backends.extended import RescheduleRequest
from pinlater.backends.sql.attempts import jobs_named, remove
from pinlater.backends.sql.chains import Freed
from pinlater.backends.sql.coordination import remove_tombstones
from pinlater.backends.sql.dead_letters import letters_of
from pinlater.backends.sql.extensions import Extension, extend, extensions, on_entries, set_extended
from pinlater.backends.sql.group_lines import forget as forget_turns
from pinlater.backends.sql.group_lines import put_back
from pinlater.backends.sql.group_permits import forget as forget_permits
from pinlater.backends.sql.held_references import RESULT, release, replace_body
from pinlater.backends.sql.job_ends import End, Stays
from pinlater.backends.sql.key_entries import remove_entries_over
from pinlater.backends.sql.keyed_jobs import Returning, queue_by_homes, take_keys
from pinlater.backends.sql.ready_jobs import first_new_id
from pinlater.backends.sql.records import (
    EXPIRES,
    HAS_ENTRY,
    IN_CHAIN,
    IN_LINE,
    REPLAYED,
    SHOWN,
    STATE_SHOWN,
    STATES_OF,
    STOPPING,
    WAITING,
)
from pinlater.backends.sql.session import Row, Session
from pinlater.backends.sql.successors import stop_requests
from pinlater.backends.sql.trails import keep_last_attempts
from pinlater.model import CancelOutcome, JobState, RescheduleOutcome

_CANCEL_OUTCOMES = {
    JobState.PENDING: CancelOutcome.CANCELLED,
    JobState.IN_PROGRESS: CancelOutcome.IN_PROGRESS,
    JobState.SUCCEEDED: CancelOutcome.ENDED,
    JobState.FAILED: CancelOutcome.ENDED,
}


def retry_failed(
    session: Session,
    freed: Freed,
    queue: str,
    priority: int,
    attempts: int,
    run_after_ms: int | None,
    limit: int,
    now_ms: int,
) -> int:
    queue_id = session.queue_id(queue)
    count, tried = 0, set[int]()
    while count < limit and len(tried) - count < MOST_PASSED_OVER:
        wanted = limit - count + len(tried) - count  # what stays is in front
        found = session.rows("oldest", (queue_id, int(JobState.FAILED), priority, wanted))
        rows = [(job_id, priority, flags) for job_id, flags in found if job_id not in tried]
        tried |= {row[0] for row in rows}
        count += _retry(session, freed, queue_id, rows, attempts, run_after_ms, now_ms)
        if len(found) < wanted:
            break
    return count


MOST_PASSED_OVER = 1_000
"""Jobs that stay, since their key has another live job or for their dead letters, which one call passes over."""


def retry_listed(
    session: Session,
    freed: Freed,
    queue: str,
    jobs: Sequence[JobKey],
    attempts: int | None,
    run_after_ms: int | None,
    now_ms: int,
    homes_version: str = "",
) -> int:
    queue_id, rows = queue_by_homes(session, queue, homes_version), _listed(session, queue, JobState.FAILED, jobs)
    rows = [(row[0], row[1], row[3]) for row in rows if row[2] != REPLAYED]
    return _retry(session, freed, queue_id, rows, attempts, run_after_ms, now_ms)


COUNTS_AGAIN = HAS_ENTRY | IN_CHAIN | EXPIRES
"""What a job that comes back has again. Of a dead letter the keys are only to be seen."""


def _retry(
    session: Session,
    freed: Freed,
    queue_id: int,
    rows: Sequence[Row],
    attempts: int | None,
    run_after_ms: int | None,
    now_ms: int,
) -> int:
    """Rows of (id, priority, extended). Extended jobs need their keys again, and may have to wait."""
    letters = letters_of(session, [row[0] for row in rows])
    if letters.held:
        rows = [row for row in rows if row[0] not in letters.held]
    ids = [job_id for job_id, _, flags in rows if not flags]
    flags_of = {job_id: flags for job_id, _, flags in rows if flags}
    states: dict[int, int] = {}
    if flags_of:
        first_place = first_new_id(session, len(flags_of), now_ms)
        known = extensions(session, [job_id for job_id, flags in flags_of.items() if flags & COUNTS_AGAIN])
        returning = [
            Returning(job_id, queue_id, priority, known.get(job_id, Extension(job_id)))
            for job_id, priority, flags in rows
            if flags
        ]
        states = take_keys(session, returning, first_place, now_ms)
        sent = [known[job_id] for job_id in states if job_id in known and known[job_id].keys.send_id]
        on_entries(session, "forget_send_ids", (now_ms,), sent)
        on_entries(session, "revive_send_ids", (), sent)
        stopped = sorted(job_id for job_id in states if flags_of[job_id] & STOPPING)
        if stopped:
            session.run_of("forget_stop", (), stopped)
            session.run_of("remove_cancelled", (), stopped)
            set_extended(session, {job_id: flags_of[job_id] & ~STOPPING | SHOWN for job_id in stopped})
    ids = sorted([*ids, *states])
    remove(session, [letters.going[job_id] for job_id in ids if job_id in letters.going], now_ms, freed)
    keep_last_attempts(session, ids)
    session.run_of("clear_moved_to", (), ids)
    count = session.run_of("retry_failed", (attempts, now_ms if run_after_ms is None else run_after_ms, now_ms), ids)
    session.run_of("hold_back", (), sorted(job_id for job_id, state in states.items() if state == WAITING))
    return count


def delete_jobs(
    session: Session, freed: Freed, queue: str, state: JobState, priority: int, limit: int, now_ms: int
) -> int:
    queue_id, rules_version = session.queue_with_groups(queue)
    ends: list[End] = []
    for each in STATES_OF[state]:
        if limit > len(ends) and (each != IN_LINE or rules_version is not None):
            rows = session.rows("oldest", (queue_id, each, priority, limit - len(ends)))
            ends += [End.of(job_id, flags, each) for job_id, flags in rows]
    return _delete(session, ends, now_ms, freed)


def _delete(session: Session, ends: Sequence[End], now_ms: int, freed: Freed) -> int:
    ended = sorted(each.job_id for each in ends if not each.is_live)
    release(session, ended, RESULT)
    session.run_of("remove_results", (), ended)
    return remove(session, ends, now_ms, freed)


def delete_listed(
    session: Session, freed: Freed, queue: str, state: JobState, jobs: Sequence[JobKey], now_ms: int
) -> int:
    session.queue_id(queue)
    rows = _listed(session, queue, state, jobs)
    return _delete(session, [End.of(row[0], row[3], row[2]) for row in rows], now_ms, freed)


def _listed(session: Session, queue: str, state: JobState, jobs: Sequence[JobKey]) -> list[Row]:
    """The rows of these jobs that are in that state, in the order of their ids, locked."""
    rows = jobs_named(session, queue, jobs)
    found = {
        job.id: row
        for job in jobs
        if (row := rows.get(job.id)) is not None and row[1] == job.priority and row[2] in STATES_OF[state]
    }
    return [found[job_id] for job_id in sorted(found)]


def cancel(
    session: Session, freed: Freed, queue: str, jobs: Sequence[JobKey], now_ms: int, by: str = ""
) -> list[CancelOutcome]:
    rows = jobs_named(session, queue, jobs)
    outcomes: list[CancelOutcome] = []
    cancelled: list[End] = []
    requested: dict[int, int] = {}
    for job in jobs:
        row = rows.get(job.id)
        if row is None or row[1] != job.priority:
            outcomes.append(CancelOutcome.NOT_FOUND)
            continue
        outcome = _CANCEL_OUTCOMES[STATE_SHOWN[row[2]]]
        if outcome is CancelOutcome.CANCELLED:
            cancelled.append(End.of(job.id, row[3], row[2]))
            del rows[job.id]
        if outcome is CancelOutcome.IN_PROGRESS and by:
            outcome = CancelOutcome.REQUESTED
            requested[job.id] = row[3] or 0
        outcomes.append(outcome)
    stopping = [job_id for job_id, flags in requested.items() if flags & STOPPING]
    for job_id in stop_requests(session, stopping) if stopping else ():
        del requested[job_id]
    remove(session, cancelled, now_ms, freed)
    session.put("stop", [(job_id, by) for job_id in sorted(requested)])
    extend(session, requested, STOPPING)
    return outcomes


def reschedule(
    session: Session, queue: str, requests: Sequence[RescheduleRequest], now_ms: int
) -> list[RescheduleOutcome]:
    """See JobStore.reschedule. Requests for the same change go in one statement."""
    rows = {row[0]: row for row in session.rows_of("reschedulable", (queue,), sorted({each.id for each in requests}))}
    updated = {job_id: row[3] for job_id, row in rows.items()}
    outcomes: list[RescheduleOutcome] = []
    changes: dict[tuple[int | None, int | None], list[int]] = {}
    changed: set[int] = set()
    moved: set[int] = set()
    for each in requests:
        row = rows.get(each.id)
        if row is None or row[1] != each.priority:
            outcomes.append(RescheduleOutcome.NOT_FOUND)
            continue
        outcome = _RESCHEDULE_OUTCOMES[STATE_SHOWN[row[2]]]
        if outcome is RescheduleOutcome.RESCHEDULED and each.only_if_updated_at_ms not in (None, updated[each.id]):
            outcome = RescheduleOutcome.CHANGED
        outcomes.append(outcome)
        if outcome is not RescheduleOutcome.RESCHEDULED:
            continue
        if each.id in changed:
            _carry_out_changes(session, changes, now_ms)
        changed.add(each.id)
        if row[2] == IN_LINE and each.run_after_ms is not None:
            moved.add(each.id)
        changes.setdefault((each.run_after_ms, each.attempts_allowed), []).append(each.id)
        if each.body is not None:
            rows[each.id] = (*row[:4], replace_body(session, each.id, row[4] or 0, each.body))
        updated[each.id] = now_ms
    _carry_out_changes(session, changes, now_ms)
    put_back(session, sorted(moved))
    return outcomes


def _carry_out_changes(session: Session, changes: dict[tuple[int | None, int | None], list[int]], now_ms: int) -> None:
    for (run_after_ms, attempts), ids in changes.items():
        session.run_of("reschedule", (run_after_ms, attempts, attempts, now_ms), sorted(ids))
    changes.clear()


_RESCHEDULE_OUTCOMES = {
    JobState.PENDING: RescheduleOutcome.RESCHEDULED,
    JobState.IN_PROGRESS: RescheduleOutcome.IN_PROGRESS,
    JobState.SUCCEEDED: RescheduleOutcome.ENDED,
    JobState.FAILED: RescheduleOutcome.ENDED,
}


LEFTOVERS = ""
QUEUES_PER_STEP = 100


def prune(
    session: Session,
    freed: Freed,
    limit: int,
    now_ms: int,
    retention: PerQueue[Retention],
    *,
    tombstones_before: str = "",
) -> Mapping[str, int]:
    """See JobStore.prune. What has been overdue for longest goes first, so that no queue and neither state starves."""
    counts = _collect_ended(session, limit, now_ms, retention, freed)
    leftovers = _collect_leftovers(session, limit, now_ms, freed)
    remove_entries_over(session, limit, now_ms)
    if leftovers:
        counts[LEFTOVERS] = leftovers
    if tombstones_before:
        remove_tombstones(session, tombstones_before, limit)
    return counts


def _collect_ended(
    session: Session, limit: int, now_ms: int, retention: PerQueue[Retention], freed: Freed
) -> Counter[str]:
    """The queues are compared by the first job of each that ended, so one with millions costs as little as one."""
    overdue: list[tuple[int, str, int, int, str]] = []
    for queue_id, name, succeeded_ms, failed_ms, cancelled_ms in session.rows("oldest_ended"):
        kept = retention.get(name)
        for statement, oldest_ms, ttl_ms in (
            ("succeeded_before", succeeded_ms, kept.succeeded_ms),
            ("failed_before", failed_ms, kept.failed_ms),
            ("cancelled_before", cancelled_ms, kept.failed_ms),
        ):
            if oldest_ms is not None and oldest_ms + ttl_ms < now_ms:
                overdue.append((oldest_ms + ttl_ms, statement, queue_id, now_ms - ttl_ms, name))
    counts: Counter[str] = Counter()
    ends: list[End] = []
    for _, statement, queue_id, before_ms, name in sorted(overdue)[:QUEUES_PER_STEP]:
        if len(ends) >= limit:
            break
        found = session.rows(statement, (queue_id, before_ms, limit - len(ends)))
        if found:
            counts[name] += len(found)
            ends += [End(job_id, flags or 0, False) for job_id, flags in found]
    remove(session, ends, now_ms, freed, Stays.WINDOWS)
    return counts


def _collect_leftovers(session: Session, limit: int, now_ms: int, freed: Freed) -> int:
    """A deleted queue is forgotten only when a look behind its last job finds none. What holds up jobs of other queues
    goes first.
    """
    removed = 0
    for (queue_id,) in session.rows("deleted_queues", (QUEUES_PER_STEP,)):
        if removed >= limit:
            break
        removed += _remove_leftovers(session, _first_leftovers(session, queue_id, limit - removed), now_ms, freed)
        rows = session.rows("leftovers", (queue_id, limit - removed)) if removed < limit else []
        removed += _remove_leftovers(session, rows, now_ms, freed)
        names = [bytes(name) for (name,) in session.rows("keys_of_queue", (queue_id, limit))]
        session.run_in("remove_keys", (queue_id,), names)
        if (
            removed < limit
            and len(names) < limit
            and forget_turns(session, queue_id, limit)
            and forget_permits(session, queue_id, limit)
            and session.run("forget_queue", (queue_id, queue_id))
        ):
            session.run("forget_quota", (queue_id,))
    return removed


def _remove_leftovers(session: Session, rows: Sequence[Row], now_ms: int, freed: Freed) -> int:
    return remove(session, [End.of(job_id, flags, state) for job_id, flags, state in rows], now_ms, freed)


def _first_leftovers(session: Session, queue_id: int, limit: int) -> list[Row]:
    """The jobs of a deleted queue that are the first of serialize keys, and those that would become it."""
    heads = session.rows("chains_of_queue", (queue_id, limit))
    if not heads:
        return []
    keys = [bytes(key) for _, key in heads]
    waiting = session.rows_in("waiting_of_queue", (queue_id,), keys, limit)
    ids = sorted([row[0] for row in heads] + [job_id for (job_id,) in waiting])
    return session.rows_of("leftovers_of", (queue_id,), ids[:limit])
