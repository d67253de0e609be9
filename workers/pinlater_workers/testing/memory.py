"""The jobs of a test: what a server would keep of each, its history, and the order in which they run."""

from __future__ import annotations

import heapq
import math
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pinlater.job_limits import JobLimits
from pinlater.model import Checkpoint, DequeuedJob, Job, JobState
from pinlater.model.status_text import append_at, append_status, prepend_status
from pinlater_workers.envelope import read_envelope
from pinlater_workers.jobs.attempt_record import AttemptRecord, worker_name
from pinlater_workers.jobs.batch import BatchContext
from pinlater_workers.jobs.context import JobContext, refuse_on_loop
from pinlater_workers.jobs.outcome import Action, Outcome
from pinlater_workers.middleware import Middleware


class UnlimitedQueue(NamedTuple):
    """The limits of a queue for which nothing is set: those of the server."""

    max_body_bytes: int = sys.maxsize
    max_attempts: int | None = None


SERVER_LIMITS = JobLimits()
QUEUE_LIMITS = UnlimitedQueue()


class VirtualClock:
    """A clock that only jumps; it starts with the time of this machine."""

    uncertainty_ms = 0

    def __init__(self) -> None:
        self._now_ms = time.time_ns() // 1_000_000

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, seconds: float) -> None:
        self._now_ms += math.ceil(seconds * 1000)

    def advance_to(self, at_ms: int) -> None:
        self._now_ms = max(self._now_ms, at_ms)


@dataclass(eq=False)
class Run:
    """A job that was enqueued, and what became of it so far.

    `number`: 1 for the first job of the test. `times`: how often it was run; `delays_s`: how long it stayed away after
    each of these, but for the last. `attempts` of them were spent: all but snoozes and reschedulings. `status`: the
    job's custom status, as a server keeps it; `statuses`: its parts in the order they were written. `checkpoints`: the
    bodies that it stored. `errors`: what was raised, Snooze and the like included; `result`: what it returned at last.
    `enqueued`: the jobs that it enqueued.
    """

    number: int
    descriptor: str
    queue: str
    job: str
    body: bytes
    priority: int
    attempts_allowed: int
    attempts_remaining: int
    enqueued_at_ms: int
    run_after_ms: int
    state: JobState = JobState.PENDING
    times: int = 0
    attempts: int = 0
    snoozes: int = 0
    reschedules: int = 0
    delays_s: list[float] = field(default_factory=list)
    status: str = ""
    statuses: list[str] = field(default_factory=list)
    checkpoints: list[bytes] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    result: Any = None
    enqueued: list[Run] = field(default_factory=list)

    @classmethod
    def of(cls, job: Job, name: str, queue: str, number: int, now_ms: int) -> Run:
        run_after_ms = now_ms if job.run_after_ms is None else job.run_after_ms
        left = job.attempts_allowed
        descriptor = f"{queue}:memory:{number}"
        return cls(number, descriptor, queue, name, job.body, job.priority, left, left, now_ms, run_after_ms)

    @property
    def headers(self) -> dict[str, str]:
        """What travels with it."""
        envelope = read_envelope(self.body)
        return {} if envelope is None else envelope.headers

    def claim(self) -> DequeuedJob:
        self.state = JobState.IN_PROGRESS
        self.times += 1
        return DequeuedJob(
            self.descriptor,
            self.body,
            self.priority,
            self.attempts_allowed,
            self.attempts_remaining,
            self.run_after_ms,
            self.enqueued_at_ms,
            claim_descriptor=f"{self.descriptor}:{self.times}",
        )

    def save(self, checkpoint: Checkpoint) -> None:
        if checkpoint.new_body is not None:
            self.body = checkpoint.new_body
            self.checkpoints.append(checkpoint.new_body)
        self._note(checkpoint.prepend_status, in_front=True)

    def end(self, outcome: Outcome, now_ms: int) -> None:
        """What a worker tells the server, and what that does."""
        back = outcome.action in (Action.SNOOZE, Action.RESCHEDULE)
        self._note(outcome.status, in_front=back)
        if outcome.body is not None:
            self.body = outcome.body
        if not back:
            self.attempts += 1
        if outcome.action is Action.SUCCEED:
            self.state = JobState.SUCCEEDED
        elif outcome.action is Action.FAIL or (outcome.action is Action.RETRY and self.attempts_remaining <= 1):
            self.state, self.attempts_remaining = JobState.FAILED, 0
        else:
            self._come_again(outcome, now_ms)

    def _come_again(self, outcome: Outcome, now_ms: int) -> None:
        self.state = JobState.PENDING
        self.run_after_ms = now_ms + outcome.delay_ms
        self.delays_s.append(outcome.delay_ms / 1000)
        if outcome.action is Action.RETRY:
            self.attempts_remaining -= 1
        elif outcome.action is Action.RESCHEDULE:
            self.attempts_remaining = self.attempts_allowed
            self.reschedules += 1
        else:
            self.snoozes += 1

    def _note(self, text: str, *, in_front: bool) -> None:
        if text:
            self.statuses.append(text.rstrip("\n"))
            if in_front:
                self.status = prepend_status(self.status, text)
            else:
                self.status = append_status(self.status, *append_at(text))


class Recorder(Middleware):
    """Told what the jobs of these descriptors return or raise."""

    def __init__(self, runs: Mapping[str, Run]) -> None:
        self._runs = runs

    def after(self, context: JobContext, result: Any) -> None:
        self._runs[context.descriptor].result = result

    def error(self, context: JobContext, exception: BaseException, outcome: Outcome) -> None:
        self._runs[context.descriptor].errors.append(exception)


@dataclass(frozen=True, slots=True)
class RunHost:
    """Stores checkpoints at once."""

    run: Run
    limits: JobLimits = SERVER_LIMITS

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        self.run.save(self.limits.checkpoint(checkpoint, QUEUE_LIMITS))

    async def checkpoint_async(self, checkpoint: Checkpoint) -> None:
        self.checkpoint(checkpoint)

    def progress_made(self, context: JobContext) -> None:
        pass


class VirtualWaits(JobContext):
    """Waits by the clock of the test."""

    __slots__ = ()

    clock: VirtualClock

    def wait(self, seconds: float) -> bool:
        refuse_on_loop("wait_async")
        return self._wait(seconds)

    async def wait_async(self, seconds: float) -> bool:
        return self._wait(seconds)

    def _wait(self, seconds: float) -> bool:
        if not self.cancelled:
            self.clock.advance(seconds)
        return self.cancelled


class VirtualContext(VirtualWaits):
    """That of one job. It tells how long it took by that clock too."""

    __slots__ = ("_began_ms", "clock")

    def begin(self) -> None:
        self._began_ms = self.clock.now_ms()

    def record(self) -> AttemptRecord:
        return AttemptRecord(self._began_ms, (self.clock.now_ms() - self._began_ms) / 1000, worker_name())


class VirtualBatchContext(VirtualWaits, BatchContext):
    """That of a batch."""

    __slots__ = ("clock",)


class RunSchedule:
    """Jobs that wait. Of those that are due the highest priority goes first, then the earliest, then the oldest.

    An entry counts as long as its run is PENDING and was not run since; all others are dropped when they come up.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._later: list[tuple[int, int, int, Run]] = []
        self._due: list[tuple[int, int, int, int, Run]] = []

    def add(self, run: Run) -> None:
        """A run that is PENDING now."""
        heapq.heappush(self._later, (run.run_after_ms, run.number, run.times, run))

    def like(self, first: Run, until_ms: int) -> list[Run]:
        """The others of its type and queue that are due by then, in order."""
        waiting = {run for *_, run in self._due} | {run for *_, run in self._later}
        others = [
            run
            for run in waiting
            if run is not first and (run.job, run.queue) == (first.job, first.queue) and run.state is JobState.PENDING
        ]
        due = [run for run in others if run.run_after_ms <= until_ms]
        return sorted(due, key=lambda run: (run.priority, run.run_after_ms, run.number))

    def first(self, end_ms: float) -> Run | None:
        """The next one, which stays in the line; the clock goes on to when it is due. None: none until then."""
        while True:
            while self._later and self._later[0][0] <= self._clock.now_ms():
                run_after_ms, age, times, run = heapq.heappop(self._later)
                heapq.heappush(self._due, (run.priority, run_after_ms, age, times, run))
            while self._due:
                *_, times, run = self._due[0]
                if run.state is JobState.PENDING and run.times == times:
                    return run
                heapq.heappop(self._due)
            if not self._later or self._later[0][0] > end_ms:
                return None
            self._clock.advance_to(self._later[0][0])
