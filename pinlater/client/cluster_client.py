"""ClusterClient: the calls of Client for operators of a cluster, one line each."""

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
    JobChange,
    JobsChanged,
    QueueView,
    RequestContext,
    ScheduleChange,
    SchedulesPage,
    ScheduleUpdated,
    TokenView,
    WorkersPage,
)
from pinlater.model.body_words import BodiesChange, BodiesStep, BodyTiers
from pinlater.model.job_selection import FoundJobs, FoundJobsChange, JobSelection
from pinlater.model.owner_bounds import IdentityUsage


class ClusterClient:
    """A part of Client."""

    def __init__(self, background: BackgroundClient) -> None:
        self._background = background
        self._run = background.run

    def get_queues(
        self, names: Sequence[str] = (), *, context: RequestContext | None = None, timeout: float | None = None
    ) -> list[QueueView]:
        return self._run(AsyncClient.get_queues, names, context=context, timeout=timeout)

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
        return self._run(
            AsyncClient.update_queue,
            name,
            password,
            set=set,
            unset=unset,
            create=create,
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
        return self._run(
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
        return self._run(
            AsyncClient.cluster_status,
            queues=queues,
            counters_since_ms=counters_since_ms,
            context=context,
            timeout=timeout,
        )

    def change_jobs(
        self, change: JobChange, *, context: RequestContext | None = None, timeout: float | None = None
    ) -> JobsChanged:
        return self._run(AsyncClient.change_jobs, change, context=context, timeout=timeout)

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
        return self._run(
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
        return self._run(AsyncClient.change_found_jobs, change, context=context, timeout=timeout)

    def get_body_tiers(self, *, context: RequestContext | None = None, timeout: float | None = None) -> BodyTiers:
        return self._run(AsyncClient.get_body_tiers, context=context, timeout=timeout)

    def change_bodies(
        self, change: BodiesChange, *, context: RequestContext | None = None, timeout: float | None = None
    ) -> BodiesStep:
        return self._run(AsyncClient.change_bodies, change, context=context, timeout=timeout)

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
        return self._run(
            AsyncClient.get_workers,
            queue=queue,
            name=name,
            include_running=include_running,
            continuation=continuation,
            limit=limit,
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
        return self._run(AsyncClient.audit, limit=limit, before_ms=before_ms, context=context, timeout=timeout)

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
        return self._run(
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
        return self._run(
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
        return self._run(
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
        return self._run(
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
        return self._run(AsyncClient.get_tokens, context=context, timeout=timeout)

    def delete_token(
        self, name: str, password: str = "", *, context: RequestContext | None = None, timeout: float | None = None
    ) -> Changed:
        return self._run(AsyncClient.delete_token, name, password, context=context, timeout=timeout)

    def get_access(self, *, context: RequestContext | None = None, timeout: float | None = None) -> AccessView:
        return self._run(AsyncClient.get_access, context=context, timeout=timeout)

    def get_usage(self, *, context: RequestContext | None = None, timeout: float | None = None) -> list[IdentityUsage]:
        return self._run(AsyncClient.get_usage, context=context, timeout=timeout)
