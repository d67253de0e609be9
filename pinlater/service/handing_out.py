"""Handing out: jobs claimed for those who ask, at once or when they come, and given back when they leave."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from pinlater.backends.base import ClaimRequest
from pinlater.clock import Clock
from pinlater.errors import Overloaded, RequestInvalid
from pinlater.model import DequeuedJob, DequeueRequest, claim_source, parse_descriptor
from pinlater.service import checks
from pinlater.service.answers import dequeue_room
from pinlater.service.checks import Checks
from pinlater.service.claims import ClaimNames
from pinlater.service.line import WaitBounds
from pinlater.service.settings import ServiceSettings
from pinlater.service.waiting import Waiting
from pinlater.shards.router import Router


class HandingOut:
    """Dequeues of one service, those that wait included."""

    def __init__(
        self, router: Router, clock: Clock, settings: ServiceSettings, bounds: Checks, claims: ClaimNames
    ) -> None:
        self._router = router
        self._clock = clock
        self._settings = settings
        self._checks = bounds
        self._claims = claims
        self._giving_back: set[asyncio.Task[None]] = set()
        waits = WaitBounds(settings.max_waiters, settings.poll_min_ms, settings.poll_max_ms)
        self.waiting = Waiting(router, clock, waits, self._renewed, self._give_back_later)

    async def drain(self) -> None:
        """End the long polls, and wait until what nobody takes has gone back."""
        await self.waiting.drain()
        while self._giving_back:
            await asyncio.wait(self._giving_back)

    def check(self, request: DequeueRequest) -> int:
        """RequestInvalid; the limit, cut to its bound."""
        limit = self._checks.limit(request.limit)
        checks.coverage(request.coverage)
        if request.wait_ms < 0:
            raise RequestInvalid.of("waitMillis", request.wait_ms, "0 or more")
        if request.claim_timeout_ms is not None:
            checks.at_least_1("claimTimeoutMillis", request.claim_timeout_ms)
        return limit

    async def hand_out(self, request: DequeueRequest, limit: int, source: str) -> list[DequeuedJob]:
        """Jobs for a request that was checked. A dry run does not wait; who waits looks at all shards, whatever its
        coverage, from the second look on.
        """
        queue = request.queue
        checks.existing_queue(queue)
        settings = self._settings
        claim_descriptor = self._claims.next(source)
        limit, max_bytes = dequeue_room(settings.max_answer_bytes, queue, claim_descriptor, limit)
        priorities = self._checks.priorities
        now_ms = self._clock.now_ms()
        if request.dry_run:
            return await self._router.peek(queue, priorities, limit, max_bytes, now_ms, coverage=request.coverage)
        timeout_ms = request.claim_timeout_ms
        timeout_ms = settings.claim_timeout_ms if timeout_ms is None else min(timeout_ms, settings.max_claim_timeout_ms)
        max_bytes = min(max_bytes, limit * settings.max_body_bytes)
        claim = ClaimRequest(claim_descriptor, limit, priorities, timeout_ms, max_bytes)
        wait_ms = min(request.wait_ms, settings.max_wait_ms)
        if wait_ms == 0:
            return (await self._router.claim(queue, (claim,), now_ms, coverage=request.coverage))[0]
        arrival = self.waiting.arrive()
        if not self.waiting.has_line(queue):
            try:
                (jobs,) = await self._router.claim(queue, (claim,), now_ms, coverage=request.coverage)
            except Overloaded:  # thousands come at once after a restart: the line has room for them, and looks once
                jobs = []
            if jobs:
                return jobs
        return await self.waiting.wait(queue, claim, wait_ms, arrival)

    def _renewed(self, claim: ClaimRequest) -> ClaimRequest:
        """The same claim under a new name: the old one may still be under way."""
        return replace(claim, claim_descriptor=self._claims.next(claim_source(claim.claim_descriptor)))

    async def give_back(self, jobs: Sequence[DequeuedJob]) -> None:
        """Jobs whose caller can no longer be answered go back to PENDING with all attempts. Raises nothing."""
        groups: dict[tuple[str, str], list[DequeuedJob]] = {}
        for job in jobs:
            ref = parse_descriptor(job.descriptor)
            if ref is not None and job.claim_descriptor:
                groups.setdefault((ref.queue, ref.shard), []).append(job)
        for (queue, shard_id), claimed in groups.items():
            self.waiting.wake(queue, await self._router.give_back(queue, shard_id, claimed, self._clock.now_ms()))

    def _give_back_later(self, jobs: Sequence[DequeuedJob]) -> None:
        task = asyncio.get_running_loop().create_task(self.give_back(jobs))
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)
