"""Handing out: jobs claimed for those who ask, at once or when they come, and given back when they leave."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import structlog

from pinlater.backends.base import SLICE_BYTES, ClaimRequest, FreshClaim
from pinlater.clock import Clock
from pinlater.errors import Overloaded, PinLaterError, RequestInvalid
from pinlater.metrics import Metrics
from pinlater.model import DequeuedJob, DequeueRequest, Unreceived, claim_source, parse_descriptor
from pinlater.queues.directory import QueueDirectory
from pinlater.queues.limits import PendingCounts
from pinlater.queues.settings import QueueSettings
from pinlater.service import validation
from pinlater.service.descriptors import ClaimTokens, bound_timeout
from pinlater.service.longpoll.long_polls import LongPolls
from pinlater.service.longpoll.wait_queue import LongPollSettings
from pinlater.service.queries import response_budget
from pinlater.service.queue_limits import QueueLimits, Throttle, is_limited
from pinlater.service.settings import ServiceSettings
from pinlater.service.validation import Validator
from pinlater.shards.router import Router

_log = structlog.get_logger("pinlater.service")

_PEEK_BYTES = 4 * SLICE_BYTES
"""Bodies that a dry run shows: it has no place to go on from."""

CLAIMS_PER_CALL = 1_000
"""Named in one call of a shard."""


class Dequeuer:
    """Dequeues of one service, those that wait included."""

    def __init__(
        self,
        router: Router,
        clock: Clock,
        settings: ServiceSettings,
        bounds: Validator,
        claims: ClaimTokens,
        queues: QueueDirectory | None = None,
        metrics: Metrics | None = None,
        pending: PendingCounts | None = None,
    ) -> None:
        self._router = router
        self._clock = clock
        self._settings = settings
        self._checks = bounds
        self._claims = claims
        if queues is None:
            queues = QueueDirectory(router.members, clock, QueueSettings(claim_timeout_ms=settings.claim_timeout_ms))
        self._queues = queues
        self._metrics = metrics = metrics or Metrics()
        self._pending = pending
        self._giving_back: set[asyncio.Task[None]] = set()
        self._limits = QueueLimits(router, clock, queues, metrics)
        self._slice_bytes = SLICE_BYTES + settings.max_body_bytes
        """What one claim may bring. A slice in which the next job did not fit has more than SLICE_BYTES."""
        waits = LongPollSettings(
            settings.max_waiters, settings.poll_min_ms, settings.poll_max_ms, settings.poll_told_ms
        )
        self.waiting = LongPolls(router, clock, waits, self._limits, self._renewed, self._give_back_later)
        queues.on_change(self.waiting.settings_changed)

    async def drain(self) -> None:
        """End the long polls, and wait until what nobody takes has gone back."""
        await self.waiting.drain()
        while self._giving_back:
            await asyncio.wait(self._giving_back)
        await self._limits.drain()

    def check(self, request: DequeueRequest) -> int:
        """RequestInvalid; the limit, cut to its bound."""
        limit = self._checks.limit(request.limit)
        validation.coverage(request.coverage)
        if request.wait_ms < 0:
            raise RequestInvalid.of("waitMillis", request.wait_ms, "0 or more")
        if request.claim_timeout_ms is not None:
            validation.at_least_1("claimTimeoutMillis", request.claim_timeout_ms)
        return limit

    async def dequeue(
        self,
        request: DequeueRequest,
        limit: int,
        source: str,
        *,
        is_bound: bool = False,
        take_room: Callable[[int], bool] | None = None,
    ) -> list[DequeuedJob]:
        """Jobs for a request that was checked. A dry run neither waits nor is limited; who waits looks at all shards,
        whatever its coverage, from the second look on. DequeueRateLimited: see limits.py.

        `is_bound`: the claims will be bound to the caller's connection, and say so. `take_room` is asked before each
        further slice of large bodies, with its bytes; False: no more now.
        """
        queue = request.queue
        validation.existing_queue(queue)
        bounds = self._settings
        settings = self._queues.settings(queue)
        timeout_ms = request.claim_timeout_ms
        timeout_ms = settings.claim_timeout_ms if timeout_ms is None else min(timeout_ms, bounds.max_claim_timeout_ms)
        claim_descriptor = self._claims.next(source, timeout_ms if is_bound else None)
        limit, max_bytes = response_budget(bounds.max_answer_bytes, queue, claim_descriptor, limit)
        priorities = self._checks.priorities
        if request.dry_run:
            now_ms = self._clock.now_ms()
            max_bytes = min(max_bytes, _PEEK_BYTES)
            return await self._router.peek(queue, priorities, limit, max_bytes, now_ms, coverage=request.coverage)
        max_bytes = min(max_bytes, limit * bounds.max_body_bytes)
        claim = ClaimRequest(claim_descriptor, limit, priorities, timeout_ms, min(max_bytes, self._slice_bytes))
        wait_ms = min(request.wait_ms, bounds.max_wait_ms)
        if wait_ms == 0:
            jobs, held = await self._now(queue, settings, claim, request.coverage)
            if held is not None:
                self._limits.count(1, queue, held.reason)
                error = held.error()
                if error is not None and not jobs:
                    raise error
        else:
            jobs = await self._wait(queue, settings, claim, request.coverage, wait_ms)
        if jobs:
            if len(jobs) < limit and max_bytes > self._slice_bytes:
                jobs = await self._in_slices(
                    jobs, queue, settings, claim, request.coverage, limit, max_bytes, take_room
                )
            self._handed_out(queue, jobs)
        return jobs

    async def _in_slices(
        self,
        jobs: list[DequeuedJob],
        queue: str,
        settings: QueueSettings,
        claim: ClaimRequest,
        coverage: float,
        limit: int,
        max_bytes: int,
        take_room: Callable[[int], bool] | None,
    ) -> list[DequeuedJob]:
        """More, for a caller who may have more than one claim brings: a slice each, while the last one was full."""
        taken, full = _body_bytes(jobs), self._slice_bytes - self._settings.max_body_bytes
        last = taken
        try:
            while last > full and len(jobs) < limit and taken < max_bytes:
                if take_room is not None and not take_room(self._slice_bytes):
                    break
                claim = replace(
                    self._renewed(claim), limit=limit - len(jobs), max_bytes=min(max_bytes - taken, self._slice_bytes)
                )
                more, _ = await self._now(queue, settings, claim, coverage)
                last = _body_bytes(more)
                if taken + last > max_bytes:
                    self._give_back_later(more)
                    break
                taken += last
                jobs = sorted([*jobs, *more], key=_by_priority)
        except PinLaterError:
            pass  # what there is already is an answer
        except BaseException:
            self._give_back_later(jobs)
            raise
        return jobs

    async def _wait(
        self, queue: str, settings: QueueSettings, claim: ClaimRequest, coverage: float, wait_ms: int
    ) -> list[DequeuedJob]:
        arrival = self.waiting.arrive()
        held = None
        if not self.waiting.poller(queue) is not None:
            try:
                jobs, held = await self._now(queue, settings, claim, coverage)
            except Overloaded:  # thousands come at once after a restart: the line has room for them, and looks once
                jobs = []
            if jobs:
                return jobs
        else:
            self._router.members.require_any()
        return await self.waiting.wait(queue, claim, wait_ms, arrival, held)

    async def _now(
        self, queue: str, settings: QueueSettings, claim: ClaimRequest, coverage: float
    ) -> tuple[list[DequeuedJob], Throttle | None]:
        """What can be handed out at once, and what kept it from more. DequeueRateLimited where the queue is paused."""
        if not is_limited(settings):
            (jobs,) = await self._router.claim(queue, (claim,), self._clock.now_ms(), coverage=coverage)
            return jobs, None
        rejection = self._limits.rejection_of(queue)
        if rejection is not None:
            self._limits.count(1, queue, "paused")
            raise rejection
        (jobs,), held = await self._limits.look_and_claim(queue, settings, claim, coverage)
        return jobs, held

    def _handed_out(self, queue: str, jobs: Sequence[DequeuedJob]) -> None:
        """Count them; they are in order of priority."""
        if self._pending is not None:
            self._pending.left(queue, len(jobs))
        first = jobs[0].priority
        if first == jobs[-1].priority:
            self._metrics.add(len(jobs), "jobs_dequeued", queue, first)
            return
        for priority, amount in Counter([job.priority for job in jobs]).items():
            self._metrics.add(amount, "jobs_dequeued", queue, priority)

    def _renewed(self, claim: ClaimRequest) -> ClaimRequest:
        """The same claim under a new name: the old one may still be under way."""
        return replace(
            claim,
            claim_descriptor=self._claims.next(
                claim_source(claim.claim_descriptor), bound_timeout(claim.claim_descriptor)
            ),
        )

    async def requeue(self, jobs: Sequence[DequeuedJob]) -> None:
        """Jobs whose caller can no longer be answered go back to PENDING with all attempts. Raises nothing."""
        groups: dict[tuple[str, str], list[DequeuedJob]] = {}
        for job in jobs:
            ref = parse_descriptor(job.descriptor)
            if ref is not None and job.claim_descriptor:
                groups.setdefault((ref.queue, ref.shard), []).append(job)
        for (queue, shard_id), claimed in groups.items():
            back = await self._router.requeue(queue, shard_id, claimed, self._clock.now_ms())
            self._metrics.add(back, "jobs_given_back", queue)
            self._limits.refund_tokens(queue, back)
            self.waiting.wake(queue, back)

    async def requeue_undelivered(self, jobs: Sequence[Unreceived]) -> None:
        """Jobs whose answer nobody received go back to PENDING with all attempts, where their claims stand as they were
        made, and not too often in a row. Raises nothing; what fails is left to the time-outs.
        """
        groups: dict[tuple[str, str], list[FreshClaim]] = {}
        for job in jobs:
            ref = parse_descriptor(job.descriptor)
            if ref is not None:
                claim = FreshClaim(ref.priority, ref.id, job.claim_descriptor, job.expires_at_ms)
                groups.setdefault((ref.queue, ref.shard), []).append(claim)
        for (queue, shard_id), claims in groups.items():
            for start in range(0, len(claims), CLAIMS_PER_CALL):
                back = await self._requeue_on(queue, shard_id, claims[start : start + CLAIMS_PER_CALL])
                if back:
                    self._metrics.add(back, "jobs_undelivered", queue)
                    _log.info("jobs_undelivered", queue=queue, shard=shard_id, jobs=back)
                    self._limits.refund_tokens(queue, back)
                    self.waiting.wake(queue, back)
                    self.waiting.capacity_freed(queue)

    async def _requeue_on(self, queue: str, shard_id: str, claims: Sequence[FreshClaim]) -> int:
        now_ms = self._clock.now_ms()
        try:
            (back,) = await self._router.call_by_shard(
                [(shard_id, lambda shard: shard.requeue_undelivered(queue, claims, now_ms))]
            )
        except PinLaterError as error:
            _log.warning("undelivered_jobs_left", queue=queue, shard=shard_id, jobs=len(claims), error=error.message)
            return 0
        return back or 0

    def _give_back_later(self, jobs: Sequence[DequeuedJob]) -> None:
        task = asyncio.get_running_loop().create_task(self.requeue(jobs))
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)


def _body_bytes(jobs: Sequence[DequeuedJob]) -> int:
    return sum([len(job.body) for job in jobs])


def _by_priority(job: DequeuedJob) -> tuple[int, int]:
    return job.priority, job.run_after_ms
