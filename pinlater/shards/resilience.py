"""Bounds around the calls to one shard: a deadline, a limit of calls under way and waiting, and safe retries.

A call that reached the store is never cancelled, since its answer could reach the next caller of the connection: the
caller stops waiting, the call runs on, and what it then brings is handed to its `compensate`.

While one call is past half its deadline no other starts, and none waits for a turn: all are refused as ShardSlow.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, TypeVar

from pinlater.backends.base import (
    NO_RULES,
    AckOutcome,
    AckRequest,
    CheckpointRequest,
    ClaimKey,
    ClaimRequest,
    ConfigEntry,
    ConfigPage,
    DeadLetterTarget,
    EndRules,
    ExpiryCounts,
    FreshClaim,
    JobKey,
    KvEntry,
    PerQueue,
    Quota,
    Retention,
    ScanRequest,
    Shard,
    SilentClaim,
    StatsPage,
    StatsPosition,
    StoreStatus,
    Tokens,
)
from pinlater.backends.operations import OPERATIONS
from pinlater.clock import Clock
from pinlater.eager import EagerTask, InlineFuture
from pinlater.errors import NothingStored, OutcomeUnknown, Overloaded, PinLaterError, StoreConflict
from pinlater.metrics import Metrics
from pinlater.model import MAX_TIME_MS, CancelOutcome, DequeuedJob, Job, JobInfo, JobState
from pinlater.shards.compensation import requeue
from pinlater.shards.decorator import ShardDecorator

R = TypeVar("R")
V = TypeVar("V")
Compensate = Callable[[R], Coroutine[Any, Any, object]]
Report = Callable[[str, bool, BaseException | None], None]
"""Told how a call to the store ended: its name, whether it took longer than half its deadline, and its error.

A call that is not over at its deadline is told of then, as late, and not again when it ends.
"""


@dataclass(frozen=True, slots=True)
class GuardSettings:
    deadline_ms: int = 10_000
    """A caller waits so long for one call, its retries and its wait for a turn included."""

    max_running: int = 16
    """Calls under way at the store."""

    max_bulk: int = 2
    """Beside those, calls over many jobs (count, scan, retry, delete), so that slow ones hold up only themselves."""

    max_waiting: int = 1_000
    """Calls that wait for one of those to end; one more is refused as Overloaded."""

    max_tries: int = 4
    """Of a call that conflicted, or of a read that did not get through."""

    retry_base_ms: int = 5
    """The first retry comes after up to so long, each further one after up to twice as long as the one before."""


class AcquireTimeout(NothingStored):
    """The call never began: others were before it until its deadline. Says nothing of the store's health."""


class ShardSlow(NothingStored):
    """The call never began: an earlier one is past half its deadline. Says nothing more of the store's health."""


class _UnderWay(EagerTask):
    """A call that went to the store. It runs on when its caller has left."""

    __slots__ = ("_calls", "answer", "compensate", "is_read", "is_urgent", "name")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        calls: Bulkhead,
        name: str,
        is_read: bool,
        is_urgent: bool,
        compensate: Compensate[Any] | None,
    ) -> None:
        super().__init__(loop)
        self._calls = calls
        self.answer: InlineFuture[Any] = InlineFuture(loop)
        self.name = name
        self.is_read = is_read
        self.is_urgent = is_urgent
        self.compensate = compensate

    def on_done(self, value: Any, error: BaseException | None) -> None:
        self._calls._ended(self, value, error)


class Bulkhead:
    """The calls to one shard: who runs, who waits for a turn, and what still runs although nobody waits for it."""

    def __init__(self, shard_id: Callable[[], str], settings: GuardSettings, *, is_pinged: bool = False) -> None:
        """`is_pinged`: urgent calls tell soon whether a store that let a call wait too long is well again."""
        self._shard_id = shard_id
        self.settings = settings
        self._permits: deque[asyncio.Future[bool | None]] = deque()
        """True: it is yours; False: the deadline came first; None: the shard is too slow now."""
        self.free = settings.max_running
        self._under_way: dict[_UnderWay, float] = {}
        """And the deadline of each."""
        self._compensating: set[asyncio.Task[object]] = set()
        self._idle: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._looks_at = math.inf
        deadline_s = settings.deadline_ms / 1000
        self._slow_calls = SlowCallDetector(deadline_s, self._hold_up, deadline_s if is_pinged else 0.0)
        self.deadline_ms = settings.deadline_ms
        self.report: Report | None = None
        self.on_slow: Callable[[ShardSlow], None] | None = None
        """Called with a ShardSlow when a call passes half its deadline."""

    def held_up(self, now: float) -> ShardSlow | None:
        """The error of a call that may not start now, by the loop's time."""
        return self._held_up() if self._slow_calls.is_slow(now) else None

    async def make(
        self,
        name: str,
        call: Callable[[], Coroutine[Any, Any, R]],
        *,
        read: bool = False,
        compensate: Compensate[R] | None = None,
        is_urgent: bool = False,
    ) -> R:
        """The answer of `call` within the deadline; then OutcomeUnknown, or NothingStored for a read or no turn.

        `compensate` gets an answer that came when its caller waited no more. An urgent call waits for no permit, starts
        however slow others are, and is not reported.
        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        ends_at = now + self.settings.deadline_ms / 1000
        if not is_urgent and self._slow_calls.is_slow(now):
            raise self._held_up()
        if self.free > 0 or is_urgent:
            self.free -= 1
        else:
            await self._permit(loop, ends_at)
            now = loop.time()
        under_way = _UnderWay(loop, self, name, read, is_urgent, compensate)
        answer: InlineFuture[R] = under_way.answer
        self._under_way[under_way] = ends_at
        if ends_at < self._looks_at:
            self._look_at(loop, ends_at)
        if not is_urgent:
            self._slow_calls.began(under_way, now)
        under_way.start(self._try(call, read, ends_at))
        del under_way  # else its error keeps this frame, and with it all that the caller sent, until the next gc
        return await answer

    def _look_at(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        """One timer for all: it goes to the next that may miss its deadline."""
        if self._timer is not None:
            self._timer.cancel()
        self._looks_at = when
        self._timer = loop.call_at(when, self._look)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._timer, self._looks_at = None, math.inf
        for under_way, ends_at in list(self._under_way.items()):
            if ends_at <= now and under_way in self._under_way:  # it may end while an earlier one's caller goes on
                self._under_way[under_way] = math.inf
                self._missed(under_way, now)
        next_at = min(self._under_way.values(), default=math.inf)
        if next_at < self._looks_at:
            self._look_at(loop, next_at)

    def _missed(self, under_way: _UnderWay, now: float) -> None:
        """Its deadline is over."""
        if under_way.answer.done():
            return
        text = f"shard {self._shard_id()}: no answer within {self.settings.deadline_ms} ms"
        late = NothingStored(text) if under_way.is_read else OutcomeUnknown(text)
        if self._slow_calls.gave_up(under_way, now) and self.report is not None:
            self.report(under_way.name, True, late)
        under_way.answer.set_exception(late)

    async def _try(self, call: Callable[[], Coroutine[Any, Any, R]], read: bool, ends_at: float) -> R:
        tries = 1
        while True:
            try:
                return await call()
            except OutcomeUnknown as error:
                if read:
                    raise NothingStored(error.message) from error
                raise
            except NothingStored as error:
                if tries >= self.settings.max_tries or not (read or isinstance(error, StoreConflict)):
                    raise
                delay = random.uniform(0.1, 1) * self.settings.retry_base_ms * 2 ** (tries - 1) / 1000
                if asyncio.get_running_loop().time() + delay >= ends_at:
                    raise
                await asyncio.sleep(delay)
                tries += 1

    async def _permit(self, loop: asyncio.AbstractEventLoop, ends_at: float) -> None:
        """Wait for a place, in order of arrival."""
        if len(self._permits) >= self.settings.max_waiting:
            told = f"shard {self._shard_id()}: {len(self._permits)} calls wait already"
            raise Overloaded.by("waiting_store_calls", told, retry_after_ms=100)
        permit: asyncio.Future[bool | None] = loop.create_future()
        self._permits.append(permit)
        timer = loop.call_at(ends_at, _settle, permit, False)
        try:
            has_place = await permit
        except asyncio.CancelledError:
            if not permit.cancelled() and permit.result():
                self._leave()
            raise
        finally:
            timer.cancel()
            if permit in self._permits:
                self._permits.remove(permit)
        if has_place is None:
            raise self._held_up()
        if not has_place:
            raise AcquireTimeout(f"shard {self._shard_id()}: no turn within {self.settings.deadline_ms} ms")

    def _held_up(self) -> ShardSlow:
        return ShardSlow(
            f"shard {self._shard_id()}: a call takes longer than half of {self.settings.deadline_ms} ms",
            retry_after_ms=self.settings.deadline_ms // 2,
        )

    def _hold_up(self) -> None:
        """A call passed half its deadline: who waits for a turn, waits no longer."""
        for permit in self._permits:
            _settle(permit, None)
        if self.on_slow is not None:
            self.on_slow(self._held_up())

    def _leave(self) -> None:
        """Hand the place to the next that still waits, unless an urgent call had taken one too many."""
        if self.free < 0:
            self.free += 1
            return
        while self._permits:
            permit = self._permits.popleft()
            if not permit.done():
                permit.set_result(True)
                return
        self.free += 1

    def _ended(self, under_way: _UnderWay, value: Any, error: BaseException | None) -> None:
        now = asyncio.get_running_loop().time()
        left_s = self._under_way.pop(under_way) - now
        is_late = self._slow_calls.ended(under_way, now)
        if is_late is not None and self.report is not None and not isinstance(error, asyncio.CancelledError):
            self.report(under_way.name, is_late, error)
        self._leave()
        if self._idle is not None:
            self._note_idle()
        answer = under_way.answer
        if answer.done():
            if error is None and under_way.compensate is not None:
                self._compensate(under_way.compensate(value))
        elif error is not None:
            answer.set_exception(error)
        else:
            if under_way.is_urgent and left_s >= self.settings.deadline_ms / 2000:  # slower is as bad as a call
                self._slow_calls.answered()
            answer.set_result(value)

    def _compensate(self, compensating: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(compensating)
        self._compensating.add(task)
        task.add_done_callback(self._compensated)

    def _compensated(self, task: asyncio.Task[object]) -> None:
        self._compensating.discard(task)
        self._note_idle()

    def _note_idle(self) -> None:
        if self._idle is not None and not self._under_way and not self._compensating:
            _settle(self._idle, None)

    async def drain(self) -> None:
        """Until nothing is under way any more, undoing included; at most two deadlines."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + 2 * self.settings.deadline_ms / 1000
        while (self._under_way or self._compensating) and loop.time() < ends_at:
            self._idle = loop.create_future()
            await asyncio.wait([self._idle], timeout=ends_at - loop.time())
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._looks_at = None, math.inf
        self._slow_calls.close()


def _settle(future: asyncio.Future[V], value: V) -> None:
    if not future.done():
        future.set_result(value)


Call = Hashable


class SlowCallDetector:
    """Times are those of the event loop, in seconds, from the moment a call went to the store.

    A call that runs on beyond its whole deadline has lost its caller, and was told of. After it the store counts as
    slow until it answered something in time, a ping for one, but no longer than `rest_s`: else, with little traffic,
    one caller after the other would wait his whole deadline until three of them make a verdict.
    """

    def __init__(self, deadline_s: float, on_slow: Callable[[], None], rest_s: float) -> None:
        """`on_slow` is called when a call passes half the deadline."""
        self._deadline_s = deadline_s
        self._rest_s = rest_s
        self._rests_until = 0.0
        self._half_s = deadline_s / 2
        self._on_slow = on_slow
        self._began: dict[Call, float] = {}  # in order of their beginning
        self._timer: asyncio.TimerHandle | None = None

    def is_slow(self, now: float) -> bool:
        if now < self._rests_until:
            return True
        for began in self._began.values():
            if now - began < self._deadline_s:
                return now - began >= self._half_s
        return False

    def began(self, call: Call, now: float) -> None:
        self._began[call] = now
        if self._timer is None:
            self._look_at(now + self._half_s)

    def ended(self, call: Call, now: float) -> bool | None:
        """Whether it took longer than half the deadline; None where it was given up before, or never timed."""
        began = self._began.pop(call, None)
        if began is None:
            return None
        is_late = now - began > self._half_s
        if not is_late:
            self.answered()
        return is_late

    def answered(self) -> None:
        """The store did something in time."""
        self._rests_until = 0.0

    def gave_up(self, call: Call, now: float) -> bool:
        """Nobody waits for it any more. True where that is the store's fault: it had half the deadline at least."""
        began = self._began.get(call)
        if began is None or now - began < self._half_s:
            return False
        del self._began[call]
        self._rests_until = now + self._rest_s
        return True

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_at(self, when: float) -> None:
        self._timer = asyncio.get_running_loop().call_at(when, self._look)

    def _look(self) -> None:
        """One timer for all: it goes to the next call that may pass half its deadline."""
        now = asyncio.get_running_loop().time()
        self._timer = None
        for began in self._began.values():
            if now - began < self._half_s:
                self._look_at(began + self._half_s)
                break
        if self.is_slow(now):
            self._on_slow()


class ResilientShard(ShardDecorator):
    """Conflicts are retried for every call, a store that could not be reached only for reads.

    Calls that may bring many bodies take turns of their own, with those over many jobs.

    With a `clock` a claim goes by the time at which it leaves for the store, and not by the time at which it was asked
    for: its time-out counts from then, and nothing that was thought of the time before counts any more.
    """

    def __init__(self, inner: Shard, settings: GuardSettings | None = None, clock: Clock | None = None) -> None:
        super().__init__(inner)
        self._clock = clock
        settings = settings or GuardSettings()
        self._calls = Bulkhead(lambda: inner.shard_id, settings, is_pinged=True)
        self._bulk = Bulkhead(lambda: inner.shard_id, replace(settings, max_running=settings.max_bulk))
        self._bulk.report = self._report_bulk
        self._opening: asyncio.Task[str] | None = None

    @property
    def bulkhead(self) -> Bulkhead:
        return self._calls

    def _report_bulk(self, name: str, is_late: bool, error: BaseException | None) -> None:
        """That a call over many jobs takes long says nothing of the store."""
        if self._calls.report is not None and not (is_late and error is not None):
            self._calls.report(name, False, error)

    async def open(self) -> str:
        return await self._calls.make("open", self._open_once, is_urgent=True)

    async def _open_once(self) -> str:
        """A second open, after a first that was given up waiting for, joins it."""
        if self._opening is None or self._opening.done():
            self._opening = asyncio.get_running_loop().create_task(self.inner.open())
        return await asyncio.shield(self._opening)

    async def drain(self) -> None:
        """Until no call is under way, nor compensated for."""
        await asyncio.gather(self._calls.drain(), self._bulk.drain())

    async def close(self) -> None:
        await self.drain()
        await self.inner.close()

    async def ping(self) -> StoreStatus:
        return await self._calls.make("ping", self.inner.ping, is_urgent=True)

    async def put_config(self, entries: Sequence[ConfigEntry], now_ms: int) -> list[bool]:
        return await self._calls.make("put_records", lambda: self.inner.put_config(entries, now_ms))

    async def list_config(self, since: int, limit: int) -> ConfigPage:
        return await self._calls.make("records", lambda: self.inner.list_config(since, limit), read=True)

    def enqueue(self, queue: str, jobs: Sequence[Job], now_ms: int) -> Coroutine[Any, Any, list[str]]:
        return self._calls.make("enqueue", lambda: self.inner.enqueue(queue, jobs, now_ms))

    def count_ready(
        self, queue: str, priorities: Sequence[int], limit: int, now_ms: int
    ) -> Coroutine[Any, Any, list[int]]:
        return self._calls.make("ready", lambda: self.inner.count_ready(queue, priorities, limit, now_ms), read=True)

    def next_due(self, queues: Sequence[str], priorities: Sequence[int]) -> Coroutine[Any, Any, dict[str, int | None]]:
        return self._calls.make("next_due", lambda: self.inner.next_due(queues, priorities), read=True)

    def claim(
        self, queue: str, requests: Sequence[ClaimRequest], now_ms: int, *, enforce_quota: bool = False
    ) -> Coroutine[Any, Any, list[list[DequeuedJob]]]:
        clock = None if now_ms >= MAX_TIME_MS else self._clock  # as seen from the end of time, whatever it is now

        def call() -> Coroutine[Any, Any, list[list[DequeuedJob]]]:
            if clock is None:
                return self.inner.claim(queue, requests, now_ms, enforce_quota=enforce_quota)
            spare_ms = clock.uncertainty_ms
            renewed = [replace(each, spare_ms=spare_ms) for each in requests] if spare_ms else requests
            return self.inner.claim(queue, renewed, clock.now_ms(), enforce_quota=enforce_quota)

        async def compensate(claimed: list[list[DequeuedJob]]) -> None:
            await requeue(self.inner, queue, [job for jobs in claimed for job in jobs], now_ms)

        return self._calls.make("claim", call, compensate=compensate)

    async def peek(
        self, queue: str, priorities: Sequence[int], limit: int, max_bytes: int, now_ms: int
    ) -> list[DequeuedJob]:
        return await (self._bulk if limit > 1 else self._calls).make(
            "peek", lambda: self.inner.peek(queue, priorities, limit, max_bytes, now_ms), read=True
        )

    def ack(
        self, queue: str, acks: Sequence[AckRequest], now_ms: int, rules: EndRules = NO_RULES
    ) -> Coroutine[Any, Any, list[AckOutcome]]:
        return self._calls.make("ack", lambda: self.inner.ack(queue, acks, now_ms, rules))

    def ack_and_claim(
        self,
        queue: str,
        acks: Sequence[AckRequest],
        requests: Sequence[ClaimRequest],
        now_ms: int,
        rules: EndRules = NO_RULES,
        *,
        enforce_quota: bool = False,
    ) -> Coroutine[Any, Any, tuple[list[AckOutcome], list[list[DequeuedJob]]]]:
        """Where the time is uncertain, acks and claims go by different ones: then these are two calls of the store."""
        clock = None if now_ms >= MAX_TIME_MS else self._clock

        async def call() -> tuple[list[AckOutcome], list[list[DequeuedJob]]]:
            spare_ms = 0 if clock is None else clock.uncertainty_ms
            at_ms = now_ms if clock is None else clock.now_ms()
            if not spare_ms:
                return await self.inner.ack_and_claim(queue, acks, requests, at_ms, rules, enforce_quota=enforce_quota)
            outcomes = await self.inner.ack(queue, acks, at_ms + spare_ms, rules)
            renewed = [replace(each, spare_ms=spare_ms) for each in requests]
            return outcomes, await self.inner.claim(queue, renewed, at_ms, enforce_quota=enforce_quota)

        async def compensate(answer: tuple[list[AckOutcome], list[list[DequeuedJob]]]) -> None:
            await requeue(self.inner, queue, [job for jobs in answer[1] for job in jobs], now_ms)

        return self._calls.make("ack_and_claim", call, compensate=compensate)

    def checkpoint(
        self, queue: str, checkpoints: Sequence[CheckpointRequest], now_ms: int
    ) -> Coroutine[Any, Any, list[bool]]:
        return self._calls.make("checkpoint", lambda: self.inner.checkpoint(queue, checkpoints, now_ms))

    async def requeue(self, queue: str, claims: Sequence[ClaimKey], now_ms: int) -> int:
        return await self._calls.make("give_back", lambda: self.inner.requeue(queue, claims, now_ms))

    async def expire_disconnected(
        self, queue: str, claims: Sequence[SilentClaim], now_ms: int, rules: EndRules = NO_RULES
    ) -> ExpiryCounts:
        return await self._calls.make("release", lambda: self.inner.expire_disconnected(queue, claims, now_ms, rules))

    async def requeue_undelivered(self, queue: str, claims: Sequence[FreshClaim], now_ms: int) -> int:
        return await self._calls.make(
            "requeue_undelivered", lambda: self.inner.requeue_undelivered(queue, claims, now_ms)
        )

    async def cancel(self, queue: str, jobs: Sequence[JobKey], now_ms: int) -> list[CancelOutcome]:
        return await self._calls.make("cancel", lambda: self.inner.cancel(queue, jobs, now_ms))

    async def lookup(
        self, queue: str, jobs: Sequence[JobKey], *, with_body: bool, max_bytes: int
    ) -> list[JobInfo | None]:
        calls = self._bulk if with_body and len(jobs) > 1 else self._calls
        return await calls.make(
            "lookup", lambda: self.inner.lookup(queue, jobs, with_body=with_body, max_bytes=max_bytes), read=True
        )

    async def count(self, queue: str, state: JobState, priorities: Sequence[int], future: bool, now_ms: int) -> int:
        return await self._bulk.make(
            "count", lambda: self.inner.count(queue, state, priorities, future, now_ms), read=True
        )

    async def scan(self, queue: str, request: ScanRequest, now_ms: int) -> list[JobInfo]:
        return await self._bulk.make("scan", lambda: self.inner.scan(queue, request, now_ms), read=True)

    async def retry_failed(
        self, queue: str, priority: int, attempts: int, run_after_ms: int | None, limit: int, now_ms: int
    ) -> int:
        return await self._bulk.make(
            "retry_failed", lambda: self.inner.retry_failed(queue, priority, attempts, run_after_ms, limit, now_ms)
        )

    async def retry_listed(
        self, queue: str, jobs: Sequence[JobKey], attempts: int | None, run_after_ms: int | None, now_ms: int
    ) -> int:
        return await self._bulk.make(
            "retry_listed", lambda: self.inner.retry_listed(queue, jobs, attempts, run_after_ms, now_ms)
        )

    async def delete_jobs(self, queue: str, state: JobState, priority: int, limit: int, now_ms: int) -> int:
        return await self._bulk.make(
            "delete_jobs", lambda: self.inner.delete_jobs(queue, state, priority, limit, now_ms)
        )

    async def delete_listed(self, queue: str, state: JobState, jobs: Sequence[JobKey], now_ms: int) -> int:
        return await self._bulk.make("delete_listed", lambda: self.inner.delete_listed(queue, state, jobs, now_ms))

    async def replay(self, queue: str, jobs: Sequence[JobKey], now_ms: int, attempts: int | None) -> list[str | None]:
        return await self._bulk.make("replay", lambda: self.inner.replay(queue, jobs, now_ms, attempts))

    async def mark_moved(self, queue: str, moved: Sequence[tuple[ClaimKey, str]], now_ms: int) -> list[bool]:
        return await self._calls.make("mark_moved", lambda: self.inner.mark_moved(queue, moved, now_ms))

    async def expire_claims(self, limit: int, now_ms: int, rules: PerQueue[EndRules]) -> Mapping[str, ExpiryCounts]:
        return await self._calls.make("expire_claims", lambda: self.inner.expire_claims(limit, now_ms, rules))

    async def dead_letter(self, limit: int, now_ms: int, targets: Mapping[str, DeadLetterTarget]) -> Mapping[str, int]:
        return await self._calls.make("bury", lambda: self.inner.dead_letter(limit, now_ms, targets))

    async def prune(
        self, limit: int, now_ms: int, retention: PerQueue[Retention], *, tombstones_before: str = ""
    ) -> Mapping[str, int]:
        return await self._calls.make(
            "collect", lambda: self.inner.prune(limit, now_ms, retention, tombstones_before=tombstones_before)
        )

    async def kv_put(
        self,
        namespace: str,
        name: str,
        body: bytes,
        expires_at_ms: int,
        now_ms: int,
        *,
        expected_version: int | None = None,
        keep: int = 100_000,
    ) -> int:
        return await self._calls.make(
            "put_note",
            lambda: self.inner.kv_put(
                namespace, name, body, expires_at_ms, now_ms, expected_version=expected_version, keep=keep
            ),
        )

    async def kv_list(self, namespace: str, now_ms: int) -> dict[str, KvEntry]:
        return await self._calls.make("notes", lambda: self.inner.kv_list(namespace, now_ms), read=True)

    async def take_tokens(self, queue: str, wanted: int, per_second: float, capacity: float, now_ms: int) -> Tokens:
        return await self._calls.make(
            "take_tokens", lambda: self.inner.take_tokens(queue, wanted, per_second, capacity, now_ms)
        )

    async def set_quota(self, queue: str, share: int, version: int, now_ms: int) -> Quota:
        return await self._calls.make("set_share", lambda: self.inner.set_quota(queue, share, version, now_ms))

    async def stats(
        self, queue: str, priorities: Sequence[int], now_ms: int, after: StatsPosition | None, limit: int
    ) -> StatsPage:
        return await self._bulk.make(
            "census", lambda: self.inner.stats(queue, priorities, now_ms, after, limit), read=True
        )


_NOT_METERED = ("open", "close")


class MeteredShard(ShardDecorator):
    """Stands outside of the guard, so that waiting for a turn counts, and inside of the joining."""

    def __init__(self, inner: Shard, metrics: Metrics) -> None:
        super().__init__(inner)
        self._metrics = metrics

    async def claim(
        self, queue: str, requests: Sequence[ClaimRequest], now_ms: int, *, enforce_quota: bool = False
    ) -> list[list[DequeuedJob]]:
        """What was handed out, not what was asked for, is the size of a claim."""
        claimed = await self._metered("claim", self.inner.claim(queue, requests, now_ms, enforce_quota=enforce_quota))
        self._metrics.observe(sum(map(len, claimed)), "shard_batch_jobs", self.shard_id, "claim")
        return claimed

    async def _metered(self, name: str, call: Coroutine[Any, Any, R]) -> R:
        began = perf_counter()
        try:
            answer = await call
        except PinLaterError as error:
            self._metrics.add(1, "shard_call_errors", self.shard_id, name, type(error).reason or type(error).__name__)
            raise
        finally:
            self._metrics.observe(perf_counter() - began, "shard_call_seconds", self.shard_id, name)
        return answer


def _metering(name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    operation = OPERATIONS[name]
    label, batch = operation.label, operation.batch

    def call(self: MeteredShard, *arguments: Any, **named: Any) -> Coroutine[Any, Any, Any]:
        if batch is not None:
            self._metrics.observe(len(arguments[batch]), "shard_batch_jobs", self.shard_id, label)
        return self._metered(label, getattr(self.inner, name)(*arguments, **named))

    return call


for _name, _value in vars(ShardDecorator).items():
    if callable(_value) and not _name.startswith("_") and _name not in (*_NOT_METERED, *vars(MeteredShard)):
        setattr(MeteredShard, _name, _metering(_name))
