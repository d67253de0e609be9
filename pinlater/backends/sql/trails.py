"""The trails of jobs in an SQL store: the attempts before the last, and the log lines, in the row of a job's links."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pinlater.backends.base import JobKey
from pinlater.backends.extended import HeartbeatRequest
from pinlater.backends.packed_trails import (
    added,
    attempt_of,
    attempt_to_add,
    attempts_of,
    lines_of,
    packed_attempts,
    packed_lines,
    with_lines,
)
from pinlater.backends.sql.records import CANCELLED, STATE_SHOWN, TRAIL
from pinlater.backends.sql.session import Row, Session
from pinlater.model import JobTrail

ID, STATE, ELIGIBLE_AT, CLAIMED_AT, FINISHED_AT, CLAIM, RECORD = range(len(TRAIL))
PRIORITY, LOG = len(TRAIL), len(TRAIL) + 1


def keep_attempts(session: Session, ending: Mapping[int, int], now_ms: int) -> None:
    """Add the attempts of these jobs, which end now with these outcomes, while their rows still have their claims."""
    rows = session.rows_of("trails", (), sorted(ending))
    records = [
        (row[ID], added(row[RECORD], row[ELIGIBLE_AT], row[CLAIMED_AT], now_ms, ending[row[ID]], row[CLAIM]))
        for row in rows
        if row[CLAIMED_AT] is not None  # else there is no attempt that ends
    ]
    session.put("put_attempts", records)


def keep_last_attempts(session: Session, ids: Iterable[int]) -> None:
    """Add the last attempts of these jobs, which ended and are retried now, where they had one."""
    records = []
    for row in session.rows_of("trails", (), sorted(ids)):
        if row[CLAIMED_AT] is None:
            continue
        record = attempt_to_add(
            *(row[RECORD], row[ELIGIBLE_AT], row[CLAIMED_AT], row[FINISHED_AT], row[CLAIM]),
            cancelled=row[STATE] == CANCELLED,
        )
        if record is not None:
            records.append((row[ID], record))
    session.put("put_attempts", records)


def add_log_lines(session: Session, heartbeats: Sequence[HeartbeatRequest]) -> None:
    """Add to the logs of these jobs, which are locked, what their heartbeats say."""
    logs = {row[0]: row[1:] for row in session.rows_of("logs", (), sorted({each.id for each in heartbeats}))}
    for each in heartbeats:
        record, log = logs.get(each.id, (None, None))
        logs[each.id] = (record, with_lines(log, attempt_of(record), each.log_lines))
    session.put("put_log_lines", [(job_id, log) for job_id, (_, log) in sorted(logs.items())])


def read_trails(session: Session, queue: str, jobs: Sequence[JobKey]) -> list[JobTrail | None]:
    session.snapshot()
    found = _found(session, queue, jobs)
    return [_trail(row) if (row := found.get(job.id)) and row[PRIORITY] == job.priority else None for job in jobs]


def _found(session: Session, queue: str, jobs: Iterable[JobKey]) -> dict[int, Row]:
    return {row[ID]: row for row in session.rows_of("trails_of", (queue,), sorted({job.id for job in jobs}))}


def _trail(row: Row) -> JobTrail:
    attempts = attempts_of(
        row[RECORD],
        STATE_SHOWN[row[STATE]],
        *(row[ELIGIBLE_AT], row[CLAIMED_AT], row[FINISHED_AT], row[CLAIM]),
        cancelled=row[STATE] == CANCELLED,
    )
    return JobTrail(attempts, lines_of(row[LOG]))


def put_trails(session: Session, queue: str, given: Sequence[tuple[JobKey, JobTrail]]) -> list[bool]:
    found = _found(session, queue, [job for job, _ in given])
    records: list[Row] = []
    logs: list[Row] = []
    put = []
    for job, trail in given:
        row = found.get(job.id)
        fits = row is not None and row[PRIORITY] == job.priority and row[RECORD] is row[LOG] is None
        put.append(fits)
        if fits:
            records.append((job.id, packed_attempts(trail.attempts)))
            logs.append((job.id, packed_lines(trail.log)))
    session.put("put_attempts", records)
    session.put("put_log_lines", logs)
    return put
