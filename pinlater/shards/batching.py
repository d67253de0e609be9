"""Small calls of one kind joined into batches, clocked by the calls themselves.

Nothing under way for a key: a call is sent at once, by its own caller. Else it joins the next batch of that key, which
leaves when the one under way returns. No timer, no wait that was not there anyway.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import structlog

from pinlater.backends.acks import Acks
from pinlater.backends.base import NO_RULES, AckOutcome, AckRequest, ClaimRequest, EndRules, Shard
from pinlater.errors import OutcomeUnknown, Overloaded, PinLaterError, QueueNotFound
from pinlater.model import DequeuedJob, Job
from pinlater.shards.compensation import requeue
from pinlater.shards.decorator import ShardDecorator
from pinlater.shards.resilience import AcquireTimeout, ResilientShard, ShardSlow

_log = structlog.get_logger("pinlater.shards")

K = TypeVar("K", bound=Hashable)
I = TypeVar("I")  # noqa: E741
O = TypeVar("O")  # noqa: E741

BATCH_WIDE_ERRORS = (OutcomeUnknown, AcquireTimeout, ShardSlow, Overloaded, QueueNotFound)
"""Errors that no single member of a batch can be the reason of, or after which nothing may be sent again."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    bypass_jobs: int = 100
    """A call with so many jobs goes alone and at once: what a call costs by itself is little for each of them, and a
    store that gets one large batch after the other rests while the next is made, and has the server rest meanwhile.
    """

    max_jobs: int = 1_000
    """Jobs in a joined batch; a call with so many always goes alone."""

    max_bytes: int = 4 * 1024 * 1024
    """Bytes in a joined batch, and in all calls together that go alone with fewer jobs; one call may have more."""

    max_claim_bytes: int = 128 * 1024 * 1024
    """Bytes that a joined claim may bring, if all jobs are as large as can be; one caller alone may ask for more."""

    max_waiting: int = 4_096
    """Callers that wait for a batch; one more is refused as Overloaded."""

    max_wait_ms: int = 10_000
    """How long a caller waits in all: for a batch to leave, and for its answer."""


class _Member(Generic[I, O]):
    __slots__ = ("answer", "asked_at", "has_left", "items", "jobs", "now_ms", "size")

    def __init__(
        self, answer: asyncio.Future[list[O]], items: Sequence[I], now_ms: int, asked_at: float, jobs: int, size: int
    ) -> None:
        self.answer = answer
        self.items = items
        self.now_ms = now_ms
        self.asked_at = asked_at
        self.jobs = jobs
        self.size = size
        self.has_left = False


class Batcher(Generic[K, I, O]):
    """Joins the calls of one kind. `send` makes one call of the store; its answer aligns with the items. A shorter one
    leaves out the last of them: their callers are joined again, before those who came later; who was answered in part
    gets that part.

    `compensate` gets the answer of a caller that is gone; `send_for_gone` sends a waiting call although its caller has
    gone; `slow_error` gives the error of a call that may not wait, by the loop's time. `join` makes one call's items of
    several calls', which go by the latest now of these.
    """

    def __init__(
        self,
        send: Callable[[K, Sequence[I], int], Coroutine[Any, Any, list[O]]],
        measure: Callable[[Sequence[I]], tuple[int, int]],
        bounds: BatchLimits,
        *,
        compensate: Callable[[K, list[O], int], Coroutine[Any, Any, object]] | None = None,
        send_for_gone: bool = False,
        slow_error: Callable[[float], PinLaterError | None] | None = None,
        join: Callable[[Iterable[Sequence[I]]], Sequence[I]] | None = None,
    ) -> None:
        self._send = send
        self._join: Callable[[Iterable[Sequence[I]]], Sequence[I]] = join or _in_a_row
        self._measure = measure
        self._bounds = bounds
        self._compensate = compensate
        self._send_for_gone = send_for_gone
        self._slow_error = slow_error
        self._busy: set[K] = set()
        self._alone_size = 0
        self._waiting: dict[K, deque[_Member[I, O]]] = {}
        self._callers: dict[_Member[I, O], None] = {}  # in order of arrival
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[object]] = set()
        self._idle: asyncio.Future[None] | None = None

    async def call(self, key: K, items: Sequence[I], now_ms: int) -> list[O]:
        """The answer for these items; errors are the store's, Overloaded, ShardSlow and AcquireTimeout.

        A caller that was joined and has no answer after `max_wait_ms` gets AcquireTimeout, or OutcomeUnknown where the
        batch has left.
        """
        if key not in self._busy:
            self._busy.add(key)
            try:
                return await self._send(key, items, now_ms)
            finally:
                self._next(key)
        jobs, size = self._measure(items)
        if jobs >= self._bounds.max_jobs:
            return await self._send(key, items, now_ms)
        if jobs >= self._bounds.bypass_jobs and self._alone_size + size <= self._bounds.max_bytes:
            self._alone_size += size
            try:
                return await self._send(key, items, now_ms)
            finally:
                self._alone_size -= size
        return await self._wait(key, items, now_ms, jobs, size)

    async def _wait(self, key: K, items: Sequence[I], now_ms: int, jobs: int, size: int) -> list[O]:
        if len(self._callers) >= self._bounds.max_waiting:
            told = f"{len(self._callers)} calls wait for the store already"
            raise Overloaded.by("waiting_joined_calls", told, retry_after_ms=100)
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        error = None if self._slow_error is None else self._slow_error(asked_at)
        if error is not None:
            raise error
        member: _Member[I, O] = _Member(loop.create_future(), items, now_ms, asked_at, jobs, size)
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = deque()
        waiting.append(member)
        self._callers[member] = None
        if self._timer is None:
            self._timer = loop.call_at(member.asked_at + self._bounds.max_wait_ms / 1000, self._look)
        try:
            return await member.answer
        except asyncio.CancelledError:
            if not member.answer.cancelled() and member.answer.exception() is None:
                self._give_up(key, member.answer.result(), now_ms)
            raise
        finally:
            del self._callers[member]
            del member  # its error would keep it, and it the error

    def _look(self) -> None:
        """One timer for all: refuse who waited too long, and look again when the next one would have."""
        loop = asyncio.get_running_loop()
        self._timer = None
        for member in self._callers:
            ends_at = member.asked_at + self._bounds.max_wait_ms / 1000
            if ends_at > loop.time():
                self._timer = loop.call_at(ends_at, self._look)
                break
            text = f"within {self._bounds.max_wait_ms} ms"
            _refuse(
                member, OutcomeUnknown(f"no answer {text}") if member.has_left else AcquireTimeout(f"no turn {text}")
            )

    def refuse_waiting(self, error: PinLaterError) -> None:
        """Nobody waits any longer for a batch that has not left."""
        for member in self._callers:
            if not member.has_left:
                _refuse(member, copy.copy(error))

    def _next(self, key: K) -> None:
        if key in self._waiting:
            self._spawn(self._run(key))
        else:
            self._leave(key)

    def _leave(self, key: K) -> None:
        self._busy.discard(key)
        if self._idle is not None and not self._busy and not self._idle.done():
            self._idle.set_result(None)

    async def _run(self, key: K) -> None:
        """Send what waits, batch after batch, until nothing does."""
        while batch := self._take(key):
            try:
                await self._send_joined(key, batch)
            except Exception as error:  # unforeseen: those behind them would wait for a turn that never comes
                _log.error("joined_calls_failed", calls=len(batch), exc_info=error)
                error.__traceback__ = None
                for member in batch:
                    _refuse(member, copy.copy(error))
        self._leave(key)

    def _take(self, key: K) -> list[_Member[I, O]]:
        """The next batch in order of arrival, without callers that are gone."""
        waiting = self._waiting.get(key, deque())
        batch: list[_Member[I, O]] = []
        jobs = size = 0
        while waiting:
            member = waiting[0]
            if self._is_void(member):
                waiting.popleft()
                continue
            jobs += member.jobs
            size += member.size
            if batch and (jobs > self._bounds.max_jobs or size > self._bounds.max_bytes):
                break
            member.has_left = True
            batch.append(waiting.popleft())
        if not waiting:
            self._waiting.pop(key, None)
        return batch

    async def _send_joined(self, key: K, batch: list[_Member[I, O]]) -> None:
        if len(batch) == 1:
            await self._send_alone(key, batch[0])
            return
        items = self._join([member.items for member in batch])
        try:
            answers = await self._send(key, items, max([member.now_ms for member in batch]))
        except BATCH_WIDE_ERRORS as error:
            error.__traceback__ = None  # it keeps the frames, and they the batch, wherever one of them keeps the error
            for member in batch:
                _refuse(member, copy.copy(error))
        except Exception as error:
            error.__traceback__ = None
            await asyncio.gather(*(self._send_alone(key, member) for member in batch))
        else:
            start = 0
            for place, member in enumerate(batch):
                if start and start == len(answers):
                    self._wait_again(key, batch[place:])
                    break
                end = start + len(member.items)
                self._settle(key, member, answers[start:end])
                start = end

    def _wait_again(self, key: K, members: Sequence[_Member[I, O]]) -> None:
        waiting = self._waiting.setdefault(key, deque())
        for member in reversed(members):
            member.has_left = False
            waiting.appendleft(member)

    async def _send_alone(self, key: K, member: _Member[I, O]) -> None:
        if self._is_void(member):
            return
        try:
            answers = await self._send(key, member.items, member.now_ms)
        except Exception as error:
            _refuse(member, error)
        else:
            self._settle(key, member, answers)

    def _is_void(self, member: _Member[I, O]) -> bool:
        """Its caller is gone, or was told that nothing more will be done."""
        return member.answer.done() and not (self._send_for_gone and member.answer.cancelled())

    def _settle(self, key: K, member: _Member[I, O], answers: list[O]) -> None:
        if member.answer.done():
            self._give_up(key, answers, member.now_ms)
        else:
            member.answer.set_result(answers)

    def _give_up(self, key: K, answers: list[O], now_ms: int) -> None:
        if self._compensate is not None:
            self._spawn(self._compensate(key, answers, now_ms))

    def _spawn(self, coroutine: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drain(self) -> None:
        """Until every call that waits has been sent and answered."""
        while self._busy:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle
        while self._tasks:
            await asyncio.wait(self._tasks)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _in_a_row(several: Iterable[Sequence[I]]) -> Sequence[I]:
    return [item for items in several for item in items]


def _refuse(member: _Member[I, O], error: Exception) -> None:
    if not member.answer.done():
        member.answer.set_exception(error)


_ClaimKey = tuple[str, bool]
_AckKey = tuple[str, EndRules]


class BatchingShard(ShardDecorator):
    """Joins what arrives while a call of the same kind and queue is under way; see joining.py."""

    def __init__(self, inner: Shard, bounds: BatchLimits | None = None) -> None:
        super().__init__(inner)
        calls = self.bulkhead
        bounds = bounds or (BatchLimits() if calls is None else BatchLimits(max_wait_ms=calls.deadline_ms))
        slow_error = None if calls is None else calls.slow_error
        self._enqueues: Batcher[str, Job, str] = Batcher(inner.enqueue, _measure_jobs, bounds, slow_error=slow_error)
        self._claims: Batcher[_ClaimKey, ClaimRequest, list[DequeuedJob]] = Batcher(
            self._send_claims,
            measure_claims,
            replace(bounds, max_bytes=bounds.max_claim_bytes),
            compensate=self._compensate_claim,
            slow_error=slow_error,
        )
        self._acks: Batcher[_AckKey, AckRequest, AckOutcome] = Batcher(
            self._send_acks, _measure_acks, bounds, send_for_gone=True, slow_error=slow_error, join=Acks.joined
        )
        if calls is not None:
            calls.on_slow = self._refuse_waiting

    def enqueue(self, queue: str, jobs: Sequence[Job], now_ms: int) -> Coroutine[Any, Any, list[str]]:
        return self._enqueues.call(queue, jobs, now_ms)

    def claim(
        self, queue: str, requests: Sequence[ClaimRequest], now_ms: int, *, enforce_quota: bool = False
    ) -> Coroutine[Any, Any, list[list[DequeuedJob]]]:
        return self._claims.call((queue, enforce_quota), requests, now_ms)

    def ack(
        self, queue: str, acks: Sequence[AckRequest], now_ms: int, rules: EndRules = NO_RULES
    ) -> Coroutine[Any, Any, list[AckOutcome]]:
        return self._acks.call((queue, rules), acks, now_ms)

    def _refuse_waiting(self, error: PinLaterError) -> None:
        self._enqueues.refuse_waiting(error)
        self._claims.refuse_waiting(error)
        self._acks.refuse_waiting(error)

    async def drain(self) -> None:
        """Until every call that waits has been sent and answered, and nothing is compensated for."""
        await self._enqueues.drain()
        await self._claims.drain()
        await self._acks.drain()
        if isinstance(self.inner, ResilientShard):
            await self.inner.drain()

    async def close(self) -> None:
        await self.drain()
        await self.inner.close()

    def _send_acks(
        self, key: _AckKey, acks: Sequence[AckRequest], now_ms: int
    ) -> Coroutine[Any, Any, list[AckOutcome]]:
        return self.inner.ack(key[0], acks, now_ms, key[1])

    def _send_claims(
        self, key: _ClaimKey, requests: Sequence[ClaimRequest], now_ms: int
    ) -> Coroutine[Any, Any, list[list[DequeuedJob]]]:
        return self.inner.claim(key[0], requests, now_ms, enforce_quota=key[1])

    async def _compensate_claim(self, key: _ClaimKey, claimed: list[list[DequeuedJob]], now_ms: int) -> None:
        await requeue(self.inner, key[0], [job for jobs in claimed for job in jobs], now_ms)


def _measure_jobs(jobs: Sequence[Job]) -> tuple[int, int]:
    return len(jobs), sum([len(job.body) for job in jobs])


def measure_claims(requests: Sequence[ClaimRequest]) -> tuple[int, int]:
    """What a claim brings is held in memory until its caller has it."""
    return sum([request.limit for request in requests]), sum([request.max_bytes for request in requests])


def _measure_acks(acks: Sequence[AckRequest]) -> tuple[int, int]:
    acks = Acks.of(acks)
    return len(acks), sum([len(kind.append_status) * len(ids) for kind, ids in acks.runs])
