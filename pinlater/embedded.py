"""A server in this process, without sockets: the service over SQLite in memory, by the clock of its host program.

What a server does beside its calls by time is done here before a call, where the clock has moved: jobs expire, dead
letters are copied, jobs that ended long ago go. Circuit breakers and maxima in progress, where a queue has one, are
seen to before each call. What flows bring about is done before a call is answered. Calls pass through the wire's codec,
so that what a server would refuse is refused here too.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import partial
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, TypeVar

import structlog

from pinlater.backends.aged_levels import levels_of
from pinlater.backends.base import OPERATIONS, ClaimRequest, JobKey
from pinlater.backends.extended import Offer, Offered, OfferOutcome
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.client.connection import METHOD_CODECS
from pinlater.client.dispatcher import CallSpec, FirstAttempt
from pinlater.clock import Clock
from pinlater.errors import PinLaterError
from pinlater.flows.callback_job import status_document
from pinlater.flows.ends import DueCallback
from pinlater.flows.flow_engine import Flows, FlowSettings
from pinlater.job_limits import JobLimits
from pinlater.metrics import Metrics
from pinlater.model import DequeuedJob, Job, RequestContext, parse_descriptor
from pinlater.queues.directory import QueueDirectory
from pinlater.queues.quota_balancer import QuotaBalancer
from pinlater.service import ClaimTokens, Service, ServiceSettings
from pinlater.service.job_events import JobEvents
from pinlater.service.service_context import Features
from pinlater.service.settings import queue_defaults
from pinlater.shards.decorator import ShardDecorator
from pinlater.shards.handle import ShardHandle
from pinlater.shards.router import Router
from pinlater.shards.shard_set import ShardSet
from pinlater.signed_post import PostOutcome
from pinlater.wire.codec import CallReader, RefusedCall, encode_reply
from pinlater.wire.faults import error_from_exception, exception_from_error
from pinlater.wire.message import WireLimits
from pinlater.wire.methods import METHODS

R = TypeVar("R")
NAME, SHARD = "memory", "1"
LIMITS = WireLimits()
_SEQID = 1
STEP = 1_000
"""Jobs of one step of maintenance."""


class EmbeddedServer:
    """Runs on a thread of its own, from here to `close`; every method is for other threads.

    `queue_names`: the queues that there are, beside those that callers make. `enqueued` hears of each job that comes
    into being, on that thread: its queue, its descriptor, and the job. `post`
    hears of callbacks of flows that would go to a URL, with what each would bring.
    """

    def __init__(
        self,
        clock: Clock,
        limits: JobLimits,
        queue_names: Callable[[], Collection[str]],
        enqueued: Callable[[str, str, Job], None],
        post: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self._clock = clock
        self._restore_log = _silence()
        self._queue_names = queue_names
        self.max_jobs = limits.max_jobs
        settings = ServiceSettings(
            num_priority_levels=limits.priority_levels, max_body_bytes=limits.max_body_bytes, max_jobs=limits.max_jobs
        )
        metrics = Metrics()
        self._folder = TemporaryDirectory(prefix="pinlater-flows-")
        self._shard = _ObservedShard(SqliteShard("sqlite://", SHARD), enqueued)
        members = ShardSet([ShardHandle(self._shard, clock)], clock)
        self._router = router = Router(members)
        self.queues = queues = QueueDirectory(members, clock, queue_defaults(settings))
        self._claims = ClaimTokens(NAME, os.getpid(), clock.now_ms())
        self._priorities = tuple(range(1, settings.num_priority_levels + 1))
        self._quotas = QuotaBalancer(members, queues, clock, self._priorities)
        self._claim_timeout_ms, self._claim_bytes = settings.max_claim_timeout_ms, settings.max_answer_bytes

        async def posted(due: DueCallback) -> PostOutcome:
            post(due.callback.url, status_document(due.status))
            return PostOutcome("", has_answered=True)

        flow_settings = FlowSettings(
            url=f"sqlite:///{self._folder.name}/flows.db", callback_hosts=("*:*",), callback_secret=NAME
        )
        events = JobEvents()
        self._flows = Flows(flow_settings, NAME, router, queues, clock, metrics, events.ready, post=posted)
        features = Features(self._flows)
        self._service = service = Service(
            router, clock, self._claims, settings, queues=queues, metrics=metrics, events=events, features=features
        )
        self._limits = service.limits
        self._reader = CallReader(LIMITS)
        self._maintained_ms = clock.now_ms()
        self.loop = asyncio.new_event_loop()
        self._thread = Thread(target=self.loop.run_forever, name="pinlater-embedded", daemon=True)
        self._thread.start()
        self.run(service.open())

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """What this coroutine returns or raises, on the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    async def run_async(self, work: Coroutine[Any, Any, R]) -> R:
        """As `run`, for another event loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    def close(self) -> None:
        """What was stored is gone."""
        self.run(self._close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
        self._folder.cleanup()
        if structlog.get_config()["logger_factory"] is _logger:
            self._restore_log()

    async def _close(self) -> None:
        await self._flows.close()
        await self._service.close()

    def has_queue(self, name: str) -> bool:
        """Somebody has made it."""
        return self.queues.has(name)

    @property
    def version(self) -> tuple[int, int]:
        """Another one whenever a job may be another than before."""
        return self._shard.changes, self._clock.now_ms()

    # -- calls ---------------------------------------------------------------------------------------------------------

    async def reply(self, message: bytes) -> bytes:
        """The answer to one message of the wire."""
        try:
            name, seqid, args, protocol = self._reader.read(message)
        except RefusedCall as refused:
            call, error = refused.call, refused.error
            return encode_reply(call.name, call.seqid, exception=exception_from_error(error), protocol=call.protocol)
        method = METHODS[name]
        try:
            await self._make_queues()
            await self.catch_up()
            context = RequestContext(args.context.source, args.context.request_id or "", is_granted=True)
            success = method.answer(await method.serve(self._service, args, context))
            await self._settle()
        except PinLaterError as error:
            return encode_reply(name, seqid, exception=exception_from_error(error), protocol=protocol)
        return encode_reply(name, seqid, success, protocol=protocol)

    async def catch_up(self) -> None:
        """Do what is due by now."""
        now_ms, queues, shard = self._clock.now_ms(), self.queues, self._shard
        is_later, self._maintained_ms = now_ms != self._maintained_ms, now_ms
        while is_later and await shard.expire_jobs(STEP, now_ms, queues.end_rules()):
            pass
        targets = queues.dead_letter_targets()
        while targets and await shard.dead_letter(STEP, now_ms, targets):
            pass
        while is_later and await shard.prune(STEP, now_ms, queues.retention()):
            pass
        for queue in sorted(queues.limited()):
            await self._quotas.balance(queue)
        await self._limits.groups.drain()
        if is_later:
            await self._limits.groups.tick(lambda shard_id: True)
        if queues.breaker_rules() or queues.breaker_records():
            await self._service.breakers.tick(lambda shard_id: True)
        if is_later:
            await self._settle()

    async def _settle(self) -> None:
        if self.queues.flow_queues:
            await self._flows.settle()

    async def _make_queues(self) -> None:
        for name in self._queue_names():
            if not self.queues.has(name) and not self.queues.was_deleted(name):
                await self.queues.create(name, NAME)

    # -- the hand of a worker ------------------------------------------------------------------------------------------

    async def first(self) -> tuple[str, DequeuedJob] | None:
        """The job that is to be claimed now, with its queue. Of those that dequeues of all queues would give it is the
        first by priority, then by when it is due, then by age.
        """
        await self.catch_up()
        found = [(queue, each) for queue in self._open_queues() for each in await self.ready(queue, 1)]
        return min(found, key=lambda each: _order(each[1]), default=None)

    async def ready(self, queue: str, limit: int, at_ms: int | None = None) -> list[DequeuedJob]:
        """What may be claimed now or then, in order."""
        now_ms = self._clock.now_ms() if at_ms is None else at_ms
        levels = levels_of(self._priorities, self.queues.settings(queue).priority_aging_ms)
        return await self._shard.peek(queue, levels, limit, self._claim_bytes, now_ms)

    async def next_due_ms(self) -> int | None:
        """When the next job is due of those that wait for their times, their queue's circuit breaker, or the rate of
        their group.
        """
        now_ms, probes = self._clock.now_ms(), self._limits.probes
        held = {queue: now_ms + wait_ms for queue in self.queues.open_breakers if (wait_ms := probes.wait_ms(queue))}
        due = await self._shard.next_due([*self._open_queues(), *held], self._priorities)
        held |= {queue: now_ms + self._limits.groups.wait_ms(queue) for queue in self.queues.group_limited}
        times = [max(each, held.get(queue, each)) for queue, each in due.items() if each is not None]
        return min(times, default=None)

    async def claim_next(self, queue: str, source: str) -> DequeuedJob | None:
        """What a dequeue of this queue gives. None: its limits keep it."""
        claimed = await self._limits.claim(queue, self.queues.settings(queue), 1, [self._request(source)])
        await self._limits.drain()
        return next((job for jobs in claimed.jobs for job in jobs), None)

    async def claim(self, queue: str, descriptor: str, source: str) -> DequeuedJob | None:
        """This very job. None: the limits of its queue keep it, or it may not be claimed."""
        ref = parse_descriptor(descriptor)
        assert ref is not None
        named = JobKey(ref.priority, ref.id)
        _, job = await self._limits.claim_listed(queue, ref.shard, named, self._request(source))
        await self._limits.drain()
        return job

    def _request(self, source: str) -> ClaimRequest:
        """For one job."""
        name = self._claims.next(source)
        return ClaimRequest(name, 1, self._priorities, self._claim_timeout_ms, self._claim_bytes)

    def pause_ms(self, queue: str) -> int:
        """How long until the circuit breaker of a queue, its rate or that of a group may let the next job out; 0: none
        keeps it.
        """
        if queue in self.queues.open_breakers:
            return self._limits.probes.wait_ms(queue) or 0
        per_second = self.queues.settings(queue).max_jobs_per_second
        return self._limits.groups.wait_ms(queue) if not per_second else max(1, round(1_000 / per_second))

    def _open_queues(self) -> list[str]:
        """Those that hand out jobs, but for dead letters, which are for people."""
        dead = {target.queue for target in self.queues.dead_letter_targets().values()}
        return [queue for queue in sorted(self.queues.names() - dead) if self._is_open(queue)]

    def _is_open(self, queue: str) -> bool:
        settings = self.queues.settings(queue)
        may_probe = queue in self.queues.open_breakers and self._limits.probes.wait_ms(queue) == 0
        if settings.paused and not may_probe:
            return False
        return settings.max_in_progress != 0 and settings.max_jobs_per_second != 0


def _logger(*names: str) -> Any:
    return structlog.ReturnLogger() if names and names[0].startswith("pinlater") else structlog.PrintLogger()


def _silence() -> Callable[[], None]:
    """In a program whose structlog prints, the log of a server would go to its output. Returns what undoes this."""
    printing, was_configured = structlog.get_config()["logger_factory"], structlog.is_configured()
    if not isinstance(printing, structlog.PrintLoggerFactory):
        return lambda: None
    structlog.configure(logger_factory=_logger)
    return partial(structlog.configure, logger_factory=printing) if was_configured else structlog.reset_defaults


def _order(job: DequeuedJob) -> tuple[int, int, int]:
    ref = parse_descriptor(job.descriptor)
    return job.priority, job.run_after_ms, 0 if ref is None else ref.id


class EmbeddedTransport:
    """Carries the calls of a client to a server in this process, from whichever event loop."""

    def __init__(self, server: EmbeddedServer) -> None:
        self._server = server

    async def call(self, call: CallSpec, first: FirstAttempt | None = None) -> Any:
        codec = METHOD_CODECS[call.method.name]
        reply = self._server.reply(codec.call(_SEQID, call.args, LIMITS))
        is_here = asyncio.get_running_loop() is self._server.loop
        answer = await (reply if is_here else self._server.run_async(reply))
        result = codec.result(answer, codec.due(_SEQID), _SEQID, LIMITS)
        if result.e is not None:
            raise error_from_exception(result.e)
        return getattr(result, "success", None)

    def begin(self, call: CallSpec, on_end: Callable[[FirstAttempt], None]) -> bool:
        return False

    def cancel_long_polls(self, why: str) -> None: ...

    def resume_long_polls(self) -> None: ...

    async def close(self, why: str) -> None: ...


class _ObservedShard(ShardDecorator):
    """Tells of the jobs that come into being, and counts what may change one."""

    def __init__(self, inner: SqliteShard, enqueued: Callable[[str, str, Job], None]) -> None:
        super().__init__(inner)
        self._enqueued = enqueued
        self.changes = 0
        for operation in OPERATIONS.values():
            if not operation.reads:
                setattr(self, operation.name, self._counted(getattr(self, operation.name)))

    def _counted(self, call: Callable[..., Coroutine[Any, Any, R]]) -> Callable[..., Coroutine[Any, Any, R]]:
        async def counted(*args: Any, **kwargs: Any) -> R:
            try:
                return await call(*args, **kwargs)
            finally:
                self.changes += 1

        return counted

    async def enqueue(self, queue: str, jobs: Sequence[Job], now_ms: int) -> list[str]:
        descriptors = await self.inner.enqueue(queue, jobs, now_ms)
        for descriptor, job in zip(descriptors, jobs, strict=True):
            self._enqueued(queue, descriptor, job)
        return descriptors

    async def enqueue_extended(
        self, queue: str, offers: Sequence[Offer], now_ms: int, homes_version: str = ""
    ) -> list[Offered]:
        offered = await self.inner.enqueue_extended(queue, offers, now_ms, homes_version)
        for offer, each in zip(offers, offered, strict=True):
            if each.outcome is OfferOutcome.STORED:
                self._enqueued(queue, each.descriptor, offer.job)
        return offered
