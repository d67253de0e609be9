"""QueueClient: the calls of Client about queues.

Made by `python -m tests.packaging.client_calls` from queue_calls.py: change it there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pinlater.client.async_client import AsyncClient
from pinlater.client.background import BackgroundClient
from pinlater.model import CONTINUATION_START, JobFilter, JobState, RequestContext, ScanPage


class QueueClient:
    """A part of Client."""

    _background: BackgroundClient

    def create_queue(self, name: str, *, context: RequestContext | None = None, timeout: float | None = None) -> None:
        """Create a queue on every shard; one that exists already is no error."""
        self._background.run(AsyncClient.create_queue, name, context=context, timeout=timeout)

    def delete_queue(
        self, name: str, password: str, *, context: RequestContext | None = None, timeout: float | None = None
    ) -> None:
        """Delete a queue and all its jobs. PasswordInvalid; an unknown queue is no error."""
        self._background.run(AsyncClient.delete_queue, name, password, context=context, timeout=timeout)

    def queue_names(self, *, context: RequestContext | None = None, timeout: float | None = None) -> set[str]:
        """Return the queues of the shards that answer."""
        return self._background.run(AsyncClient.queue_names, context=context, timeout=timeout)

    def count(
        self,
        filter: JobFilter | str,
        state: JobState | None = None,
        *,
        allow_partial: bool = False,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> int:
        """Count the jobs that match, up to 2**31 - 1; of the name of a queue, its ready jobs, or those of a `state`."""
        return self._background.run(
            AsyncClient.count, filter, state, allow_partial=allow_partial, context=context, timeout=timeout
        )

    def counts(
        self, filters: Sequence[JobFilter], *, allow_partial: bool = False, timeout: float | None = None
    ) -> list[int]:
        """`count` for each of them, asked at the same time; the first error is the error of all."""
        return self._background.run(AsyncClient.counts, filters, allow_partial=allow_partial, timeout=timeout)

    def scan(
        self,
        filter: JobFilter,
        *,
        continuation: str = CONTINUATION_START,
        limit: int = 100,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> ScanPage:
        """Return one page of matching jobs, newest run_after first, then by shard and id."""
        return self._background.run(
            AsyncClient.scan, filter, continuation=continuation, limit=limit, context=context, timeout=timeout
        )

    def scan_pages(self, filter: JobFilter, *, limit: int = 100, timeout: float | None = None) -> Iterator[ScanPage]:
        """Iterate over the pages of a scan, each of up to `limit` jobs and read when it is needed; `timeout` is for a
        page.
        """
        return self._background.iterate(AsyncClient.scan_pages, filter, limit=limit, timeout=timeout)

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
        """Return up to `limit` FAILED jobs of one priority to PENDING; the answer is their number."""
        return self._background.run(
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
        """Remove up to `limit` jobs of one state and priority (1 where none is given); the answer is their number."""
        return self._background.run(AsyncClient.delete_jobs, filter, limit=limit, context=context, timeout=timeout)
