"""The calls of the contract over the shards, in the order of docs/wire.md.

`Service` satisfies pinlater.api.Api. The one place that knows the caller of a call is its `context`: what the caller
calls itself, and in a server its connection with the address. A rule about callers belongs here, before the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from pinlater import job_limits
from pinlater.access.tokens import TokenBook
from pinlater.clock import Clock
from pinlater.cluster.lease import BREAKERS
from pinlater.errors import RequestInvalid
from pinlater.metrics import Metrics
from pinlater.model import (
    CONTINUATION_START,
    Ack,
    AckOutcome,
    AuditEntry,
    Cancelled,
    Changed,
    Checkpoint,
    ClusterStatus,
    CommandOutcome,
    ConnectionRef,
    DequeuedFromQueues,
    DequeuedJob,
    DequeueFromQueuesRequest,
    DequeueRequest,
    Heartbeat,
    HeartbeatAnswer,
    Job,
    JobFilter,
    JobInfo,
    KeyRef,
    QueueView,
    RequestContext,
    RescheduleJob,
    RescheduleOutcome,
    ScanPage,
    ScheduleChange,
    SchedulesPage,
    ScheduleUpdated,
    Unreceived,
    WorkerCommand,
    WorkerReport,
    WorkersCommanded,
    WorkersPage,
)
from pinlater.model.alarm_views import AlarmsPage
from pinlater.queues.breakers import Breakers
from pinlater.queues.cluster_limits import PendingCounts
from pinlater.queues.directory import QueueDirectory
from pinlater.queues.settings import BREAKER
from pinlater.schedules.book import ScheduleBook
from pinlater.schedules.record import ScheduleRecord
from pinlater.service import commanded_workers, server_jobs, worker_reports
from pinlater.service.admin_password import AdminPassword
from pinlater.service.alarm_calls import AlarmCalls
from pinlater.service.audit import OPEN, Audit
from pinlater.service.body_calls import BodyApi, BodyCalls
from pinlater.service.bulk_ops import BulkOps
from pinlater.service.bulk_slices import BulkSlices
from pinlater.service.cluster_parts import JudgedAlarms, ReportedWorkers, StatusOfAll
from pinlater.service.connection_claims import ConnectionClaims, DisconnectReaper
from pinlater.service.dequeuer import Dequeuer
from pinlater.service.descriptors import ClaimTokens
from pinlater.service.end_waits import EndWaits
from pinlater.service.flow_calls import FlowApi, FlowCalls
from pinlater.service.found_jobs import FoundJobsApi, FoundJobsCalls
from pinlater.service.group_admin import GroupAdmin, GroupsApi
from pinlater.service.hold_reasons import HoldReasons, HoldsApi
from pinlater.service.job_commands import NamedJobChanges
from pinlater.service.job_events import JobEvents, ShardNews
from pinlater.service.job_lifecycle import JobLifecycle
from pinlater.service.job_queries import JobQueries
from pinlater.service.longpoll import LongPolls
from pinlater.service.overflow_calls import NamesOverflow, OverflowCalls
from pinlater.service.queue_admin import QueueAdmin
from pinlater.service.queue_limits import QueueLimits
from pinlater.service.queues_dequeuer import QueuesDequeuer
from pinlater.service.rights import hide_log_lines, hide_others, may_read, owner
from pinlater.service.schedule_admin import ScheduleAdmin
from pinlater.service.service_context import NO_FEATURES, Features, ServiceContext
from pinlater.service.settings import ServiceSettings, queue_defaults
from pinlater.service.stored_usage import StoredUsage, UsageApi
from pinlater.service.token_admin import TokenAdmin, TokenApi
from pinlater.service.validation import Validator
from pinlater.shards.router import Router


class Service(FlowApi, BodyApi, FoundJobsApi, GroupsApi, HoldsApi, UsageApi, TokenApi):
    """The product's rules. Opened and closed with its router; `claims` must be of this process alone.

    Without `queues` it keeps plain ones, which change only when somebody polls them. Services that share `queues` share
    `schedules` and `tokens` too. `events` are for those who change jobs beside its calls;
    `problem_of` says why a schedule does not fire as it should.
    """

    def __init__(
        self,
        router: Router,
        clock: Clock,
        claims: ClaimTokens,
        settings: ServiceSettings | None = None,
        *,
        queues: QueueDirectory | None = None,
        schedules: ScheduleBook | None = None,
        tokens: TokenBook | None = None,
        metrics: Metrics | None = None,
        cluster: StatusOfAll | None = None,
        workers: ReportedWorkers | None = None,
        judge: JudgedAlarms | None = None,
        pending: PendingCounts | None = None,
        events: JobEvents | None = None,
        features: Features = NO_FEATURES,
        problem_of: Callable[[ScheduleRecord], str] = lambda _: "",
    ) -> None:
        self.router = router
        self.settings = settings = settings or ServiceSettings()
        self.metrics = metrics = metrics or Metrics()
        self.queues = queues = queues or QueueDirectory(router.members, clock, queue_defaults(settings))
        self._cluster = cluster
        self._workers = workers
        self._validator = validator = Validator(settings)
        self._pending = pending = pending or PendingCounts(router.members, queues, clock, validator.priorities)
        self.events = events = events or JobEvents()
        self.limits = limits = QueueLimits(router, clock, queues, metrics, claims)
        self._audit = audit = Audit(router.members, clock, claims.server)
        note, unaware = partial(audit.write, BREAKER, part=OPEN), partial(features.unaware_of, BREAKERS)
        self.breakers = breakers = Breakers(
            limits.probes, router.members, queues, clock, metrics, claims.process, note, unaware
        )
        self.admin_password = admin = AdminPassword(settings.admin_password_hash, audit)
        self._context = context = ServiceContext(
            router,
            clock,
            claims,
            settings,
            queues,
            metrics,
            pending,
            validator,
            breakers,
            limits,
            audit,
            admin,
            events,
            features,
        )
        self._who, self._operator = context.who, context.operator
        self.long_polls = long_polls = LongPolls(context)
        self.connection_claims = bound = ConnectionClaims(context, DisconnectReaper(context, long_polls.requeuer))
        self.end_waits = end_waits = EndWaits(context)
        for member in router.members.all:
            member.shard.events = ShardNews(member, clock, events)
        self._lifecycle = lifecycle = JobLifecycle(context, long_polls, bound, end_waits)
        self._heartbeats = lifecycle.heartbeats
        self._commands = commands = NamedJobChanges(context)
        self._dequeuer = dequeuer = Dequeuer(context, long_polls, lifecycle, bound)
        self._queues_dequeuer = QueuesDequeuer(context, long_polls, lifecycle, bound, dequeuer)
        self._queries = JobQueries(context, end_waits)
        self._body_calls = BodyCalls(context)
        self._queue_admin = QueueAdmin(context)
        self._group_admin = GroupAdmin(context)
        self.schedules = ScheduleBook(queues, clock) if schedules is None else schedules
        self.tokens = TokenBook(queues, router.members, clock) if tokens is None else tokens
        self._token_admin = TokenAdmin(context, self.tokens)
        self._schedule_admin = ScheduleAdmin(context, self.schedules, problem_of)
        slices = BulkSlices(context)
        self._bulk_ops = BulkOps(context, slices, commands)
        self._found_jobs = FoundJobsCalls(context, slices, self.lookup)
        self._flow_calls = FlowCalls(context, self._assigned)
        self._usage = StoredUsage(context)
        self._holds = HoldReasons(context, self)
        self._alarm_calls = AlarmCalls(context, judge)
        self._overflow: OverflowCalls | None = None
        queues.on_change(long_polls.settings_changed)
        limits.probes.on_change = long_polls.settings_changed
        queues.on_change(self._queue_changed)

    def attach_overflow(self, overflow: OverflowCalls) -> None:
        """From now on jobs that no shard takes or hands out, and calls that name overflow shards, go to `overflow`."""
        self._overflow = self._lifecycle.overflow = overflow
        self._dequeuer.overflow = self._queues_dequeuer.overflow = overflow
        self._context.parser.refuse_overflow()

    def _assigned(self, queue: str, jobs: Sequence[DequeuedJob]) -> None:
        self._dequeuer.count(queue, self.queues.settings(queue), jobs)

    async def open(self) -> None:
        """Open the shards, each synced before it serves; see ShardSet.open."""
        members = self.router.members
        members.sync_before_serving = members.sync_before_serving or self.queues.sync
        await self.router.open()

    def start_draining(self) -> None:
        """Long polls are answered now, with nothing, and no new one waits; so are lookups, with what there is."""
        self.long_polls.start_draining()
        self.end_waits.start_draining()
        self._flow_calls.start_draining()
        if self._overflow is not None:
            self._overflow.start_draining()

    async def close(self) -> None:
        """End the long polls, requeue what nobody takes, close the shards."""
        await self.connection_claims.close()
        await self._lifecycle.drain()
        await self.long_polls.drain()
        await self.end_waits.drain()
        await self.limits.drain()
        self.admin_password.close()
        await self._audit.drain()
        if self.queues.members is self.router.members:
            await self.queues.close()
        await self.router.close()

    @property
    def waiting(self) -> int:
        """Dequeues that wait for jobs now."""
        return self.long_polls.waiters

    @property
    def bound_claims(self) -> int:
        """Claims that are bound to connections, as far as this process knows."""
        return len(self.connection_claims)

    def disconnected(self, connection: ConnectionRef, *, idle_ms: int = 0) -> None:
        """A connection broke that had been silent for `idle_ms`: after the grace, the claims that are bound to it are
        released, but for those that were renewed meanwhile, by whichever server.
        """
        if connection.worker is not None and self._workers is not None:
            self._workers.connection_lost(*connection.worker)
        if connection.claims:
            self.connection_claims.broke(connection, idle_ms)

    def unbind(self, connection: ConnectionRef) -> None:
        """A connection has left that did not break: the time-outs of its claims decide."""
        self.connection_claims.unbind(connection)

    async def count_pending(self) -> None:
        """Learn anew how full queues and groups with a bound on pending jobs are; for who has given no `pending`."""
        await self._pending.poll()

    def on_removed(self, queue: str, jobs: int) -> None:
        """So many pending jobs of a queue left it, by a hand other than a call of this service."""
        self._pending.left(queue, jobs)

    def _queue_changed(self, name: str) -> None:
        if self.queues.was_deleted(name):
            self.long_polls.queue_deleted(name)
            self.end_waits.queue_deleted(name)

    # -- creating and deleting queues ----------------------------------------------------------------------------------

    async def create_queue(self, name: str, *, context: RequestContext | None = None) -> None:
        await self._queue_admin.create(name, self._who(context), owner(context))

    async def delete_queue(self, name: str, password: str, *, context: RequestContext | None = None) -> None:
        await self._queue_admin.delete(name, password, self._operator(context))

    # -- the life of a job ---------------------------------------------------------------------------------------------

    def enqueue(
        self, queue: str, jobs: Sequence[Job], *, context: RequestContext | None = None
    ) -> Coroutine[Any, Any, list[str]]:
        return self._lifecycle.enqueue(queue, jobs, context)

    def dequeue(
        self, request: DequeueRequest, *, context: RequestContext | None = None
    ) -> Coroutine[Any, Any, list[DequeuedJob]]:
        if request.worker is not None:
            self._receive_report(request.worker, context)
        if request.succeeded or request.failed:
            return self._dequeuer.dequeue_with_acks(request, context)
        return self._dequeuer.dequeue(request, context)

    def dequeue_from_queues(
        self, request: DequeueFromQueuesRequest, *, context: RequestContext | None = None
    ) -> Coroutine[Any, Any, DequeuedFromQueues]:
        if request.worker is not None:
            self._receive_report(request.worker, context)
        return self._queues_dequeuer.dequeue(request, context)

    async def ack(
        self, queue: str, succeeded: Sequence[Ack], failed: Sequence[Ack], *, context: RequestContext | None = None
    ) -> Sequence[AckOutcome]:
        acked = await self._lifecycle.ack(queue, succeeded, failed, context)
        if acked.error is not None:
            raise acked.error
        return acked.outcomes

    def _receive_report(self, report: WorkerReport, context: RequestContext | None) -> None:
        if self._workers is not None:
            worker_reports.receive(self._workers, report, context)

    async def checkpoint(
        self,
        queue: str,
        checkpoints: Sequence[Checkpoint],
        *,
        worker: WorkerReport | None = None,
        context: RequestContext | None = None,
    ) -> None:
        if worker is not None:
            self._receive_report(worker, context)
        connection = None if context is None else context.binding_connection
        try:
            await self._lifecycle.checkpoint(queue, self._validator.source(context), checkpoints, connection)
        except NamesOverflow:
            assert self._overflow is not None
            await self._overflow.checkpoint(queue, checkpoints, context)

    async def requeue(self, jobs: Sequence[DequeuedJob]) -> None:
        """Jobs whose caller can no longer be answered go back to PENDING with all attempts. Raises nothing."""
        if self._overflow is not None:
            jobs = await self._overflow.requeue(jobs)
        self.connection_claims.requeued(jobs)
        await self.long_polls.requeuer.requeue(jobs)

    async def requeue_undelivered(self, jobs: Sequence[Unreceived]) -> None:
        """Jobs whose answer nobody received go back to PENDING with all attempts, where their claims were not
        renewed since, and not too often in a row; others are left to expire. Raises nothing.
        """
        await self.long_polls.requeuer.requeue_undelivered(jobs)

    async def heartbeat(
        self,
        queue: str,
        heartbeats: Sequence[Heartbeat],
        *,
        worker: WorkerReport | None = None,
        context: RequestContext | None = None,
    ) -> list[HeartbeatAnswer]:
        if worker is not None:
            self._receive_report(worker, context)
        self._validator.source(context)
        connection = None if context is None else context.binding_connection
        try:
            answers = await self._heartbeats.beat(queue, heartbeats, connection)
        except NamesOverflow:
            assert self._overflow is not None
            answers = await self._overflow.heartbeat(queue, heartbeats, context)
        if worker is not None and worker.is_quiet is not None and self._workers is not None:
            return await commanded_workers.answered(self._workers, worker, answers, context)
        return answers

    # -- reading -------------------------------------------------------------------------------------------------------

    async def lookup(
        self,
        descriptors: Sequence[str],
        *,
        include_body: bool = False,
        include_result: bool = False,
        wait_ms: int = 0,
        queue: str = "",
        keys: Sequence[KeyRef] = (),
        include_trail: bool = False,
        context: RequestContext | None = None,
    ) -> dict[str, JobInfo]:
        if wait_ms < 0:
            raise RequestInvalid.of("waitMillis", wait_ms, "0 or more")
        shows = include_body or include_result
        by_key = await self._queries.find(queue, keys, lambda each: may_read(context, each, shows)) if keys else []
        named = [*descriptors, *[each for each in by_key if each is not None]]

        async def lookup() -> dict[str, JobInfo]:
            try:
                return await self._queries.lookup(named, include_body, include_result, include_trail)
            except NamesOverflow:
                assert self._overflow is not None
                return await self._overflow.lookup(named, include_body, include_result, include_trail, context)

        if wait_ms and named and None not in by_key:
            holder = "" if context is None else context.holder
            found = await self._queries.until_ended(named, wait_ms, holder, lookup)
        else:
            found = await lookup()
        hide_others(context, found.values())
        if include_trail:
            hide_log_lines(context, found)
        return found

    async def count(
        self, filter: JobFilter, *, allow_partial: bool = False, context: RequestContext | None = None
    ) -> int:
        return await self._queries.count(filter, allow_partial)

    async def queue_names(self, *, context: RequestContext | None = None) -> set[str]:
        return {name for name in await self._queue_admin.names() if may_read(context, name)}

    async def scan(
        self,
        filter: JobFilter,
        *,
        continuation: str = CONTINUATION_START,
        limit: int = 100,
        context: RequestContext | None = None,
    ) -> ScanPage:
        page = await self._queries.scan(filter, continuation, limit)
        hide_others(context, page.jobs)
        return page

    # -- changing many jobs --------------------------------------------------------------------------------------------

    async def retry_failed(
        self,
        queue: str,
        *,
        priority: int = 1,
        attempts: int = 1,
        run_after_ms: int | None = None,
        limit: int = 1000,
        context: RequestContext | None = None,
    ) -> int:
        who = self._who(context)
        has_items = queue in self.queues.flow_queues
        return await self._bulk_ops.retry_failed(who, queue, priority, attempts, run_after_ms, limit, has_items)

    async def delete_jobs(self, filter: JobFilter, *, limit: int = 1000, context: RequestContext | None = None) -> int:
        return await self._bulk_ops.delete_jobs(self._who(context), filter, limit)

    async def cancel(
        self,
        queue: str,
        descriptors: Sequence[str],
        *,
        keys: Sequence[KeyRef] = (),
        running: bool = False,
        context: RequestContext | None = None,
    ) -> Cancelled:
        who = self._who(context)
        await server_jobs.refuse_changes(self.lookup, queue, descriptors, context)
        try:
            return await self._bulk_ops.cancel(who, queue, descriptors, keys, running)
        except NamesOverflow:
            assert self._overflow is not None
            outcomes = await self._overflow.cancel(queue, descriptors, running, context)
            named = await self._bulk_ops.cancel(who, queue, (), keys, running) if keys else Cancelled({})
            return Cancelled(outcomes, named.by_key)

    async def reschedule(
        self,
        queue: str,
        changes: Sequence[RescheduleJob],
        *,
        audited: bool = False,
        context: RequestContext | None = None,
    ) -> list[RescheduleOutcome]:
        who = self._who(context)
        await server_jobs.refuse_changes(self.lookup, queue, [each.descriptor for each in changes], context)
        try:
            return await self._bulk_ops.reschedule(who if audited else None, queue, changes)
        except NamesOverflow:
            assert self._overflow is not None
            return await self._overflow.reschedule(queue, changes, audited, context)

    # -- schedules -----------------------------------------------------------------------------------------------------

    async def update_schedule(
        self,
        change: ScheduleChange,
        password: str,
        *,
        dry_run: bool = False,
        only_if_version: str | None = None,
        context: RequestContext | None = None,
    ) -> ScheduleUpdated:
        operator = self._operator(context)
        return await self._schedule_admin.update(change, password, dry_run, only_if_version, operator, context)

    async def get_schedules(
        self,
        names: Sequence[str] | None = None,
        *,
        queue: str = "",
        made_by: str = "",
        include_body: bool = False,
        next_limit: int = 1,
        continuation: str = CONTINUATION_START,
        limit: int = 100,
        context: RequestContext | None = None,
    ) -> SchedulesPage:
        return await self._schedule_admin.page(names, queue, made_by, include_body, next_limit, continuation, limit)

    async def delete_schedule(
        self, name: str, password: str, *, only_if_version: str | None = None, context: RequestContext | None = None
    ) -> Changed:
        return await self._schedule_admin.delete(name, password, only_if_version, self._operator(context))

    # -- operators of a cluster ----------------------------------------------------------------------------------------

    async def get_queues(self, names: Sequence[str] = (), *, context: RequestContext | None = None) -> list[QueueView]:
        self._validator.amount("names", names)
        return [view for view in await self._queue_admin.views(names) if may_read(context, view.name)]

    async def update_queue(
        self,
        name: str,
        password: str,
        *,
        set: Mapping[str, str] | None = None,
        unset: Sequence[str] = (),
        create: bool = False,
        context: RequestContext | None = None,
    ) -> Changed:
        return await self._queue_admin.update(name, password, set or {}, unset, create, self._operator(context))

    async def update_shard(
        self,
        shard_id: str,
        password: str,
        *,
        dequeue_only: bool,
        give_up: bool = False,
        context: RequestContext | None = None,
    ) -> Changed:
        operator = self._operator(context)
        return await self._queue_admin.update_shard(shard_id, password, dequeue_only, give_up, operator)

    async def cluster_status(
        self,
        *,
        queues: Sequence[str] | None = None,
        counters_since_ms: int | None = None,
        context: RequestContext | None = None,
    ) -> ClusterStatus:
        if self._cluster is None:
            return self._queue_admin.plain_status()
        return await self._cluster.status(queues, lambda each: may_read(context, each), counters_since_ms)

    async def get_workers(
        self,
        *,
        queue: str = "",
        name: str = "",
        include_running: bool = False,
        continuation: str = CONTINUATION_START,
        limit: int = 100,
        context: RequestContext | None = None,
    ) -> WorkersPage:
        limit = self._validator.limit(limit)
        if self._workers is None:
            return self._queue_admin.no_workers()
        page = await self._workers.page(
            queue, name, include_running=include_running, continuation=continuation, limit=limit
        )
        for worker in page.workers if queue else ():  # the others are for who may read all queues
            worker.keep_queues(lambda each: may_read(context, each))
        return page

    async def get_alarms(
        self, *, ended: bool = False, limit: int = 200, context: RequestContext | None = None
    ) -> AlarmsPage:
        return await self._alarm_calls.page(ended, self._validator.limit(limit), context)

    async def mute_alarm(
        self,
        name: str,
        for_ms: int,
        reason: str = "",
        password: str = "",
        *,
        subject: str = "",
        context: RequestContext | None = None,
    ) -> None:
        await self._alarm_calls.mute(name, subject, for_ms, reason, password, self._operator(context))

    async def command_workers(
        self,
        command: WorkerCommand,
        workers: Sequence[str] = (),
        *,
        host: str = "",
        name: str = "",
        all_workers: bool = False,
        context: RequestContext | None = None,
    ) -> WorkersCommanded:
        meant = commanded_workers.MeantWorkers(workers, host, name, all_workers)
        commanded = await commanded_workers.give(self._workers, command, meant, context)
        if any(each.outcome is CommandOutcome.TAKEN for each in commanded.workers):
            detail = commanded_workers.counts_text(commanded)
            await self._audit.write(self._who(context), f"{command}_workers", meant.text, detail, part=OPEN)
        return commanded

    async def audit(
        self, *, limit: int = 100, before_ms: int | None = None, context: RequestContext | None = None
    ) -> list[AuditEntry]:
        if before_ms is not None:
            job_limits.time("beforeMillis", before_ms)
        return await self._audit.read(self._validator.limit(limit), before_ms)

    def refused(self, who: str, action: str, target: str, detail: str) -> None:
        """Somebody tried what it may not: for the audit."""
        self._audit.refused(who, action, target, detail)
