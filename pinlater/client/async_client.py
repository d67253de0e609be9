"""AsyncClient: the calls of PinLater over the network, for programs that run on asyncio.

Each method here is a typed face of one entry in the table of methods (wire/methods.py), which has its name on the wire,
its conversions, and whether it may be sent again. What a call goes through is in dispatcher.py.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from types import NoneType
from typing import Any, Self, TypedDict, Unpack, overload

from pinlater.client.addresses import default_source, target_servers
from pinlater.client.argument_kinds import CHECKED_AT_FIRST, FAULTS, check_kinds, explain
from pinlater.client.client_calls import DeadlineClock, seconds
from pinlater.client.client_tls import ClientTls, Tls, target_tls
from pinlater.client.cluster_calls import ClusterCalls
from pinlater.client.dispatcher import CallSpec, CallTransport, Dispatcher, Failure
from pinlater.client.enqueue_batching import EnqueueBatchLimits, Enqueuer, joins
from pinlater.client.flow_client_calls import FlowClientCalls
from pinlater.client.job_arguments import (
    as_acks,
    as_dequeue,
    as_dequeue_from_queues,
    as_jobs,
    check_expiries,
    check_time,
    check_times,
    delayed,
    has_dequeued,
)
from pinlater.client.job_calls import JobCalls
from pinlater.client.pool import PoolLimits
from pinlater.client.queue_calls import QueueCalls
from pinlater.client.queue_rounds import QueueRounds
from pinlater.client.retry import may_be_done
from pinlater.client.server_list import Resolve, Server, ServerList, look_up
from pinlater.client.token import CallerContext, Token, target_token
from pinlater.errors import MethodUnknown, PinLaterError
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
    any_extended,
)
from pinlater.near_names import meant_name
from pinlater.schedule import Delay
from pinlater.wire import methods
from pinlater.written import variable

DEFAULT_TIMEOUT_S = 10.0
HISTORY_VARIABLE = "PINLATER_HISTORY"
"""Names the folder of histories, where a program names none."""

_TIMEOUTS = (NoneType, float, int)

_IN_ORDER = attrgetter("priority", "run_after_ms")


def recorded_in(calls: CallTransport, folder: str | Path) -> CallTransport:
    """A transport that records what the other one carries. OSError: the folder cannot be written."""
    # only where it is asked for, so that other programs load nothing of it
    from pinlater.client.recorded_calls import RecordedCalls  # noqa: PLC0415
    from pinlater.history.history_folder import folder_recorder  # noqa: PLC0415

    return RecordedCalls(calls, folder_recorder(folder))


class FormerOptions(TypedDict, total=False):
    """Options by the names that they had before: retry_unavailable, sticky_s and enqueue_batching."""

    patient: bool
    stay_s: float
    joining: EnqueueBatchLimits


class AsyncClient(QueueCalls, JobCalls, ClusterCalls, FlowClientCalls):
    """A client of one or more servers. Satisfies `pinlater.api.Api`; errors are those of `pinlater.errors`.

    `servers` are texts like "queue-1:9010"; without them and without a `cluster` (see clusters.toml) the environment
    decides: PINLATER_SERVER, then PINLATER_CLUSTER, then 127.0.0.1:9010. `source` names this client in the claims made
    for it. Each call takes a `timeout` in seconds for all its attempts together; a long poll may take as much longer as
    it waits. While no server can be reached, as during a restart, a call goes on trying for that time. Without
    `retry_unavailable`, it fails soon when servers or shards cannot be used, rather than when that time is over;
    without `wait_for_rate`, when a queue's rate is used up. With `resend`, enqueues are sent again also where an
    earlier copy may have been stored; see `enqueue`. With `joins_contexts`, single jobs that are enqueued with a
    context travel with others of the same caller too, and without their request ids. Without `whole_lookups`, a lookup
    is what one answer holds; `body_left_out` and `result_left_out` of a job say what it had no room for. `tls`: a Tls,
    or True for servers whose certificates this machine trusts; without it the cluster's `tls` decides, then the
    environment (PINLATER_TLS_CA and its like). `token` proves who calls: a text, or a Path of the file that has it;
    without it the cluster's token decides, then PINLATER_TOKEN or PINLATER_TOKEN_FILE; "": none is shown. Belongs to
    the event loop that it is first used on. ValueError: no such address or cluster, or no token where one should be.

    For callers whose claims are bound to connections: `on_disconnect` is called on the loop after a connection that was
    open has closed, for whatever reason but `close`; `sticky_s` is about how many seconds calls stay with one server
    while it answers, where they would else go to all in turn. `transport`: carries the calls in place of connections to
    servers, as to one in this process (see `pinlater.embedded`).
    """

    def __init__(
        self,
        *addresses: str,
        servers: Sequence[str] = (),
        cluster: str | None = None,
        clusters_file: str | Path | None = None,
        source: str | None = None,
        timeout: float = DEFAULT_TIMEOUT_S,
        pool: PoolLimits | None = None,
        enqueue_batching: EnqueueBatchLimits | None = None,
        retry_unavailable: bool = True,
        on_disconnect: Callable[[], None] | None = None,
        sticky_s: float = 0.0,
        wait_for_rate: bool = True,
        resend: bool = False,
        tls: Tls | bool | None = None,
        token: str | Path | Token | None = None,
        joins_contexts: bool = False,
        whole_lookups: bool = True,
        resolve: Resolve = look_up,
        transport: CallTransport | None = None,
        history: str | Path | None = None,
        **former: Unpack[FormerOptions],
    ) -> None:
        for name in former:
            if name not in FormerOptions.__annotations__:
                options = inspect.signature(AsyncClient).parameters
                raise TypeError(f"a client has no option {name!r}{meant_name(name, options)}")
        super().__init__()
        given: list[tuple[str, object]] = [("servers", servers), ("cluster", cluster), ("source", source)]
        given += [("clusters_file", clusters_file), ("timeout", timeout), ("token", token), ("tls", tls)]
        given += [("history", history)]
        check_kinds(AsyncClient.__init__, given)
        pool_limits = pool or PoolLimits()
        resolved_tls = target_tls(tls, [*addresses, *servers], cluster, clusters_file)
        secured = None if resolved_tls is None else ClientTls(resolved_tls)
        self.servers = [] if transport else target_servers([*addresses, *servers], cluster, clusters_file)
        self.source = source or default_source()
        self._caller = CallerContext(self.source, target_token(token, [*addresses, *servers], cluster, clusters_file))
        self._timeout_s = timeout
        self._resend = resend
        self._joins_contexts = joins_contexts
        self._whole_lookups = whole_lookups
        self._on_disconnect = on_disconnect
        self._rng = random.Random()
        on_lost = None if on_disconnect is None else self._lost
        calls = transport or Dispatcher(
            ServerList(
                self.servers,
                lambda address, name: Server(address, pool_limits, on_lost, tls=secured, server_name=name),
                resolve,
            ),
            self._rng,
            retry_unavailable=former.get("patient", retry_unavailable),
            sticky_s=former.get("stay_s", sticky_s),
            wait_for_rate=wait_for_rate,
            renewed=self._caller.renewed,
        )
        folder = variable(HISTORY_VARIABLE) if history is None else history
        self._dispatcher = recorded_in(calls, folder) if folder else calls
        limits = former.get("joining", enqueue_batching) or EnqueueBatchLimits()
        self.enqueuer = Enqueuer(self._dispatcher, self._caller, limits)
        self._waits_no_more = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection. Calls under way fail, so await those that matter first."""
        self._closed = True
        why = "the client was closed"
        await self.enqueuer.close(RuntimeError(why))
        await self._close_waits(RuntimeError(why))
        await self._dispatcher.close(why)
        await asyncio.sleep(0)  # the transports report their end in the loop's next turn

    def cancel_long_polls(self) -> None:
        """End the waiting dequeues of a worker that stops: they are answered soon, also with jobs already on their way.

        A dequeue that is broken off otherwise loses these jobs, and an attempt of each. The answer can also be an
        error, OutcomeUnknown: then the server has taken back what it claimed. This client can make no more dequeues
        that wait before `resume_long_polls`.
        """
        self._waits_no_more = True
        self._dispatcher.cancel_long_polls("the client waits for no more jobs")

    def resume_long_polls(self) -> None:
        """Let dequeues wait again, after `cancel_long_polls`."""
        self._waits_no_more = False
        self._dispatcher.resume_long_polls()

    end_waits = cancel_long_polls
    """The earlier name of `cancel_long_polls`."""

    def _lost(self) -> None:
        if self._on_disconnect is not None and not self._closed:
            self._on_disconnect()

    # -- producers -------------------------------------------------------------------------------------------------

    @overload
    async def enqueue(
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
    async def enqueue(
        self,
        queue: str,
        jobs: Sequence[Job | bytes],
        *,
        delay: Delay | None = None,
        resend: bool | None = None,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> list[str]: ...

    async def enqueue(
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
        try:
            if resend is None and type(jobs) is Job and delay is None and context is None and type(queue) is str:
                if jobs.run_after_ms is not None:  # as most are
                    check_time(jobs.run_after_ms)
                self._check_usable()
                timeout_s = self._timeout_s if timeout is None else seconds(timeout)
                return await self.enqueuer.join(queue, jobs, timeout_s, "plain", self._resend)
            return await self._enqueue(queue, jobs, delay, resend, context, timeout)  # type: ignore[arg-type]  # as most are
        except FAULTS as error:
            made = as_jobs(jobs)
            if made is not jobs:  # nothing was sent
                return await self.enqueue(queue, made, delay=delay, resend=resend, context=context, timeout=timeout)
            given = {"queue": queue, "jobs": jobs, "delay": delay, "resend": resend, "context": context}
            explain(error, AsyncClient.enqueue, {**given, "timeout": timeout}.items())
            raise

    async def _enqueue(
        self,
        queue: str,
        jobs: Job | Sequence[Job],
        delay: Delay | None,
        resend: bool | None,
        context: RequestContext | None,
        timeout: float | None,
    ) -> str | list[str]:
        if type(queue) is not str or resend is not None or context is not None or type(timeout) not in _TIMEOUTS:
            given = {"queue": queue, "resend": resend, "context": context, "timeout": timeout}
            check_kinds(AsyncClient.enqueue, given.items())
        if delay is not None:
            jobs = delayed(jobs, delay)
        if resend is None:
            resend = self._resend
        listed = [jobs] if isinstance(jobs, Job) else jobs
        check_times(listed)
        has_extended = any_extended(listed)
        if has_extended:
            check_expiries(listed)
        if len(listed) == 1 and (context is None or self._joins_contexts):
            kind = joins(listed[0]) if has_extended else "plain"
            if kind is not None and (kind == "plain" or listed is not jobs):  # a list says what became of each
                self._check_usable()
                timeout_s = self._timeout_s if timeout is None else timeout
                own = None if context is None else self._caller.of(context)
                descriptor = await self.enqueuer.join(queue, listed[0], timeout_s, kind, resend, own)
                return descriptor if isinstance(jobs, Job) else [descriptor]
        deadline_s = self._deadline_s(timeout)
        descriptors = await self.enqueuer.send(
            queue,
            listed,
            deadline_s,
            self._caller.of(context),
            resend,
            has_extended=has_extended,
        )
        return descriptors[0] if isinstance(jobs, Job) else descriptors

    # -- workers ---------------------------------------------------------------------------------------------------

    @overload
    async def dequeue(
        self,
        request: str,
        limit: int = 1,
        *,
        wait: Delay | None = None,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> DequeuedJobs: ...

    @overload
    async def dequeue(
        self, request: DequeueRequest, *, context: RequestContext | None = None, timeout: float | None = None
    ) -> DequeuedJobs: ...

    async def dequeue(
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
        try:
            if type(request) is DequeueRequest and limit is None and wait is None:
                return await self._dequeue(request, context, timeout)
            return await self._dequeue(as_dequeue(request, limit, wait), context, timeout)
        except FAULTS as error:
            given = {"request": request, "limit": limit, "wait": wait, "context": context, "timeout": timeout}
            explain(error, AsyncClient.dequeue, given.items())
            raise

    async def _dequeue(
        self,
        request: DequeueRequest,
        context: RequestContext | None,
        timeout: float | None,
        *,
        wait_for_rate: bool = True,
    ) -> DequeuedJobs:
        if type(request.queue) is not str or type(request.limit) is not int:  # what has no server would wait for one
            check_kinds(AsyncClient.dequeue, [("request", request)])
        wait_s = request.wait_ms / 1000
        deadline_s = self._deadline_s(timeout) + wait_s
        args = methods.DEQUEUE.arguments(self._caller.of(context), request)
        call = CallSpec(
            methods.DEQUEUE,
            args,
            methods.DEQUEUE.idempotency_with(request),
            deadline_s,
            long_poll=wait_s > 0,
            revise=_dequeue_again(args.request, "job_ack_request", self._now_s() + wait_s, self._now_s),
            wait_for_rate=wait_for_rate,
        )
        jobs = methods.DEQUEUE.result(await self._dispatcher.call(call))
        jobs.sort(key=_IN_ORDER)
        return jobs

    @overload
    async def dequeue_from_queues(
        self,
        request: Sequence[str | QueueShare],
        limit: int = 1,
        *,
        wait: Delay | None = None,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> DequeuedFromQueues: ...

    @overload
    async def dequeue_from_queues(
        self,
        request: DequeueFromQueuesRequest,
        *,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> DequeuedFromQueues: ...

    async def dequeue_from_queues(
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
        try:
            return await self._dequeue_from_queues(as_dequeue_from_queues(request, limit, wait), context, timeout)
        except FAULTS as error:
            given = {"request": request, "limit": limit, "wait": wait, "context": context, "timeout": timeout}
            explain(error, AsyncClient.dequeue_from_queues, given.items())
            raise

    async def _dequeue_from_queues(
        self, request: DequeueFromQueuesRequest, context: RequestContext | None, timeout: float | None
    ) -> DequeuedFromQueues:
        check_kinds(AsyncClient.dequeue_from_queues, [("request", request)], CHECKED_AT_FIRST)
        wait_s = request.wait_ms / 1000
        deadline_s = self._deadline_s(timeout) + wait_s
        wait_until_s = self._now_s() + wait_s
        args = methods.DEQUEUE_FROM_QUEUES.arguments(self._caller.of(context), request)
        call = CallSpec(
            methods.DEQUEUE_FROM_QUEUES,
            args,
            methods.DEQUEUE_FROM_QUEUES.idempotency,
            deadline_s,
            long_poll=wait_s > 0,
            revise=_dequeue_again(args.request, "acks", wait_until_s, self._now_s),
        )
        try:
            return methods.DEQUEUE_FROM_QUEUES.result(await self._dispatcher.call(call))
        except MethodUnknown:  # nothing was done there; another server may have carried out the acks before
            if args.request.acks is None:
                request = replace(request, acks=())
            return await self._dequeue_in_rounds(request, context, timeout, wait_until_s)

    async def _dequeue_in_rounds(
        self,
        request: DequeueFromQueuesRequest,
        context: RequestContext | None,
        timeout: float | None,
        wait_until_s: float,
    ) -> DequeuedFromQueues:
        outcomes = [
            await self.ack(each.queue, each.succeeded, each.failed, context=context, timeout=timeout)
            for each in request.acks
        ]
        rounds = QueueRounds(
            request,
            lambda plain: self._dequeue(plain, context, timeout, wait_for_rate=False),
            lambda queue, checkpoints: self.checkpoint(queue, checkpoints, context=context),
            lambda: self._waits_no_more,
            self._rng,
        )
        try:
            return await rounds.run(wait_until_s, outcomes if any(map(_without_effect, outcomes)) else ())
        except PinLaterError as error:
            error.acks_applied = True
            raise

    async def ack(
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
        try:
            if type(queue) is not str:
                check_kinds(AsyncClient.ack, [("queue", queue)])
            return await self._ack(queue, succeeded, failed, context, timeout)  # type: ignore[arg-type]  # as most are
        except FAULTS as error:
            if has_dequeued(succeeded) or has_dequeued(failed):  # nothing was sent
                return await self.ack(queue, as_acks(succeeded), as_acks(failed), context=context, timeout=timeout)
            given = {"queue": queue, "succeeded": succeeded, "failed": failed, "context": context, "timeout": timeout}
            explain(error, AsyncClient.ack, given.items())
            raise

    async def _ack(
        self,
        queue: str,
        succeeded: Sequence[Ack],
        failed: Sequence[Ack],
        context: RequestContext | None,
        timeout: float | None,
    ) -> list[AckOutcome]:
        copies: list[Failure] = []
        call = CallSpec(
            methods.ACK,
            methods.ACK.arguments(self._caller.of(context), queue, succeeded, failed),
            methods.ack_idempotency(queue, succeeded, failed),
            self._deadline_s(timeout),
            revise=copies.append,
        )
        response = await self._dispatcher.call(call)
        if response is None:
            return [AckOutcome.UNKNOWN] * (len(succeeded) + len(failed))
        outcomes = list(methods.ACK.result(response))
        if any(may_be_done(failure) for failure in copies):
            return [AckOutcome.UNKNOWN if each is AckOutcome.IGNORED else each for each in outcomes]
        return outcomes

    async def checkpoint(
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
        try:
            if type(queue) is not str or worker is not None:
                check_kinds(AsyncClient.checkpoint, [("queue", queue), ("worker", worker)])
            check_times(checkpoints)
            await self._call(methods.CHECKPOINT, context, timeout, queue, checkpoints, worker)
        except FAULTS as error:
            given = {"queue": queue, "checkpoints": checkpoints, "context": context, "timeout": timeout}
            explain(error, AsyncClient.checkpoint, given.items())
            raise


def straight_dispatcher(client: AsyncClient) -> Dispatcher | None:
    """What sends the client's calls; None: not by connections, or it records them, or is to tell of lost ones."""
    calls = client._dispatcher
    return calls if isinstance(calls, Dispatcher) and client._on_disconnect is None else None


def carried_by(client: AsyncClient, calls: CallTransport, enqueuer: Enqueuer, clock: DeadlineClock) -> AsyncClient:
    """The same client, but for what carries its calls, and the clock of their deadlines."""
    made = copy.copy(client)
    made._dispatcher, made.enqueuer, made._clock = calls, enqueuer, clock
    return made


def _without_effect(outcomes: Sequence[AckOutcome]) -> bool:
    """Whether one of them had none, or may have had none."""
    return AckOutcome.IGNORED in outcomes or AckOutcome.UNKNOWN in outcomes


def _dequeue_again(
    wanted: Any, acks: str, wait_until_s: float, now_s: Callable[[], float]
) -> Callable[[Failure], None]:
    """What changes before a dequeue is sent again: acks carried out already stay away; the wait gets shorter. `acks`:
    the field that they stand in.
    """

    def revise(error: Failure) -> None:
        if isinstance(error, PinLaterError) and error.acks_applied:
            setattr(wanted, acks, None)
        if wanted.wait_ms:
            wanted.wait_ms = max(1, int((wait_until_s - now_s()) * 1000))

    return revise
