"""What one server knows of its cluster: servers by their leases, shards as it sees them, queues as last counted."""

from __future__ import annotations

from collections.abc import Iterable

from pinlater.clock import Clock
from pinlater.cluster.census import Census
from pinlater.cluster.known import Queues, Settings
from pinlater.cluster.leases import Leases
from pinlater.config.amounts import rate_text
from pinlater.model import ClusterStatus, QueueStatus, ShardView
from pinlater.shards.shard_set import ShardSet


class Cluster:
    """Answers from what this process has heard, also when no shard can be used."""

    def __init__(self, members: ShardSet, queues: Queues, leases: Leases, census: Census, clock: Clock) -> None:
        self._members = members
        self._queues = queues
        self._leases = leases
        self._census = census
        self._clock = clock

    async def status(self, queues: Iterable[str] | None = None) -> ClusterStatus:
        """All of it, or only these queues of it; names that are no queue are left out. Raises nothing."""
        await self._census.refresh()
        servers = [lease.view() for lease in self._leases.alive()]
        return ClusterStatus(self._clock.now_ms(), servers, self._shards(), self._with_rates(queues))

    def _shards(self) -> list[ShardView]:
        views = [member.view() for member in self._members.all]
        for view in views:
            full_at = [lease.name for lease in self._leases.alive() if view.id in lease.shards_full]
            if full_at and view.state == "in" and not view.is_full:  # not every store tells each process by itself
                view.is_full, view.trouble = True, view.trouble or f"full at {', '.join(full_at)}"
            view.maintained_by = self._leases.owner(view.id) or ""
            view.jobs, view.counted_at_ms = self._census.unfinished(view.id)
            if view.dequeue_only:
                view.jobs_by_queue = self._census.holders(view.id)
        return views

    def _with_rates(self, names: Iterable[str] | None) -> list[QueueStatus]:
        found = self._census.status(names)
        per_second = self._leases.rates.per_second()
        for status in found:
            status.rates = per_second.get(status.name, {})
            status.flags = flags(self._queues.settings(status.name))
        return found


def flags(settings: Settings) -> list[str]:
    """What keeps a queue from going as fast as it could, in words."""
    found = []
    if settings.paused:
        found.append("paused")
    if settings.draining:
        found.append("draining")
    if settings.max_jobs_per_second is not None:
        found.append(f"limited to {rate_text(settings.max_jobs_per_second)}")
    if settings.max_in_progress is not None:
        found.append(f"at most {settings.max_in_progress} in progress")
    return found
