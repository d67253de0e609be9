"""The calls of AsyncClient for operators of a cluster: queues, shards, status, workers, audit, schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pinlater.client.argument_kinds import checked
from pinlater.client.capabilities import GROUPS
from pinlater.client.client_calls import ClientCalls
from pinlater.client.job_arguments import check_times
from pinlater.model import (
    CONTINUATION_START,
    AccessView,
    AuditEntry,
    Changed,
    ClusterStatus,
    GroupsCleared,
    GroupsPage,
    JobChange,
    JobsChanged,
    QueueView,
    RequestContext,
    ScheduleChange,
    SchedulesPage,
    ScheduleUpdated,
    TokenView,
    WorkerCommand,
    WorkersCommanded,
    WorkersPage,
)
from pinlater.model.alarm_views import AlarmsPage
from pinlater.model.body_words import BodiesChange, BodiesStep, BodyTiers
from pinlater.model.job_holds import JobHold
from pinlater.model.job_selection import FoundJobs, FoundJobsChange, JobSelection
from pinlater.model.owner_bounds import IdentityUsage
from pinlater.wire import access_methods, body_methods, found_job_methods, methods, operator_methods, schedule_methods


class ClusterCalls(ClientCalls):
    """A part of AsyncClient."""

    @checked
    async def get_queues(
        self, names: Sequence[str] = (), *, context: RequestContext | None = None, timeout: float | None = None
    ) -> list[QueueView]:
        """Return queues with their settings, by name; all where none is named. QueueNotFound."""
        return await self._call(operator_methods.GET_QUEUES, context, timeout, names)

    @checked
    async def update_queue(
        self,
        name: str,
        password: str,
        *,
        set: Mapping[str, str] | None = None,
        unset: Sequence[str] = (),
        create: bool = False,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> Changed:
        """Change settings of a queue, or of "@defaults". PasswordInvalid, QueueNotFound, RequestInvalid."""
        return await self._call(
            operator_methods.UPDATE_QUEUE, context, timeout, name, password, set or {}, unset, create
        )

    @checked
    async def get_groups(
        self,
        queue: str,
        groups: Sequence[str] = (),
        *,
        continuation: str = CONTINUATION_START,
        limit: int = 100,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> GroupsPage:
        """Return one page of the groups of a queue that have ready jobs or settings of their own, by the bytes of their
        names; or those named. QueueNotFound. MethodUnknown: an older server.
        """
        return await self._call(operator_methods.GET_GROUPS, context, timeout, queue, groups, continuation, limit)

    @checked
    async def update_group(
        self,
        queue: str,
        group: str,
        password: str,
        *,
        set: Mapping[str, str] | None = None,
        unset: Sequence[str] = (),
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> Changed:
        """Change settings of one group of a queue, or of those that fit a pattern. PasswordInvalid, QueueNotFound,
        RequestInvalid, GroupsNotSupported, GroupsNotYet. MethodUnknown: an older server.
        """
        return await self._call(
            operator_methods.UPDATE_GROUP, context, timeout, queue, group, password, set or {}, unset
        )

    @checked
    async def clear_groups(
        self,
        queue: str,
        password: str,
        *,
        continuation: str = CONTINUATION_START,
        limit: int = 500,
        dry_run: bool = False,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> GroupsCleared:
        """Take the groups off the jobs of a queue: one step; call it again with the continuation that it returns.
        `dry_run`: count them. PasswordInvalid, QueueNotFound. MethodUnknown: an older server.
        """
        return await self._call(
            operator_methods.CLEAR_GROUPS, context, timeout, queue, password, continuation, limit, dry_run
        )

    @checked
    async def update_shard(
        self,
        shard_id: str,
        password: str,
        *,
        dequeue_only: bool,
        give_up: bool = False,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> Changed:
        """Set whether a shard takes new jobs; with `give_up` it takes none, and keys that live there count as lost.
        PasswordInvalid, RequestInvalid.
        """
        return await self._call(
            operator_methods.UPDATE_SHARD, context, timeout, shard_id, password, dequeue_only, give_up
        )

    @checked
    async def cluster_status(
        self,
        *,
        queues: Sequence[str] | None = None,
        counters_since_ms: int | None = None,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> ClusterStatus:
        """Return servers, shards and queues in numbers; only the queues in `queues`, where that is given.

        `counters_since_ms`: also the counts of each server process, of queues where they changed since then (0: of
        all).
        """
        return await self._call(operator_methods.GET_CLUSTER_STATUS, context, timeout, queues, counters_since_ms)

    @checked
    async def change_jobs(
        self, change: JobChange, *, context: RequestContext | None = None, timeout: float | None = None
    ) -> JobsChanged:
        """Change one slice of all jobs that match; call it again with the continuation that it returns."""
        check_times([change])
        return await self._call(methods.CHANGE_JOBS, context, timeout, change)

    @checked
    async def search_jobs(
        self,
        selection: JobSelection,
        *,
        limit: int = 100,
        include_body: bool = False,
        max_ms: int | None = None,
        continuation: str = CONTINUATION_START,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> FoundJobs:
        """Return one page of the jobs of a queue that meet all conditions; a page may be empty and yet not the last.
        MethodUnknown: an older server.
        """
        return await self._call(
            found_job_methods.SEARCH_JOBS, context, timeout, selection, limit, include_body, max_ms, continuation
        )

    @checked
    async def change_found_jobs(
        self, change: FoundJobsChange, *, context: RequestContext | None = None, timeout: float | None = None
    ) -> JobsChanged:
        """Change one slice of all jobs of a selection; call it again with the continuation that it returns.
        MethodUnknown: an older server, which does nothing.
        """
        check_times([change])
        return await self._call(found_job_methods.CHANGE_FOUND_JOBS, context, timeout, change)

    @checked
    async def get_body_tiers(self, *, context: RequestContext | None = None, timeout: float | None = None) -> BodyTiers:
        """Return the tiers of bodies, and the rules. MethodUnknown: an older server, which has none."""
        return await self._call(body_methods.GET_BODY_TIERS, context, timeout)

    @checked
    async def change_bodies(
        self, change: BodiesChange, *, context: RequestContext | None = None, timeout: float | None = None
    ) -> BodiesStep:
        """Take one step of a run over bodies; call it again with the continuation that it returns."""
        return await self._call(body_methods.CHANGE_BODIES, context, timeout, change)

    @checked
    async def get_workers(
        self,
        *,
        queue: str = "",
        name: str = "",
        include_running: bool = False,
        continuation: str = CONTINUATION_START,
        limit: int = 100,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> WorkersPage:
        """Return one page of the workers of the cluster, by name, host and pid; with the jobs they run, where asked
        for. MethodUnknown: an older server, which keeps no list of workers.
        """
        return await self._call(
            operator_methods.GET_WORKERS, context, timeout, queue, name, include_running, continuation, limit
        )

    @checked
    async def get_alarms(
        self,
        *,
        ended: bool = False,
        limit: int = 200,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> AlarmsPage:
        """Return the alarms that stand, the worst first, or those that ended, the latest first. MethodUnknown: an older
        server, which has none.
        """
        return await self._call(operator_methods.GET_ALARMS, context, timeout, ended, limit)

    @checked
    async def mute_alarm(
        self,
        name: str,
        for_ms: int,
        reason: str = "",
        password: str = "",
        *,
        subject: str = "",
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> None:
        """Mute the alarms of a condition, or of one subject of it, for `for_ms`; 0 ends that. PasswordInvalid,
        RequestInvalid.
        """
        await self._call(operator_methods.MUTE_ALARM, context, timeout, name, for_ms, reason, password, subject)

    @checked
    async def command_workers(
        self,
        command: WorkerCommand,
        workers: Sequence[str] = (),
        *,
        host: str = "",
        name: str = "",
        all_workers: bool = False,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> WorkersCommanded:
        """Send a command to workers: those of these ids (or HOST:PID), all of a host, of a name or of both, or all of
        the cluster; an answer for each. A worker gets it with its next report, and it lasts until its process ends.
        MethodUnknown: an older server.
        """
        return await self._call(
            operator_methods.COMMAND_WORKERS, context, timeout, command, workers, host, name, all_workers
        )

    @checked
    async def audit(
        self,
        *,
        limit: int = 100,
        before_ms: int | None = None,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> list[AuditEntry]:
        """Return the changes by operators, the latest first."""
        return await self._call(operator_methods.GET_AUDIT, context, timeout, limit, before_ms)

    @checked
    async def update_schedule(
        self,
        change: ScheduleChange,
        password: str,
        *,
        dry_run: bool = False,
        only_if_version: str | None = None,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> ScheduleUpdated:
        """Create or change a schedule; the answer has its next five firings. `dry_run` changes nothing;
        `only_if_version` "": only where it is not there. PasswordInvalid, RequestInvalid, QueueNotFound.
        """
        values = (change, password, dry_run, only_if_version)
        needs = GROUPS if change.group else None
        return await self._call(schedule_methods.UPDATE_SCHEDULE, context, timeout, *values, needs=needs)

    @checked
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
        timeout: float | None = None,
    ) -> SchedulesPage:
        """Return one page of schedules by name: of all, or those that are there of the ones named. MethodUnknown: an
        older server.
        """
        return await self._call(
            schedule_methods.GET_SCHEDULES,
            context,
            timeout,
            names,
            queue,
            made_by,
            include_body,
            next_limit,
            continuation,
            limit,
        )

    @checked
    async def delete_schedule(
        self,
        name: str,
        password: str,
        *,
        only_if_version: str | None = None,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> Changed:
        """Delete a schedule; one that is not there is no error, and has the version ""."""
        return await self._call(schedule_methods.DELETE_SCHEDULE, context, timeout, name, password, only_if_version)

    @checked
    async def update_token(
        self,
        name: str,
        hash: str,
        roles: Sequence[str],
        password: str = "",
        *,
        expires_ms: int | None = None,
        replace: bool = False,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> Changed:
        """Create a token, by its SHA-256 in hexadecimal; it is valid everywhere within two seconds. `replace`: where
        one of that name is there, it is revoked; else that is RequestInvalid. PasswordInvalid; MethodUnknown: an older
        server.
        """
        values = (name, hash, roles, password, expires_ms, replace)
        return await self._call(access_methods.UPDATE_TOKEN, context, timeout, *values)

    @checked
    async def get_tokens(
        self, *, context: RequestContext | None = None, timeout: float | None = None
    ) -> list[TokenView]:
        """Return all tokens, by name."""
        return await self._call(access_methods.GET_TOKENS, context, timeout)

    @checked
    async def delete_token(
        self, name: str, password: str = "", *, context: RequestContext | None = None, timeout: float | None = None
    ) -> Changed:
        """Revoke a token, everywhere within two seconds; one that is not there is no error, and has the version ""."""
        return await self._call(access_methods.DELETE_TOKEN, context, timeout, name, password)

    @checked
    async def get_access(self, *, context: RequestContext | None = None, timeout: float | None = None) -> AccessView:
        """Return this caller's identity and rights. Forbidden: its token is wrong."""
        return await self._call(access_methods.GET_ACCESS, context, timeout)

    @checked
    async def get_usage(
        self, *, context: RequestContext | None = None, timeout: float | None = None
    ) -> list[IdentityUsage]:
        """Return how much identities have stored and may store: up to 1,000 of them, those nearest to a bound first.
        MethodUnknown: an older server.
        """
        return await self._call(access_methods.GET_USAGE, context, timeout)

    @checked
    async def explain_jobs(
        self, descriptors: Sequence[str], *, context: RequestContext | None = None, timeout: float | None = None
    ) -> list[JobHold]:
        """Return why pending jobs do not run, in their order; of a job whose shard is out only that.
        At most 100 at a time. MethodUnknown: an older server.
        """
        return await self._call(found_job_methods.EXPLAIN_JOBS, context, timeout, descriptors)
