"""Batches of small calls of one kind, clocked by the calls themselves.

Nothing under way for a key: a call is sent at once, by its own caller. Else it joins the next batch of that key, which
leaves when the one under way returns. No timer, no wait that was not there anyway.

Every caller keeps its own answer and its own claim. After an unknown outcome nothing is sent again.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import structlog

from pinlater.backends.acks import Acks
from pinlater.backends.base import NO_RULES, AckOutcome, AckRequest, ClaimRequest, EndRules, JobKey, Shard
from pinlater.backends.extended import KeyHolder, Offer, Offered
from pinlater.background_tasks import BackgroundTasks
from pinlater.errors import OutcomeUnknown, Overloaded, PinLaterError, QueueNotFound
from pinlater.model import DequeuedJob, Job, JobInfo, KeyRef
from pinlater.model.body_reference import body_length
from pinlater.shards.bulkhead import AcquireTimeout, ShardSlow
from pinlater.shards.compensation import requeue
from pinlater.shards.decorator import ShardDecorator
from pinlater.shards.resilience import ResilientShard

_log = structlog.get_logger("pinlater.shards")

K = TypeVar("K", bound=Hashable)
I = TypeVar("I")  # noqa: E741
O = TypeVar("O")  # noqa: E741

BATCH_WIDE_ERRORS = (OutcomeUnknown, AcquireTimeout, ShardSlow, Overloaded, QueueNotFound)
"""Errors that no single call of a batch can be the reason of, or after which nothing may be sent again."""


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


class _Caller(Generic[I, O]):
    __slots__ = ("answer", "arrived_at", "has_left", "items", "jobs", "now_ms", "size")

    def __init__(
        self, answer: asyncio.Future[list[O]], items: Sequence[I], now_ms: int, arrived_at: float, jobs: int, size: int
    ) -> None:
        self.answer = answer
        self.items = items
        self.now_ms = now_ms
        self.arrived_at = arrived_at
        self.jobs = jobs
        self.size = size
        self.has_left = False


class Batcher(Generic[K, I, O]):
    """Joins the calls of one kind. `send` makes one call of the store; its answer aligns with the items. A shorter one
    leaves out the last of them: their callers are joined again, before those who came later; a caller that was answered
    in part gets that part.

    `compensate` gets the answer of a caller that is gone; `for_gone` gives what is sent of a waiting call although its
    caller has gone; `slow_error` gives the error of a call that may not wait, by the loop's time. `join` makes one
    call's items of several calls', which go by the latest now of these.
    """

    def __init__(
        self,
        send: Callable[[K, Sequence[I], int], Coroutine[Any, Any, list[O]]],
        measure: Callable[[Sequence[I]], tuple[int, int]],
        limits: BatchLimits,
        *,
        compensate: Callable[[K, list[O], int], Coroutine[Any, Any, object]] | None = None,
        for_gone: Callable[[Sequence[I]], Sequence[I]] | None = None,
        slow_error: Callable[[float], PinLaterError | None] | None = None,
        join: Callable[[Iterable[Sequence[I]]], Sequence[I]] | None = None,
    ) -> None:
        self._send = send
        self._join: Callable[[Iterable[Sequence[I]]], Sequence[I]] = join or _in_a_row
        self._measure = measure
        self._limits = limits
        self._compensate = compensate
        self._for_gone = for_gone
        self._slow_error = slow_error
        self._busy: set[K] = set()
        self._alone_size = 0
        self._waiting: dict[K, deque[_Caller[I, O]]] = {}
        self._callers: dict[_Caller[I, O], None] = {}  # in order of arrival
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = BackgroundTasks()
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
                if key in self._waiting:
                    self._tasks.start(self._run(key))
                elif self._idle is not None:
                    self._leave(key)
                else:
                    self._busy.discard(key)
        jobs, size = self._measure(items)
        if jobs >= self._limits.max_jobs:
            return await self._send(key, items, now_ms)
        if jobs >= self._limits.bypass_jobs and self._alone_size + size <= self._limits.max_bytes:
            self._alone_size += size
            try:
                return await self._send(key, items, now_ms)
            finally:
                self._alone_size -= size
        return await self._wait(key, items, now_ms, jobs, size)

    async def _wait(self, key: K, items: Sequence[I], now_ms: int, jobs: int, size: int) -> list[O]:
        if len(self._callers) >= self._limits.max_waiting:
            reason = f"{len(self._callers)} calls wait for the store already"
            raise Overloaded.by("waiting_joined_calls", reason, retry_after_ms=100)
        loop = asyncio.get_running_loop()
        arrived_at = loop.time()
        error = None if self._slow_error is None else self._slow_error(arrived_at)
        if error is not None:
            raise error
        caller: _Caller[I, O] = _Caller(loop.create_future(), items, now_ms, arrived_at, jobs, size)
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = deque()
        waiting.append(caller)
        self._callers[caller] = None
        if self._timer is None:
            self._timer = loop.call_at(caller.arrived_at + self._limits.max_wait_ms / 1000, self._check_waiting)
        try:
            return await caller.answer
        except asyncio.CancelledError:
            if not caller.answer.cancelled() and caller.answer.exception() is None:
                self.give_up(key, caller.answer.result(), now_ms)
            raise
        finally:
            del self._callers[caller]
            del caller  # its error would keep it, and it the error

    def _check_waiting(self) -> None:
        """One timer for all: refuse who waited too long, and check again when the next one would have."""
        loop = asyncio.get_running_loop()
        self._timer = None
        for caller in self._callers:
            ends_at = caller.arrived_at + self._limits.max_wait_ms / 1000
            if ends_at > loop.time():
                self._timer = loop.call_at(ends_at, self._check_waiting)
                break
            text = f"within {self._limits.max_wait_ms} ms"
            _refuse(
                caller, OutcomeUnknown(f"no answer {text}") if caller.has_left else AcquireTimeout(f"not sent {text}")
            )

    def refuse_waiting(self, error: PinLaterError) -> None:
        """Answer with this error every caller whose batch has not left."""
        for caller in self._callers:
            if not caller.has_left:
                _refuse(caller, copy.copy(error))

    def _leave(self, key: K) -> None:
        self._busy.discard(key)
        if self._idle is not None and not self._busy and not self._idle.done():
            self._idle.set_result(None)

    async def _run(self, key: K) -> None:
        """Send what waits, batch after batch, until nothing does."""
        while batch := self._take(key):
            try:
                await self._send_joined(key, batch)
            except Exception as error:  # unforeseen: those behind them would wait for good
                _log.error("batch_failed", calls=len(batch), exc_info=error)
                error.__traceback__ = None
                for caller in batch:
                    _refuse(caller, copy.copy(error))
        self._leave(key)

    def _take(self, key: K) -> list[_Caller[I, O]]:
        """The next batch in order of arrival, without callers that are gone."""
        waiting = self._waiting.get(key, deque())
        batch: list[_Caller[I, O]] = []
        jobs = size = 0
        while waiting:
            caller = waiting[0]
            if not self._is_sent(caller):
                waiting.popleft()
                continue
            jobs += caller.jobs
            size += caller.size
            if batch and (jobs > self._limits.max_jobs or size > self._limits.max_bytes):
                break
            caller.has_left = True
            batch.append(waiting.popleft())
        if not waiting:
            self._waiting.pop(key, None)
        return batch

    async def _send_joined(self, key: K, batch: list[_Caller[I, O]]) -> None:
        if len(batch) == 1:
            await self._send_alone(key, batch[0])
            return
        items = self._join([caller.items for caller in batch])
        try:
            answers = await self._send(key, items, max([caller.now_ms for caller in batch]))
        except BATCH_WIDE_ERRORS as error:
            error.__traceback__ = None  # it keeps the frames, and they the batch, wherever one of them keeps the error
            for caller in batch:
                _refuse(caller, copy.copy(error))
        except Exception as error:
            error.__traceback__ = None
            for start in range(0, len(batch), _ALONE_AT_ONCE):  # all at once would fill the line of the store
                some = batch[start : start + _ALONE_AT_ONCE]
                await asyncio.gather(*(self._send_alone(key, caller) for caller in some))
        else:
            start = 0
            for place, caller in enumerate(batch):
                if start and start == len(answers):
                    self._wait_again(key, batch[place:])
                    break
                end = start + len(caller.items)
                self._settle(key, caller, answers[start:end])
                start = end

    def _wait_again(self, key: K, callers: Sequence[_Caller[I, O]]) -> None:
        waiting = self._waiting.setdefault(key, deque())
        for caller in reversed(callers):
            caller.has_left = False
            waiting.appendleft(caller)

    async def _send_alone(self, key: K, caller: _Caller[I, O]) -> None:
        if not self._is_sent(caller):
            return
        try:
            answers = await self._send(key, caller.items, caller.now_ms)
        except Exception as error:
            _refuse(caller, error)
        else:
            self._settle(key, caller, answers)

    def _is_sent(self, caller: _Caller[I, O]) -> bool:
        """Not where it was told that nothing more will be done; where it is gone, what is sent all the same."""
        if not caller.answer.done():
            return True
        if self._for_gone is None or not caller.answer.cancelled():
            return False
        caller.items = self._for_gone(caller.items)
        return True

    def _settle(self, key: K, caller: _Caller[I, O], answers: list[O]) -> None:
        if caller.answer.done():
            self.give_up(key, answers, caller.now_ms)
        else:
            caller.answer.set_result(answers)

    def give_up(self, key: K, answers: list[O], now_ms: int) -> None:
        if self._compensate is not None:
            self._tasks.start(self._compensate(key, answers, now_ms))

    async def drain(self) -> None:
        """Wait until every call that waits has been sent and answered."""
        while self._busy:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle
        await self._tasks.drain()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _in_a_row(several: Iterable[Sequence[I]]) -> Sequence[I]:
    return [item for items in several for item in items]


def _refuse(caller: _Caller[I, O], error: Exception) -> None:
    if not caller.answer.done():
        caller.answer.set_exception(error)


_OfferKey = tuple[str, str]
"""The queue, and the version of the homes of keys."""

_LookupKey = tuple[str, bool]
"""The queue, and whether results are asked for."""

_ALONE_AT_ONCE = 16
_MAX_RESULTS_BYTES = 64 * 1024 * 1024
"""The most bytes of results in a joined lookup. A store leaves out what is beyond: such jobs are looked up alone."""

_AckKey = tuple[str, EndRules]
_AckAndClaimKey = tuple[str, EndRules, bool]


class AckAndClaim(NamedTuple):
    """The acks and the requests of one caller of `Shard.ack_and_claim`."""

    acks: Sequence[AckRequest]
    requests: Sequence[ClaimRequest]


_Claims = list[list[DequeuedJob]]
_Outcomes = list[AckOutcome]


class BatchingShard(ShardDecorator):
    """Joins small enqueues, claims, acks, lookups and searches for keys that arrive while a call of the same kind and
    queue is under way.

    A caller that has gone still gets its acks carried out, and claims nothing.
    """

    def __init__(self, inner: Shard, limits: BatchLimits | None = None) -> None:
        super().__init__(inner)
        calls = self.bulkhead
        limits = limits or (BatchLimits() if calls is None else BatchLimits(max_wait_ms=calls.deadline_ms))
        self._limits = limits
        for_claims = replace(limits, max_bytes=limits.max_claim_bytes)
        slow_error = None if calls is None else calls.slow_error
        self._enqueues: Batcher[str, Job, str] = Batcher(inner.enqueue, _measure_jobs, limits, slow_error=slow_error)
        self._offers: Batcher[_OfferKey, Offer, Offered] = Batcher(
            self._send_offers, _measure_offers, limits, slow_error=slow_error
        )
        self._keys: Batcher[str, KeyRef, KeyHolder | None] = Batcher(
            lambda queue, keys, _: inner.find_keys(queue, keys), _measure_keys, limits, slow_error=slow_error
        )
        self._lookups: Batcher[_LookupKey, JobKey, JobInfo | None] = Batcher(
            self._send_lookups, _measure_keys, limits, slow_error=slow_error
        )
        self._claims: Batcher[str, ClaimRequest, list[DequeuedJob]] = Batcher(
            inner.claim, measure_claims, for_claims, compensate=self._requeue, slow_error=slow_error
        )
        self._quota_claims: Batcher[str, ClaimRequest, list[DequeuedJob]] = Batcher(
            partial(inner.claim, enforce_quota=True),
            measure_claims,
            for_claims,
            compensate=self._requeue,
            slow_error=slow_error,
        )
        self._acks: Batcher[_AckKey, AckRequest, AckOutcome] = Batcher(
            self._send_acks, _measure_acks, limits, for_gone=_all_the_same, slow_error=slow_error, join=Acks.joined
        )
        self._acks_and_claims: Batcher[_AckAndClaimKey, AckAndClaim, tuple[_Outcomes, _Claims]] = Batcher(
            self._send_acks_and_claims,
            _measure_acks_and_claims,
            for_claims,
            compensate=self._requeue_claims,
            for_gone=_acks_alone,
            slow_error=slow_error,
        )
        self._batchers: tuple[Batcher[Any, Any, Any], ...] = (
            self._enqueues,
            self._offers,
            self._keys,
            self._lookups,
            self._claims,
            self._quota_claims,
            self._acks,
            self._acks_and_claims,
        )
        if calls is not None:
            calls.on_slow = self._refuse_waiting

    def _refuse_waiting(self, error: PinLaterError) -> None:
        for batcher in self._batchers:
            batcher.refuse_waiting(error)

    async def drain(self) -> None:
        """Wait until every call that waits has been sent and answered, and nothing is compensated for."""
        for batcher in self._batchers:
            await batcher.drain()
        if isinstance(self.inner, ResilientShard):
            await self.inner.drain()

    async def close(self) -> None:
        await self.drain()
        await self.inner.close()

    def enqueue(self, queue: str, jobs: Sequence[Job], now_ms: int) -> Coroutine[Any, Any, list[str]]:
        return self._enqueues.call(queue, jobs, now_ms)

    # -- extended jobs -----------------------------------------------------------------------------------------------

    def enqueue_extended(
        self, queue: str, offers: Sequence[Offer], now_ms: int, homes_version: str = ""
    ) -> Coroutine[Any, Any, list[Offered]]:
        """Offers of several callers go together: each is answered by itself, whatever becomes of the others."""
        return self._offers.call((queue, homes_version), offers, now_ms)

    def _send_offers(self, key: _OfferKey, offers: Sequence[Offer], now_ms: int) -> Coroutine[Any, Any, list[Offered]]:
        return self.inner.enqueue_extended(key[0], offers, now_ms, key[1])

    def find_keys(self, queue: str, keys: Sequence[KeyRef]) -> Coroutine[Any, Any, list[KeyHolder | None]]:
        return self._keys.call(queue, keys, 0)

    # -- lookups -----------------------------------------------------------------------------------------------------

    def lookup(
        self, queue: str, jobs: Sequence[JobKey], *, with_body: bool, max_bytes: int, with_result: bool = False
    ) -> Coroutine[Any, Any, list[JobInfo | None]]:
        """Without bodies those of several callers go together; each keeps the results that fit its `max_bytes`."""
        if with_body or len(jobs) >= self._limits.bypass_jobs:
            return self.inner.lookup(queue, jobs, with_body=with_body, max_bytes=max_bytes, with_result=with_result)
        if with_result:
            return self._lookup_results(queue, jobs, max_bytes)
        return self._lookups.call((queue, False), jobs, 0)

    async def _lookup_results(self, queue: str, jobs: Sequence[JobKey], max_bytes: int) -> list[JobInfo | None]:
        infos = await self._lookups.call((queue, True), jobs, 0)
        size = fitting = 0
        for place, info in enumerate(infos):
            if info is not None and info.result is not None:
                size += body_length(info.result)
                if size > max_bytes and (fitting or not max_bytes):
                    infos[place] = replace(info, result=None, result_left_out=True)
                else:
                    fitting += 1
        return infos

    async def _send_lookups(self, key: _LookupKey, jobs: Sequence[JobKey], now_ms: int) -> list[JobInfo | None]:
        queue, with_result = key
        lookup = partial(
            self.inner.lookup, queue, with_body=False, max_bytes=_MAX_RESULTS_BYTES, with_result=with_result
        )
        infos = await lookup(jobs)
        for place, info in enumerate(infos):
            if info is not None and info.result_left_out:
                (infos[place],) = await lookup(jobs[place : place + 1])
        return infos

    # -- acks --------------------------------------------------------------------------------------------------------

    def ack(
        self, queue: str, acks: Sequence[AckRequest], now_ms: int, rules: EndRules = NO_RULES
    ) -> Coroutine[Any, Any, _Outcomes]:
        return self._acks.call((queue, rules), acks, now_ms)

    def _send_acks(self, key: _AckKey, acks: Sequence[AckRequest], now_ms: int) -> Coroutine[Any, Any, _Outcomes]:
        return self.inner.ack(key[0], acks, now_ms, key[1])

    # -- claims ------------------------------------------------------------------------------------------------------

    def claim(
        self, queue: str, requests: Sequence[ClaimRequest], now_ms: int, *, enforce_quota: bool = False
    ) -> Coroutine[Any, Any, _Claims]:
        return (self._quota_claims if enforce_quota else self._claims).call(queue, requests, now_ms)

    async def _requeue(self, queue: str, claims: _Claims, now_ms: int) -> None:
        await requeue(self.inner, queue, [job for jobs in claims for job in jobs], now_ms)

    # -- acks with a claim -------------------------------------------------------------------------------------------

    async def ack_and_claim(
        self,
        queue: str,
        acks: Sequence[AckRequest],
        requests: Sequence[ClaimRequest],
        now_ms: int,
        rules: EndRules = NO_RULES,
        *,
        enforce_quota: bool = False,
    ) -> tuple[_Outcomes, _Claims]:
        """The outcomes of the acks and the jobs of each request, in order. A batch carries out all its acks, then all
        its claims; every request gets its turn, also where the bodies of a slice leave it out at first.
        """
        calls = (AckAndClaim(acks, requests),)
        (answer,) = await self._acks_and_claims.call((queue, rules, enforce_quota), calls, now_ms)
        return answer

    async def _send_acks_and_claims(
        self, key: _AckAndClaimKey, calls: Sequence[AckAndClaim], now_ms: int
    ) -> list[tuple[_Outcomes, _Claims]]:
        queue, rules, enforce_quota = key
        if len(calls) == 1:
            acks, requests = calls[0]
        else:
            acks = Acks.joined([each.acks for each in calls])
            requests = [request for each in calls for request in each.requests]
        claims: _Claims = []
        if requests:
            outcomes, claims = await self.inner.ack_and_claim(
                queue, acks, requests, now_ms, rules, enforce_quota=enforce_quota
            )
            if len(claims) < len(requests):
                await self._claim_rest(key, requests, claims, now_ms)
        else:
            outcomes = await self.inner.ack(queue, acks, now_ms, rules)
        if len(calls) == 1:
            return [(outcomes, claims)]
        answers, acked, claimed = [], 0, 0
        for each in calls:
            ack_end, claim_end = acked + len(each.acks), claimed + len(each.requests)
            answers.append((outcomes[acked:ack_end], claims[claimed:claim_end]))
            acked, claimed = ack_end, claim_end
        return answers

    async def _claim_rest(
        self, key: _AckAndClaimKey, requests: Sequence[ClaimRequest], claims: _Claims, now_ms: int
    ) -> None:
        """Large bodies left requests out: those alone ask again, since the acks are done. What fails claims nothing."""
        try:
            while len(claims) < len(requests):
                claims += await self.inner.claim(key[0], requests[len(claims) :], now_ms, enforce_quota=key[2])
        except PinLaterError:
            claims += [[] for _ in requests[len(claims) :]]
        except BaseException:  # the caller is gone
            self._acks_and_claims.give_up(key, [([], claims)], now_ms)
            raise

    async def _requeue_claims(
        self, key: _AckAndClaimKey, answers: list[tuple[_Outcomes, _Claims]], now_ms: int
    ) -> None:
        for _, claims in answers:
            await self._requeue(key[0], claims, now_ms)


# -- what is sent for a caller that is gone ----------------------------------------------------------------------------


def _all_the_same(acks: Sequence[AckRequest]) -> Sequence[AckRequest]:
    return acks


def _acks_alone(calls: Sequence[AckAndClaim]) -> Sequence[AckAndClaim]:
    return [AckAndClaim(each.acks, ()) for each in calls]


# -- jobs and bytes of a call ----------------------------------------------------------------------------------------


def _measure_jobs(jobs: Sequence[Job]) -> tuple[int, int]:
    if len(jobs) == 1:  # as most often of those that are joined
        return 1, len(jobs[0].body)
    return len(jobs), sum([len(job.body) for job in jobs])


def _measure_offers(offers: Sequence[Offer]) -> tuple[int, int]:
    return len(offers), sum([len(offer.job.body) for offer in offers])


def _measure_keys(keys: Sequence[KeyRef] | Sequence[JobKey]) -> tuple[int, int]:
    return len(keys), 0


def measure_claims(requests: Sequence[ClaimRequest]) -> tuple[int, int]:
    """The most jobs and bytes that claims may bring: they are in memory until their callers have them."""
    return sum([request.limit for request in requests]), sum([request.max_bytes for request in requests])


def _measure_acks(acks: Sequence[AckRequest]) -> tuple[int, int]:
    jobs = size = 0
    for kind, ids in Acks.of(acks).runs:
        jobs += len(ids)
        size += (len(kind.append_status) + len(kind.result or b"")) * len(ids)
    return jobs, size


def _measure_acks_and_claims(calls: Sequence[AckAndClaim]) -> tuple[int, int]:
    jobs = size = 0
    for acks, requests in calls:
        acked, ack_size = _measure_acks(acks)
        jobs += acked
        size += ack_size
        for request in requests:
            jobs += request.limit
            size += request.max_bytes
    return jobs, size
