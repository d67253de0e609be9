"""AsyncClient: the calls of PinLater over the network, for programs that run on asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, overload

from pinlater.client.calls import Failure, Outgoing
from pinlater.client.operators import OperatorCalls
from pinlater.client.retry import may_be_done
from pinlater.errors import PinLaterError, ProtocolError
from pinlater.model import (
    CONTINUATION_END,
    CONTINUATION_START,
    Ack,
    AckOutcome,
    CancelOutcome,
    Checkpoint,
    DequeuedJobs,
    DequeueRequest,
    Job,
    JobFilter,
    JobInfo,
    RequestContext,
    ScanPage,
)
from pinlater.wire import convert as wire
from pinlater.wire.methods import Idempotency, ack_idempotency, checkpoint_idempotency

_IN_ORDER = attrgetter("priority", "run_after_ms")

LOOKED_UP_AT_ONCE = 10_000
"""More would be more than a client reads of one answer."""


class AsyncClient(OperatorCalls):
    """A client of one or more servers. Satisfies `pinlater.api.Api`; errors are those of `pinlater.errors`.

    `servers` are texts like "queue-1:9010"; without them and without a `cluster` (see clusters.toml) the environment
    decides: PINLATER_SERVER, then PINLATER_CLUSTER, then 127.0.0.1:9010. `source` names this client in the claims made
    for it. Each call takes a `timeout` in seconds for all its attempts together; a long poll may take as much longer as
    it waits. Not `patient`, it says at once that shards cannot be used, rather than when that time is over; and without
    `wait_for_rate`, that a queue's rate is used up. Belongs to the event loop that it is first used on. ValueError: no
    such address or cluster.

    For those whose claims are tied to connections: `on_disconnect` is called on the loop after a connection that was
    open has closed, for whatever reason but `close`; `stay_s` is about how many seconds calls stay with one server
    while it answers, where they would else go to all in turn.
    """

    # -- queues ----------------------------------------------------------------------------------------------------

    async def create_queue(
        self, name: str, *, context: RequestContext | None = None, timeout: float | None = None
    ) -> None:
        """Make a queue on every shard; a queue that is there already is no error."""
        await self._call("createQueue", Idempotency.REPEAT, context, timeout, name=name)

    async def delete_queue(
        self, name: str, password: str, *, context: RequestContext | None = None, timeout: float | None = None
    ) -> None:
        """Delete a queue and all its jobs. PasswordInvalid; an unknown queue is no error."""
        await self._call("deleteQueue", Idempotency.ONCE, context, timeout, name=name, password=password)

    async def queue_names(self, *, context: RequestContext | None = None, timeout: float | None = None) -> set[str]:
        """The queues of the shards that answer."""
        return set(await self._call("getQueueNames", Idempotency.READ, context, timeout))

    # -- producers -------------------------------------------------------------------------------------------------

    @overload
    async def enqueue(
        self, queue: str, jobs: Job, *, context: RequestContext | None = None, timeout: float | None = None
    ) -> str: ...

    @overload
    async def enqueue(
        self, queue: str, jobs: Sequence[Job], *, context: RequestContext | None = None, timeout: float | None = None
    ) -> list[str]: ...

    async def enqueue(
        self,
        queue: str,
        jobs: Job | Sequence[Job],
        *,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> str | list[str]:
        """Store a job, and get its descriptor; or a list of jobs, on one shard, all or none, and get theirs in order.

        Single jobs that are enqueued at the same time travel in one call; their fates stay separate.
        OutcomeUnknown: they may be stored; sending again may then store them twice.
        """
        if isinstance(jobs, Job) and context is None:
            self._check_usable()
            return await self._enqueuer.join(queue, jobs, self._timeout_s if timeout is None else timeout)
        listed = [jobs] if isinstance(jobs, Job) else jobs
        if len(listed) == 1 and context is None:
            self._check_usable()
            return [await self._enqueuer.join(queue, listed[0], self._timeout_s if timeout is None else timeout)]
        descriptors = await self._enqueuer.send(queue, listed, self._deadline_s(timeout), context or self._context)
        return descriptors[0] if isinstance(jobs, Job) else descriptors

    # -- workers ---------------------------------------------------------------------------------------------------

    async def dequeue(
        self, request: DequeueRequest, *, context: RequestContext | None = None, timeout: float | None = None
    ) -> DequeuedJobs:
        """Claim up to `limit` eligible jobs, highest priority first; riding acks are carried out first. The list also
        has `ack_outcomes`: of each of these, where one of them had no effect and the server says so.

        OutcomeUnknown: jobs may have been claimed for this call, and are handed out again when their claims expire.
        """
        wait_s = request.wait_ms / 1000
        deadline_s = self._deadline_s(timeout) + wait_s
        wanted = wire.dequeue_to_wire(request)
        pure = request.dry_run and wanted.job_ack_request is None
        call = Outgoing(
            "dequeueJobs",
            wire.call_args("dequeueJobs", context or self._context, request=wanted),
            Idempotency.SCAN if pure else Idempotency.ONCE,
            deadline_s,
            long_poll=wait_s > 0,
            revise=_dequeue_again(wanted, asyncio.get_running_loop().time() + wait_s),
        )
        response = await self._dispatcher.call(call)
        jobs = wire.dequeued_from_wire(response)
        jobs.sort(key=_IN_ORDER)
        return jobs

    def end_waits(self) -> None:
        """For the end of a worker: dequeues that wait are answered soon, with jobs where some are on their way already.

        A dequeue that is broken off otherwise loses these, and an attempt of each. The answer can also be an error,
        OutcomeUnknown: then the server has taken back what it claimed. This client can make no more dequeues that wait.
        """
        self._dispatcher.end_waits("the client waits for no more jobs")

    async def ack(
        self,
        queue: str,
        succeeded: Sequence[Ack] = (),
        failed: Sequence[Ack] = (),
        *,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> list[AckOutcome]:
        """End attempts; what became of each, first the successes, then the failures, each in order. What is not in
        progress, or claimed anew, is left as it is: IGNORED. UNKNOWN where an older server does not say, or where an
        earlier copy of this call may have been carried out before its answer was lost.

        RequestInvalid for those that are invalid; the others were then carried out (`acks_applied`).
        """
        copies: list[Failure] = []
        call = Outgoing(
            "ackJobs",
            wire.call_args("ackJobs", context or self._context, request=wire.acks_to_wire(queue, succeeded, failed)),
            ack_idempotency(queue, succeeded, failed),
            self._deadline_s(timeout),
            pipelined=True,
            revise=copies.append,
            instead="ackDequeuedJobs",
        )
        response = await self._dispatcher.call(call)
        if response is None:
            return [AckOutcome.UNKNOWN] * (len(succeeded) + len(failed))
        outcomes = wire.ack_outcomes_from_wire(response.outcomes)
        if any(may_be_done(failure) for failure in copies):
            return [AckOutcome.UNKNOWN if each is AckOutcome.IGNORED else each for each in outcomes]
        return outcomes

    async def checkpoint(
        self,
        queue: str,
        checkpoints: Sequence[Checkpoint],
        *,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> None:
        """Heartbeats for jobs in progress, claimed by this very source or under the claim given."""
        request = wire.checkpoints_to_wire(queue, checkpoints)
        safety = checkpoint_idempotency(queue, checkpoints)
        await self._call("checkpointJobs", safety, context, timeout, pipelined=True, request=request)

    # -- looking ---------------------------------------------------------------------------------------------------

    async def lookup(
        self,
        descriptors: Sequence[str],
        *,
        include_body: bool = False,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> dict[str, JobInfo]:
        """The jobs that are found; others are left out. So many that one answer cannot hold them take several calls."""
        found: dict[str, JobInfo] = {}
        deadline_s = self._deadline_s(timeout)
        for start in range(0, len(descriptors), LOOKED_UP_AT_ONCE) or (0,):
            wanted = descriptors[start : start + LOOKED_UP_AT_ONCE]
            args = wire.call_args(
                "lookupJobs", context or self._context, request=wire.lookup_to_wire(wanted, include_body)
            )
            answer = await self._dispatcher.call(Outgoing("lookupJobs", args, Idempotency.READ, deadline_s))
            found.update(wire.lookup_from_wire(answer))
        return found

    async def count(
        self,
        filter: JobFilter,
        *,
        allow_partial: bool = False,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> int:
        """How many jobs match, at most 2**31 - 1."""
        request = wire.count_to_wire(filter, allow_partial)
        return int(await self._call("getJobCount", Idempotency.SCAN, context, timeout, request=request))

    async def counts(
        self, filters: Sequence[JobFilter], *, allow_partial: bool = False, timeout: float | None = None
    ) -> list[int]:
        """`count` for each of them, asked at the same time; the first error is the error of all."""
        calls = [
            asyncio.ensure_future(self.count(filter, allow_partial=allow_partial, timeout=timeout))
            for filter in filters
        ]
        try:
            return await asyncio.gather(*calls)
        finally:
            for call in calls:
                call.cancel()

    async def scan(
        self,
        filter: JobFilter,
        *,
        continuation: str = CONTINUATION_START,
        limit: int = 100,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> ScanPage:
        """One page of matching jobs, newest run_after first, then by shard and id."""
        request = wire.scan_to_wire(filter, continuation, limit)
        return wire.scan_page_from_wire(
            await self._call("scanJobs", Idempotency.SCAN, context, timeout, request=request)
        )

    async def scan_pages(
        self, filter: JobFilter, *, limit: int = 100, timeout: float | None = None
    ) -> AsyncIterator[ScanPage]:
        """Every page of a scan, each of up to `limit` jobs and read when it is asked for; `timeout` is for one page."""
        continuation = CONTINUATION_START
        while True:
            page = await self.scan(filter, continuation=continuation, limit=limit, timeout=timeout)
            yield page
            if page.continuation == CONTINUATION_END:
                return
            if page.continuation == continuation:
                raise ProtocolError(f"the scan does not advance: continuation {continuation!r} came twice")
            continuation = page.continuation

    # -- operators -------------------------------------------------------------------------------------------------

    async def retry_failed(
        self,
        queue: str,
        *,
        priority: int = 1,
        attempts: int = 1,
        run_after_ms: int | None = None,
        limit: int = 1000,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> int:
        """Up to `limit` FAILED jobs of one priority back to PENDING; how many."""
        request = wire.retry_to_wire(queue, priority, attempts, run_after_ms, limit)
        return int(await self._call("retryFailedJobs", Idempotency.ONCE, context, timeout, request=request))

    async def delete_jobs(
        self,
        filter: JobFilter,
        *,
        limit: int = 1000,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> int:
        """Remove up to `limit` jobs of one state and priority (1 where none is given); how many."""
        request = wire.delete_to_wire(filter, limit)
        return int(await self._call("deleteJobs", Idempotency.ONCE, context, timeout, request=request))

    async def cancel(
        self,
        queue: str,
        descriptors: Sequence[str],
        *,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> Mapping[str, CancelOutcome]:
        """Remove jobs that are still pending; says per job what it found."""
        request = wire.cancel_to_wire(queue, descriptors)
        response = await self._call("cancelJobs", Idempotency.ONCE, context, timeout, request=request)
        return wire.cancelled_from_wire(response)


def _dequeue_again(wanted: Any, wait_until_s: float) -> Callable[[Failure], None]:
    """What changes before a dequeue is sent again: acks carried out already stay away; the wait gets shorter."""

    def revise(error: Failure) -> None:
        if isinstance(error, PinLaterError) and error.acks_applied:
            wanted.job_ack_request = None
        if wanted.wait_ms:
            wanted.wait_ms = max(1, int((wait_until_s - asyncio.get_running_loop().time()) * 1000))

    return revise
