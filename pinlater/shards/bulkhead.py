"""Calls to one shard: a deadline, a limit of calls under way and waiting, safe retries, and detection of slow calls.

A call that reached the store is never cancelled, since its answer could reach the next caller of the connection: the
caller stops waiting, the call runs on, and what it then brings is compensated for.

The way of a call: `Bulkhead.call` takes a permit, starts a StoreCall, and waits for its answer. The StoreCall steps the
store's coroutine, tries again what may be tried again, and at its end hands its permit on, reports the outcome, and
settles the answer.

While one call is past half its deadline no other starts, and none waits for a permit: all are refused as ShardSlow.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from pinlater.backends.base import OPERATIONS, Shard
from pinlater.backends.operations import Operation
from pinlater.eager import EagerTask, InlineFuture
from pinlater.errors import NothingStored, OutcomeUnknown, Overloaded, PinLaterError, StoreConflict
from pinlater.metrics import Histogram, Metrics
from pinlater.model import DequeuedJob
from pinlater.shards.health import Health

Method = Callable[..., Coroutine[Any, Any, Any]]
Report = Callable[[str, bool, BaseException | None], None]
"""Receives how a call to the store ended: its name, whether it took longer than half its deadline, and its error.

A call that is not over at its deadline is reported then, as late, and not again when it ends.
"""


@dataclass(frozen=True, slots=True)
class BulkheadSettings:
    deadline_ms: int = 10_000
    """A caller waits so long for one call, its retries and its wait for a permit included."""

    max_running: int = 16
    """Calls under way at the store."""

    max_bulk: int = 2
    """Calls over many jobs (count, scan, retry, delete) under way beside those: slow ones delay only themselves."""

    max_waiting: int = 1_000
    """Calls that wait for one of those to end; one more is refused as Overloaded."""

    max_tries: int = 4
    """Tries of a call that conflicted, or of a read that did not get through."""

    retry_base_ms: int = 5
    """The first retry comes after up to so long, each further one after up to twice as long as the one before."""


class AcquireTimeout(NothingStored):
    """The call never began: others were before it until its deadline. Says nothing of the store's health."""


class ShardSlow(NothingStored):
    """The call never began: an earlier one is past half its deadline. Says nothing more of the store's health."""


class StoreCall(EagerTask):
    """A call that went to the store. It runs on when its caller has left."""

    __slots__ = (
        "_bulkhead",
        "_tries",
        "answer",
        "args",
        "began_s",
        "ends_s",
        "is_reported",
        "kwargs",
        "method",
        "operation",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        bulkhead: Bulkhead,
        operation: Operation,
        method: Method,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        began_s: float,
        ends_s: float,
    ) -> None:
        super().__init__(loop)
        self._bulkhead = bulkhead
        self._tries = 1
        self.answer: InlineFuture[Any] = InlineFuture(loop)
        self.operation = operation
        self.method = method
        self.args = args
        self.kwargs = kwargs
        self.began_s = began_s
        """When it went to the store, by the loop's time."""
        self.ends_s = ends_s
        """When its caller waits no more; infinite once it was told so."""
        self.is_reported = operation.urgent
        """Its outcome was reported, or is not to be: then nothing follows from how long it takes."""

    def on_done(self, value: Any, error: BaseException | None) -> None:
        if error is not None:
            if self._is_tried_again(error):
                return
            if isinstance(error, OutcomeUnknown) and self.operation.reads:
                cause, error = error, NothingStored(error.message)
                error.__cause__ = cause
        self._bulkhead.ended(self, value, error)

    def _is_tried_again(self, error: BaseException) -> bool:
        settings, loop = self._bulkhead.settings, self._loop
        may_be = isinstance(error, NothingStored) and (self.operation.reads or isinstance(error, StoreConflict))
        if not may_be or self._tries >= settings.max_tries:
            return False
        delay_s = random.uniform(0.1, 1) * settings.retry_base_ms * 2 ** (self._tries - 1) / 1000
        if loop.time() + delay_s >= self.ends_s:
            return False
        self._tries += 1
        loop.call_later(delay_s, self._try_again)
        return True

    def _try_again(self) -> None:
        try:
            coroutine = self.method(*self.args, **self.kwargs)
        except Exception as error:
            self._bulkhead.ended(self, None, error)
        else:
            self.start(coroutine)


class Bulkhead:
    """The calls to one shard: which run, which wait for a permit, and which run on although nobody waits for them."""

    def __init__(
        self,
        shard: Shard,
        settings: BulkheadSettings,
        *,
        metrics: Metrics | None = None,
        compensate: Callable[[StoreCall, Any], Coroutine[Any, Any, object]] | None = None,
        is_pinged: bool = False,
    ) -> None:
        """`compensate` gets a call that hands out jobs, and its answer, where its caller is gone. `is_pinged`: urgent
        calls tell soon whether a store that let a call wait too long is well again.
        """
        self._shard = shard
        self._metrics = metrics
        self._call_seconds: dict[str, Histogram] = {}
        self._batch_jobs: dict[str, Histogram] = {}
        """By the label of the operation. Kept here, since every call looks for one."""
        self._compensate = compensate
        self._is_pinged = is_pinged
        self.settings = settings
        self.free = settings.max_running
        """Permits that nobody has; below 0 where urgent calls have more than there are."""
        self._permits: deque[asyncio.Future[bool | None]] = deque()
        """Callers that wait for one. True: it is theirs; False: the deadline came first; None: the shard is slow."""
        self._under_way: dict[StoreCall, None] = {}
        """The calls under way, in the order in which they began."""
        self._slow_calls = SlowCallDetector(self._under_way)
        self._compensating: set[asyncio.Task[object]] = set()
        self._idle: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._next_check_s = math.inf
        self.report: Report | None = None
        self.health: Health | None = None
        """The shard's health: calls that go well are reported only where they change it."""
        self.on_slow: Callable[[ShardSlow], None] | None = None
        """Called with a ShardSlow when a call passes half its deadline."""

    @property
    def settings(self) -> BulkheadSettings:
        return self._settings

    @settings.setter
    def settings(self, settings: BulkheadSettings) -> None:
        self._settings = settings
        self.deadline_ms = settings.deadline_ms
        self._deadline_s = settings.deadline_ms / 1000

    async def call(self, operation: Operation, method: Method, /, *args: Any, **kwargs: Any) -> Any:
        """The answer of the method within the deadline; then OutcomeUnknown, or NothingStored for a read or without a
        permit.

        An urgent call waits for no permit, starts however slow others are, and is not reported.
        """
        loop = asyncio.get_running_loop()
        metrics = self._metrics if operation.label else None
        arrived_s = began_s = loop.time()
        ends_s = arrived_s + self._deadline_s
        if metrics is not None and operation.batch is not None:
            jobs = len(args[operation.batch])
            batches = self._batch_jobs.get(operation.batch_label) or self._batches(metrics, operation.batch_label)
            batches.observe(jobs)
        try:
            slow_calls = self._slow_calls
            if slow_calls.may_be_slow and not operation.urgent and slow_calls.is_slow(began_s, self._deadline_s):
                raise self._shard_slow()
            if self.free > 0 or operation.urgent:
                self.free -= 1
            else:
                await self._permit(loop, ends_s)
                began_s = loop.time()
            try:
                coroutine = method(*args, **kwargs)
            except BaseException:
                self._release()
                raise
            store_call = StoreCall(loop, self, operation, method, args, kwargs, began_s, ends_s)
            self._under_way[store_call] = None
            check_at = min(began_s + self._deadline_s / 2, ends_s)
            if check_at < self._next_check_s:
                self._check_at(loop, check_at)
            answer = store_call.answer
            store_call.start(coroutine)
            del store_call, coroutine, args, kwargs  # else its error keeps this frame, and with it all that was sent
            value = await answer
        except PinLaterError as error:
            if metrics is not None:
                reason = type(error).reason or type(error).__name__
                metrics.add(1, "shard_call_errors", self._shard.shard_id, operation.label, reason)
            raise
        finally:
            if metrics is not None:
                took_s = loop.time() - arrived_s
                seconds = self._call_seconds.get(operation.label) or self._seconds(metrics, operation.label)
                seconds.observe(took_s)
        if metrics is not None and operation.claims:
            handed_out = sum(map(len, value[1] if type(value) is tuple else value))
            label = OPERATIONS["claim"].label
            (self._batch_jobs.get(label) or self._batches(metrics, label)).observe(handed_out)
        return value

    def _batches(self, metrics: Metrics, label: str) -> Histogram:
        histogram = metrics.histogram("shard_batch_jobs", self._shard.shard_id, label)
        return self._keep(self._batch_jobs, label, histogram)

    def _seconds(self, metrics: Metrics, label: str) -> Histogram:
        return self._keep(
            self._call_seconds, label, metrics.histogram("shard_call_seconds", self._shard.shard_id, label)
        )

    def _keep(self, histograms: dict[str, Histogram], label: str, histogram: Histogram) -> Histogram:
        if self._shard.shard_id:  # before it is opened, a shard may not know its id
            histograms[label] = histogram
        return histogram

    # -- permits -----------------------------------------------------------------------------------------------------

    async def _permit(self, loop: asyncio.AbstractEventLoop, ends_s: float) -> None:
        """Wait for one, in order of arrival."""
        if len(self._permits) >= self._settings.max_waiting:
            reason = f"shard {self._shard.shard_id}: {len(self._permits)} calls wait already"
            raise Overloaded.by("waiting_store_calls", reason, retry_after_ms=100)
        permit: asyncio.Future[bool | None] = loop.create_future()
        self._permits.append(permit)
        timer = loop.call_at(ends_s, _settle, permit, False)
        try:
            has_it = await permit
        except asyncio.CancelledError:
            if not permit.cancelled() and permit.result():
                self._release()
            raise
        finally:
            timer.cancel()
            if permit in self._permits:
                self._permits.remove(permit)
        if has_it is None:
            raise self._shard_slow()
        if not has_it:
            raise AcquireTimeout(f"shard {self._shard.shard_id}: no permit within {self.deadline_ms} ms")

    def _release(self) -> None:
        """Hand a permit to the next that still waits, unless an urgent call had taken one too many."""
        if self.free < 0:
            self.free += 1
            return
        while self._permits:
            permit = self._permits.popleft()
            if not permit.done():
                permit.set_result(True)
                return
        self.free += 1

    # -- the end of a call -------------------------------------------------------------------------------------------

    def ended(self, call: StoreCall, value: Any, error: BaseException | None) -> None:
        """The store is done with it."""
        now = asyncio.get_running_loop().time()
        half_s = self._deadline_s / 2
        del self._under_way[call]
        if not call.is_reported:
            is_late = now - call.began_s > half_s
            if not is_late:
                self._slow_calls.rests_until_s = 0.0
            if error is not None or is_late or self.health is None or self.health.counts_good:
                self._report_outcome(call.operation.name, is_late, error)
        elif call.operation.urgent and error is None and now - call.began_s <= half_s:  # slower is as bad as a call
            self._slow_calls.rests_until_s = 0.0
        if self._permits or self.free < 0:
            self._release()
        else:
            self.free += 1
        if self._idle is not None:
            self._note_idle()
        answer = call.answer
        if answer.done():
            operation = call.operation
            if error is None and (operation.claims or operation.claims_listed) and self._compensate is not None:
                self._run(self._compensate(call, value))
        elif error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(value)

    def _report_outcome(self, name: str, is_late: bool, error: BaseException | None) -> None:
        """Report how a call ended. That a call over many jobs takes long, or has no answer at its deadline, is not
        reported: it says nothing of the store.
        """
        if self.report is None or isinstance(error, asyncio.CancelledError):
            return
        if self._is_pinged:
            self.report(name, is_late, error)
        elif not (is_late and error is not None):
            self.report(name, False, error)

    def _run(self, compensation: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(compensation)
        self._compensating.add(task)
        task.add_done_callback(self._compensated)

    def _compensated(self, task: asyncio.Task[object]) -> None:
        self._compensating.discard(task)
        self._note_idle()

    # -- deadlines ---------------------------------------------------------------------------------------------------

    def slow_error(self, now_s: float) -> ShardSlow | None:
        """The error of a call that may not start now, by the loop's time."""
        slow_calls = self._slow_calls
        is_slow = slow_calls.may_be_slow and slow_calls.is_slow(now_s, self._deadline_s)
        return self._shard_slow() if is_slow else None

    def _shard_slow(self) -> ShardSlow:
        return ShardSlow(
            f"shard {self._shard.shard_id}: a call takes longer than half of {self.deadline_ms} ms",
            retry_after_ms=self.deadline_ms // 2,
        )

    def _check_at(self, loop: asyncio.AbstractEventLoop, when_s: float) -> None:
        """One timer for all: it goes to the next call that may pass half its deadline, or all of it."""
        if self._timer is not None:
            self._timer.cancel()
        self._next_check_s = when_s
        self._timer = loop.call_at(when_s, self._check)

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        half_s = self._deadline_s / 2
        self._timer, self._next_check_s = None, math.inf
        for call in list(self._under_way):
            if call.ends_s <= now and call in self._under_way:  # it may end while an earlier one's caller goes on
                self._missed(call, now)
        next_at = math.inf
        for call in self._under_way:
            half_at = call.began_s + half_s
            next_at = min(next_at, half_at if now < half_at else call.ends_s)
        if next_at < self._next_check_s:
            self._check_at(loop, next_at)
        self._slow_calls.may_be_slow = True
        if self._slow_calls.is_slow(now, self._deadline_s):
            for permit in self._permits:
                _settle(permit, None)
            if self.on_slow is not None:
                self.on_slow(self._shard_slow())

    def _missed(self, call: StoreCall, now: float) -> None:
        """Its deadline is over. That is the store's fault where it had half of it at least."""
        call.ends_s = math.inf
        if call.answer.done():
            return
        text = f"shard {self._shard.shard_id}: no answer within {self.deadline_ms} ms"
        late = NothingStored(text) if call.operation.reads else OutcomeUnknown(text)
        if not call.is_reported and now - call.began_s >= self._deadline_s / 2:
            call.is_reported = True
            self._slow_calls.rests_until_s = now + (self._deadline_s if self._is_pinged else 0.0)
            self._report_outcome(call.operation.name, True, late)
        call.answer.set_exception(late)

    # -- the end -----------------------------------------------------------------------------------------------------

    def _note_idle(self) -> None:
        if self._idle is not None and not self._under_way and not self._compensating:
            _settle(self._idle, None)

    async def drain(self) -> None:
        """Wait until nothing is under way any more, compensation included, for at most two deadlines."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + 2 * self._deadline_s
        while (self._under_way or self._compensating) and loop.time() < ends_s:
            self._idle = loop.create_future()
            await asyncio.wait([self._idle], timeout=ends_s - loop.time())
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._next_check_s = None, math.inf


class SlowCallDetector:
    """Is one of the calls under way past half its deadline?

    A call that runs on beyond its whole deadline has lost its caller, and was reported. After it the store counts as
    slow until it answered something in time, a ping for one, but no longer than until `rests_until_s`: else, with
    little traffic, one caller after the other would wait for a whole deadline until three of them make a verdict.
    """

    __slots__ = ("_under_way", "may_be_slow", "rests_until_s")

    def __init__(self, under_way: dict[StoreCall, None]) -> None:
        self._under_way = under_way
        self.rests_until_s = 0.0
        self.may_be_slow = False
        """Set when a call passes half its deadline: until then `is_slow` need not be asked."""

    def is_slow(self, now_s: float, deadline_s: float) -> bool:
        if now_s < self.rests_until_s:
            return True
        for call in self._under_way:
            under_way_s = now_s - call.began_s
            if not call.is_reported and under_way_s < deadline_s:
                self.may_be_slow = under_way_s >= deadline_s / 2
                return self.may_be_slow
        self.may_be_slow = False
        return False


def claimed_jobs(call: StoreCall, answer: Any) -> list[DequeuedJob]:
    """The jobs that a call handed out: a claim, or acks with one, or a claim of jobs that it named."""
    if call.operation.claims_listed:
        return [each.job for each in answer if each.job is not None]
    claims: list[list[DequeuedJob]] = answer[1] if isinstance(answer, tuple) else answer
    return [job for jobs in claims for job in jobs]


def _settle(future: asyncio.Future[Any], value: object) -> None:
    if not future.done():
        future.set_result(value)
