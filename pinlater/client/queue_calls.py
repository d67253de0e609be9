"""The calls of AsyncClient about queues: making them, looking at their jobs, changing many of these at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from pinlater.client.argument_kinds import checked
from pinlater.client.client_calls import ClientCalls
from pinlater.client.job_arguments import as_filter, check_time
from pinlater.errors import ProtocolError
from pinlater.model import CONTINUATION_END, CONTINUATION_START, JobFilter, JobState, RequestContext, ScanPage
from pinlater.wire import methods


class QueueCalls(ClientCalls):
    """A part of AsyncClient."""

    # -- queues ----------------------------------------------------------------------------------------------------

    @checked
    async def create_queue(
        self, name: str, *, context: RequestContext | None = None, timeout: float | None = None
    ) -> None:
        """Create a queue on every shard; one that exists already is no error."""
        await self._call(methods.CREATE_QUEUE, context, timeout, name)

    @checked
    async def delete_queue(
        self, name: str, password: str, *, context: RequestContext | None = None, timeout: float | None = None
    ) -> None:
        """Delete a queue and all its jobs. PasswordInvalid; an unknown queue is no error."""
        await self._call(methods.DELETE_QUEUE, context, timeout, name, password)

    @checked
    async def queue_names(self, *, context: RequestContext | None = None, timeout: float | None = None) -> set[str]:
        """Return the queues of the shards that answer."""
        return await self._call(methods.GET_QUEUE_NAMES, context, timeout)

    # -- looking ---------------------------------------------------------------------------------------------------

    @checked
    async def count(
        self,
        filter: JobFilter | str,
        state: JobState | None = None,
        *,
        allow_partial: bool = False,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> int:
        """Count the jobs that match, up to 2**31 - 1; of the name of a queue, its ready jobs, or those of a `state`."""
        filter = as_filter(filter, state)
        return await self._call(methods.GET_JOB_COUNT, context, timeout, filter, allow_partial)

    @checked
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

    @checked
    async def scan(
        self,
        filter: JobFilter,
        *,
        continuation: str = CONTINUATION_START,
        limit: int = 100,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> ScanPage:
        """Return one page of matching jobs, newest run_after first, then by shard and id."""
        return await self._call(methods.SCAN_JOBS, context, timeout, filter, continuation, limit)

    async def scan_pages(
        self, filter: JobFilter, *, limit: int = 100, timeout: float | None = None
    ) -> AsyncIterator[ScanPage]:
        """Iterate over the pages of a scan, each of up to `limit` jobs and read when it is needed; `timeout` is for a
        page.
        """
        continuation = CONTINUATION_START
        while True:
            page = await self.scan(filter, continuation=continuation, limit=limit, timeout=timeout)
            yield page
            if page.continuation == CONTINUATION_END:
                return
            if page.continuation == continuation:
                raise ProtocolError(f"the scan does not advance: continuation {continuation!r} came twice")
            continuation = page.continuation

    # -- operators of queues and jobs ---------------------------------------------------------------------------------

    @checked
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
        """Return up to `limit` FAILED jobs of one priority to PENDING; the answer is their number."""
        check_time(run_after_ms)
        return await self._call(methods.RETRY_FAILED, context, timeout, queue, priority, attempts, run_after_ms, limit)

    @checked
    async def delete_jobs(
        self,
        filter: JobFilter,
        *,
        limit: int = 1000,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> int:
        """Remove up to `limit` jobs of one state and priority (1 where none is given); the answer is their number."""
        return await self._call(methods.DELETE_JOBS, context, timeout, filter, limit)
