"""The jobs that run in this worker, from the claim to the result, and the end of those over their time limit.

A job that finds no free slot waits at hand until one becomes free, or is handed back when that takes too long
(prefetch.py). All that counts from a job's begin counts from when it gets its slot.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from pinlater.clock import Clock
from pinlater.model import DequeuedJob
from pinlater_workers.app.app import App
from pinlater_workers.envelope import read_envelope
from pinlater_workers.errors import BodyInvalid
from pinlater_workers.execution.failure_text import describe
from pinlater_workers.jobs.context import ENDING_REASONS, StopReason, attempt_number, waited_s
from pinlater_workers.jobs.outcome import Action, Outcome
from pinlater_workers.jobs.running_job import RunningBatch, RunningJob
from pinlater_workers.observability.metrics import WorkerMetrics
from pinlater_workers.pools.base import never_began
from pinlater_workers.pools.router import PoolRouter
from pinlater_workers.worker.ack_batches import Result
from pinlater_workers.worker.ack_sender import AckSender
from pinlater_workers.worker.batches import RunningBatches
from pinlater_workers.worker.claims import ClaimKeeper
from pinlater_workers.worker.prefetch import TURNS, JobsAtHand, PrefetchPlan
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
    """The jobs that run, and those at hand. `pool` makes the pool that runs them.

    All of it is called on the event loop; a job costs a few microseconds here, and neither a task nor a timer.
    """

    def __init__(
        self,
        concurrency: int,
        prefetch: PrefetchPlan,
        wait_s: float,
        loader: JobLoader,
        pool: Callable[[RunningJobs], PoolRouter],
        ack_sender: AckSender,
        claims: ClaimKeeper,
        metrics: WorkerMetrics,
        clock: Clock,
        listener: JobsListener,
        *,
        batches: bool = False,
    ) -> None:
        """`batches`: some type of job has batch=."""
        self._listener = listener
        self._concurrency = concurrency
        self._prefetch = prefetch
        self._turn_s = wait_s / TURNS
        self._loader = loader
        self._acks = ack_sender
        self._claims = claims
        self._metrics = metrics
        self._clock = clock
        self._max_unacked = max(LEAST_UNACKED, UNACKED_PER_SLOT * concurrency)
        self._is_stopping = False
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._at_hand = JobsAtHand()
        self._turn: asyncio.TimerHandle | None = None
        self._ended_in_turn = 0
        self._busy_s = 0.0
        """When jobs last ended, where others went on; else 0."""
        self._uncounted: set[RunningJob] = set()
        """Jobs that the pool may have begun by itself."""
        self.reserved = 0
        """Free slots that are kept for jobs on their way. The fetcher counts them."""
        self.running: dict[RunningJob, None] = {}
        self.idle = asyncio.Event()
        """Set when nothing runs any more, once no more jobs are taken."""
        self._dropping: set[str] = set()
        self.freed_s = time.monotonic()
        """Since when a slot is free, while one is."""
        self.pool = pool(self)
        self._batches = RunningBatches(self, claims, metrics, clock) if batches else None

    def free(self) -> int:
        """Slots without a job; those that are reserved count as free. Below 0: so many jobs wait in the pool."""
        if self._is_stopping or self._acks.unacked > self._max_unacked:
            return 0
        return self._concurrency - len(self.running) - self.pool.stuck

    @property
    def at_hand(self) -> int:
        """How many jobs wait here for a slot, those that wait in the pool left out; a batch that is ready is one."""
        return len(self._at_hand) + (0 if self._batches is None else self._batches.line.ready)

    @property
    def leads(self) -> bool:
        """Jobs take so little time that the pool begins some by itself: a slot is free in a moment, if none is now."""
        return self._prefetch.lead > 0 and not self._is_stopping

    def at_hand_of(self) -> Counter[str]:
        """How many wait here or in the pool, by queue."""
        waiting = self._at_hand.of()
        waiting.update(running.queue for running in self._uncounted if running.ahead)
        return waiting

    def held(self) -> Iterator[RunningJob]:
        """All that are claimed and not answered yet."""
        for running in self.running:
            yield from running.members if isinstance(running, RunningBatch) else (running,)
        yield from self._at_hand
        if self._batches is not None:
            yield from self._batches.line

    @property
    def gathered(self) -> int:
        """How many jobs wait here for their batch to begin."""
        return 0 if self._batches is None else len(self._batches.line)

    def gathering(self, queue: str) -> int:
        """How many jobs of the queue wait for others of their batch."""
        return 0 if self._batches is None else self._batches.line.gathering(queue)

    def take(self, jobs: Mapping[str, Sequence[DequeuedJob]]) -> None:
        """Jobs that have been claimed, by queue. They take up slots and begin, or wait at hand for a slot, or for
        others of their batch. What cannot run here, or comes when the worker stops, is answered instead.

        Claims are kept alive before a job begins: it may hold the interpreter from its first instant, for minutes.
        """
        now_s, now_ms = time.monotonic(), self._clock.now_ms()
        loaded: list[RunningJob] = []
        answered: list[Result] = []
        load = self._loader.load
        for queue, of_queue in jobs.items():
            self._prefetch.took(queue, of_queue)
            for job in of_queue:
                running, outcome = load(job, queue, now_s, now_ms)
                if outcome is None and not self._is_stopping:
                    loaded.append(running)
                else:
                    answered.append((running, outcome or _GIVEN_BACK))
        singles = loaded if self._batches is None else self._batches.gather(loaded, now_s)
        self._claims.take([*loaded, *(running for running, _ in answered)], now_s)
        if answered:
            self._acks.put(answered)
        if self._batches is not None:
            self._batches.begin(now_s)
            self._listener.jobs_began()
        slots = self.free() - self.reserved
        if not self._at_hand and len(singles) <= slots:
            self._begin(singles, now_ms)
        else:
            self._at_hand.add(singles)
            self._begin_at_hand(now_s, now_ms)
        if self._batches is not None:
            self._listener.slots_freed()  # those that gather have none

    def refill(self, now_s: float) -> None:
        """Slots have become free, and jobs at hand begin in them, at that moment; batches that are ready first."""
        if self._batches is not None:
            self._batches.begin(now_s)
        if self._at_hand:
            self._begin_at_hand(now_s, self._clock.now_ms())

    def _begin_at_hand(self, now_s: float, now_ms: int) -> None:
        slots = self.free() - self.reserved
        taken = self._at_hand.take(max(0, slots + self._prefetch.lead))
        if self._prefetch.lead:
            may_lead = self.pool.may_lead
            at = next((at for at, running in enumerate(taken) if not may_lead(running)), len(taken))
            self._lead(taken[:at])
            left = max(0, slots - at)
            self._at_hand.put_back(taken[at + left :])
            taken = taken[at : at + left]
        for running in taken:
            running.begin(now_s)
        if taken:
            self._begin(taken, now_ms)
        if self._turn is None and (self._at_hand or self.free() < 0):  # or all that wait are with the pool
            self._turn = self._loop.call_later(self._turn_s, self._pass_turn)

    def _begin(self, beginning: Sequence[RunningJob], now_ms: int) -> None:
        self.running.update(dict.fromkeys(beginning))
        started, submit = self._metrics.started, self.pool.submit
        for running in beginning:
            assert running.type is not None
            started(running.type.name, waited_s(running.job, now_ms))
            submit(running)
        self._listener.jobs_began()

    def _lead(self, jobs: Sequence[RunningJob]) -> None:
        """The pool begins them when it has a slot; that they began is counted later."""
        self.running.update(dict.fromkeys(jobs))
        self._uncounted.update(jobs)
        for running in jobs:
            running.ahead = True
            self.pool.submit(running)
        self._listener.jobs_began()

    def _withdraw(self) -> None:
        """What the pool has not begun waits here again."""
        withdrawn = self.pool.withdraw()
        for running in withdrawn:
            if running.ahead:
                del self.running[running]
                self._uncounted.discard(running)
            else:
                self.pool.submit(running)
        self._at_hand.put_back([running for running in withdrawn if running.ahead])

    def count_started(self, now_s: float) -> None:
        """Of jobs that go on, those that the pool began by itself."""
        now_ms = self._clock.now_ms()
        for running in [each for each in self._uncounted if not each.ahead]:
            assert running.type is not None
            self._uncounted.remove(running)
            began_ms = now_ms - int((now_s - running.began_s) * 1000)
            self._metrics.started(running.type.name, waited_s(running.job, began_ms))

    def _pass_turn(self) -> None:
        """Hands back what waits for too long: another worker may have a slot."""
        self._turn = None
        if self._is_stopping:
            return
        if -self.free() > self._ended_in_turn:
            self._withdraw()
        self._ended_in_turn = 0
        overdue = self._at_hand.turn()
        if overdue:
            self.hand_back(overdue)
        self.refill(time.monotonic())
        if self._turn is None and self.free() < 0:
            self._turn = self._loop.call_later(self._turn_s, self._pass_turn)

    def hand_back(self, jobs: Sequence[RunningJob]) -> None:
        """They have not begun: no attempt is spent, and each keeps its place in its queue."""
        for running in jobs:
            assert running.type is not None
            self._metrics.handed_back(running.type.name)
            self._prefetch.handed_back(running.queue)
        self._acks.put([(running, _GIVEN_BACK) for running in jobs])

    def ended(self, results: Sequence[Result]) -> None:
        """A pool reports. A job whose claim is lost is another worker's: nothing is said of it.

        Those of one dequeue and one type that succeeded are counted together: they took equally long, as told here.
        """
        now_s = time.monotonic()
        if self.free() <= 0:
            self.freed_s = now_s
        self._ended_in_turn += len(results)
        if self._batches is not None:
            results = self._end_batches(self._batches, results, now_s)
            if not results:
                self._go_on(now_s, self._clock.now_ms())
                return
        counted: list[Result] = []
        succeeded: dict[tuple[str, str, float], int] = {}
        ran, ended, took = self._claims.ran, self._metrics.ended, self._prefetch.ended
        uncounted, now_ms = self._uncounted, self._clock.now_ms()
        # those that the pool began by itself since the last time took up the slots together
        span_s = now_s - (self._busy_s or results[0][0].began_s)
        slot_s = span_s * min(1.0, self._concurrency / len(results))
        for result in results:
            running, outcome = result
            del self.running[running]
            assert running.type is not None
            name, queue, run_s = running.type.name, running.queue, now_s - running.began_s
            if running in uncounted:
                if run_s <= span_s:
                    run_s = slot_s
                uncounted.remove(running)
                self._metrics.started(name, waited_s(running.job, now_ms - int(run_s * 1000)))
            if running.stop_reason is StopReason.CLAIM_LOST:
                ran(name, run_s)
                took(queue, run_s, 1)
                self._metrics.dropped(name)
                continue
            counted.append(result)
            if outcome.action is Action.SUCCEED:
                if outcome.error:
                    self.say_dropped(name, outcome.dropped)
                alike = (name, queue, run_s)
                succeeded[alike] = succeeded.get(alike, 0) + 1
            else:
                if running.cancelled_by is not None:
                    result = counted[-1] = running, _as_cancelled(outcome)
                    outcome = result[1]
                ran(name, run_s)
                took(queue, run_s, 1)
                is_last = running.job.attempts_remaining <= 1
                ended(name, outcome.action, run_s, is_last=is_last, error=outcome.error)
        for (name, queue, run_s), times in succeeded.items():
            ran(name, run_s, times)
            took(queue, run_s, times)
            ended(name, Action.SUCCEED, run_s, times=times)
        self._acks.put(counted)
        self._go_on(now_s, now_ms)

    def _go_on(self, now_s: float, now_ms: int) -> None:
        """Slots have become free."""
        if self._is_stopping:
            self._note_idle()
        if self._batches is not None:
            self._batches.begin(now_s)
        self._listener.slots_freed()
        if self._at_hand:
            self._begin_at_hand(now_s, now_ms)
        self._busy_s = now_s if self.running else 0.0

    def _end_batches(self, batches: RunningBatches, results: Sequence[Result], now_s: float) -> list[Result]:
        """The results of single jobs; those of batches are told here."""
        singles: list[Result] = []
        for result in results:
            batch, outcome = result
            if not isinstance(batch, RunningBatch):
                singles.append(result)
                continue
            del self.running[batch]
            self._acks.put(batches.ended(batch, outcome, now_s - batch.began_s))
        return singles

    def say_dropped(self, name: str, kind: str) -> None:
        """Once for each type of job, whichever process ran it."""
        if name not in self._dropping:
            self._dropping.add(name)
            log.info(
                "job %s returned a value of type %s, which is dropped: say keep_result=True to keep it for those who "
                "ask, store it where it belongs, or have the method `after` of middleware take it (said once for each "
                "type of job)",
                name,
                kind,
            )

    def lost(self, running: RunningJob, reason: StopReason) -> None:
        """Heartbeats say so of a job that runs, or is at hand: that one is gone, if another worker has it."""
        if running.ahead and reason is StopReason.CLAIM_LOST:
            self._withdraw()
        if running in self.running:
            self.stop(running, reason)
        elif self._batches is not None and running in self._batches:
            self._batches.lost(running, reason)
        elif reason is StopReason.CLAIM_LOST:
            self._at_hand.discard(running)

    def cancelled(self, running: RunningJob, by: str) -> None:
        """Heartbeats say so of a job that runs, or is at hand: that one ends without having begun."""
        if running.cancelled_by is not None:
            return
        running.cancelled_by = by
        if running.ahead:
            self._withdraw()
        if running in self.running:
            self.stop(running, StopReason.CANCELLED)
        elif self._batches is not None and running in self._batches:
            self._batches.cancelled(running)
        elif self._at_hand.discard(running):
            self.drop_cancelled(running)

    def drop_cancelled(self, running: RunningJob) -> None:
        """It has not begun, and will not."""
        assert running.type is not None
        self._metrics.cancelled_at_hand(running.type.name)
        self._acks.put([(running, never_began(running))])

    def is_answered(self, running: RunningJob) -> bool:
        """It does not run here any more, nor will it: its result is with the AckSender."""
        in_batch = self._batches is not None and running in self._batches
        return running not in self.running and running not in self._at_hand and not in_batch

    def stop(self, running: RunningJob, reason: StopReason) -> None:
        if running.stop_reason is not StopReason.CANCELLED or reason in ENDING_REASONS:
            running.stop_reason = reason
        self.pool.stop(running, reason)

    def begun(self) -> list[RunningJob]:
        """Those that have a slot; the others wait in the pool."""
        return [running for running in self.running if not running.ahead]

    def running_of(self) -> Counter[str]:
        """How many have a slot, by queue."""
        return Counter(running.queue for running in self.begun())

    def _note_idle(self) -> None:
        if not self.running:
            self.idle.set()

    # -- the end ---------------------------------------------------------------------------------------------------

    def take_no_more(self) -> None:
        """Tells running jobs to stop; those at hand are handed back, and jobs that still come too."""
        self._is_stopping = True
        self._withdraw()
        self.hand_back(self._at_hand.take_all())
        if self._batches is not None:
            self._batches.close()
        for running in list(self.running):
            if running.stop_reason is None:
                self.stop(running, StopReason.STOPPING)
        self._note_idle()

    async def close(self) -> int:
        """The pool ends, and what still ran is requeued; how many. Once."""
        if self._closed:
            return 0
        self._closed = True
        self._withdraw()
        self.hand_back(self._at_hand.take_all())
        if self._batches is not None:
            self._batches.close()
        await self.pool.close()
        left = [running for running in self.held() if running.stop_reason is not StopReason.CLAIM_LOST]
        self.running.clear()
        self._acks.put([(running, _GIVEN_BACK) for running in left])
        for running in left:
            if running.type is not None:
                seconds = time.monotonic() - running.began_s
                self._metrics.ended(running.type.name, Action.GIVE_BACK, seconds)
        return len(left)


def _as_cancelled(outcome: Outcome) -> Outcome:
    """Its job was asked to stop, perhaps after it had chosen this: the server makes no difference."""
    return outcome if outcome.action is Action.CANCEL else replace(outcome, action=Action.CANCEL, body=None, error="")


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
            status = f"attempt {attempt_number(job)}: {describe(error)}\n"
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
            each
            for each in self._jobs.running
            if each.until_s <= now_s and not each.ahead and each.stop_reason not in ENDING_REASONS
        ]:
            self._jobs.stop(running, StopReason.TIME_LIMIT)
        self._jobs.count_started(now_s)
        self._claims.watch_late(now_s)
        self._on_reaped()
        if self._claims.holds_any or self._jobs.pool.stuck:
            self.begin()
