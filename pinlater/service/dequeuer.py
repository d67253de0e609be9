"""The way of a dequeue: checked, its acks carried out, its jobs claimed at once or when they come.

A dequeue that waits claims first, unless others wait for the queue already; then it joins them (see `longpoll`). What a
queue's settings leave of it is queue_limits.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from heapq import merge
from time import monotonic
from typing import Any

from pinlater.backends.aged_levels import Level, levels_of, order_by
from pinlater.backends.base import SLICE_BYTES, ClaimRequest
from pinlater.errors import INVALID, NoHealthyShards, Overloaded, PinLaterError, QueueNotFound
from pinlater.model import AckOutcome, DequeuedJob, DequeuedJobs, DequeueRequest, RequestContext, any_reporting
from pinlater.model.jobs import GroupedJob
from pinlater.queues.settings import QueueSettings
from pinlater.service.connection_claims import ConnectionClaims
from pinlater.service.job_lifecycle import Acked, JobLifecycle, PreparedAcks
from pinlater.service.longpoll import LongPolls
from pinlater.service.overflow_calls import NamesOverflow, OverflowCalls
from pinlater.service.queue_limits import Throttle
from pinlater.service.service_context import ServiceContext
from pinlater.service.validation import EntryErrors

_PEEK_BYTES = 4 * SLICE_BYTES
"""Bodies that a dry run shows: it has no place to go on from."""

_FIELDS_BYTES = 160
"""Bytes of one job in an answer: its numbers, and the headers of its fields; on the safe side."""

_ID_BYTES = 45
"""Bytes of a descriptor, beside the queue's name."""


class RidingAcks:
    """The acks of one dequeue. `joined`: those that go to the store together with its first claim; None: they go
    before it. `acked`: what became of them, as soon as that is known.
    """

    __slots__ = ("acked", "joined")

    def __init__(self, joined: PreparedAcks | None) -> None:
        self.joined = joined
        self.acked: Acked | None = None


class Dequeuer:
    """Dequeues of one service."""

    def __init__(
        self,
        context: ServiceContext,
        long_polls: LongPolls,
        lifecycle: JobLifecycle,
        connection_claims: ConnectionClaims,
    ) -> None:
        self._router = context.router
        self._clock = context.clock
        self._settings = context.settings
        self._validator = context.validator
        self._claims = context.claims
        self._queues = context.queues
        self._metrics = context.metrics
        self._pending = context.pending
        self._limits = context.limits
        self._hand_outs = context.limits.hand_outs
        self._grouped = context.limits.hand_outs.queues
        self._long_polls = long_polls
        self._lifecycle = lifecycle
        self._connection_claims = connection_claims
        self.overflow: OverflowCalls | None = None
        """Hands out jobs where no shard can be used."""
        self.slice_bytes = SLICE_BYTES + context.settings.max_body_bytes
        """What one claim may bring. A slice in which the next job did not fit has more than SLICE_BYTES."""

    async def dequeue_with_acks(self, request: DequeueRequest, context: RequestContext | None) -> list[DequeuedJob]:
        """Carry out the acks that ride on it, then dequeue. An error says whether the acks were applied: an invalid
        dequeue carries them out too, and those of one that waits are carried out although its caller leaves meanwhile.
        """
        riding = RidingAcks(self._joinable_acks(request, context))
        try:
            if riding.joined is None:
                queue = request.ack_queue or request.queue
                acking = self._lifecycle.ack(queue, request.succeeded, request.failed, context)
                riding.acked = await (self._lifecycle.finish_even_if_cancelled(acking) if request.wait_ms else acking)
                if riding.acked.error is not None:
                    raise riding.acked.error
            jobs = await self.dequeue(request, context, riding)
        except PinLaterError as error:
            error.acks_applied = riding.acked is not None or bool(error.acks_applied)
            raise
        acked = riding.acked
        return jobs if acked is None or acked.had_effect else DequeuedJobs(jobs, acked.outcomes)

    def _joinable_acks(self, request: DequeueRequest, context: RequestContext | None) -> PreparedAcks | None:
        """The acks, where one call of the store can carry them out and claim: all are for the one shard and queue that
        are claimed from at once and without limits, no items of flows come into it, and nothing is wrong with them or
        with the dequeue.
        """
        queue = request.queue
        amount = len(request.succeeded) + len(request.failed)
        if request.dry_run or request.ack_queue not in ("", queue) or amount > self._validator.max_jobs:
            return None
        if any_reporting(request.succeeded) or any_reporting(request.failed):
            return None
        if queue in self._queues.flow_queues:  # the database of flows records the ends of items first
            return None
        shard_id = self._router.sole_shard()
        # where clocks differ acks and claims go by different times; limits count before they claim
        if shard_id is None or self._clock.uncertainty_ms or self._queues.settings(queue).is_limited:
            return None
        if request.wait_ms and self._long_polls.joins(queue):  # it waits behind its acks
            return None
        errors = EntryErrors()
        try:
            self._validator.dequeue(request, "" if context is None else context.source)
            acks = self._lifecycle.prepare(queue, request.succeeded, request.failed, errors)
        except (PinLaterError, NamesOverflow):
            return None
        return acks if not errors.count and list(acks.by_shard) == [shard_id] else None

    async def dequeue(
        self, request: DequeueRequest, context: RequestContext | None, riding: RidingAcks | None = None
    ) -> list[DequeuedJob]:
        """Jobs for a request, with the acks that are joined. RequestInvalid; QueueNotFound; DequeueRateLimited.

        A dry run neither waits nor is limited; a dequeue that waits looks at all shards, whatever its coverage, from
        the second look on.
        """
        queue, bounds = request.queue, self._settings
        began_s = monotonic() if request.wait_ms else 0.0
        source = "" if context is None else context.source
        if riding is None or riding.joined is None:
            limit = self._validator.dequeue(request, source)
        else:  # it was checked before its acks were joined
            limit = min(request.limit, self._validator.max_jobs)
        settings = self._queues.settings(queue)
        timeout_ms = request.claim_timeout_ms
        is_default = timeout_ms is None
        timeout_ms = settings.claim_timeout_ms if timeout_ms is None else min(timeout_ms, bounds.max_claim_timeout_ms)
        at_once = limit
        if request.prefetch and not request.dry_run and not settings.is_limited:
            at_once = min(limit + request.prefetch, self._validator.max_jobs)
        connection = context.binding_connection if request.release_on_disconnect and context is not None else None
        claim_descriptor = self._claims.next(source, None if connection is None else timeout_ms)
        at_once, max_bytes = response_budget(bounds.max_answer_bytes, queue, claim_descriptor, at_once)
        if at_once < limit:
            limit = at_once
        coverage = request.coverage
        priorities, aging_ms = self._validator.priorities, settings.priority_aging_ms
        levels: tuple[Level, ...] = priorities if aging_ms is None else levels_of(priorities, aging_ms)
        try:
            if request.dry_run:
                now_ms, max_bytes = self._clock.now_ms(), min(max_bytes, _PEEK_BYTES)
                return await self._router.peek(queue, levels, limit, max_bytes, now_ms, coverage=coverage)
            max_bytes = min(max_bytes, at_once * bounds.max_body_bytes)
            max_slice = min(max_bytes, self.slice_bytes)
            claim = ClaimRequest(
                claim_descriptor, at_once, levels, timeout_ms, max_slice, 0, is_default, prefetch=at_once - limit
            )
            wait_ms = min(request.wait_ms, bounds.max_wait_ms) if request.wait_ms else 0
            if riding is not None and riding.joined is not None:
                jobs = await self._claim_with_acks(queue, claim, wait_ms, riding, riding.joined, context)
            elif wait_ms:
                jobs = await self._wait(queue, settings, claim, coverage, wait_ms, context)
            elif settings.is_limited:
                jobs = await self._claim_now(queue, settings, claim, coverage)
            else:
                (jobs,) = await self._router.claim(queue, (claim,), self._clock.now_ms(), coverage=coverage)
        except NoHealthyShards as error:
            # with jobs as its answer the caller would take acks for done that were not carried out
            if self.overflow is None or (riding is not None and riding.acked is None):
                raise
            return await self.overflow.dequeue(request, context, began_s, error)
        if jobs:
            if len(jobs) < limit and max_bytes > self.slice_bytes:
                take_room = None if context is None else context.take_room
                jobs = await self.claim_more(jobs, request, settings, claim, limit, max_bytes, take_room)
            self.count(queue, settings, jobs)
            if connection is not None:
                self._connection_claims.bind(connection, jobs)
        return jobs

    async def _claim_with_acks(
        self,
        queue: str,
        claim: ClaimRequest,
        wait_ms: int,
        riding: RidingAcks,
        acks: PreparedAcks,
        context: RequestContext | None,
    ) -> list[DequeuedJob]:
        """The first claim, and the acks ahead of it, in one call of the store; then it waits as any other."""
        rules = self._queues.end_rules().get(queue)
        (on_shard,) = acks.by_shard.values()
        # the shard is chosen here, before anything is waited for
        call = self._router.ack_and_claim(queue, on_shard, (claim,), acks.now_ms, rules)
        if not wait_ms:
            return await self._ack_and_claim(call, riding, acks, claim)
        ticket = self._long_polls.ticket()
        claiming = self._ack_and_claim(call, riding, acks, claim)
        jobs = await self._lifecycle.finish_even_if_cancelled(claiming, self._long_polls.requeuer.requeue_later)
        if jobs:
            return jobs
        claim = self._as_it_waits(claim)
        holder = "" if context is None else context.holder
        return await self._long_polls.wait(queue, claim, wait_ms, ticket, holder)

    async def _ack_and_claim(
        self,
        call: Coroutine[Any, Any, tuple[list[AckOutcome], list[list[DequeuedJob]]]],
        riding: RidingAcks,
        acks: PreparedAcks,
        claim: ClaimRequest,
    ) -> list[DequeuedJob]:
        try:
            outcomes, (jobs,) = await call
        except QueueNotFound:
            (on_shard,) = acks.by_shard.values()
            riding.acked = self._lifecycle.settle(acks, [[AckOutcome.IGNORED] * len(on_shard)])
            raise
        except INVALID:  # the store cannot keep one of the acks: the others are carried out
            riding.acked = await self._lifecycle.carry_out(acks)
            if riding.acked.error is not None:
                raise riding.acked.error from None
            (jobs,) = await self._router.claim(acks.queue, (claim,), self._clock.now_ms())
            return jobs
        riding.acked = self._lifecycle.settle(acks, [outcomes])
        return jobs

    def _as_it_waits(self, claim: ClaimRequest) -> ClaimRequest:
        """Jobs are prefetched only where they are there at once."""
        if not claim.prefetch:
            return claim
        claim = claim.without_prefetch()
        return replace(claim, max_bytes=min(claim.max_bytes, claim.limit * self._settings.max_body_bytes))

    async def _wait(
        self,
        queue: str,
        settings: QueueSettings,
        claim: ClaimRequest,
        coverage: float,
        wait_ms: int,
        context: RequestContext | None,
    ) -> list[DequeuedJob]:
        ticket, throttle, found_none = self._long_polls.ticket(), None, False
        if self._long_polls.has_waiters(queue):
            if self.overflow is not None:
                self._router.members.require_any()
        else:
            try:
                if settings.is_limited:
                    jobs, throttle = await self.claim_limited(queue, settings, claim, coverage)
                else:
                    jobs, found_none = await self.claim_unlimited(queue, claim, coverage)
            except Overloaded:  # thousands come at once after a restart: as waiters they have room, and one poll
                jobs = []
            if jobs:
                return jobs
        claim = self._as_it_waits(claim)
        holder = "" if context is None else context.holder
        return await self._long_polls.wait(queue, claim, wait_ms, ticket, holder, throttle, found_none=found_none)

    async def claim_unlimited(
        self, queue: str, claim: ClaimRequest, coverage: float = 1.0
    ) -> tuple[list[DequeuedJob], bool]:
        """The first claim of a dequeue that may wait; and whether all shards were asked and had nothing."""
        poller, claims = self._long_polls.poller(queue), self._router.claims
        if poller is not None and coverage >= 1:
            known_jobs = await poller.claim_at_known(claim)
            if known_jobs is not None:
                return known_jobs, False
            events, changes = poller.known.events, poller.known.changes
        unsure, looks = claims.unsure, claims.looks
        (jobs,) = await self._router.claim(queue, (claim,), self._clock.now_ms(), coverage=coverage)
        found_none = not jobs and coverage >= 1 and unsure == claims.unsure
        if poller is not None and coverage >= 1:
            poller.note_look(events, changes, looks, claim.priorities, found_none=found_none)
        return jobs, found_none

    async def _claim_now(
        self, queue: str, settings: QueueSettings, claim: ClaimRequest, coverage: float
    ) -> list[DequeuedJob]:
        """What the limits allow now; DequeueRateLimited where the rate allows nothing."""
        jobs, throttle = await self.claim_limited(queue, settings, claim, coverage)
        if throttle is not None:
            self._limits.count(1, queue, throttle.reason)
            error = throttle.error()
            if error is not None and not jobs:
                raise error
        return jobs

    async def claim_limited(
        self, queue: str, settings: QueueSettings, claim: ClaimRequest, coverage: float
    ) -> tuple[list[DequeuedJob], Throttle | None]:
        """What can be handed out at once, and what kept it from more. DequeueRateLimited where the queue is paused."""
        rejection = self._limits.rejection_of(queue)
        if rejection is not None:
            self._limits.count(1, queue, "paused")
            raise rejection
        (jobs,), throttle = await self._limits.count_and_claim(queue, settings, claim, coverage)
        return jobs, throttle

    async def claim_more(
        self,
        jobs: list[DequeuedJob],
        request: DequeueRequest,
        settings: QueueSettings,
        claim: ClaimRequest,
        limit: int,
        max_bytes: int,
        take_room: Callable[[int], bool] | None,
    ) -> list[DequeuedJob]:
        """More, for a caller that may have more than one claim brings: a slice each, while the last one was full.
        `take_room` is asked before each of them, with its bytes; False: no more now.
        """
        queue, requeuer = request.queue, self._long_polls.requeuer
        taken, full = body_bytes(jobs), self.slice_bytes - self._settings.max_body_bytes
        last = taken
        try:
            while last > full and len(jobs) < limit and taken < max_bytes:
                if take_room is not None and not take_room(self.slice_bytes):
                    break
                room = min(max_bytes - taken, self.slice_bytes)
                claim = replace(self._claims.renew(claim), limit=limit - len(jobs), max_bytes=room, prefetch=0)
                if settings.is_limited:
                    more, _ = await self.claim_limited(queue, settings, claim, request.coverage)
                else:
                    now_ms = self._clock.now_ms()
                    (more,) = await self._router.claim(queue, (claim,), now_ms, coverage=request.coverage)
                last = body_bytes(more)
                if taken + last > max_bytes:
                    requeuer.requeue_later(more)
                    break
                taken += last
                order = order_by(claim.priorities, self._clock.now_ms())
                jobs = list(merge(jobs, more, key=partial(_place, order)))
        except PinLaterError:
            pass  # what there is already is an answer
        except BaseException:
            requeuer.requeue_later(jobs)
            raise
        return jobs

    def count(self, queue: str, settings: QueueSettings, jobs: Sequence[DequeuedJob]) -> None:
        """Count them. Where jobs do not age they are in order of priority."""
        if settings.max_pending is not None:
            self._pending.left(queue, len(jobs))
        first = jobs[0]
        priority = first.priority
        # of a queue with groups a shard without any gives plain jobs: the first may be one of these
        if (
            priority == jobs[-1].priority
            and settings.priority_aging_ms is None
            and type(first) is not GroupedJob
            and queue not in self._grouped
        ):
            self._metrics.add(len(jobs), "jobs_dequeued", queue, priority)
            return
        for priority, amount in Counter([job.priority for job in jobs]).items():
            self._metrics.add(amount, "jobs_dequeued", queue, priority)
        if type(first) is GroupedJob or queue in self._grouped:
            self._hand_outs.count(queue, jobs)


def response_budget(max_answer_bytes: int, queue: str, claim_descriptor: str, limit: int) -> tuple[int, int]:
    """How many jobs, and bytes of their bodies, a dequeue may give: at most half of the answer goes to all that is not
    body.
    """
    claim_bytes = len(claim_descriptor) * (1 if claim_descriptor.isascii() else 4)
    per_job = 2 * (len(queue) + _ID_BYTES) + claim_bytes + _FIELDS_BYTES
    fitting = max_answer_bytes // 2 // per_job
    if limit > fitting:
        limit = max(1, fitting)
    return limit, max_answer_bytes - limit * per_job


def body_bytes(jobs: Sequence[DequeuedJob]) -> int:
    return sum([len(job.body) for job in jobs])


def _place(order: Callable[[int, int], tuple[int, int]], job: DequeuedJob) -> tuple[int, int]:
    return order(job.priority, job.run_after_ms)
