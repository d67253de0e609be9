"""The service of a process, with overflow shards beside the shards: an Api around it.

Ordinary calls pass at the price of a look at their descriptors. What the shards do not take goes to this server's
overflow shard; what names a job in an overflow shard goes to that one's owner, wherever it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, TypeVar

import structlog

from pinlater.api import Api
from pinlater.errors import NoHealthyShards, NothingStored, PinLaterError, RequestInvalid, ShardConnectionFailed
from pinlater.model import (
    Ack,
    CancelOutcome,
    Checkpoint,
    DequeuedJob,
    DequeueRequest,
    Job,
    JobInfo,
    RequestContext,
)
from pinlater.overflow.delegate import Delegating
from pinlater.overflow.naming import MARK, blanked, by_overflow, fit, overflow_of
from pinlater.overflow.overflow import Overflow
from pinlater.service import checks
from pinlater.shards.router import together

T = TypeVar("T")
_log = structlog.get_logger("pinlater.overflow")

LOOK_BACK_MS = 1_000
"""A long poll at the overflow shard looks so often whether shards are back."""

Call = Callable[[Api], Coroutine[Any, Any, T]]
_descriptor = attrgetter("descriptor")


class Forwarding(Delegating):
    """Satisfies the server's Service."""

    def __init__(self, overflow: Overflow) -> None:
        self._inner = overflow.around.service
        super().__init__(self._inner)
        self._overflow = overflow
        self._members = overflow.around.router.members

    def start_draining(self) -> None:
        self._inner.start_draining()
        self._overflow.start_leaving()

    # -- jobs that no shard takes or hands out -----------------------------------------------------------------------

    async def enqueue(self, queue: str, jobs: Sequence[Job], *, context: RequestContext | None = None) -> list[str]:
        try:
            return await self._inner.enqueue(queue, jobs, context=context)
        except (NoHealthyShards, NothingStored) as refusal:
            return await self._overflow.take(queue, jobs, context, refusal)

    async def dequeue(self, request: DequeueRequest, *, context: RequestContext | None = None) -> list[DequeuedJob]:
        if request.succeeded or request.failed:
            for acks in (request.succeeded, request.failed):
                for ack in acks:
                    if MARK in ack.descriptor:
                        return await self._dequeue_after_acks(request, context)
        elif request.wait_ms and not self._members.healthy():
            return await self._dequeue_here(request, context, self._members.none_left())
        try:
            return await self._inner.dequeue(request, context=context)
        except NoHealthyShards as error:
            if error.acks_applied is False:
                raise
            return await self._dequeue_here(replace(request, succeeded=(), failed=()), context, error)

    async def _dequeue_here(
        self, request: DequeueRequest, context: RequestContext | None, refusal: NoHealthyShards
    ) -> list[DequeuedJob]:
        """From the overflow shard, as long as no shard is back. With nothing there, the shards' refusal."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + request.wait_ms / 1000
        wait_ms = request.wait_ms
        while True:
            jobs = await self._overflow.hand_out(replace(request, wait_ms=min(wait_ms, LOOK_BACK_MS)), context)
            if jobs:
                return jobs
            wait_ms = round((ends_at - loop.time()) * 1000)
            if jobs is None or wait_ms <= 0:
                raise refusal
            if self._members.healthy():
                return await self._inner.dequeue(replace(request, wait_ms=wait_ms), context=context)

    async def _dequeue_after_acks(self, request: DequeueRequest, context: RequestContext | None) -> list[DequeuedJob]:
        """Some of the riding acks are for overflow shards: all are carried out first, unless the request is invalid."""
        is_applied = False
        try:
            _check(request)
            task = asyncio.get_running_loop().create_task(
                self.ack(request.ack_queue or request.queue, request.succeeded, request.failed, context=context)
            )
            self._overflow.under_way.add(task)
            task.add_done_callback(self._acked)
            await asyncio.shield(task)  # to the end, although the caller goes meanwhile
            is_applied = True
            return await self.dequeue(replace(request, succeeded=(), failed=()), context=context)
        except PinLaterError as error:
            error.acks_applied = is_applied
            raise

    def _acked(self, task: asyncio.Task[None]) -> None:
        self._overflow.under_way.discard(task)
        if not task.cancelled():
            task.exception()  # the caller was told, or is gone

    async def give_back(self, jobs: Sequence[DequeuedJob]) -> None:
        if not any(MARK in job.descriptor for job in jobs):
            return await self._inner.give_back(jobs)
        await self._inner.give_back([job for job in jobs if overflow_of(job.descriptor) is None])
        for shard_id, ours in by_overflow(jobs, _descriptor).items():
            try:
                await self._overflow.at(shard_id, lambda owner, ours=ours: _give_back(owner, ours))  # type: ignore[misc]
            except PinLaterError as error:
                _log.warning("jobs_not_given_back", shard=shard_id, jobs=len(ours), error=error.message)

    # -- calls that name jobs ----------------------------------------------------------------------------------------

    def ack(
        self, queue: str, succeeded: Sequence[Ack], failed: Sequence[Ack], *, context: RequestContext | None = None
    ) -> Coroutine[Any, Any, None]:
        for acks in (succeeded, failed):
            for ack in acks:
                if MARK in ack.descriptor:
                    return self._ack(queue, succeeded, failed, context)
        return self._inner.ack(queue, succeeded, failed, context=context)

    async def _ack(
        self, queue: str, succeeded: Sequence[Ack], failed: Sequence[Ack], context: RequestContext | None
    ) -> None:
        good, bad = by_overflow(succeeded, _descriptor), by_overflow(failed, _descriptor)

        def call(shard_id: str) -> Call[None]:
            mine = good.get(shard_id, []), bad.get(shard_id, [])
            return lambda owner: owner.ack(queue, *mine, context=context)

        inner = self._inner.ack(queue, blanked(succeeded), blanked(failed), context=context)
        await self._everywhere(inner, {shard_id: call(shard_id) for shard_id in {**good, **bad}})

    def checkpoint(
        self, queue: str, checkpoints: Sequence[Checkpoint], *, context: RequestContext | None = None
    ) -> Coroutine[Any, Any, None]:
        for each in checkpoints:
            if MARK in each.descriptor:
                return self._checkpoint(queue, checkpoints, context)
        return self._inner.checkpoint(queue, checkpoints, context=context)

    async def _checkpoint(self, queue: str, checkpoints: Sequence[Checkpoint], context: RequestContext | None) -> None:
        def call(mine: Sequence[Checkpoint]) -> Call[None]:
            return lambda owner: owner.checkpoint(queue, mine, context=context)

        inner = self._inner.checkpoint(queue, blanked(checkpoints), context=context)
        groups = by_overflow(checkpoints, _descriptor)
        await self._everywhere(inner, {shard_id: call(mine) for shard_id, mine in groups.items()})

    async def lookup(
        self, descriptors: Sequence[str], *, include_body: bool = False, context: RequestContext | None = None
    ) -> dict[str, JobInfo]:
        for descriptor in descriptors:
            if MARK in descriptor:
                return await self._lookup(descriptors, include_body, context)
        return await self._inner.lookup(descriptors, include_body=include_body, context=context)

    async def _lookup(
        self, descriptors: Sequence[str], include_body: bool, context: RequestContext | None
    ) -> dict[str, JobInfo]:
        def call(mine: Sequence[str]) -> Call[dict[str, JobInfo]]:
            return lambda owner: owner.lookup(mine, include_body=include_body, context=context)

        inner = self._inner.lookup(_without(descriptors), include_body=include_body, context=context)
        groups = by_overflow(descriptors, str)
        found: dict[str, JobInfo] = {}
        for part in await self._everywhere(inner, {shard_id: call(mine) for shard_id, mine in groups.items()}):
            found |= part
        fit(found, self._inner.settings.max_answer_bytes)
        return found

    async def cancel(
        self, queue: str, descriptors: Sequence[str], *, context: RequestContext | None = None
    ) -> Mapping[str, CancelOutcome]:
        groups = by_overflow(descriptors, str)
        if not groups:
            return await self._inner.cancel(queue, descriptors, context=context)

        def call(mine: Sequence[str]) -> Call[Mapping[str, CancelOutcome]]:
            return lambda owner: owner.cancel(queue, mine, context=context)

        inner = self._inner.cancel(queue, _without(descriptors), context=context)
        outcomes = dict.fromkeys(descriptors, CancelOutcome.NOT_FOUND)
        for part in await self._everywhere(inner, {shard_id: call(mine) for shard_id, mine in groups.items()}):
            outcomes |= {descriptor: outcome for descriptor, outcome in part.items() if descriptor}
        return outcomes

    async def _everywhere(self, inner: Coroutine[Any, Any, T], calls: Mapping[str, Call[T]]) -> list[T]:
        """The shards' part first, which checks the whole request, then all overflow shards at once. What cannot be
        reached is an error after the others were done.
        """
        outcomes = [await _outcome(inner)]
        if isinstance(outcomes[0], PinLaterError) and not isinstance(
            outcomes[0], (ShardConnectionFailed, NoHealthyShards)
        ):
            raise outcomes[0]
        outcomes += await asyncio.gather(*[_outcome(self._overflow.at(*each)) for each in calls.items()])
        failures = [outcome for outcome in outcomes if isinstance(outcome, PinLaterError)]
        if failures:
            raise failures[0] if len(failures) == 1 else together(failures)
        return [outcome for outcome in outcomes if not isinstance(outcome, PinLaterError)]


async def _outcome(call: Coroutine[Any, Any, T]) -> T | PinLaterError:
    try:
        return await call
    except PinLaterError as error:
        return error.with_traceback(None)


async def _give_back(owner: Api, jobs: Sequence[DequeuedJob]) -> None:
    """As the interface can say it: moved to pending, with the time that each had."""
    queues: dict[str, list[Checkpoint]] = {}
    for job in jobs:
        queues.setdefault(job.descriptor.partition(":")[0], []).append(
            Checkpoint(
                job.descriptor,
                move_to_pending=True,
                run_after_ms=job.run_after_ms,
                claim_descriptor=job.claim_descriptor,
            )
        )
    for queue, checkpoints in queues.items():
        await owner.checkpoint(queue, checkpoints)


def _without(descriptors: Sequence[str]) -> list[str]:
    """The same number of them, naming nothing in an overflow shard."""
    return ["" if overflow_of(descriptor) else descriptor for descriptor in descriptors]


def _check(request: DequeueRequest) -> None:
    """RequestInvalid."""
    checks.at_least_1("limit", request.limit)
    checks.coverage(request.coverage)
    if request.wait_ms < 0:
        raise RequestInvalid.of("waitMillis", request.wait_ms, "0 or more")
    if request.claim_timeout_ms is not None:
        checks.at_least_1("claimTimeoutMillis", request.claim_timeout_ms)
