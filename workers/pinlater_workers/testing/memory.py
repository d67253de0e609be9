"""The jobs of a test: what a server would keep of each, its history, and the order in which they run."""

from __future__ import annotations

import heapq
import math
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pinlater.job_limits import JobLimits
from pinlater.model import (
    Checkpoint,
    DequeuedJob,
    ExtendedJob,
    Job,
    JobInfo,
    JobProgress,
    JobState,
    RescheduleJob,
    descriptor_prefix,
)
from pinlater.model.status_text import NOT_REPLACED_END, append_at, append_status, not_replaced_status, prepend_status
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


DAY_MS = 86_400_000
KEPT_MS = {JobState.SUCCEEDED: DAY_MS, JobState.FAILED: 7 * DAY_MS}
"""How long such a queue keeps jobs that have ended."""

RESULT_KEPT_MS = 3_600_000

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
    `enqueued`: the jobs that it enqueued. `progress`: what it said last of how far it is.

    `waits_for`: the first job of its serialize key, while that is another one. `cancelled`: it is FAILED because it was
    to stop; with `is_gone` it was cancelled before it began, and a server would know nothing of it any more.
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
    progress: JobProgress | None = None
    dedupe_key: str = ""
    serialize_key: str = ""
    send_id: str = ""
    dedupe_for_ms: int = 0
    claim_timeout_ms: int | None = None
    expires_at_ms: int | None = None
    waits_for: Run | None = None
    cancel_requested_by: str | None = None
    cancelled: bool = False
    is_gone: bool = False
    kept_result: bytes | None = None
    """As a server would keep it."""
    updated_at_ms: int = 0
    finished_at_ms: int = 0

    @classmethod
    def of(cls, job: Job, name: str, queue: str, number: int, now_ms: int) -> Run:
        run_after_ms = now_ms if job.run_after_ms is None else job.run_after_ms
        left = job.attempts_allowed
        descriptor = f"{descriptor_prefix(queue, 'memory', job.priority)}{number}"
        run = cls(number, descriptor, queue, name, job.body, job.priority, left, left, now_ms, run_after_ms)
        run.updated_at_ms = now_ms
        if isinstance(job, ExtendedJob):
            run.dedupe_key, run.serialize_key, run.send_id = job.dedupe_key, job.serialize_key, job.send_id
            run.dedupe_for_ms, run.expires_at_ms = job.dedupe_for_ms, job.expires_at_ms
            run.claim_timeout_ms = job.claim_timeout_ms
        return run

    @property
    def is_live(self) -> bool:
        """PENDING or IN_PROGRESS."""
        return self.state in (JobState.PENDING, JobState.IN_PROGRESS)

    def is_kept(self, now_ms: int) -> bool:
        """A server would still have it."""
        return not self.is_gone and (self.is_live or now_ms < self.finished_at_ms + KEPT_MS[self.state])

    @property
    def claim_descriptor(self) -> str:
        """Of the attempt that runs, else of the last one."""
        return f"{self.descriptor}:{self.times}"

    def info(self, now_ms: int, *, body: bool, result: bool) -> JobInfo:
        """As a lookup answers."""
        has_result = result and now_ms < self.finished_at_ms + RESULT_KEPT_MS
        return JobInfo(
            self.descriptor,
            self.state,
            self.priority,
            self.attempts_allowed,
            self.attempts_remaining,
            self.status,
            self.enqueued_at_ms,
            self.run_after_ms,
            self.updated_at_ms,
            claim_descriptor=None if self.state is JobState.PENDING or not self.times else self.claim_descriptor,
            finished_at_ms=None if self.is_live else self.finished_at_ms,
            body=self.body if body else None,
            result=self.kept_result if has_result else None,
            dedupe_key=self.dedupe_key or None,
            serialize_key=self.serialize_key or None,
            cancelled=self.cancelled or None,
            progress=self.progress,
            waits_for=None if self.waits_for is None else self.waits_for.descriptor,
            expires_at_ms=self.expires_at_ms,
            claim_timeout_ms=self.claim_timeout_ms,
            cancel_requested_by=self.cancel_requested_by,
        )

    def change(self, job: Job | RescheduleJob, now_ms: int) -> None:
        """Another time, body or number of attempts; None leaves it."""
        if job.run_after_ms is not None:
            self.run_after_ms = job.run_after_ms
        if job.body is not None:
            self.body = job.body
        if job.attempts_allowed is not None:
            self.attempts_allowed = self.attempts_remaining = job.attempts_allowed
        self.updated_at_ms = now_ms

    def fail(self, now_ms: int, *, status: str = "", cancelled: bool = False) -> None:
        """It ends without an attempt."""
        self._note(status, in_front=False)
        self.state, self.attempts_remaining, self.cancelled = JobState.FAILED, 0, cancelled
        self.finished_at_ms = self.updated_at_ms = now_ms

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
            claim_descriptor=self.claim_descriptor,
        )

    def make_progress(self, fraction: float | None, text: str | None, now_ms: int) -> None:
        """As a heartbeat says; None leaves it."""
        if fraction is not None or text is not None:
            before = self.progress or JobProgress(None, "", now_ms)
            fraction = before.fraction if fraction is None else fraction
            self.progress = JobProgress(fraction, before.text if text is None else text, now_ms)

    def save(self, checkpoint: Checkpoint) -> None:
        if checkpoint.new_body is not None:
            self.body = checkpoint.new_body
            self.checkpoints.append(checkpoint.new_body)
        self._note(checkpoint.prepend_status, in_front=True)

    def end(self, outcome: Outcome, now_ms: int) -> None:
        """What a worker tells the server, and what that does."""
        if self.cancel_requested_by is not None and outcome.action is not Action.SUCCEED:
            outcome = replace(outcome, action=Action.CANCEL, body=None)
        back = outcome.action in (Action.SNOOZE, Action.RESCHEDULE, Action.GIVE_BACK)
        self.updated_at_ms = now_ms
        self._note(outcome.status, in_front=back)
        if outcome.body is not None:
            self.body = outcome.body
        if not back:
            self.attempts += 1
        if outcome.action is Action.SUCCEED:
            self.state, self.kept_result = JobState.SUCCEEDED, outcome.result
            self.finished_at_ms = now_ms
        elif outcome.action is Action.CANCEL:
            self.fail(now_ms, cancelled=True)
        elif outcome.action is Action.FAIL or (outcome.action is Action.RETRY and self.attempts_remaining <= 1):
            self.fail(now_ms)
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
        elif outcome.action is Action.SNOOZE:
            self.snoozes += 1

    def note_not_replaced(self, now_ms: int) -> None:
        """Newer arguments came; they are not taken where it is in progress."""
        if self.state is JobState.IN_PROGRESS and not self.status.endswith(NOT_REPLACED_END):
            self._note(not_replaced_status(now_ms), in_front=False)

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
    clock: VirtualClock
    limits: JobLimits = SERVER_LIMITS

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        self.run.save(self.limits.checkpoint(checkpoint, QUEUE_LIMITS))

    async def checkpoint_async(self, checkpoint: Checkpoint) -> None:
        self.checkpoint(checkpoint)

    def progress_made(self, context: JobContext) -> None:
        made = context.take_progress()
        if made is not None:
            self.run.make_progress(made.fraction, made.text, self.clock.now_ms())


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

    An entry counts as long as its run is PENDING, was not run since, and has that time; all others are dropped.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._later: list[tuple[int, int, int, Run]] = []
        self._due: list[tuple[int, int, int, int, Run]] = []

    def add(self, run: Run) -> None:
        """A run that is PENDING now, and waits for no other one."""
        heapq.heappush(self._later, (run.run_after_ms, run.number, run.times, run))

    def like(self, first: Run, until_ms: int) -> list[Run]:
        """The others of its type and queue that are due by then, in order."""
        waiting = {run for *_, run in self._due} | {run for *_, run in self._later}
        others = [
            run
            for run in waiting
            if run is not first
            and (run.job, run.queue) == (first.job, first.queue)
            and run.state is JobState.PENDING
            and run.waits_for is None
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
                if _counts(run, times, self._due[0][1]):
                    return run
                heapq.heappop(self._due)
            while self._later and not _counts(self._later[0][3], self._later[0][2], self._later[0][0]):
                heapq.heappop(self._later)
            if not self._later or self._later[0][0] > end_ms:
                return None
            self._clock.advance_to(self._later[0][0])


def _counts(run: Run, times: int, run_after_ms: int) -> bool:
    """Whether an entry of that time does."""
    return run.state is JobState.PENDING and run.times == times and run.run_after_ms == run_after_ms
