"""The calls of Client for operators of a cluster, one line each; see OperatorCalls for what they mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pinlater.client.async_client import AsyncClient
from pinlater.client.background import BackgroundClient
from pinlater.model import AuditEntry, Changed, ClusterStatus, JobChange, JobsChanged, QueueView, RequestContext


class ClientOperatorCalls:
    """A part of Client."""

    _background: BackgroundClient

    def get_queues(
        self, names: Sequence[str] = (), *, context: RequestContext | None = None, timeout: float | None = None
    ) -> list[QueueView]:
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

    def update_shard(
        self,
        shard_id: str,
        password: str,
        *,
        dequeue_only: bool,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> Changed:
        return self._background.run(
            AsyncClient.update_shard, shard_id, password, dequeue_only=dequeue_only, context=context, timeout=timeout
        )

    def cluster_status(
        self,
        *,
        queues: Sequence[str] | None = None,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> ClusterStatus:
        return self._background.run(AsyncClient.cluster_status, queues=queues, context=context, timeout=timeout)

    def change_jobs(
        self, change: JobChange, *, context: RequestContext | None = None, timeout: float | None = None
    ) -> JobsChanged:
        return self._background.run(AsyncClient.change_jobs, change, context=context, timeout=timeout)

    def audit(
        self,
        *,
        limit: int = 100,
        before_ms: int | None = None,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> list[AuditEntry]:
        return self._background.run(
            AsyncClient.audit, limit=limit, before_ms=before_ms, context=context, timeout=timeout
        )
