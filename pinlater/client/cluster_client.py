"""ClusterClient: the calls of Client for operators.

Made by `python -m tests.packaging.client_calls` from cluster_calls.py: change it there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pinlater.client.async_client import AsyncClient
from pinlater.client.background import BackgroundClient
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


class ClusterClient:
    """A part of Client."""

    _background: BackgroundClient

    def get_queues(
        self, names: Sequence[str] = (), *, context: RequestContext | None = None, timeout: float | None = None
    ) -> list[QueueView]:
        """Return queues with their settings, by name; all where none is named. QueueNotFound."""
        return self._background.run(AsyncClient.get_queues, names, context=context, timeout=timeout)

    def update_queue(
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
        return self._background.run(
            AsyncClient.update_queue,
            name,
            password,
            set=set,
            unset=unset,
            create=create,
            context=context,
            timeout=timeout,
        )

    def get_groups(
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
        return self._background.run(
            AsyncClient.get_groups,
            queue,
            groups,
            continuation=continuation,
            limit=limit,
            context=context,
            timeout=timeout,
        )

    def update_group(
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
        return self._background.run(
            AsyncClient.update_group, queue, group, password, set=set, unset=unset, context=context, timeout=timeout
        )

    def clear_groups(
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
        return self._background.run(
            AsyncClient.clear_groups,
            queue,
            password,
            continuation=continuation,
            limit=limit,
            dry_run=dry_run,
            context=context,
            timeout=timeout,
        )

    def update_shard(
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
        return self._background.run(
            AsyncClient.update_shard,
            shard_id,
            password,
            dequeue_only=dequeue_only,
            give_up=give_up,
            context=context,
            timeout=timeout,
        )

    def cluster_status(
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
        return self._background.run(
            AsyncClient.cluster_status,
            queues=queues,
            counters_since_ms=counters_since_ms,
            context=context,
            timeout=timeout,
        )

    def change_jobs(
        self, change: JobChange, *, context: RequestContext | None = None, timeout: float | None = None
    ) -> JobsChanged:
        """Change one slice of all jobs that match; call it again with the continuation that it returns."""
        return self._background.run(AsyncClient.change_jobs, change, context=context, timeout=timeout)

    def search_jobs(
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
        return self._background.run(
            AsyncClient.search_jobs,
            selection,
            limit=limit,
            include_body=include_body,
            max_ms=max_ms,
            continuation=continuation,
            context=context,
            timeout=timeout,
        )

    def change_found_jobs(
        self, change: FoundJobsChange, *, context: RequestContext | None = None, timeout: float | None = None
    ) -> JobsChanged:
        """Change one slice of all jobs of a selection; call it again with the continuation that it returns.
        MethodUnknown: an older server, which does nothing.
        """
        return self._background.run(AsyncClient.change_found_jobs, change, context=context, timeout=timeout)

    def get_body_tiers(self, *, context: RequestContext | None = None, timeout: float | None = None) -> BodyTiers:
        """Return the tiers of bodies, and the rules. MethodUnknown: an older server, which has none."""
        return self._background.run(AsyncClient.get_body_tiers, context=context, timeout=timeout)

    def change_bodies(
        self, change: BodiesChange, *, context: RequestContext | None = None, timeout: float | None = None
    ) -> BodiesStep:
        """Take one step of a run over bodies; call it again with the continuation that it returns."""
        return self._background.run(AsyncClient.change_bodies, change, context=context, timeout=timeout)

    def get_workers(
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
        return self._background.run(
            AsyncClient.get_workers,
            queue=queue,
            name=name,
            include_running=include_running,
            continuation=continuation,
            limit=limit,
            context=context,
            timeout=timeout,
        )

    def get_alarms(
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
        return self._background.run(AsyncClient.get_alarms, ended=ended, limit=limit, context=context, timeout=timeout)

    def mute_alarm(
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
        self._background.run(
            AsyncClient.mute_alarm, name, for_ms, reason, password, subject=subject, context=context, timeout=timeout
        )

    def command_workers(
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
        return self._background.run(
            AsyncClient.command_workers,
            command,
            workers,
            host=host,
            name=name,
            all_workers=all_workers,
            context=context,
            timeout=timeout,
        )

    def audit(
        self,
        *,
        limit: int = 100,
        before_ms: int | None = None,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> list[AuditEntry]:
        """Return the changes by operators, the latest first."""
        return self._background.run(
            AsyncClient.audit, limit=limit, before_ms=before_ms, context=context, timeout=timeout
        )

    def update_schedule(
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
        return self._background.run(
            AsyncClient.update_schedule,
            change,
            password,
            dry_run=dry_run,
            only_if_version=only_if_version,
            context=context,
            timeout=timeout,
        )

    def get_schedules(
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
        return self._background.run(
            AsyncClient.get_schedules,
            names,
            queue=queue,
            made_by=made_by,
            include_body=include_body,
            next_limit=next_limit,
            continuation=continuation,
            limit=limit,
            context=context,
            timeout=timeout,
        )

    def delete_schedule(
        self,
        name: str,
        password: str,
        *,
        only_if_version: str | None = None,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> Changed:
        """Delete a schedule; one that is not there is no error, and has the version ""."""
        return self._background.run(
            AsyncClient.delete_schedule,
            name,
            password,
            only_if_version=only_if_version,
            context=context,
            timeout=timeout,
        )

    def update_token(
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
        return self._background.run(
            AsyncClient.update_token,
            name,
            hash,
            roles,
            password,
            expires_ms=expires_ms,
            replace=replace,
            context=context,
            timeout=timeout,
        )

    def get_tokens(self, *, context: RequestContext | None = None, timeout: float | None = None) -> list[TokenView]:
        """Return all tokens, by name."""
        return self._background.run(AsyncClient.get_tokens, context=context, timeout=timeout)

    def delete_token(
        self, name: str, password: str = "", *, context: RequestContext | None = None, timeout: float | None = None
    ) -> Changed:
        """Revoke a token, everywhere within two seconds; one that is not there is no error, and has the version ""."""
        return self._background.run(AsyncClient.delete_token, name, password, context=context, timeout=timeout)

    def get_access(self, *, context: RequestContext | None = None, timeout: float | None = None) -> AccessView:
        """Return this caller's identity and rights. Forbidden: its token is wrong."""
        return self._background.run(AsyncClient.get_access, context=context, timeout=timeout)

    def get_usage(self, *, context: RequestContext | None = None, timeout: float | None = None) -> list[IdentityUsage]:
        """Return how much identities have stored and may store: up to 1,000 of them, those nearest to a bound first.
        MethodUnknown: an older server.
        """
        return self._background.run(AsyncClient.get_usage, context=context, timeout=timeout)

    def explain_jobs(
        self, descriptors: Sequence[str], *, context: RequestContext | None = None, timeout: float | None = None
    ) -> list[JobHold]:
        """Return why pending jobs do not run, in their order; of a job whose shard is out only that.
        At most 100 at a time. MethodUnknown: an older server.
        """
        return self._background.run(AsyncClient.explain_jobs, descriptors, context=context, timeout=timeout)
