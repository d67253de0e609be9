"""Client: the calls of AsyncClient for programs without asyncio, one line each."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self, cast, overload

from pinlater.client.addresses import Target
from pinlater.client.async_client import DEFAULT_TIMEOUT_S, AsyncClient
from pinlater.client.background import BackgroundClient
from pinlater.client.cluster_client import ClusterClient
from pinlater.client.flow_client import FlowClient
from pinlater.client.token import Token
from pinlater.model import (
    CONTINUATION_START,
    Ack,
    AckOutcome,
    Cancelled,
    Checkpoint,
    DequeuedFromQueues,
    DequeuedJobs,
    DequeueFromQueuesRequest,
    DequeueRequest,
    Heartbeat,
    HeartbeatAnswer,
    Job,
    JobFilter,
    JobInfo,
    KeyRef,
    RequestContext,
    RescheduleJob,
    RescheduleOutcome,
    ScanPage,
    WorkerReport,
)
from pinlater.schedule import Delay


class Client(ClusterClient, FlowClient):
    """AsyncClient for programs without asyncio: the same arguments, calls and errors; see there for what they mean.

    May be used by many threads at once. It has one thread of its own, which starts with the first call.
    """

    def __init__(
        self,
        *addresses: str,
        servers: Sequence[str] = (),
        cluster: str | None = None,
        clusters_file: str | Path | None = None,
        source: str | None = None,
        timeout: float = DEFAULT_TIMEOUT_S,
        token: str | Path | Token | None = None,
        **limits: Any,
    ) -> None:
        background = BackgroundClient(
            partial(
                AsyncClient,
                *addresses,
                servers=servers,
                cluster=cluster,
                clusters_file=clusters_file,
                source=source,
                timeout=timeout,
                token=Token.of(token),  # the repr of a partial shows its arguments
                **limits,
            )
        )
        super().__init__(background)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes every connection. Calls under way in other threads fail."""
        self._background.close()

    @property
    def servers(self) -> list[Target]:
        """The servers this client talks to, as they were given: a name in the DNS stands for all its addresses."""
        return self._background.client.servers

    @property
    def source(self) -> str:
        """The name of this client in the claims made for it."""
        return self._background.client.source

    # -- queues ----------------------------------------------------------------------------------------------------

    def create_queue(self, name: str, *, context: RequestContext | None = None, timeout: float | None = None) -> None:
        self._run(AsyncClient.create_queue, name, context=context, timeout=timeout)

    def delete_queue(
        self, name: str, password: str, *, context: RequestContext | None = None, timeout: float | None = None
    ) -> None:
        self._run(AsyncClient.delete_queue, name, password, context=context, timeout=timeout)

    def queue_names(self, *, context: RequestContext | None = None, timeout: float | None = None) -> set[str]:
        return self._run(AsyncClient.queue_names, context=context, timeout=timeout)

    # -- producers -------------------------------------------------------------------------------------------------

    @overload
    def enqueue(
        self,
        queue: str,
        jobs: Job,
        *,
        delay: Delay | None = None,
        resend: bool | None = None,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> str: ...

    @overload
    def enqueue(
        self,
        queue: str,
        jobs: Sequence[Job],
        *,
        delay: Delay | None = None,
        resend: bool | None = None,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> list[str]: ...

    def enqueue(
        self,
        queue: str,
        jobs: Job | Sequence[Job],
        *,
        delay: Delay | None = None,
        resend: bool | None = None,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> str | list[str]:
        enqueue = cast(Callable[..., Coroutine[Any, Any, str | list[str]]], AsyncClient.enqueue)
        return self._run(enqueue, queue, jobs, delay=delay, resend=resend, context=context, timeout=timeout)

    # -- workers ---------------------------------------------------------------------------------------------------

    def dequeue(
        self, request: DequeueRequest, *, context: RequestContext | None = None, timeout: float | None = None
    ) -> DequeuedJobs:
        return self._run(AsyncClient.dequeue, request, context=context, timeout=timeout)

    def dequeue_from_queues(
        self,
        request: DequeueFromQueuesRequest,
        *,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> DequeuedFromQueues:
        return self._run(AsyncClient.dequeue_from_queues, request, context=context, timeout=timeout)

    def ack(
        self,
        queue: str,
        succeeded: Sequence[Ack] = (),
        failed: Sequence[Ack] = (),
        *,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> list[AckOutcome]:
        return self._run(AsyncClient.ack, queue, succeeded, failed, context=context, timeout=timeout)

    def checkpoint(
        self,
        queue: str,
        checkpoints: Sequence[Checkpoint],
        *,
        worker: WorkerReport | None = None,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> None:
        self._run(AsyncClient.checkpoint, queue, checkpoints, worker=worker, context=context, timeout=timeout)

    def heartbeat(
        self,
        queue: str,
        heartbeats: Sequence[Heartbeat],
        *,
        worker: WorkerReport | None = None,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> list[HeartbeatAnswer]:
        return self._run(AsyncClient.heartbeat, queue, heartbeats, worker=worker, context=context, timeout=timeout)

    # -- looking ---------------------------------------------------------------------------------------------------

    @overload
    def lookup(
        self,
        queue: str,
        descriptors: Sequence[str],
        *,
        include_body: bool = False,
        include_result: bool = False,
        wait_ms: int = 0,
        keys: Sequence[KeyRef] = (),
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> dict[str, JobInfo]: ...

    @overload
    def lookup(
        self,
        descriptors: Sequence[str] = (),
        /,
        *,
        include_body: bool = False,
        include_result: bool = False,
        wait_ms: int = 0,
        queue: str = "",
        keys: Sequence[KeyRef] = (),
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> dict[str, JobInfo]: ...

    @overload
    def lookup(
        self,
        *,
        descriptors: Sequence[str],
        include_body: bool = False,
        include_result: bool = False,
        wait_ms: int = 0,
        keys: Sequence[KeyRef] = (),
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> dict[str, JobInfo]: ...

    def lookup(
        self,
        *named: str | Sequence[str],
        descriptors: Sequence[str] | None = None,
        include_body: bool = False,
        include_result: bool = False,
        wait_ms: int = 0,
        queue: str | None = None,
        keys: Sequence[KeyRef] = (),
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> dict[str, JobInfo]:
        lookup = cast(Callable[..., Coroutine[Any, Any, dict[str, JobInfo]]], AsyncClient.lookup)
        return self._run(
            lookup,
            *named,
            descriptors=descriptors,
            include_body=include_body,
            include_result=include_result,
            wait_ms=wait_ms,
            queue=queue,
            keys=keys,
            context=context,
            timeout=timeout,
        )

    @overload
    def wait(  # type: ignore[overload-overlap]  # a text is a sequence of texts too
        self,
        descriptors: str,
        *,
        timeout: float | None = None,
        include_body: bool = False,
        include_result: bool = True,
    ) -> JobInfo | None: ...

    @overload
    def wait(
        self,
        descriptors: Sequence[str],
        *,
        timeout: float | None = None,
        include_body: bool = False,
        include_result: bool = True,
    ) -> dict[str, JobInfo | None]: ...

    def wait(
        self,
        descriptors: str | Sequence[str],
        *,
        timeout: float | None = None,
        include_body: bool = False,
        include_result: bool = True,
    ) -> JobInfo | dict[str, JobInfo | None] | None:
        wait = cast(Callable[..., Coroutine[Any, Any, Any]], AsyncClient.wait)
        found: JobInfo | dict[str, JobInfo | None] | None = self._run(
            wait, descriptors, timeout=timeout, include_body=include_body, include_result=include_result
        )
        return found

    def count(
        self,
        filter: JobFilter,
        *,
        allow_partial: bool = False,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> int:
        return self._run(AsyncClient.count, filter, allow_partial=allow_partial, context=context, timeout=timeout)

    def counts(
        self, filters: Sequence[JobFilter], *, allow_partial: bool = False, timeout: float | None = None
    ) -> list[int]:
        return self._run(AsyncClient.counts, filters, allow_partial=allow_partial, timeout=timeout)

    def scan(
        self,
        filter: JobFilter,
        *,
        continuation: str = CONTINUATION_START,
        limit: int = 100,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> ScanPage:
        return self._run(
            AsyncClient.scan, filter, continuation=continuation, limit=limit, context=context, timeout=timeout
        )

    def scan_pages(self, filter: JobFilter, *, limit: int = 100, timeout: float | None = None) -> Iterator[ScanPage]:
        pages = self._background.client.scan_pages(filter, limit=limit, timeout=timeout)

        async def next_page(_: AsyncClient) -> ScanPage | None:
            return await anext(pages, None)

        while (page := self._run(next_page)) is not None:
            yield page

    # -- operators of queues and jobs ---------------------------------------------------------------------------------

    def retry_failed(
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
        return self._run(
            AsyncClient.retry_failed,
            queue,
            priority=priority,
            attempts=attempts,
            run_after_ms=run_after_ms,
            limit=limit,
            context=context,
            timeout=timeout,
        )

    def delete_jobs(
        self,
        filter: JobFilter,
        *,
        limit: int = 1000,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> int:
        return self._run(AsyncClient.delete_jobs, filter, limit=limit, context=context, timeout=timeout)

    @overload
    def cancel(
        self,
        descriptors: Sequence[str],
        /,
        *,
        running: bool = False,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> Cancelled: ...

    @overload
    def cancel(
        self,
        queue: str,
        descriptors: Sequence[str] = (),
        *,
        keys: Sequence[KeyRef] = (),
        running: bool = False,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> Cancelled: ...

    def cancel(
        self,
        queue: str | Sequence[str] | None = None,
        descriptors: Sequence[str] | None = None,
        *,
        keys: Sequence[KeyRef] = (),
        running: bool = False,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> Cancelled:
        cancel = cast(Callable[..., Coroutine[Any, Any, Cancelled]], AsyncClient.cancel)
        return self._run(cancel, queue, descriptors, keys=keys, running=running, context=context, timeout=timeout)

    def reschedule(
        self,
        queue: str,
        changes: Sequence[RescheduleJob],
        *,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> list[RescheduleOutcome]:
        return self._run(AsyncClient.reschedule, queue, changes, context=context, timeout=timeout)

    # -- operators of a cluster ---------------------------------------------------------------------------------------
