"""Histories written by hand: a call is a row, and a job is a letter."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pinlater.history.call_events import CallBegin, CallEnd, CallError, Event, Note
from pinlater.history.checker import Verdict, check
from pinlater.model import AckOutcome, CancelOutcome, HeartbeatOutcome, JobState, RescheduleOutcome

QUEUE = "mail"
START_MS = 1_790_000_000_000.0
MINUTE_MS = 60_000


@dataclass(frozen=True)
class Row:
    """One call, by seconds since the start. `end_s` None: it has no end."""

    begin_s: float
    end_s: float | None
    by: str
    method: str
    request: dict[str, Any]
    answer: Any = None
    error: CallError | None = None
    resent: bool = False
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class NoteRow:
    at_s: float
    note: str
    shard: str = ""
    to_s: float | None = None


def job(name: str, *, queue: str = QUEUE, shard: str = "1", priority: int = 1) -> str:
    """The descriptor of a job: the letter stands for its id."""
    return f"{queue}:s{shard}:p{priority}:{1_790_000_000_000_000 + ord(name[0]):016d}"


def events(rows: Iterable[Row | NoteRow]) -> list[Event]:
    """The lines of a history, by their times."""
    timed: list[tuple[float, int, Event]] = []
    for number, row in enumerate(rows, 1):
        if isinstance(row, NoteRow):
            to_ms = None if row.to_s is None else _ms(row.to_s)
            timed.append((row.at_s, 1, Note(row.note, _ms(row.at_s), row.shard, to_ms)))
            continue
        args = row.args or {"request": row.request}
        timed.append((row.begin_s, 0, CallBegin(number, row.by, _ms(row.begin_s), row.method, args)))
        if row.end_s is not None:
            timed.append((row.end_s, 1, CallEnd(number, _ms(row.end_s), row.answer, row.error, row.resent)))
    return [event for _, _, event in sorted(timed, key=lambda each: each[:2])]


def judged(*rows: Row | NoteRow, tolerance_ms: float = 0.0) -> Verdict:
    return check(events(rows), tolerance_ms=tolerance_ms)


def _ms(seconds: float) -> float:
    return START_MS + seconds * 1000


def ms(seconds: float) -> int:
    """A time of the wire."""
    return int(_ms(seconds))


UNKNOWN = CallError("OutcomeUnknown", "OUTCOME_UNKNOWN", "unknown")
INVALID = CallError("RequestInvalid", "REQUEST_INVALID", "nothing")


def enqueue(
    at_s: float,
    name: str,
    *,
    took_s: float = 0.1,
    outcome: int | None = None,
    error: CallError | None = None,
    queue: str = QUEUE,
    shard: str = "1",
    resent: bool = False,
    **fields: Any,
) -> Row:
    """A job is stored. `fields`: those of the wire."""
    descriptor = job(name, queue=queue, shard=shard, priority=fields.get("priority", 1))
    answer: dict[str, Any] = {"jobDescriptors": [descriptor]}
    if outcome is not None:
        answer["outcomes"] = [outcome]
    request = {"queueName": queue, "jobs": [{"body": "", **fields}]}
    if error is not None:
        return Row(at_s, at_s + took_s, "producer", "enqueueJobs", request, None, error)
    return Row(at_s, at_s + took_s, "producer", "enqueueJobs", request, answer, None, resent)


def enqueue_lost(at_s: float, **fields: Any) -> Row:
    """An enqueue whose outcome nobody knows."""
    request = {"queueName": QUEUE, "jobs": [{"body": "", **fields}]}
    return Row(at_s, at_s + 0.1, "producer", "enqueueJobs", request, None, UNKNOWN)


def claim(
    at_s: float,
    *names: str,
    by: str = "worker",
    claim: str = "",
    left: int = 2,
    until_s: float | None = None,
    took_s: float = 0.1,
    run_after_s: float | None = None,
    body: str = "",
    shard: str = "1",
    **fields: Any,
) -> Row:
    """A dequeue hands out jobs, under a claim that is named by its time; until five minutes later."""
    until_ms = ms(at_s + took_s / 2 + 300 if until_s is None else until_s)
    metadata: dict[str, Any] = {
        "attemptsAllowed": 2,
        "attemptsRemaining": left,
        "claimDescriptor": claim or claimed_at(at_s, by),
        "claimExpiresAtMillis": until_ms,
    }
    if run_after_s is not None:
        metadata["runAfterMillis"] = ms(run_after_s)
    jobs = [job(name, shard=shard) for name in names]
    answer = {"jobs": dict.fromkeys(jobs, body), "jobMetadata": dict.fromkeys(jobs, metadata)}
    request = {"queueName": QUEUE, "limit": 5, **fields}
    return Row(at_s, at_s + took_s, by, "dequeueJobs", request, answer)


def claimed_at(at_s: float, by: str = "worker") -> str:
    """The claim descriptor of the dequeue of that time."""
    return f"server:1:0:{at_s:g}:{by}"


def dequeue_lost(at_s: float) -> Row:
    """A dequeue that was never answered."""
    return Row(at_s, None, "lost worker", "dequeueJobs", {"queueName": QUEUE, "limit": 5})


def ack(
    at_s: float,
    name: str,
    claim: str = "",
    outcome: AckOutcome | None = AckOutcome.SUCCEEDED,
    *,
    failed: bool = False,
    took_s: float | None = 0.1,
    error: CallError | None = None,
    resent: bool = False,
    shard: str = "1",
    **fields: Any,
) -> Row:
    """An ack of one job; `took_s` None: it has no end."""
    named: dict[str, Any] = {"jobDescriptor": job(name, shard=shard), **fields}
    if claim:
        named["claimDescriptor"] = claim
    request = {"queueName": QUEUE, "jobsFailed" if failed else "jobsSucceeded": [named]}
    answer = None if outcome is None or error is not None else {"outcomes": [int(outcome)]}
    end_s = None if took_s is None else at_s + took_s
    return Row(at_s, end_s, "worker", "ackJobs", request, answer, error, resent)


def look(
    at_s: float,
    name: str,
    state: JobState | None,
    *,
    took_s: float = 0.1,
    shard: str = "1",
    queue: str = QUEUE,
    priority: int = 1,
    with_result: bool = True,
    **info: Any,
) -> Row:
    """A lookup of one job; None: it is not there."""
    descriptor = job(name, queue=queue, shard=shard, priority=priority)
    request = {"jobDescriptors": [descriptor], "includeResult": with_result, "includeBody": True}
    found: dict[str, Any] = {}
    if state is not None:
        found[descriptor] = {
            "jobDescriptor": descriptor,
            "jobState": int(state),
            "attemptsAllowed": 2,
            "customStatus": "",
            "createdAtTimestampMillis": ms(0),
            **info,
        }
    return Row(at_s, at_s + took_s, "reader", "lookupJobs", request, found)


def look_by_key(at_s: float, name: str, key: str) -> Row:
    """A lookup by a dedupe key, and the pending job that it finds."""
    info = {"jobDescriptor": job(name), "jobState": int(JobState.PENDING), "dedupeKey": key}
    request = {"jobDescriptors": [], "keys": [{"dedupeKey": key}], "queueName": QUEUE}
    return Row(at_s, at_s + 0.1, "reader", "lookupJobs", request, {job(name): info})


def cancel(at_s: float, name: str, outcome: CancelOutcome, *, running: bool = False, took_s: float = 0.1) -> Row:
    request = {"queueName": QUEUE, "jobDescriptors": [job(name)], "mode": int(running)}
    return Row(at_s, at_s + took_s, "operator", "cancelJobs", request, {"outcomes": {job(name): int(outcome)}})


def heartbeat(at_s: float, name: str, claim: str, outcome: HeartbeatOutcome, *, took_s: float = 0.1) -> Row:
    request = {"queueName": QUEUE, "heartbeats": [{"jobDescriptor": job(name), "claimDescriptor": claim}]}
    return Row(at_s, at_s + took_s, "worker", "heartbeatJobs", request, {"outcomes": [int(outcome)]})


def checkpoint(at_s: float, name: str, claim: str, **fields: Any) -> Row:
    named = {"jobDescriptor": job(name), "claimDescriptor": claim, **fields}
    return Row(at_s, at_s + 0.1, "worker", "checkpointJobs", {"queueName": QUEUE, "requests": [named]})


def reschedule(at_s: float, name: str, outcome: RescheduleOutcome, **fields: Any) -> Row:
    request = {"queueName": QUEUE, "jobs": [{"jobDescriptor": job(name), **fields}]}
    return Row(at_s, at_s + 0.1, "operator", "rescheduleJobs", request, {"outcomes": [int(outcome)]})


def queue_settings(at_s: float, **settings: str) -> Row:
    """An answer of getQueues."""
    shown = {key: {"value": value, "source": "server"} for key, value in settings.items()}
    view = {"name": QUEUE, "version": "1", "settings": shown}
    return Row(at_s, at_s + 0.1, "operator", "getQueues", {}, {"queues": [view]})


def set_queue(at_s: float, **settings: str) -> Row:
    request = {"queueName": QUEUE, "settings": settings}
    return Row(at_s, at_s + 0.1, "operator", "updateQueue", request, {"version": "2", "missedShards": []})


def end(at_s: float) -> NoteRow:
    return NoteRow(at_s, "end")
