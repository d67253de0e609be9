"""Which method of the interface is which call of the service."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from pinlater.api import Api
from pinlater.model import ConnectionRef, DequeuedJob, RequestContext, Unreceived
from pinlater.server.limits import ServerLimits
from pinlater.server.pending import PendingCall
from pinlater.wire import convert
from pinlater.wire import convert_operators as operators


class Service(Api, Protocol):
    """What the server needs of the service, beyond the calls of the interface."""

    async def requeue(self, jobs: Sequence[DequeuedJob]) -> None:
        """Back to PENDING, with all attempts: jobs claimed for a caller that can no longer be answered."""

    async def requeue_undelivered(self, jobs: Sequence[Unreceived]) -> None:
        """Back to PENDING without an attempt, where their claims stand: jobs whose answer nobody received."""

    def disconnected(self, connection: ConnectionRef, *, idle_ms: int = 0) -> None:
        """A connection broke that holds claims, of which nothing was heard for so long already."""

    def unbind(self, connection: ConnectionRef) -> None:
        """A connection that holds claims has left without breaking."""

    def start_draining(self) -> None:
        """Long polls end at once, empty; calls that were read are still carried out."""


Call = Callable[[RequestContext, Any, PendingCall], Awaitable[Any]]


_INFO_BYTES = 21_000
"""Of one job in an answer without its body: a status of 5,000 characters takes most of it."""

_LARGE_BYTES = 1024 * 1024


class Calls:
    """Each method takes decoded arguments and answers what the codec encodes; errors are those of the service."""

    def __init__(self, service: Service, limits: ServerLimits) -> None:
        self._service = service
        self._limits = limits
        self.by_name: dict[str, Call] = {
            "createQueue": self._create_queue,
            "deleteQueue": self._delete_queue,
            "enqueueJobs": self._enqueue,
            "dequeueJobs": self._dequeue,
            "ackDequeuedJobs": self._ack,
            "ackJobs": self._ack_jobs,
            "checkpointJobs": self._checkpoint,
            "lookupJobs": self._lookup,
            "getJobCount": self._count,
            "getQueueNames": self._queue_names,
            "scanJobs": self._scan,
            "retryFailedJobs": self._retry,
            "deleteJobs": self._delete_jobs,
            "cancelJobs": self._cancel,
            "getQueues": self._get_queues,
            "updateQueue": self._update_queue,
            "updateShard": self._update_shard,
            "getClusterStatus": self._cluster_status,
            "changeJobs": self._change_jobs,
            "getAudit": self._audit,
        }

    async def _create_queue(self, context: RequestContext, args: Any, pending: PendingCall) -> None:
        await self._service.create_queue(args.name, context=context)

    async def _delete_queue(self, context: RequestContext, args: Any, pending: PendingCall) -> None:
        context.connection = pending.connection
        await self._service.delete_queue(args.name, args.password, context=context)

    async def _queue_names(self, context: RequestContext, args: Any, pending: PendingCall) -> set[str]:
        return await self._service.queue_names(context=context)

    async def _enqueue(self, context: RequestContext, args: Any, pending: PendingCall) -> Any:
        request = args.request
        jobs = convert.jobs_from_wire(request.jobs)
        return convert.enqueued_to_wire(await self._service.enqueue(request.queue_name, jobs, context=context))

    async def _dequeue(self, context: RequestContext, args: Any, pending: PendingCall) -> Any:
        """Jobs for a caller that is gone are given back, and the answer is empty."""
        request = convert.dequeue_from_wire(args.request)
        if request.release_on_disconnect:
            context.connection = pending.connection
        if request.limit > 1:
            context.take_room = pending.take_room
        pending.waits = pending.long_poll = request.wait_ms > 0
        jobs: Sequence[DequeuedJob] = ()
        try:
            jobs = await self._service.dequeue(request, context=context)
        except asyncio.CancelledError:
            if not pending.gone:
                raise
        finally:
            pending.waits = False
        if jobs and not request.dry_run:
            if pending.gone:
                await self._service.requeue(jobs)
                return convert.emptied_to_wire(jobs)
            pending.jobs = jobs
            pending.needs_receipt = request.confirms_receipt
        return convert.dequeued_to_wire(jobs, awaits_receipt=pending.needs_receipt)

    async def _ack(self, context: RequestContext, args: Any, pending: PendingCall) -> None:
        request = args.request
        succeeded = convert.acks_from_wire(request.jobs_succeeded)
        await self._service.ack(
            request.queue_name, succeeded, convert.acks_from_wire(request.jobs_failed), context=context
        )

    async def _ack_jobs(self, context: RequestContext, args: Any, pending: PendingCall) -> Any:
        request = args.request
        succeeded = convert.acks_from_wire(request.jobs_succeeded)
        outcomes = await self._service.ack(
            request.queue_name, succeeded, convert.acks_from_wire(request.jobs_failed), context=context
        )
        return convert.acked_to_wire(outcomes)

    async def _checkpoint(self, context: RequestContext, args: Any, pending: PendingCall) -> None:
        checkpoints = convert.checkpoints_from_wire(args.request.requests)
        context.connection = pending.connection
        await self._service.checkpoint(args.request.queue_name, checkpoints, context=context)

    async def _lookup(self, context: RequestContext, args: Any, pending: PendingCall) -> Any:
        request = args.request
        include_body = request.include_body or False
        await self._room_for(pending, len(request.job_descriptors), self._limits.max_body_bytes if include_body else 0)
        return await self._service.lookup(request.job_descriptors, include_body=include_body, context=context)

    async def _count(self, context: RequestContext, args: Any, pending: PendingCall) -> int:
        wanted = convert.count_filter_from_wire(args.request)
        return await self._service.count(wanted, allow_partial=args.request.allow_partial or False, context=context)

    async def _scan(self, context: RequestContext, args: Any, pending: PendingCall) -> Any:
        request = args.request
        await self._room_for(pending, request.limit or 0)
        page = await self._service.scan(
            convert.scan_filter_from_wire(request),
            continuation=convert.continuation_from_wire(request),
            limit=100 if request.limit is None else request.limit,
            context=context,
        )
        return convert.scan_page_to_wire(page)

    async def _room_for(self, pending: PendingCall, jobs: int, body_bytes: int = 0) -> None:
        """Before a call that may bring much begins: room for its answer, if all jobs are as large as can be."""
        size = jobs * (body_bytes + _INFO_BYTES)
        if jobs > 1 and size > _LARGE_BYTES:
            await pending.wait_for_room(min(size, self._limits.max_frame_bytes))

    async def _retry(self, context: RequestContext, args: Any, pending: PendingCall) -> int:
        request = args.request
        return await self._service.retry_failed(
            request.queue_name,
            priority=1 if request.priority is None else request.priority,
            attempts=1 if request.attempts_to_allow is None else request.attempts_to_allow,
            run_after_ms=request.run_after_ms,
            limit=1000 if request.limit is None else request.limit,
            context=context,
        )

    async def _delete_jobs(self, context: RequestContext, args: Any, pending: PendingCall) -> int:
        limit = args.request.limit
        wanted = convert.delete_filter_from_wire(args.request)
        return await self._service.delete_jobs(wanted, limit=1000 if limit is None else limit, context=context)

    async def _cancel(self, context: RequestContext, args: Any, pending: PendingCall) -> Any:
        request = args.request
        return convert.cancelled_to_wire(
            await self._service.cancel(request.queue_name, request.job_descriptors, context=context)
        )

    # -- operators of a cluster ----------------------------------------------------------------------------------------

    async def _get_queues(self, context: RequestContext, args: Any, pending: PendingCall) -> Any:
        return operators.queues_to_wire(await self._service.get_queues(args.request.queue_names or (), context=context))

    async def _update_queue(self, context: RequestContext, args: Any, pending: PendingCall) -> Any:
        request = args.request
        context.connection = pending.connection
        return await self._service.update_queue(
            request.queue_name,
            request.password,
            set=request.settings or {},
            unset=request.unset or (),
            create=request.create or False,
            context=context,
        )

    async def _update_shard(self, context: RequestContext, args: Any, pending: PendingCall) -> Any:
        request = args.request
        context.connection = pending.connection
        return await self._service.update_shard(
            request.shard_id, request.password, dequeue_only=request.dequeue_only, context=context
        )

    async def _cluster_status(self, context: RequestContext, args: Any, pending: PendingCall) -> Any:
        return await self._service.cluster_status(queues=args.request.queue_names, context=context)

    async def _change_jobs(self, context: RequestContext, args: Any, pending: PendingCall) -> Any:
        return await self._service.change_jobs(operators.job_change_from_wire(args.request), context=context)

    async def _audit(self, context: RequestContext, args: Any, pending: PendingCall) -> Any:
        request = args.request
        limit = 100 if request.limit is None else request.limit
        return operators.audit_to_wire(
            await self._service.audit(limit=limit, before_ms=request.before_ms, context=context)
        )
