"""The record of a job's attempts that came before its last one, and its log lines, as all stores keep them: packed, and
apart from the job.

The last attempt follows from what the job has itself (its claim, run_after and end), so that a job which succeeds at
once has no record. One is added when a failure or an expiry sends a job back, when a claim that expired ends the job
(the job does not tell that from a failed ack), and when a job that failed is retried.

The record begins with how many attempts were added ever. Redis writes it by itself (lua/_trails.lua).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct

from pinlater.model import (
    MAX_ATTEMPTS_KEPT,
    MAX_LOG_BYTES,
    MAX_LOG_LINES,
    AttemptOutcome,
    JobAttempt,
    JobState,
    LogLine,
    claim_source,
)

TOTAL = Struct(">I")
"""What the record begins with."""

ATTEMPT = Struct(">QQQBB")
"""Eligible at, claimed at, ended at, AttemptOutcome, bytes of the worker; that follows, cut at MAX_WORKER_BYTES."""

ENDS_JOB = 128
"""Is added to the outcome of an attempt with which its job ended."""

MAX_WORKER_BYTES = 128

LINE = Struct(">QIH")
"""Of a log line: its time, the number of its attempt, bytes of its text; that follows."""

_AT_SIZE = ATTEMPT.size - 1
"""Where an entry has the length of its last part."""


def added(
    record: bytes | None, eligible_at_ms: int, claimed_at_ms: int, ended_at_ms: int, outcome: int, claim: str
) -> bytes:
    """The record with one attempt more, and without the first of too many."""
    total, first = 0, TOTAL.size
    if record:
        (total,) = TOTAL.unpack_from(record)
        if total >= MAX_ATTEMPTS_KEPT:
            first += ATTEMPT.size + record[first + _AT_SIZE]
    worker = claim_source(claim).encode()[:MAX_WORKER_BYTES]
    entry = ATTEMPT.pack(max(0, eligible_at_ms), claimed_at_ms, ended_at_ms, outcome, len(worker)) + worker
    return TOTAL.pack(total + 1) + (record or b"")[first:] + entry


def packed_attempts(attempts: Sequence[JobAttempt]) -> bytes:
    """The record that has these attempts, as far as they have ended; b"" where none has."""
    ended = [each for each in attempts if each.outcome is not None]
    if not ended:
        return b""
    entries = [
        ATTEMPT.pack(*each[1:4], each.outcome, len(worker)) + worker
        for each in ended
        for worker in (each.worker.encode()[:MAX_WORKER_BYTES],)
    ]
    return TOTAL.pack(ended[-1].number) + b"".join(entries)


def attempts_of(
    record: bytes | None,
    state: JobState,
    eligible_at_ms: int,
    claimed_at_ms: int | None,
    ended_at_ms: int | None,
    claim: str | None,
    *,
    cancelled: bool,
) -> tuple[JobAttempt, ...]:
    """The attempts that are kept of a job, by its record and by what else it has; `claimed_at_ms` None: no claim."""
    kept: list[JobAttempt] = []
    ended_the_job = None
    total = TOTAL.unpack_from(record)[0] if record else 0
    entries = list(_entries(record or b""))
    for number, (eligible, claimed, ended, code, worker) in enumerate(entries, total - len(entries) + 1):
        kept.append(JobAttempt(number, eligible, claimed, ended, AttemptOutcome(code % ENDS_JOB), worker))
        ended_the_job = kept[-1][1:4] if code >= ENDS_JOB else None
    if claimed_at_ms is not None and ended_the_job != (eligible_at_ms, claimed_at_ms, ended_at_ms):
        outcome = AttemptOutcome.CANCELLED if cancelled else _OUTCOMES.get(state)
        ends_ms = None if outcome is None else ended_at_ms
        kept.append(JobAttempt(total + 1, eligible_at_ms, claimed_at_ms, ends_ms, outcome, claim_source(claim or "")))
    return tuple(kept[1:] if len(kept) == MAX_ATTEMPTS_KEPT + 1 else kept)


_OUTCOMES = {JobState.SUCCEEDED: AttemptOutcome.SUCCEEDED, JobState.FAILED: AttemptOutcome.FAILED}


def _entries(record: bytes) -> Iterator[tuple[int, int, int, int, str]]:
    at = TOTAL.size
    while at < len(record):
        eligible_at_ms, claimed_at_ms, ended_at_ms, code, size = ATTEMPT.unpack_from(record, at)
        at += ATTEMPT.size
        yield eligible_at_ms, claimed_at_ms, ended_at_ms, code, record[at : at + size].decode(errors="ignore")
        at += size


def attempt_of(record: bytes | None) -> int:
    """The number of the attempt that runs."""
    return (TOTAL.unpack_from(record)[0] if record else 0) + 1


def packed_lines(lines: Iterable[LogLine], attempt: int | None = None) -> bytes:
    """`attempt`: the number of all of them; None: each has its own."""
    entries = []
    for line in lines:
        text = line.text.encode()
        entries.append(LINE.pack(line.at_ms, line.attempt if attempt is None else attempt, len(text)) + text)
    return b"".join(entries)


def with_lines(log: bytes | None, attempt: int, lines: Iterable[LogLine]) -> bytes:
    """A log with further lines of an attempt, without those that it has already, and without the first of too many."""
    known = [packed_lines([line]) for line in lines_of(log)]
    for line in lines:
        entry = packed_lines([line], attempt)
        if entry not in known:
            known.append(entry)
    known = known[-MAX_LOG_LINES:]
    size = sum(map(len, known)) - LINE.size * len(known)
    first = 0
    while size > MAX_LOG_BYTES:
        size -= len(known[first]) - LINE.size
        first += 1
    return b"".join(known[first:])


def lines_of(log: bytes | None) -> tuple[LogLine, ...]:
    """The lines of a log."""
    lines, at = [], 0
    while log and at < len(log):
        at_ms, attempt, size = LINE.unpack_from(log, at)
        at += LINE.size
        lines.append(LogLine(log[at : at + size].decode(errors="replace"), at_ms, attempt))
        at += size
    return tuple(lines)


def attempt_to_add(
    record: bytes | None,
    eligible_at_ms: int,
    claimed_at_ms: int,
    ended_at_ms: int,
    claim: str,
    *,
    cancelled: bool,
) -> bytes | None:
    """The record of a job that ended and is retried now, with its last attempt; None where that is in it already."""
    attempts = attempts_of(
        record, JobState.FAILED, eligible_at_ms, claimed_at_ms, ended_at_ms, claim, cancelled=cancelled
    )
    total = TOTAL.unpack_from(record)[0] if record else 0
    last = attempts[-1]
    if last.number == total or last.outcome is None:
        return None
    return added(record, eligible_at_ms, claimed_at_ms, ended_at_ms, last.outcome, claim)
