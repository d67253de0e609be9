"""Enqueue calls: single jobs joined by queue, lists as they are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from pinlater.client.calls import Dispatcher, Outgoing
from pinlater.client.joining import Joiner, JoiningLimits
from pinlater.client.safety import Safety
from pinlater.errors import ProtocolError, RequestInvalid
from pinlater.model import Job, RequestContext
from pinlater.wire.convert_client import call_args, enqueue_to_wire


class Enqueuer:
    """Has a joiner for each queue and time-out in use."""

    def __init__(self, dispatcher: Dispatcher, context: RequestContext, limits: JoiningLimits) -> None:
        self._dispatcher = dispatcher
        self._context = context
        self._limits = limits
        self._joiners: dict[tuple[str, float], Joiner] = {}

    def join(self, queue: str, job: Job, timeout_s: float) -> asyncio.Future[str]:
        """The descriptor of one job, to come; it travels with others of its queue. RequestInvalid, Overloaded."""
        if type(job.body) is not bytes:
            raise RequestInvalid.of("body", job.body, "bytes")
        key = (queue, timeout_s)
        joiner = self._joiners.get(key)
        if joiner is None:
            send = partial(self._send, queue, context=self._context)
            on_idle = partial(self._joiners.pop, key, None)
            joiner = self._joiners[key] = Joiner(send, timeout_s, self._limits, on_idle)
        return joiner.add(job)

    async def send(self, queue: str, jobs: Sequence[Job], deadline_s: float, context: RequestContext) -> list[str]:
        """The descriptors of jobs that travel alone, all or none, in one call."""
        for job in jobs:
            if type(job.body) is not bytes:
                raise RequestInvalid.of("body", job.body, "bytes")
        return await self._send(queue, jobs, deadline_s, context)

    async def _send(self, queue: str, jobs: Sequence[Job], deadline_s: float, context: RequestContext) -> list[str]:
        args = call_args("enqueueJobs", context, request=enqueue_to_wire(queue, jobs))
        response = await self._dispatcher.call(Outgoing("enqueueJobs", args, Safety.ONCE, deadline_s, pipelined=True))
        descriptors: list[str] = response.job_descriptors
        if len(descriptors) != len(jobs):
            raise ProtocolError(f"{len(descriptors)} descriptors came for {len(jobs)} jobs")
        return descriptors

    async def close(self, error: Exception) -> None:
        """Whoever still waits gets `error`."""
        for joiner in list(self._joiners.values()):
            await joiner.close(error)
        self._joiners.clear()
