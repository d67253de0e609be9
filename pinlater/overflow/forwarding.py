"""The service of a process, with overflow shards beside the shards: an Api around it.

Ordinary calls pass at the price of a look at their descriptors. What the shards do not take goes to this server's
overflow shard; what names a job in an overflow shard goes to that one's owner, wherever it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from operator import attrgetter
from time import monotonic
from typing import Any

import structlog

from pinlater.api import Api
from pinlater.errors import NoHealthyShards, NothingStored, PinLaterError
from pinlater.model import (
    AckOutcome,
    Checkpoint,
    ConnectionRef,
    DequeuedJob,
    DequeuedJobs,
    DequeueRequest,
    Job,
    RequestContext,
    Unreceived,
)
from pinlater.overflow.descriptors import MARK, by_overflow, overflow_of
from pinlater.overflow.named import RoutedCalls
from pinlater.overflow.overflow import Overflow
from pinlater.service.queue_limits import is_limited

_log = structlog.get_logger("pinlater.overflow")

LOOK_BACK_S = 1.0
"""A long poll at the overflow shard looks so often whether shards are back."""

_descriptor = attrgetter("descriptor")


class Forwarding(RoutedCalls):
    """Satisfies the server's Service."""

    def __init__(self, overflow: Overflow) -> None:
        super().__init__(overflow)
        self._members = overflow.around.router.members

    def start_draining(self) -> None:
        self._inner.start_draining()
        self._overflow.start_leaving()

    def disconnected(self, connection: ConnectionRef, *, idle_ms: int = 0) -> None:
        self._inner.disconnected(connection, idle_ms=idle_ms)

    def unbind(self, connection: ConnectionRef) -> None:
        self._inner.unbind(connection)

    async def requeue_undelivered(self, jobs: Sequence[Unreceived]) -> None:
        """Those of an overflow shard are left to the time-outs of their claims."""
        await self._inner.requeue_undelivered(jobs)

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
        began_at = 0.0
        if request.wait_ms > 0:
            began_at = monotonic()
            if not (self._members.healthy() or request.succeeded or request.failed):
                return await self._dequeue_here(request, context, began_at, self._members.none_left())
        try:
            return await self._inner.dequeue(request, context=context)
        except NoHealthyShards as error:
            if error.acks_applied is False:
                raise
            here = self._dequeue_here(replace(request, succeeded=(), failed=()), context, began_at, error)
            return await (_after_acks(here) if error.acks_applied else here)

    async def _dequeue_here(
        self, request: DequeueRequest, context: RequestContext | None, began_at: float, refusal: NoHealthyShards
    ) -> list[DequeuedJob]:
        """From the overflow shard, as long as no shard is back. With nothing there, the shards' refusal.

        Its claims are bound to no connection: their owner may be another process, and moves jobs away all the time.
        """
        if is_limited(self._overflow.around.queues.settings(request.queue)):  # nothing will come from there
            return await self._inner.dequeue(replace(request, wait_ms=0), context=context)
        ends_at = began_at + min(request.wait_ms, self._inner.settings.max_wait_ms) / 1000
        while True:
            looks_at = min(monotonic() + LOOK_BACK_S, ends_at)
            slice_ms = max(0, round((looks_at - monotonic()) * 1000))
            jobs = await self._overflow.hand_out(
                replace(request, wait_ms=slice_ms, release_on_disconnect=False, confirms_receipt=False), context
            )
            if jobs or self._overflow.is_leaving:
                return jobs or []
            if jobs is None or monotonic() >= ends_at:
                raise refusal
            await asyncio.sleep(looks_at - monotonic())  # an owner that ends lets nobody wait
            if self._members.healthy():
                wait_ms = max(0, round((ends_at - monotonic()) * 1000))
                return await self._inner.dequeue(replace(request, wait_ms=wait_ms), context=context)

    async def _dequeue_after_acks(self, request: DequeueRequest, context: RequestContext | None) -> list[DequeuedJob]:
        """Some of the riding acks are for overflow shards: all are carried out first."""
        try:
            task = asyncio.get_running_loop().create_task(
                self.ack(request.ack_queue or request.queue, request.succeeded, request.failed, context=context)
            )
            self._overflow.under_way.add(task)
            task.add_done_callback(self._acked)
            outcomes = await asyncio.shield(task)  # to the end, although the caller goes meanwhile
        except PinLaterError as error:
            error.acks_applied = error.acks_applied or False
            raise
        jobs = await _after_acks(self.dequeue(replace(request, succeeded=(), failed=()), context=context))
        had_effect = AckOutcome.IGNORED not in outcomes and AckOutcome.UNKNOWN not in outcomes
        return jobs if had_effect else DequeuedJobs(jobs, outcomes)

    def _acked(self, task: asyncio.Task[Sequence[AckOutcome]]) -> None:
        self._overflow.under_way.discard(task)
        error = None if task.cancelled() else task.exception()  # the caller was told, or is gone
        if error is not None and not isinstance(error, PinLaterError):
            _log.error("riding_acks_failed", exc_info=error)

    async def requeue(self, jobs: Sequence[DequeuedJob]) -> None:
        if not any(MARK in job.descriptor for job in jobs):
            return await self._inner.requeue(jobs)
        await self._inner.requeue([job for job in jobs if overflow_of(job.descriptor) is None])
        for shard_id, ours in by_overflow(jobs, _descriptor).items():
            try:
                await self._overflow.at(shard_id, lambda owner, ours=ours: _give_back(owner, ours))  # type: ignore[misc]
            except PinLaterError as error:
                _log.warning("jobs_not_given_back", shard=shard_id, jobs=len(ours), error=error.message)


async def _after_acks(handing_out: Coroutine[Any, Any, list[DequeuedJob]]) -> list[DequeuedJob]:
    """Its errors say that the riding acks were carried out."""
    try:
        return await handing_out
    except PinLaterError as error:
        error.acks_applied = True
        raise


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
