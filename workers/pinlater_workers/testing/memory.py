"""The jobs of a test: what a server would keep of each, its history, and the order in which they run."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol

from pinlater.model import Checkpoint, JobInfo, JobProgress, JobState
from pinlater_workers.envelope import read_envelope
from pinlater_workers.jobs.attempt_record import AttemptRecord, worker_name
from pinlater_workers.jobs.batch import BatchContext
from pinlater_workers.jobs.context import JobContext, refuse_on_loop
from pinlater_workers.jobs.outcome import Action, Outcome
from pinlater_workers.middleware import Middleware


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


class RunStore(Protocol):
    """Where the jobs of a test are."""

    def info(self, run: Run) -> JobInfo:
        """What the server keeps of this job now, or kept last."""

    def run_named(self, descriptor: str | None) -> Run | None: ...

    def change_body(self, run: Run, body: bytes) -> None:
        """Of a job that is pending."""

    def checkpoint(self, run: Run, checkpoint: Checkpoint) -> None:
        """Store it."""

    def beat(self, contexts: Iterable[JobContext] | None = None) -> None:
        """Say what progress these jobs have made, and stop those that are to stop; None: those that run."""


def _kept(name: str) -> Any:
    """Of a job, as the server keeps it."""
    return property(attrgetter(f"info.{name}"))


class Run:
    """A job that was enqueued, and what became of it so far.

    `number`: 1 for the first job of the test. `times`: how often it was run; `delays_s`: how long it stayed away after
    each of these, but for the last. `attempts` of them were spent: all but snoozes and reschedulings. `status`: the
    job's custom status, as a server keeps it; `statuses`: what its attempts wrote there, in order. `checkpoints`: the
    bodies that it stored. `errors`: what was raised, Snooze and the like included; `result`: what it returned at last.
    `enqueued`: the jobs that it enqueued. `progress`: what it said last of how far it is.

    `waits_for`: the first job of its serialize key, while that is another one. `cancelled`: it is FAILED because it was
    to stop; with `is_gone` the server knows nothing of it any more: it was cancelled before it began, or deleted.
    """

    def __init__(self, store: RunStore, number: int, queue: str, job: str, info: JobInfo) -> None:
        self._store = store
        self.number = number
        self.queue = queue
        self.job = job
        self.last_info = info
        """As it was when it was asked for last; `info` asks."""
        self.last_change: object = None
        """The change of the store behind which that was."""
        self.times = self.attempts = self.snoozes = self.reschedules = 0
        self.delays_s: list[float] = []
        self.statuses: list[str] = []
        self.checkpoints: list[bytes] = []
        self.errors: list[BaseException] = []
        self.result: Any = None
        self.enqueued: list[Run] = []
        self.was_removed = False

    @property
    def info(self) -> JobInfo:
        """All that the server keeps of it."""
        return self._store.info(self)

    descriptor: str = property(attrgetter("last_info.descriptor"))  # type: ignore[assignment]
    state: JobState = _kept("state")
    priority: int = _kept("priority")
    attempts_allowed: int = _kept("attempts_allowed")
    attempts_remaining: int = _kept("attempts_remaining")
    status: str = _kept("custom_status")
    enqueued_at_ms: int = _kept("created_at_ms")
    run_after_ms: int = _kept("run_after_ms")
    updated_at_ms: int = _kept("updated_at_ms")
    finished_at_ms: int | None = _kept("finished_at_ms")
    progress: JobProgress | None = _kept("progress")
    claim_timeout_ms: int | None = _kept("claim_timeout_ms")
    expires_at_ms: int | None = _kept("expires_at_ms")
    cancel_requested_by: str | None = _kept("cancel_requested_by")
    kept_result: bytes | None = _kept("result")

    @property
    def body(self) -> bytes:
        return self.info.body or b""

    @body.setter
    def body(self, body: bytes) -> None:
        """Of a job that is pending, as somebody may have written it."""
        self._store.change_body(self, body)

    @property
    def dedupe_key(self) -> str:
        return self.info.dedupe_key or ""

    @property
    def serialize_key(self) -> str:
        return self.info.serialize_key or ""

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(self.info.tags or ())

    @property
    def group(self) -> str:
        return self.info.group or ""

    @property
    def cancelled(self) -> bool:
        return self.info.cancelled or False

    @property
    def is_gone(self) -> bool:
        return self.info is not None and self.was_removed

    @property
    def is_live(self) -> bool:
        """PENDING or IN_PROGRESS."""
        return self.state in (JobState.PENDING, JobState.IN_PROGRESS)

    @property
    def waits_for(self) -> Run | None:
        return self._store.run_named(self.info.waits_for)

    @property
    def headers(self) -> dict[str, str]:
        """What travels with it."""
        envelope = read_envelope(self.body)
        return {} if envelope is None else envelope.headers

    def note_end(self, outcome: Outcome, now_ms: int) -> None:
        """An attempt has ended, and the server knows."""
        info = self.info
        comes_again = info.state is JobState.PENDING
        back = outcome.action in (Action.SNOOZE, Action.RESCHEDULE, Action.GIVE_BACK)
        if outcome.status:
            self.statuses.append(outcome.status.rstrip("\n"))
        if not (back and comes_again):
            self.attempts += 1
        if comes_again:
            self.delays_s.append(max(0, info.run_after_ms - now_ms) / 1000)
            self.snoozes += outcome.action is Action.SNOOZE
            self.reschedules += outcome.action is Action.RESCHEDULE


class AttemptRecorder(Middleware):
    """Told what the jobs of these descriptors return or raise."""

    def __init__(self, runs: Mapping[str, Run]) -> None:
        self._runs = runs

    def after(self, context: JobContext, result: Any) -> None:
        self._runs[context.descriptor].result = result

    def error(self, context: JobContext, exception: BaseException, outcome: Outcome) -> None:
        self._runs[context.descriptor].errors.append(exception)


@dataclass(frozen=True, slots=True)
class RunHost:
    """Stores checkpoints and progress at once."""

    run: Run
    store: RunStore

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        self.store.checkpoint(self.run, checkpoint)

    async def checkpoint_async(self, checkpoint: Checkpoint) -> None:
        self.checkpoint(checkpoint)

    def progress_made(self, context: JobContext) -> None:
        self.store.beat([context])


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
