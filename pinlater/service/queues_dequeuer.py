"""The way of a dequeue from many queues: checked, its acks carried out, its limit shared among those that have jobs.

What is known of each queue decides what is asked (`Outlook`): of one that is known to be empty, nothing; which of the
others have jobs, by one question for all; a queue that had some a moment ago is claimed from at once. The limit is
dealt by weight in a random order; what one queue does not need goes to the others. Where no queue has a job, the
dequeue waits for all of them (see `longpoll`). A queue's limits are those of a plain dequeue (queue_limits.py).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from pinlater.backends.aged_levels import levels_of
from pinlater.backends.base import ClaimRequest
from pinlater.errors import (
    DequeueRateLimited,
    NoHealthyShards,
    NothingStored,
    OutcomeUnknown,
    Overloaded,
    PinLaterError,
    QueueNotFound,
    RequestInvalid,
    ShardConnectionFailed,
)
from pinlater.model import (
    MAX_QUEUES,
    AckOutcome,
    DequeuedFromQueues,
    DequeuedJob,
    DequeueFromQueuesRequest,
    DequeueRequest,
    QueueShare,
    RequestContext,
    is_queue_name,
)
from pinlater.service.connection_claims import ConnectionClaims
from pinlater.service.dequeuer import Dequeuer, body_bytes, response_budget
from pinlater.service.job_lifecycle import Acked, JobLifecycle
from pinlater.service.longpoll import LongPolls
from pinlater.service.longpoll.poller_state import Outlook
from pinlater.service.overflow_calls import OverflowCalls
from pinlater.service.queue_limits import Throttle
from pinlater.service.service_context import ServiceContext

T = TypeVar("T")
_AT_ONCE = 32
"""Queues of one call that are acked or claimed from at the same time: all of them would fill the line of a store."""

_ERROR_BYTES = 400
"""What an answer may say of a queue in error: its name, twice more in the text, and the text."""


@dataclass(slots=True)
class _Call:
    """One dequeue: what it may have, and what it has so far. `granted`: the bytes that there is room for now;
    `prefetch`: jobs that it may have beyond its limit. `full`: the queues that have jobs, as far as it is known;
    `unknown`: those of which that is not known; `others`: those that it waits for only.
    """

    request: DequeueFromQueuesRequest
    context: RequestContext | None
    limit: int
    max_bytes: int
    granted: int
    prefetch: int
    full: list[QueueShare] = field(default_factory=list)
    unknown: list[QueueShare] = field(default_factory=list)
    others: list[QueueShare] = field(default_factory=list)
    brought: list[tuple[str, list[DequeuedJob]]] = field(default_factory=list)
    amount: int = 0
    bytes: int = 0
    errors: dict[str, PinLaterError] = field(default_factory=dict)
    failure: PinLaterError | None = None
    """The error of a claim that is not the affair of its queue alone."""

    @property
    def may_wait(self) -> bool:
        return self.request.wait_ms > 0

    def jobs(self) -> list[DequeuedJob]:
        return [job for _, jobs in self.brought for job in jobs]

    def queues(self) -> list[str]:
        """The names of the queues that are waited for: all but those in error."""
        return [share.queue for share in self.request.queues if share.queue not in self.errors]


class QueuesDequeuer:
    """Dequeues from many queues of one service."""

    def __init__(
        self,
        context: ServiceContext,
        long_polls: LongPolls,
        lifecycle: JobLifecycle,
        connection_claims: ConnectionClaims,
        dequeuer: Dequeuer,
    ) -> None:
        self._router = context.router
        self._clock = context.clock
        self._settings = context.settings
        self._validator = context.validator
        self._claims = context.claims
        self._queues = context.queues
        self._limits = context.limits
        self._long_polls = long_polls
        self._lifecycle = lifecycle
        self._connection_claims = connection_claims
        self._dequeuer = dequeuer
        self._rng = random.Random()
        self.overflow: OverflowCalls | None = None
        """Hands out jobs where no shard can be used."""

    async def dequeue(self, request: DequeueFromQueuesRequest, context: RequestContext | None) -> DequeuedFromQueues:
        """RequestInvalid; errors of all queues as of a plain dequeue. An error says whether the acks were applied."""
        began_s = monotonic() if request.wait_ms else 0.0
        acks_applied = False
        try:
            outcomes = await self._ack(request, context)
            acks_applied = True
            limit = self._validator.dequeue_from_queues(request, "" if context is None else context.source)
            try:
                dequeued = await self._dequeue(request, limit, context)
            except NoHealthyShards as refusal:
                if self.overflow is None:
                    raise
                dequeued = await self.overflow.dequeue_from_queues(request, context, began_s, refusal)
            dequeued.ack_outcomes = outcomes
            return dequeued
        except PinLaterError as error:
            error.acks_applied = acks_applied or bool(error.acks_applied)
            raise

    async def _ack(
        self, request: DequeueFromQueuesRequest, context: RequestContext | None
    ) -> list[Sequence[AckOutcome]]:
        """The outcomes of the acks of each queue; empty where every ack had an effect. The queues are acked at the same
        time; after all, the error of the first that has one is raised, as one that may have changed something where
        acks of other queues were, or may have been, carried out.
        """
        if len(request.acks) > MAX_QUEUES:
            raise RequestInvalid.of("the length of acks", len(request.acks), f"at most {MAX_QUEUES}")
        lifecycle = self._lifecycle
        calls = [partial(lifecycle.ack, each.queue, each.succeeded, each.failed, context) for each in request.acks]
        acked: list[Acked | BaseException] = []
        if len(calls) == 1:
            acking = calls[0]()
            acked.append(await (lifecycle.finish_even_if_cancelled(acking) if request.wait_ms else acking))
        elif calls:
            all_acking = _some_at_once(calls)
            acked = await (lifecycle.finish_even_if_cancelled(all_acking) if request.wait_ms else all_acking)
        outcomes: list[Sequence[AckOutcome]] = []
        had_effect = True
        for done in acked:
            if isinstance(done, BaseException):
                raise _in_part(done, acked)
            if done.error is not None:
                raise done.error
            outcomes.append(done.outcomes)
            had_effect = had_effect and done.had_effect
        return [] if had_effect else outcomes

    async def _dequeue(
        self, request: DequeueFromQueuesRequest, limit: int, context: RequestContext | None
    ) -> DequeuedFromQueues:
        long_polls, bounds = self._long_polls, self._settings
        ticket = long_polls.ticket()
        call = self._begin(request, limit, context)
        try:
            await self._claim_at_once(call)
        except BaseException:
            self._requeue(call)
            raise
        if call.brought:
            for queue, jobs in call.brought:
                self._handed_out(call, queue, jobs)
            return DequeuedFromQueues(call.jobs(), call.errors)
        if not call.may_wait or len(call.errors) == len(request.queues):
            if call.failure is not None:
                raise call.failure
            return DequeuedFromQueues((), call.errors)
        if call.failure is not None and not isinstance(call.failure, Overloaded):
            raise call.failure
        if self.overflow is not None:
            self._router.members.require_any()
        template = self._claim_request(call, call.queues()[0], call.limit, min(call.granted, call.max_bytes))
        jobs, errors = await long_polls.wait_for_several(
            call.queues(),
            template,
            lambda queue: self._claim_request(call, queue, call.limit, template.max_bytes),
            min(request.wait_ms, bounds.max_wait_ms),
            ticket,
            "" if call.context is None else call.context.holder,
            call.errors,
        )
        if jobs:
            jobs = await self._after_waiting(call, jobs)
        return DequeuedFromQueues(jobs, errors)

    def _requeue(self, call: _Call) -> None:
        jobs = call.jobs()
        if jobs:
            self._long_polls.requeuer.requeue_later(jobs)

    def _begin(self, request: DequeueFromQueuesRequest, limit: int, context: RequestContext | None) -> _Call:
        """The call, with its queues sorted by what is known of each before any is asked, and its bounds."""
        bounds, shares = self._settings, request.queues
        longest = max((share.queue for share in shares), key=len)
        most = min(limit + max(share.prefetch for share in shares), self._validator.max_jobs)
        descriptor = self._claims.next("" if context is None else context.source, bounds.max_claim_timeout_ms)
        of_errors = min(_ERROR_BYTES * len(shares), bounds.max_answer_bytes // 2)
        most, max_bytes = response_budget(bounds.max_answer_bytes - of_errors, longest, descriptor, most)
        slice_bytes = min(max_bytes, self._dequeuer.slice_bytes)
        limit = min(limit, most)
        call = _Call(request, context, limit, max_bytes, slice_bytes, most - limit)
        candidates = []
        for share in shares:
            if not is_queue_name(share.queue):
                call.errors[share.queue] = QueueNotFound.of(share.queue[:100])
                continue
            rejection = self._limits.rejection_of(share.queue)
            if rejection is None:
                candidates.append(share)
            else:
                self._limits.count(1, share.queue, "paused")
                call.errors[share.queue] = rejection
        if not call.may_wait or self._long_polls.is_draining:
            call.unknown = candidates
            return call
        places = {Outlook.FULL: call.full, Outlook.UNKNOWN: call.unknown}
        outlooks = self._long_polls.outlooks([share.queue for share in candidates])
        for share, outlook in zip(candidates, outlooks, strict=True):
            places.get(outlook, call.others).append(share)
        return call

    # -- what is there at once ---------------------------------------------------------------------------------------

    async def _claim_at_once(self, call: _Call) -> None:
        """Adds to the call's jobs and errors, until it has what it may have or no queue has more."""
        widening = 1
        while call.full or call.unknown:
            room = call.limit - call.amount
            if room <= 0 or not self._has_room(call):
                return
            drawn = deal([*call.full, *call.unknown], room, widening, self._rng)
            unknown = set(map(id, call.unknown))
            if unknown and any(id(share) in unknown for share, _ in drawn):
                await self._check_unknown(call)
                drawn = deal(call.full, room, widening, self._rng)
            widening *= 2  # those that are asked now have little, where it goes on
            if drawn and call.failure is None:
                await self._claim_from(call, drawn)
            if call.failure is not None:
                return

    async def _check_unknown(self, call: _Call) -> None:
        """Ask which of the unknown queues have jobs."""
        unknown, call.unknown = call.unknown, []
        names = [share.queue for share in unknown]
        try:
            has_jobs = await self._long_polls.due_now(names, self._validator.priorities)
        except PinLaterError as error:
            if not call.brought:
                raise
            call.failure = error  # what there is already is an answer
            return
        for share in unknown:
            if share.queue not in has_jobs:
                call.errors[share.queue] = QueueNotFound.of(share.queue)
            elif has_jobs[share.queue]:
                call.full.append(share)

    def _has_room(self, call: _Call) -> bool:
        """Whether there is room for one more body at least; the first slice is free, others are asked for."""
        largest = self._settings.max_body_bytes
        if call.granted - call.bytes >= largest or not call.bytes:
            return True
        more = min(self._dequeuer.slice_bytes, call.max_bytes - call.granted)
        if more < largest or not self._takes(call, more):
            return False
        call.granted += more
        return True

    def _takes(self, call: _Call, size: int) -> bool:
        take_room = None if call.context is None else call.context.take_room
        return take_room is None or take_room(size)

    async def _claim_from(self, call: _Call, drawn: list[tuple[QueueShare, int]]) -> None:
        """Claim so many of each, all at the same time; each claim may bring one body as large as can be."""
        largest = self._settings.max_body_bytes
        fitting = max(1, (call.granted - call.bytes) // largest)
        if len(drawn) > fitting:
            more = min(len(drawn) - fitting, (call.max_bytes - call.granted) // largest)
            if more > 0 and self._takes(call, more * largest):
                call.granted += more * largest
                fitting += more
            drawn = drawn[:fitting]
        each_bytes = max(largest, (call.granted - call.bytes) // len(drawn))
        claims = [partial(self._claim, call, share, amount, each_bytes) for share, amount in drawn]
        brought = [await claims[0]()] if len(claims) == 1 else await _some_at_once(claims)
        done = set()
        for (share, _), is_full in zip(drawn, brought, strict=True):
            if isinstance(is_full, BaseException):  # all others are done
                raise is_full
            if not is_full:
                done.add(id(share))
        call.full = [share for share in call.full if id(share) not in done]

    async def _claim(self, call: _Call, share: QueueShare, amount: int, max_bytes: int) -> bool:
        """Adds to the call; whether the queue may have more."""
        queue, settings = share.queue, self._queues.settings(share.queue)
        limited = settings.is_limited
        extra = 0 if limited else min(share.prefetch * amount // call.limit, call.prefetch)
        call.prefetch -= extra
        wanted = amount + extra
        claim = self._claim_request(call, queue, wanted, max_bytes, extra)
        throttle: Throttle | None = None
        try:
            if limited:
                jobs, throttle = await self._dequeuer.claim_limited(queue, settings, claim, 1.0)
            else:
                jobs, _ = await self._dequeuer.claim_unlimited(queue, claim)
        except (QueueNotFound, DequeueRateLimited) as error:
            call.errors[queue] = error
            return False
        except PinLaterError as error:
            call.failure = error
            return False
        size = body_bytes(jobs)
        call.amount += len(jobs)
        call.bytes += size
        if jobs:
            call.brought.append((queue, jobs))
        if throttle is not None and not call.may_wait:
            self._throttled(call, queue, throttle)
        has_all = len(jobs) in (amount, wanted)  # the first, where its jobs have groups
        is_full = throttle is None and (has_all or size + self._settings.max_body_bytes > max_bytes)
        self._long_polls.claimed(queue, is_full=is_full, throttle=throttle)
        return is_full

    def _throttled(self, call: _Call, queue: str, throttle: Throttle) -> None:
        self._limits.count(1, queue, throttle.reason)
        error = throttle.error()
        if error is not None:
            call.errors[queue] = error

    # -- one claim ---------------------------------------------------------------------------------------------------

    def _claim_request(self, call: _Call, queue: str, limit: int, max_bytes: int, prefetch: int = 0) -> ClaimRequest:
        """A claim of one queue, under a name of its own."""
        request, context = call.request, call.context
        settings = self._queues.settings(queue)
        timeout_ms = request.claim_timeout_ms
        if timeout_ms is None:
            timeout_ms = settings.claim_timeout_ms
        else:
            timeout_ms = min(timeout_ms, self._settings.max_claim_timeout_ms)
        is_bound = request.release_on_disconnect and context is not None and context.binding_connection is not None
        descriptor = self._claims.next("" if context is None else context.source, timeout_ms if is_bound else None)
        max_bytes = min(max_bytes, limit * self._settings.max_body_bytes)
        is_default = request.claim_timeout_ms is None
        levels = levels_of(self._validator.priorities, settings.priority_aging_ms)
        return ClaimRequest(descriptor, limit, levels, timeout_ms, max_bytes, 0, is_default, prefetch=prefetch)

    def _handed_out(self, call: _Call, queue: str, jobs: Sequence[DequeuedJob]) -> None:
        self._dequeuer.count(queue, self._queues.settings(queue), jobs)
        connection = None if call.context is None else call.context.binding_connection
        if connection is not None and call.request.release_on_disconnect:
            self._connection_claims.bind(connection, jobs)

    async def _after_waiting(self, call: _Call, jobs: list[DequeuedJob]) -> list[DequeuedJob]:
        """Jobs of one queue, and more of it where they are large and the caller may have more."""
        queue = jobs[0].descriptor.partition(":")[0]
        settings, request = self._queues.settings(queue), call.request
        if len(jobs) < call.limit and call.max_bytes > self._dequeuer.slice_bytes:
            claim = self._claim_request(call, queue, call.limit, self._dequeuer.slice_bytes)
            take_room = None if call.context is None else call.context.take_room
            plain = DequeueRequest(queue, request.limit)
            jobs = await self._dequeuer.claim_more(jobs, plain, settings, claim, call.limit, call.max_bytes, take_room)
        self._handed_out(call, queue, jobs)
        return jobs


_FEW = 4
"""A dequeue from so many queues, or fewer, asks all of them at once; one from more asks half as many."""

_JOBS_PER_PART = 16
"""A dequeue asks one more queue at a time for each so many jobs."""


def deal(shares: Sequence[QueueShare], amount: int, widening: int, rng: random.Random) -> list[tuple[QueueShare, int]]:
    """So many jobs dealt by weight, in a random order, among a few of the queues: a claim for each single job would
    cost the store many times as much, and over several calls the shares are the same. `widening`: so many times as many
    queues.
    """
    few = _FEW if len(shares) <= _FEW else _FEW // 2
    parts = min(amount, few * widening + amount // _JOBS_PER_PART)
    size, rest = divmod(amount, parts)
    dealt = []
    for share, places in _draw(shares, parts, rng):
        more = min(rest, places)
        rest -= more
        dealt.append((share, places * size + more))
    return dealt


def _draw(shares: Sequence[QueueShare], amount: int, rng: random.Random) -> list[tuple[QueueShare, int]]:
    """So many places dealt by weight: each gets its share, rounded up or down by chance, in a random order."""
    if not shares:
        return []
    if amount == 1 or len(shares) == 1:
        return [(rng.choices(shares, [share.weight for share in shares])[0], amount)]
    shuffled = list(shares)
    rng.shuffle(shuffled)
    total = sum(share.weight for share in shuffled)
    step = total / amount
    place, end = rng.random() * step, 0
    dealt = []
    for share in shuffled:
        end += share.weight
        places = 0
        while place < end and amount > 0:
            places += 1
            amount -= 1
            place += step
        if places:
            dealt.append((share, places))
    return dealt or [(shuffled[-1], amount)]


def _in_part(error: BaseException, acked: Sequence[Acked | BaseException]) -> BaseException:
    """The error of one queue's acks, in view of what became of those of the others."""
    if not isinstance(error, NothingStored | NoHealthyShards) or all(isinstance(each, type(error)) for each in acked):
        return error
    others = [each for each in acked if isinstance(each, OutcomeUnknown)]
    return OutcomeUnknown(others[0].message) if others else ShardConnectionFailed(error.message)


async def _some_at_once(calls: Sequence[Callable[[], Coroutine[Any, Any, T]]]) -> list[T | BaseException]:
    """The outcome of each, in their order."""
    if len(calls) <= _AT_ONCE:
        return await asyncio.gather(*[call() for call in calls], return_exceptions=True)
    turns = asyncio.Semaphore(_AT_ONCE)

    async def in_turn(call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        async with turns:
            return await call()

    return await asyncio.gather(*map(in_turn, calls), return_exceptions=True)
