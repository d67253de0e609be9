"""JobLifeClient: the calls of Client that a job's life takes.

Made by `python -m tests.packaging.client_calls` from async_client.py: change it there."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast, overload

from pinlater.client.async_client import AsyncClient
from pinlater.client.background import BackgroundClient
from pinlater.model import (
    Ack,
    AckOutcome,
    Checkpoint,
    DequeuedFromQueues,
    DequeuedJob,
    DequeuedJobs,
    DequeueFromQueuesRequest,
    DequeueRequest,
    Job,
    QueueShare,
    RequestContext,
    WorkerReport,
)
from pinlater.schedule import Delay


class JobLifeClient:
    """A part of Client."""

    _background: BackgroundClient

    @overload
    def enqueue(
        self,
        queue: str,
        jobs: Job | bytes,
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
        jobs: Sequence[Job | bytes],
        *,
        delay: Delay | None = None,
        resend: bool | None = None,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> list[str]: ...

    def enqueue(
        self,
        queue: str,
        jobs: Job | bytes | Sequence[Job | bytes],
        *,
        delay: Delay | None = None,
        resend: bool | None = None,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> str | list[str]:
        """Store a job, and return its descriptor.

        A list of jobs is stored on one shard, all or none, and the descriptors come in order. Bytes are a job that has
        nothing but its body.

        `delay`: how long from now no worker gets it, in seconds or as in "5m"; for jobs without a `run_after_ms`.
        Single jobs that are enqueued at the same time travel in one call; their fates stay separate.
        RequestInvalid: a time that cannot be, as seconds for `run_after_ms`; nothing was sent.
        OutcomeUnknown: they may be stored; sending again may then store them twice. With `resend` (of the client, where
        it is None) they get a send id, and the client sends them again by itself, within the time-out.

        An `ExtendedJob` whose dedupe key is taken is kept, and the descriptor is that of the job that stands; a list
        that has such a job comes back as an EnqueuedJobs, with an outcome for each. EnqueueRejected, DUPLICATE: one job
        that was to be rejected then; `job_descriptors` has the one that stands. MethodUnknown: a server of a version
        before keys; nothing was sent.
        """
        return self._background.run(
            cast("Callable[..., Coroutine[Any, Any, str | list[str]]]", AsyncClient.enqueue),
            queue,
            jobs,
            delay=delay,
            resend=resend,
            context=context,
            timeout=timeout,
        )

    @overload
    def dequeue(
        self,
        request: str,
        limit: int = 1,
        *,
        wait: Delay | None = None,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> DequeuedJobs: ...

    @overload
    def dequeue(
        self, request: DequeueRequest, *, context: RequestContext | None = None, timeout: float | None = None
    ) -> DequeuedJobs: ...

    def dequeue(
        self,
        request: DequeueRequest | str,
        limit: int | None = None,
        *,
        wait: Delay | None = None,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> DequeuedJobs:
        """Claim up to `limit` eligible jobs, highest priority first, after its riding acks were carried out.

        The list also has `ack_outcomes`, one for each ack, where one of them had no effect and the server reports it.

        The name of a queue stands for a request, with a `limit` (1 unless given) and how long the server may `wait` for
        the first job, as in 2.5 (seconds) or "30s".
        OutcomeUnknown: jobs may have been claimed for this call, and are handed out again when their claims expire.
        """
        return self._background.run(
            cast("Callable[..., Coroutine[Any, Any, DequeuedJobs]]", AsyncClient.dequeue),
            request,
            limit,
            wait=wait,
            context=context,
            timeout=timeout,
        )

    @overload
    def dequeue_from_queues(
        self,
        request: Sequence[str | QueueShare],
        limit: int = 1,
        *,
        wait: Delay | None = None,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> DequeuedFromQueues: ...

    @overload
    def dequeue_from_queues(
        self,
        request: DequeueFromQueuesRequest,
        *,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> DequeuedFromQueues: ...

    def dequeue_from_queues(
        self,
        request: DequeueFromQueuesRequest | Sequence[str | QueueShare],
        limit: int | None = None,
        *,
        wait: Delay | None = None,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> DequeuedFromQueues:
        """Claim up to `limit` eligible jobs of several queues, shared among them by weight.

        Riding acks are carried out first. One long poll waits on all queues. The answer names the queues that could not
        be read, each with its error.

        A list of queues, by name or as shares, stands for a request, with a `limit` (1 unless given) and a `wait`.
        A server that does not know this call is asked queue by queue, again and again. OutcomeUnknown: as of `dequeue`.
        """
        return self._background.run(
            cast("Callable[..., Coroutine[Any, Any, DequeuedFromQueues]]", AsyncClient.dequeue_from_queues),
            request,
            limit,
            wait=wait,
            context=context,
            timeout=timeout,
        )

    def ack(
        self,
        queue: str,
        succeeded: Sequence[Ack | DequeuedJob] = (),
        failed: Sequence[Ack | DequeuedJob] = (),
        *,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> list[AckOutcome]:
        """End attempts, and return an outcome for each: first the successes, then the failures, each in order.

        IGNORED: the job is not in progress, or was claimed again, and is left as it is. UNKNOWN: an older server does
        not say, or an earlier copy of this call may have been carried out before its answer was lost. A dequeued job
        stands for its ack, which its claim fences.

        RequestInvalid for those that are invalid; the others were then carried out (`acks_applied`).
        """
        return self._background.run(AsyncClient.ack, queue, succeeded, failed, context=context, timeout=timeout)

    def checkpoint(
        self,
        queue: str,
        checkpoints: Sequence[Checkpoint],
        *,
        worker: WorkerReport | None = None,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> None:
        """Renew the claims of jobs in progress, and change the jobs.

        A claim is that of this very source, or the one given. `worker` is a report for the list of workers.
        """
        self._background.run(
            AsyncClient.checkpoint, queue, checkpoints, worker=worker, context=context, timeout=timeout
        )
