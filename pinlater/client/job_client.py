"""JobClient: the calls of Client about jobs by name.

Made by `python -m tests.packaging.client_calls` from job_calls.py: change it there."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast, overload

from pinlater.client.async_client import AsyncClient
from pinlater.client.background import BackgroundClient
from pinlater.model import (
    Cancelled,
    Heartbeat,
    HeartbeatAnswers,
    JobInfo,
    KeyRef,
    RequestContext,
    RescheduleJob,
    RescheduleOutcome,
    WorkerReport,
)


class JobClient:
    """A part of Client."""

    _background: BackgroundClient

    def heartbeat(
        self,
        queue: str,
        heartbeats: Sequence[Heartbeat],
        *,
        worker: WorkerReport | None = None,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> HeartbeatAnswers:
        """Renew claims, and change nothing else but the progress; an answer per heartbeat, in order.

        LOST: the job may run elsewhere. CANCEL: it is to stop. MethodUnknown: an older server; `checkpoint` is a
        heartbeat there. `command` of the answers: an operator's order to the worker whose report goes along.
        """
        return self._background.run(
            AsyncClient.heartbeat, queue, heartbeats, worker=worker, context=context, timeout=timeout
        )

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
        include_trail: bool = False,
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
        include_trail: bool = False,
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
        include_trail: bool = False,
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
        include_trail: bool = False,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> dict[str, JobInfo]:
        """Return the jobs that exist, by descriptor; others are left out.

        Descriptors name their queue; with a `queue`, only its jobs count. Keys are of jobs of `queue`. More jobs,
        bodies and results than one answer holds take several calls. `include_trail`: with their attempts and log lines.
        With `wait_ms`, the answer comes when the first of these jobs has ended or is not there, or after that time;
        `wait` does more. RequestInvalid: a text that is no descriptor.
        """
        return self._background.run(
            cast("Callable[..., Coroutine[Any, Any, dict[str, JobInfo]]]", AsyncClient.lookup),
            *named,
            descriptors=descriptors,
            include_body=include_body,
            include_result=include_result,
            wait_ms=wait_ms,
            queue=queue,
            keys=keys,
            include_trail=include_trail,
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
        """Wait until a job has ended, and return it with its result; None where it is not there.

        TimeoutError: it has not ended after `timeout` seconds (None: no limit). Of several jobs, those that have not
        ended after that time are missing in the answer. Callers that wait at the same time share calls. Servers that
        restart are waited for; one of an older version is asked again and again, every two seconds at least.
        RequestInvalid: a text that is no descriptor.
        """
        return self._background.run(
            cast("Callable[..., Coroutine[Any, Any, JobInfo | dict[str, JobInfo | None] | None]]", AsyncClient.wait),
            descriptors,
            timeout=timeout,
            include_body=include_body,
            include_result=include_result,
        )

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
        """Remove jobs that are still pending, and return an outcome for each.

        Descriptors name their queue, and those of several queues take a call for each; with a `queue`, jobs of another
        one are NOT_FOUND. Keys are of jobs of `queue`, each with a dedupe key. `running`: the workers of those in
        progress are asked to stop: REQUESTED. RequestInvalid: a text that is no descriptor.
        """
        return self._background.run(
            cast("Callable[..., Coroutine[Any, Any, Cancelled]]", AsyncClient.cancel),
            queue,
            descriptors,
            keys=keys,
            running=running,
            context=context,
            timeout=timeout,
        )

    def reschedule(
        self,
        queue: str,
        changes: Sequence[RescheduleJob],
        *,
        audited: bool = False,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> list[RescheduleOutcome]:
        """Give pending jobs of a queue another time, body or number of attempts; an outcome per change, in order.
        `audited`: an operator does it, and the audit has an entry that names the jobs. MethodUnknown: an older server.
        """
        return self._background.run(
            AsyncClient.reschedule, queue, changes, audited=audited, context=context, timeout=timeout
        )
