"""The calls of the contract over the shards. Satisfies pinlater.api.Api; docs/wire.md says what each call does."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pinlater.backends.base import AckOutcome, AckRequest, ClaimRequest, Shard
from pinlater.clock import Clock
from pinlater.errors import PinLaterError, RequestInvalid
from pinlater.model import (
    CONTINUATION_START,
    Ack,
    CancelOutcome,
    Checkpoint,
    DequeuedJob,
    DequeueRequest,
    Job,
    JobFilter,
    JobInfo,
    RequestContext,
    ScanPage,
    claim_source,
    parse_descriptor,
)
from pinlater.service import checks
from pinlater.service.admin import AdminPassword
from pinlater.service.answers import dequeue_room
from pinlater.service.checks import Checks
from pinlater.service.claims import ClaimNames
from pinlater.service.looking import Looking
from pinlater.service.operating import Operating
from pinlater.service.outcomes import retries
from pinlater.service.refs import References
from pinlater.service.settings import ServiceSettings
from pinlater.service.waiting import WaitBounds, Waiting
from pinlater.shards.router import Router


class Service:
    """The product's rules. Opened and closed with its router; `claims` must be of this process alone."""

    def __init__(
        self, router: Router, clock: Clock, claims: ClaimNames, settings: ServiceSettings | None = None
    ) -> None:
        self.router = router
        self.settings = settings = settings or ServiceSettings()
        self._clock = clock
        self._claims = claims
        self._checks = Checks(settings)
        self._refs = References()
        self._admin = AdminPassword(settings.admin_password_hash)
        self._looking = Looking(router, clock, settings, self._checks, self._refs)
        self._operating = Operating(router, clock, settings, self._checks, self._refs, self._looking)
        bounds = WaitBounds(settings.max_waiters, settings.poll_min_ms, settings.poll_max_ms)
        self._waiting = Waiting(router, clock, bounds, self._renewed, self._give_back_later)
        self._keep_succeeded = settings.succeeded_ttl_ms > 0
        self._keep_failed = settings.failed_ttl_ms > 0
        self._background: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Open the shards; see Members.open."""
        await self.router.open()

    def start_draining(self) -> None:
        """Long polls are answered now, with nothing, and no new one waits."""
        self._waiting.start_draining()

    async def close(self) -> None:
        """End the long polls, give back what nobody takes, close the shards."""
        await self._waiting.drain()
        while self._background:
            await asyncio.wait(self._background)
        await self.router.close()

    def wake(self, queue: str, jobs: int) -> None:
        """So many jobs of a queue became eligible, by a hand other than a call of this service."""
        self._waiting.wake(queue, jobs)

    # -- queues ------------------------------------------------------------------------------------------------------

    async def create_queue(self, name: str, *, context: RequestContext | None = None) -> None:
        checks.new_queue(name)
        await self.router.create_queue(name, self._clock.now_ms())

    async def delete_queue(self, name: str, password: str, *, context: RequestContext | None = None) -> None:
        await self._admin.check(password)
        if checks.is_queue_name(name):
            await self.router.delete_queue(name, self._clock.now_ms())
            self._waiting.queue_deleted(name)

    async def queue_names(self, *, context: RequestContext | None = None) -> set[str]:
        return await self.router.queue_names()

    # -- the life of a job -------------------------------------------------------------------------------------------

    async def enqueue(self, queue: str, jobs: Sequence[Job], *, context: RequestContext | None = None) -> list[str]:
        now_ms = self._clock.now_ms()
        jobs, later = self._checks.jobs(jobs, now_ms)
        checks.existing_queue(queue)
        if not jobs:
            return []
        descriptors = await self.router.enqueue(queue, jobs, now_ms)
        self._became_pending(queue, len(jobs) - len(later), later)
        return descriptors

    async def dequeue(self, request: DequeueRequest, *, context: RequestContext | None = None) -> list[DequeuedJob]:
        if not request.succeeded and not request.failed:
            limit = self._check_dequeue(request)
            return await self._hand_out(request, limit, self._checks.source(context))
        is_applied = False
        try:
            queue = request.ack_queue or request.queue
            acks = self._read_acks(queue, request.succeeded, request.failed)
            limit = self._check_dequeue(request)
            source = self._checks.source(context)
            await self._ack(queue, acks)
            is_applied = True
            return await self._hand_out(request, limit, source)
        except PinLaterError as error:
            error.acks_applied = is_applied
            raise

    def _check_dequeue(self, request: DequeueRequest) -> int:
        """RequestInvalid; the limit, cut to its bound."""
        limit = self._checks.limit(request.limit)
        checks.coverage(request.coverage)
        if request.wait_ms < 0:
            raise RequestInvalid.of("waitMillis", request.wait_ms, "0 or more")
        if request.claim_timeout_ms is not None:
            checks.at_least_1("claimTimeoutMillis", request.claim_timeout_ms)
        return limit

    async def _hand_out(self, request: DequeueRequest, limit: int, source: str) -> list[DequeuedJob]:
        queue = request.queue
        checks.existing_queue(queue)
        settings = self.settings
        claim_descriptor = self._claims.next(source)
        limit, max_bytes = dequeue_room(settings.max_answer_bytes, queue, claim_descriptor, limit)
        priorities = self._checks.priorities
        now_ms = self._clock.now_ms()
        if request.dry_run:
            return await self.router.peek(queue, priorities, limit, max_bytes, now_ms, coverage=request.coverage)
        timeout_ms = request.claim_timeout_ms
        timeout_ms = settings.claim_timeout_ms if timeout_ms is None else min(timeout_ms, settings.max_claim_timeout_ms)
        claim = ClaimRequest(claim_descriptor, limit, priorities, timeout_ms, max_bytes)
        wait_ms = min(request.wait_ms, settings.max_wait_ms)
        if wait_ms == 0:
            return (await self.router.claim(queue, (claim,), now_ms, coverage=request.coverage))[0]
        arrival = self._waiting.arrive()
        if not self._waiting.has_line(queue):
            (jobs,) = await self.router.claim(queue, (claim,), now_ms, coverage=request.coverage)
            if jobs:
                return jobs
        return await self._waiting.wait(queue, claim, wait_ms, arrival)

    def _renewed(self, claim: ClaimRequest) -> ClaimRequest:
        """The same claim under a new name: the old one may still be under way."""
        return replace(claim, claim_descriptor=self._claims.next(claim_source(claim.claim_descriptor)))

    async def ack(
        self, queue: str, succeeded: Sequence[Ack], failed: Sequence[Ack], *, context: RequestContext | None = None
    ) -> None:
        await self._ack(queue, self._read_acks(queue, succeeded, failed))

    def _read_acks(self, queue: str, succeeded: Sequence[Ack], failed: Sequence[Ack]) -> dict[str, list[AckRequest]]:
        self._checks.amount("jobsSucceeded and jobsFailed", succeeded, failed)
        return self._refs.acks(queue, succeeded, failed, self._clock.now_ms())

    async def _ack(self, queue: str, groups: Mapping[str, list[AckRequest]]) -> None:
        if not groups:
            return
        now_ms = self._clock.now_ms()
        send = partial(self._ack_on, queue, now_ms)
        calls = [(shard_id, partial(send, acks)) for shard_id, acks in groups.items()]
        outcomes = await self.router.named(calls)
        for acks, results in zip(groups.values(), outcomes, strict=True):
            if results and not acks[-1].succeeded:  # successes come first: then there is a failure among them
                self._became_pending(queue, *retries(acks, results, now_ms))

    def _ack_on(
        self, queue: str, now_ms: int, acks: list[AckRequest], shard: Shard
    ) -> Coroutine[Any, Any, list[AckOutcome]]:
        return shard.ack(queue, acks, now_ms, keep_succeeded=self._keep_succeeded, keep_failed=self._keep_failed)

    async def checkpoint(
        self, queue: str, checkpoints: Sequence[Checkpoint], *, context: RequestContext | None = None
    ) -> None:
        source = self._checks.source(context)
        self._checks.amount("requests", checkpoints)
        for each in checkpoints:
            if each.new_body is not None:
                self._checks.body(each.new_body)
            if each.run_after_ms is not None:
                checks.time("runAfterTimestampMillis", each.run_after_ms)
            if each.attempts_allowed is not None:
                checks.attempts("numOfAttemptsAllowed", each.attempts_allowed)
        groups = self._refs.checkpoints(queue, source, checkpoints)
        if not groups:
            return
        now_ms = self._clock.now_ms()
        calls = [
            (shard_id, lambda shard, each=each: shard.checkpoint(queue, each, now_ms))
            for shard_id, each in groups.items()
        ]
        for requests, results in zip(groups.values(), await self.router.named(calls), strict=True):
            moved = [
                request.run_after_ms or now_ms
                for request, was_done in zip(requests, results or (), strict=False)
                if was_done and request.move_to_pending
            ]
            later = [time_ms for time_ms in moved if time_ms > now_ms]
            self._became_pending(queue, len(moved) - len(later), later)

    def _became_pending(self, queue: str, now: int, later: Sequence[int]) -> None:
        if now:
            self._waiting.wake(queue, now)
        if later:
            self._waiting.due_at(queue, later)

    async def give_back(self, jobs: Sequence[DequeuedJob]) -> None:
        """Jobs whose caller can no longer be answered go back to PENDING with all attempts. Raises nothing."""
        groups: dict[tuple[str, str], list[DequeuedJob]] = {}
        for job in jobs:
            ref = parse_descriptor(job.descriptor)
            if ref is not None and job.claim_descriptor:
                groups.setdefault((ref.queue, ref.shard), []).append(job)
        for (queue, shard_id), claimed in groups.items():
            self.wake(queue, await self.router.give_back(queue, shard_id, claimed, self._clock.now_ms()))

    def _give_back_later(self, jobs: Sequence[DequeuedJob]) -> None:
        task = asyncio.get_running_loop().create_task(self.give_back(jobs))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def cancel(
        self, queue: str, descriptors: Sequence[str], *, context: RequestContext | None = None
    ) -> Mapping[str, CancelOutcome]:
        self._checks.amount("jobDescriptors", descriptors)
        outcomes = dict.fromkeys(descriptors, CancelOutcome.NOT_FOUND)
        groups = self._refs.keys(queue, outcomes)
        if not groups:
            return outcomes
        now_ms = self._clock.now_ms()
        calls = [
            (shard_id, lambda shard, named=named: shard.cancel(queue, [key for _, key in named], now_ms))
            for shard_id, named in groups.items()
        ]
        for named, results in zip(groups.values(), await self.router.named(calls), strict=True):
            for (descriptor, _), outcome in zip(named, results or (), strict=False):
                outcomes[descriptor] = outcome
        return outcomes

    # -- looking -----------------------------------------------------------------------------------------------------

    async def lookup(
        self, descriptors: Sequence[str], *, include_body: bool = False, context: RequestContext | None = None
    ) -> dict[str, JobInfo]:
        return await self._looking.lookup(descriptors, include_body)

    async def count(
        self, filter: JobFilter, *, allow_partial: bool = False, context: RequestContext | None = None
    ) -> int:
        return await self._looking.count(filter, allow_partial)

    async def scan(
        self,
        filter: JobFilter,
        *,
        continuation: str = CONTINUATION_START,
        limit: int = 100,
        context: RequestContext | None = None,
    ) -> ScanPage:
        return await self._looking.scan(filter, continuation, limit)

    # -- operators ---------------------------------------------------------------------------------------------------

    async def retry_failed(
        self,
        queue: str,
        *,
        priority: int = 1,
        attempts: int = 1,
        run_after_ms: int | None = None,
        limit: int = 1000,
        context: RequestContext | None = None,
    ) -> int:
        retried = await self._operating.retry_failed(queue, priority, attempts, run_after_ms, limit)
        is_later = run_after_ms is not None and run_after_ms > self._clock.now_ms()
        self._became_pending(queue, 0 if is_later else retried, [run_after_ms] if is_later and run_after_ms else [])
        return retried

    async def delete_jobs(self, filter: JobFilter, *, limit: int = 1000, context: RequestContext | None = None) -> int:
        return await self._operating.delete_jobs(filter, limit)
