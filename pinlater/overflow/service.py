"""The calls of an overflow shard, in the process that owns it: a service of its own over one SQLite file.

Jobs come in when no shard takes them, are handed out while no shard can be used, and leave for the shards
(homes/job_mover.py). What is said about a job that has left goes on to its copy. What means the same for a job on a
shard is delegated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from pinlater.api import ServedApi
from pinlater.errors import EnqueueRejected, NoHealthyShards, OutcomeUnknown, QueueNotFound, ShardConnectionFailed
from pinlater.model import (
    Ack,
    AckOutcome,
    Cancelled,
    CancelOutcome,
    Checkpoint,
    ConnectionRef,
    DequeuedFromQueues,
    DequeuedJob,
    DequeueFromQueuesRequest,
    DequeueRequest,
    Heartbeat,
    HeartbeatAnswer,
    Job,
    JobInfo,
    JobState,
    KeyRef,
    RequestContext,
    RescheduleJob,
    RescheduleOutcome,
    Unreceived,
    WorkerReport,
    parse_descriptor,
)
from pinlater.overflow.descriptors import MARK
from pinlater.overflow.store import OverflowStore, ServerContext, holds_jobs_back
from pinlater.service.job_queries import fit_values
from pinlater.service.rights import owner
from pinlater.wire.methods import METHODS


class OverflowService(OverflowStore):
    """The calls that an overflow shard carries out itself. `api` has all of the interface."""

    def __init__(self, path: Path, shard_id: str, bound: int, context: ServerContext) -> None:
        super().__init__(path, shard_id, bound, context)
        for method in METHODS.values():
            if not hasattr(OverflowService, method.api_name):
                setattr(self, method.api_name, getattr(context.service, method.api_name))

    @property
    def api(self) -> ServedApi:
        """This object as the protocol. Calls that do not depend on the place are the service's own, unwrapped."""
        return cast(ServedApi, self)

    async def enqueue(self, queue: str, jobs: Sequence[Job], *, context: RequestContext | None = None) -> list[str]:
        """EnqueueRejected: no room. NoHealthyShards: it takes nothing any more."""
        if self._quota.bound == 0:
            raise NoHealthyShards("the overflow shard of this server takes no new jobs (overflow is 0)")
        try:
            await self._quota.reserve(jobs, owner(context))
        except EnqueueRejected:
            self._context.metrics.add(1, "limits_hit", "overflow_full")
            raise
        if not self.mover.holding:  # else that is done every second
            await self._refresh_queues()
        try:
            descriptors = await self._store_jobs(queue, jobs, context)
        except (OutcomeUnknown, asyncio.CancelledError):
            self._jobs_may_arrive(queue)
            raise
        self.mover.jobs_arrived(queue)
        self._context.metrics.add(len(jobs), "overflow_jobs_taken", queue)
        return descriptors

    async def _store_jobs(self, queue: str, jobs: Sequence[Job], context: RequestContext | None) -> list[str]:
        try:
            return await self.service.enqueue(queue, jobs, context=context)
        except QueueNotFound:  # it may be new
            await self._refresh_queues()
            return await self.service.enqueue(queue, jobs, context=context)

    async def dequeue(self, request: DequeueRequest, *, context: RequestContext | None = None) -> list[DequeuedJob]:
        """Nothing for a queue that is paused, or a group of it, or that has limits: the shards, which keep those,
        cannot be asked now.
        """
        if holds_jobs_back(self._context.queues, request.queue):
            await self.ack(request.ack_queue or request.queue, request.succeeded, request.failed, context=context)
            return []
        return await self.service.dequeue(request, context=context)

    async def dequeue_from_queues(
        self, request: DequeueFromQueuesRequest, *, context: RequestContext | None = None
    ) -> DequeuedFromQueues:
        """Nothing of such queues either."""
        free = [share for share in request.queues if not holds_jobs_back(self._context.queues, share.queue)]
        if free:
            return await self.service.dequeue_from_queues(replace(request, queues=free), context=context)
        for each in request.acks:
            await self.ack(each.queue, each.succeeded, each.failed, context=context)
        return DequeuedFromQueues()

    async def ack(
        self, queue: str, succeeded: Sequence[Ack], failed: Sequence[Ack], *, context: RequestContext | None = None
    ) -> Sequence[AckOutcome]:
        self._check_own(ack.descriptor for ack in (*succeeded, *failed))
        return await self.service.ack(queue, succeeded, failed, context=context)

    async def checkpoint(
        self,
        queue: str,
        checkpoints: Sequence[Checkpoint],
        *,
        worker: WorkerReport | None = None,
        context: RequestContext | None = None,
    ) -> None:
        """What a worker says of itself is for the service in front of the shards, which has heard it."""
        self._check_own(each.descriptor for each in checkpoints)
        await self.service.checkpoint(queue, checkpoints, context=context)

    async def heartbeat(
        self,
        queue: str,
        heartbeats: Sequence[Heartbeat],
        *,
        worker: WorkerReport | None = None,
        context: RequestContext | None = None,
    ) -> list[HeartbeatAnswer]:
        """As `checkpoint`."""
        self._check_own(each.descriptor for each in heartbeats)
        return await self.service.heartbeat(queue, heartbeats, context=context)

    async def lookup(
        self,
        descriptors: Sequence[str],
        *,
        include_body: bool = False,
        include_result: bool = False,
        wait_ms: int = 0,
        queue: str = "",
        keys: Sequence[KeyRef] = (),
        include_trail: bool = False,
        context: RequestContext | None = None,
    ) -> dict[str, JobInfo]:
        """A job that was moved is answered as its copy is now; where the copy is gone, as it was when it was moved."""
        self._check_own(descriptors)
        found = await self.service.lookup(
            descriptors,
            include_body=include_body,
            include_result=include_result,
            wait_ms=wait_ms,
            queue=queue,
            keys=keys,
            include_trail=include_trail,
            context=context,
        )
        moved = _moved(found)
        if not moved:
            return found
        copies = list(dict.fromkeys(moved.values()))
        live = await self._context.service.lookup(
            copies,
            include_body=include_body,
            include_result=include_result,
            include_trail=include_trail,
            context=context,
        )
        for old, new in moved.items():
            if new in live:
                found[old] = replace(live[new], descriptor=old, moved_to=live[new].moved_to or new)
        fit_values(found.values(), self.service.settings.max_answer_bytes)
        return found

    async def cancel(
        self,
        queue: str,
        descriptors: Sequence[str],
        *,
        keys: Sequence[KeyRef] = (),
        running: bool = False,
        context: RequestContext | None = None,
    ) -> Cancelled:
        """A job that was moved is cancelled where it is now."""
        self._check_own(descriptors)
        outcomes = await self.service.cancel(queue, descriptors, keys=keys, running=running, context=context)
        ended = [descriptor for descriptor, outcome in outcomes.items() if outcome is CancelOutcome.ENDED]
        moved = _moved(await self.service.lookup(ended, context=context)) if ended else {}
        if moved:
            live = await self._context.service.cancel(queue, list(moved.values()), running=running, context=context)
            outcomes |= {old: live[new] for old, new in moved.items() if live[new] is not CancelOutcome.NOT_FOUND}
        return outcomes

    async def reschedule(
        self,
        queue: str,
        changes: Sequence[RescheduleJob],
        *,
        audited: bool = False,
        context: RequestContext | None = None,
    ) -> list[RescheduleOutcome]:
        """A job that was moved is rescheduled where it is now."""
        self._check_own(each.descriptor for each in changes)
        outcomes = await self.service.reschedule(queue, changes, audited=audited, context=context)
        ended = [place for place, outcome in enumerate(outcomes) if outcome is RescheduleOutcome.ENDED]
        found = await self.service.lookup([changes[place].descriptor for place in ended], context=context)
        moved = _moved(found)
        there = [place for place in ended if changes[place].descriptor in moved]
        if there:
            on_shards = [replace(changes[place], descriptor=moved[changes[place].descriptor]) for place in there]
            live = await self._context.service.reschedule(queue, on_shards, audited=audited, context=context)
            for place, outcome in zip(there, live, strict=True):
                outcomes[place] = outcome
        return outcomes

    async def requeue(self, jobs: Sequence[DequeuedJob]) -> None:
        await self.service.requeue(jobs)

    async def requeue_undelivered(self, jobs: Sequence[Unreceived]) -> None:
        await self.service.requeue_undelivered(jobs)

    def disconnected(self, connection: ConnectionRef, *, idle_ms: int = 0) -> None:
        self.service.disconnected(connection, idle_ms=idle_ms)

    def unbind(self, connection: ConnectionRef) -> None:
        self.service.unbind(connection)

    def start_draining(self) -> None:
        self.service.start_draining()

    def _check_own(self, descriptors: Iterable[str]) -> None:
        """A caller may have an old address, which is ours now: then nobody's jobs must count as not found."""
        for descriptor in descriptors:
            if MARK in descriptor:
                ref = parse_descriptor(descriptor)
                if ref is not None and ref.shard != self._shard_id:
                    raise ShardConnectionFailed(f"here is overflow shard {self._shard_id}, not {ref.shard}")


def _moved(found: Mapping[str, JobInfo]) -> dict[str, str]:
    """Which of these were moved, and to where. (A dead letter's original is FAILED, and its copy is here.)"""
    return {
        descriptor: info.moved_to
        for descriptor, info in found.items()
        if info.moved_to and info.state is JobState.SUCCEEDED
    }
