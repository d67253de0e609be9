"""The limits of jobs at a server, and the treatment of values that classic clients send."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from pinlater.errors import BodyTooLarge, PriorityNotSupported, QueueNotFound, RequestInvalid
from pinlater.model import MAX_STATUS_CHARS, MAX_TIME_MS, Checkpoint, Job, is_queue_name

MAX_INT32 = 2**31 - 1
PRIORITY_LEVELS = 3
MAX_BODY_BYTES = 1024 * 1024
MAX_JOBS = 10_000
"""What a server takes that is not told otherwise."""

_TIME = f"0 to {MAX_TIME_MS}"


class QueueJobLimits(Protocol):
    """Those of one queue, among its settings. `max_attempts` None: none."""

    @property
    def max_body_bytes(self) -> int: ...

    @property
    def max_attempts(self) -> int | None: ...


class JobLimits:
    """Those of a server. Priorities are 1 (highest) to `priority_levels`; a call has at most `max_jobs`."""

    def __init__(
        self,
        priority_levels: int = PRIORITY_LEVELS,
        max_body_bytes: int = MAX_BODY_BYTES,
        max_jobs: int = MAX_JOBS,
    ) -> None:
        self.priority_levels = priority_levels
        self.max_body_bytes = max_body_bytes
        self.max_jobs = max_jobs

    def amount(self, field: str, items: Sequence[object]) -> None:
        """A list within its bound."""
        if len(items) > self.max_jobs:
            raise RequestInvalid.of(f"the length of {field}", len(items), f"at most {self.max_jobs}")

    def priority(self, priority: int) -> None:
        levels = self.priority_levels
        if not 1 <= priority <= levels:
            raise PriorityNotSupported(f"priority {priority} is not supported; allowed: 1 (highest) to {levels}")

    def body(self, body: bytes, of_queue: int) -> None:
        """BodyTooLarge, beyond the queue's bound or the server's."""
        bound = min(self.max_body_bytes, of_queue)
        if len(body) > bound:
            raise BodyTooLarge(f"a body has {len(body)} bytes; allowed: at most {bound} ({self._raised_by(of_queue)})")

    def _raised_by(self, of_queue: int) -> str:
        """Which setting is the bound of bodies, and how far it goes."""
        if of_queue < self.max_body_bytes:
            return f"max_body of the queue, which goes up to {self.max_body_bytes}, the --max-body of the server"
        return "--max-body of the server, which goes up to half of its --max-frame"

    def enqueue(
        self, queue: str, jobs: Sequence[Job], now_ms: int, queue_limits: QueueJobLimits
    ) -> tuple[Sequence[Job], list[int]]:
        """Jobs fit to be stored in a queue, and the run_after times among them that lie in the future. QueueNotFound
        for what cannot be a queue's name.

        What clients of the classic server send for "at once" and "one attempt" (0, or less) counts as that.
        """
        if len(jobs) > self.max_jobs:
            self.amount("jobs", jobs)
        levels = self.priority_levels
        max_bytes = min(self.max_body_bytes, queue_limits.max_body_bytes)
        max_attempts = queue_limits.max_attempts or MAX_INT32
        later: list[int] = []
        is_lenient = False
        for job in jobs:
            if len(job.body) > max_bytes:
                self.body(job.body, max_bytes)
            if not 1 <= job.priority <= levels:
                self.priority(job.priority)
            if not 1 <= job.attempts_allowed <= max_attempts:
                attempts("numAttemptsAllowed", job.attempts_allowed, max_attempts)
                is_lenient = True
            run_after_ms = job.run_after_ms
            if run_after_ms is not None:
                if not 0 < run_after_ms <= MAX_TIME_MS:
                    run_at("runAfterTimestampMillis", run_after_ms)
                    is_lenient = True
                if run_after_ms > now_ms:
                    later.append(run_after_ms)
            if len(job.custom_status) > MAX_STATUS_CHARS:
                is_lenient = True
        if not is_queue_name(queue):
            raise QueueNotFound.of(queue[:100])
        return [_as_meant(job) for job in jobs] if is_lenient else jobs, later

    def checkpoint(self, each: Checkpoint, queue: QueueJobLimits) -> Checkpoint:
        """A checkpoint fit to be carried out for a job of that queue."""
        if each.new_body is not None:
            self.body(each.new_body, queue.max_body_bytes)
        run_after_ms = run_at("runAfterTimestampMillis", each.run_after_ms)
        allowed = each.attempts_allowed
        if allowed is not None:
            allowed = attempts("numOfAttemptsAllowed", allowed, queue.max_attempts)
        if run_after_ms == each.run_after_ms and allowed == each.attempts_allowed:
            return each
        return replace(each, run_after_ms=run_after_ms, attempts_allowed=allowed)


def _as_meant(job: Job) -> Job:
    run_after_ms = job.run_after_ms
    return replace(
        job,
        run_after_ms=None if run_after_ms is None or run_after_ms <= 0 else run_after_ms,
        attempts_allowed=max(job.attempts_allowed, 1),
        custom_status=job.custom_status[:MAX_STATUS_CHARS],
    )


def time(field: str, value_ms: int) -> None:
    if not 0 <= value_ms <= MAX_TIME_MS:
        raise RequestInvalid.of(field, value_ms, _TIME)


def run_at(field: str, value_ms: int | None) -> int | None:
    """When a job may run; None is now. So is 0, or less: clients that fill every field send that."""
    if value_ms is None or value_ms <= 0:
        return None
    time(field, value_ms)
    return value_ms


def attempts(field: str, value: int, most: int | None = None) -> int:
    """How many attempts a job gets. 0, or less, counts as one, which is what the classic server on Redis made of it.

    `most`: that of the queue, where it has one.
    """
    most = most or MAX_INT32
    if value > most:
        raise RequestInvalid.of(field, value, f"1 to {most}")
    return max(value, 1)
