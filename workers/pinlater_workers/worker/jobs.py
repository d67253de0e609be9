"""The jobs that run in this worker, from the claim to the result, and the end of those over their time limit."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from pinlater.clock import Clock
from pinlater.model import DequeuedJob
from pinlater_workers.app.app import App
from pinlater_workers.envelope import read_envelope
from pinlater_workers.errors import BodyInvalid
from pinlater_workers.jobs.context import ENDING_REASONS, RunningJob, StopReason, attempt_number, waited_s
from pinlater_workers.jobs.outcome import Action, Outcome
from pinlater_workers.observability.metrics import WorkerMetrics
from pinlater_workers.pools.base import JobPool
from pinlater_workers.worker.ack_batches import Result
from pinlater_workers.worker.ack_sender import AckSender
from pinlater_workers.worker.claims import ClaimKeeper
from pinlater_workers.worker.queue_state import log
from pinlater_workers.worker.unknown_jobs import UNKNOWN, kind_of

UNACKED_PER_SLOT = 20
LEAST_UNACKED = 10_000
"""Beyond so many results that no server takes, no more jobs are taken."""

_GIVEN_BACK = Outcome(Action.GIVE_BACK)

LOOK_EVERY_S = 0.2


class JobsListener(Protocol):
    """The worker. Called on the loop."""

    def jobs_began(self) -> None: ...

    def slots_freed(self) -> None: ...


class RunningJobs:
    """The jobs that run. `pool` makes the pool that runs them.

    All of it is called on the event loop; a job costs a few microseconds here, and neither a task nor a timer.
    """

    def __init__(
        self,
        concurrency: int,
        loader: JobLoader,
        pool: Callable[[RunningJobs], JobPool],
        ack_sender: AckSender,
        claims: ClaimKeeper,
        metrics: WorkerMetrics,
        clock: Clock,
        listener: JobsListener,
    ) -> None:
        self._listener = listener
        self._concurrency = concurrency
        self._loader = loader
        self._acks = ack_sender
        self._claims = claims
        self._metrics = metrics
        self._clock = clock
        self._max_unacked = max(LEAST_UNACKED, UNACKED_PER_SLOT * concurrency)
        self._is_stopping = False
        self._closed = False
        self.running: dict[RunningJob, None] = {}
        self.idle = asyncio.Event()
        """Set when nothing runs any more, once no more jobs are taken."""
        self._dropping: set[str] = set()
        self.freed_s = time.monotonic()
        """Since when a slot is free, while one is."""
        self.pool = pool(self)

    def free(self) -> int:
        """Slots for jobs to come, dequeues under way not counted out. May be below 0."""
        if self._is_stopping or self._acks.unacked > self._max_unacked:
            return 0
        return self._concurrency - len(self.running) - self.pool.stuck

    def take(self, queue: str, jobs: Sequence[DequeuedJob]) -> None:
        """They take up slots, and begin. What cannot run here, or comes when the worker stops, is answered instead.

        Claims are kept alive before a job begins: it may hold the interpreter from its first instant, for minutes.
        """
        now_s, now_ms = time.monotonic(), self._clock.now_ms()
        beginning: list[RunningJob] = []
        answered: list[Result] = []
        load = self._loader.load
        for job in jobs:
            running, outcome = load(job, queue, now_s, now_ms)
            if outcome is None and not self._is_stopping:
                beginning.append(running)
            else:
                answered.append((running, outcome or _GIVEN_BACK))
        self._claims.take([*beginning, *(running for running, _ in answered)], now_s)
        self.running.update(dict.fromkeys(beginning))
        if answered:
            self._acks.put(answered)
        self._begin(beginning, now_ms)

    def _begin(self, beginning: Sequence[RunningJob], now_ms: int) -> None:
        started, submit = self._metrics.started, self.pool.submit
        for running in beginning:
            assert running.type is not None
            started(running.type.name, waited_s(running.job, now_ms))
            submit(running)
        self._listener.jobs_began()

    def ended(self, results: Sequence[Result]) -> None:
        """A pool reports. A job whose claim is lost is another worker's: nothing is said of it.

        Those of one dequeue and one type that succeeded are counted together: they took equally long, as told here.
        """
        now_s = time.monotonic()
        if self.free() <= 0:
            self.freed_s = now_s
        counted: list[Result] = []
        succeeded: dict[tuple[str, float], int] = {}
        ran, ended = self._claims.ran, self._metrics.ended
        for result in results:
            running, outcome = result
            del self.running[running]
            assert running.type is not None
            name, run_s = running.type.name, now_s - running.began_s
            if running.stop_reason is StopReason.CLAIM_LOST:
                ran(name, run_s)
                self._metrics.dropped(name)
                continue
            counted.append(result)
            if outcome.action is Action.SUCCEED:
                if outcome.error:
                    self._say_dropped(name, outcome.dropped)
                alike = (name, run_s)
                succeeded[alike] = succeeded.get(alike, 0) + 1
            else:
                ran(name, run_s)
                is_last = running.job.attempts_remaining <= 1
                ended(name, outcome.action, run_s, is_last=is_last, error=outcome.error)
        for (name, run_s), times in succeeded.items():
            ran(name, run_s, times)
            ended(name, Action.SUCCEED, run_s, times=times)
        self._acks.put(counted)
        if self._is_stopping:
            self._note_idle()
        self._listener.slots_freed()

    def _say_dropped(self, name: str, kind: str) -> None:
        """Once for each type of job, whichever process ran it."""
        if name not in self._dropping:
            self._dropping.add(name)
            log.info(
                "job %s returned a value of type %s, which is dropped, as jobs have no results: store it where it "
                "belongs, or have the method `after` of middleware take it (said once for each type of job)",
                name,
                kind,
            )

    def lost(self, running: RunningJob, reason: StopReason) -> None:
        """Heartbeats say so of a job that runs."""
        if running in self.running:
            self.stop(running, reason)

    def is_answered(self, running: RunningJob) -> bool:
        """It does not run here any more: its result is with the AckSender."""
        return running not in self.running

    def stop(self, running: RunningJob, reason: StopReason) -> None:
        running.stop_reason = reason
        self.pool.stop(running, reason)

    def running_of(self) -> Counter[str]:
        """How many run, by queue."""
        return Counter(running.queue for running in self.running)

    def _note_idle(self) -> None:
        if not self.running:
            self.idle.set()

    # -- the end ---------------------------------------------------------------------------------------------------

    def take_no_more(self) -> None:
        """Tells running jobs to stop; jobs that still come are requeued."""
        self._is_stopping = True
        for running in list(self.running):
            if running.stop_reason is None:
                self.stop(running, StopReason.STOPPING)
        self._note_idle()

    async def close(self) -> int:
        """The pool ends, and what still ran is requeued; how many. Once."""
        if self._closed:
            return 0
        self._closed = True
        await self.pool.close()
        left = [running for running in self.running if running.stop_reason is not StopReason.CLAIM_LOST]
        self.running.clear()
        self._acks.put([(running, _GIVEN_BACK) for running in left])
        for running in left:
            if running.type is not None:
                seconds = time.monotonic() - running.began_s
                self._metrics.ended(running.type.name, Action.GIVE_BACK, seconds)
        return len(left)


class JobLoader:
    """Reads each body once. The app's types are those of the worker's start. Times are of time.monotonic."""

    def __init__(self, app: App, metrics: WorkerMetrics) -> None:
        self._types = {name: each for name, each in app.job_types.items() if not each.settings.raw}
        self._raw = {each.settings.queue: each for each in app.job_types.values() if each.settings.raw}
        self._metrics = metrics

    def load(self, job: DequeuedJob, queue: str, now_s: float, now_ms: int) -> tuple[RunningJob, Outcome | None]:
        """The job, ready to run; or with what becomes of it where this worker cannot run it."""
        try:
            envelope = read_envelope(job.body)
        except BodyInvalid as error:
            self._metrics.unreadable(queue)
            status = f"attempt {attempt_number(job)}: BodyInvalid: {error}\n"
            log.warning("job %s failed, no attempt follows: %s", job.descriptor, status.rstrip())
            return RunningJob(job, queue, None, now_s, now_s), Outcome(Action.FAIL, status=status, error="BodyInvalid")
        job_type = self._raw.get(queue) if envelope is None else self._types.get(envelope.job)
        if job_type is None:
            running = RunningJob(job, queue, None, now_s, now_s, envelope)
            self._metrics.unknown(queue, kind_of(running)[0])
            return running, UNKNOWN
        limit_s = job_type.settings.time_limit_s
        return RunningJob(job, queue, job_type, now_s, now_s + limit_s, envelope, now_ms + int(limit_s * 1000)), None


class TimeLimitReaper:
    """Stops jobs that run longer than they may. `on_reaped` is called after each look. While no claim is held and no
    slot is stuck there is no look.
    """

    def __init__(self, jobs: RunningJobs, claims: ClaimKeeper, on_reaped: Callable[[], None]) -> None:
        self._jobs = jobs
        self._claims = claims
        self._on_reaped = on_reaped
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def begin(self) -> None:
        if self._timer is None and not self._closed:
            self._timer = self._loop.call_later(LOOK_EVERY_S, self._look)

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        now_s = time.monotonic()
        for running in [
            each for each in self._jobs.running if each.until_s <= now_s and each.stop_reason not in ENDING_REASONS
        ]:
            self._jobs.stop(running, StopReason.TIME_LIMIT)
        self._claims.watch_late(now_s)
        self._on_reaped()
        if self._claims.holds_any or self._jobs.pool.stuck:
            self.begin()
