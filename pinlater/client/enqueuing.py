"""Enqueue calls: single jobs joined by queue, lists as they are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from pinlater.client.calls import Begun, Dispatcher, Outgoing
from pinlater.client.joining import Batcher, JoiningLimits, Outcome
from pinlater.errors import ProtocolError, RequestInvalid
from pinlater.model import Job, RequestContext
from pinlater.wire.convert import call_args, enqueue_to_wire
from pinlater.wire.methods import Idempotency

MAX_IDLE = 100
"""Joiners that are kept though nothing is in them; with more, all of these are dropped."""


class Enqueuer:
    """Has a joiner for each queue and time-out in use."""

    def __init__(self, dispatcher: Dispatcher, context: RequestContext, limits: JoiningLimits) -> None:
        self._dispatcher = dispatcher
        self._context = context
        self._limits = limits
        self._joiners: dict[tuple[str, float], Batcher] = {}

    def join(self, queue: str, job: Job, timeout_s: float) -> asyncio.Future[str]:
        """The descriptor of one job, to come; it travels with others of its queue. RequestInvalid, Overloaded."""
        if type(job.body) is not bytes:
            raise RequestInvalid.of("body", job.body, "bytes")
        joiner = self._joiners.get((queue, timeout_s))
        if joiner is None:
            joiner = self._joiner(queue, timeout_s)
        return joiner.add(job)

    async def send(self, queue: str, jobs: Sequence[Job], deadline_s: float, context: RequestContext) -> list[str]:
        """The descriptors of jobs that travel alone, all or none, in one call."""
        for job in jobs:
            if type(job.body) is not bytes:
                raise RequestInvalid.of("body", job.body, "bytes")
        return await self._end(self._call(queue, jobs, deadline_s, context), jobs)

    async def close(self, error: Exception) -> None:
        """Whoever still waits gets `error`."""
        for joiner in list(self._joiners.values()):
            await joiner.close(error)
        self._joiners.clear()

    def _joiner(self, queue: str, timeout_s: float) -> Batcher:
        if len(self._joiners) >= MAX_IDLE:
            self._joiners = {key: joiner for key, joiner in self._joiners.items() if not joiner.is_idle}

        def begin(jobs: Sequence[Job], deadline_s: float, on_end: Callable[[Outcome], None]) -> bool:
            call = self._call(queue, jobs, deadline_s, self._context)
            return self._dispatcher.begin(call, lambda begun: on_end(self._outcome(call, jobs, begun)))

        def send(jobs: Sequence[Job], deadline_s: float) -> Awaitable[list[str]]:
            return self._end(self._call(queue, jobs, deadline_s, self._context), jobs)

        joiner = self._joiners[queue, timeout_s] = Batcher(begin, send, timeout_s, self._limits)
        return joiner

    def _call(self, queue: str, jobs: Sequence[Job], deadline_s: float, context: RequestContext) -> Outgoing:
        args = call_args("enqueueJobs", context, request=enqueue_to_wire(queue, jobs))
        return Outgoing("enqueueJobs", args, Idempotency.ONCE, deadline_s, pipelined=True)

    def _outcome(self, call: Outgoing, jobs: Sequence[Job], begun: Begun) -> Outcome:
        if begun.error is None and len(begun.success.job_descriptors) == len(jobs):
            descriptors: list[str] = begun.success.job_descriptors
            return descriptors
        return lambda: self._end(call, jobs, begun)

    async def _end(self, call: Outgoing, jobs: Sequence[Job], begun: Begun | None = None) -> list[str]:
        """With `begun`, that was the first attempt."""
        if begun is not None and begun.error is None:
            response = begun.success
        else:
            response = await self._dispatcher.call(call, begun)
        descriptors: list[str] = response.job_descriptors
        if len(descriptors) != len(jobs):
            raise ProtocolError(f"{len(descriptors)} descriptors came for {len(jobs)} jobs")
        return descriptors
