"""The calls of AsyncClient for operators of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pinlater.client.base import ConnectedClient
from pinlater.model import (
    AuditEntry,
    Changed,
    ClusterStatus,
    JobChange,
    JobsChanged,
    QueueView,
    RequestContext,
)
from pinlater.wire import convert_operators as wire
from pinlater.wire.methods import Idempotency


class OperatorCalls(ConnectedClient):
    """Queue settings, shards, the state of the cluster, changes to many jobs, the audit; see `pinlater.api.Api`."""

    async def get_queues(
        self, names: Sequence[str] = (), *, context: RequestContext | None = None, timeout: float | None = None
    ) -> list[QueueView]:
        """Queues with their settings, by name; all where none is named. QueueNotFound."""
        request = wire.get_queues_to_wire(names)
        return wire.queues_from_wire(await self._call("getQueues", Idempotency.READ, context, timeout, request=request))

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
        request = wire.update_queue_to_wire(name, password, set or {}, unset, create)
        return wire.changed_from_wire(
            await self._call("updateQueue", Idempotency.REPEAT, context, timeout, request=request)
        )

    async def update_shard(
        self,
        shard_id: str,
        password: str,
        *,
        dequeue_only: bool,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> Changed:
        """Whether a shard takes new jobs. PasswordInvalid, RequestInvalid."""
        request = wire.update_shard_to_wire(shard_id, password, dequeue_only)
        return wire.changed_from_wire(
            await self._call("updateShard", Idempotency.REPEAT, context, timeout, request=request)
        )

    async def cluster_status(
        self,
        *,
        queues: Sequence[str] | None = None,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> ClusterStatus:
        """Servers, shards and queues in numbers; those queues only, where a list is given."""
        request = wire.status_to_wire(queues)
        return wire.status_from_wire(
            await self._call("getClusterStatus", Idempotency.READ, context, timeout, request=request)
        )

    async def change_jobs(
        self, change: JobChange, *, context: RequestContext | None = None, timeout: float | None = None
    ) -> JobsChanged:
        """One slice of a change to all jobs that match; to be called again with the continuation it gives."""
        safety = Idempotency.SCAN if change.dry_run else Idempotency.ONCE
        request = wire.change_jobs_to_wire(change)
        return wire.jobs_changed_from_wire(await self._call("changeJobs", safety, context, timeout, request=request))

    async def audit(
        self,
        *,
        limit: int = 100,
        before_ms: int | None = None,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> list[AuditEntry]:
        """Changes by operators, the latest first."""
        request = wire.get_audit_to_wire(limit, before_ms)
        return wire.audit_from_wire(await self._call("getAudit", Idempotency.READ, context, timeout, request=request))
