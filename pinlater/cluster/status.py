"""Status of the cluster, as one server knows it: servers by their leases, shards as it sees them, queues as counted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from pinlater.clock import Clock
from pinlater.cluster.membership import Membership
from pinlater.cluster.stats import StatsCollector
from pinlater.model import DEAD_LETTERS, EVERY_QUEUE, ClusterStatus, PauseView, QueueStatus, ShardView
from pinlater.queues.directory import QueueDirectory
from pinlater.queues.settings import QueueSettings
from pinlater.setting_kinds import rate_text
from pinlater.shards.keys.homes_record import HomeTable
from pinlater.shards.shard_set import ShardSet


@dataclass(frozen=True, slots=True)
class Cluster:
    """Answers from what this process knows, also when no shard can be used."""

    _members: ShardSet
    _queues: QueueDirectory
    _membership: Membership
    _stats: StatsCollector
    _clock: Clock
    _homes: Callable[[], HomeTable | None] = lambda: None

    async def status(
        self,
        queues: Collection[str] | None = None,
        may_read: Callable[[str], bool] = lambda _: True,
        counters_since_ms: int | None = None,
    ) -> ClusterStatus:
        """All of it, or only these queues of it; names that are no queue are left out. Of its servers and shards,
        nothing of jobs of queues that the caller may not read. `counters_since_ms`: also what was counted of queues
        where that changed since then. Raises nothing.
        """
        await self._stats.refresh()
        servers = [lease.view() for lease in self._membership.alive()]
        if not may_read(EVERY_QUEUE):
            for server in servers:
                server.overflow_jobs = None
        blocked = next((text for report in self._homes_reports() if (text := str(report.get("blocked", "")))), "")
        shards = self._shards(may_read)
        for shard in shards:
            shard.keep_queues(may_read)
        counters = None
        if counters_since_ms is not None:
            counted = self._queues.names() if queues is None else self._queues.names() & set(queues)
            counters = self._membership.counters.since(counters_since_ms, counted.__contains__)
        return ClusterStatus(self._clock.now_ms(), servers, shards, self._with_rates(queues), blocked, counters)

    def _homes_reports(self) -> list[dict[str, Any]]:
        """By the process that looks after the homes of keys; more than one for a moment."""
        return [report for lease in self._membership.alive() if isinstance(report := lease.more.get("homes"), dict)]

    def _shards(self, may_read: Callable[[str], bool]) -> list[ShardView]:
        views = [member.view() for member in self._members.all]
        homes, reports, given_up = self._homes(), self._homes_reports(), self._queues.given_up_shards()
        for view in views:
            full_at = [lease.name for lease in self._membership.alive() if view.id in lease.shards_full]
            if full_at and view.state == "in" and not view.is_full:  # not every store tells each process by itself
                view.is_full, view.trouble = True, view.trouble or f"full at {', '.join(full_at)}"
            view.maintained_by = self._membership.owner(view.id) or ""
            view.jobs, view.counted_at_ms = self._stats.unfinished(view.id, may_read)
            view.blocked_chains = list(self._stats.blocked_on(view.id))
            if homes is not None:
                view.is_home = homes.takes_jobs(view.id)
            view.left_slots = max((report.get("slots", {}).get(view.id, 0) for report in reports), default=0)
            view.barriers = max((report.get("barriers", {}).get(view.id, 0) for report in reports), default=0)
            view.is_given_up = view.id in given_up
            view.has_windows_left = any(view.id in report.get("windows", ()) for report in reports)
            if view.dequeue_only:
                view.jobs_by_queue = self._stats.holders(view.id)
        return views

    def _with_rates(self, names: Iterable[str] | None) -> list[QueueStatus]:
        found = self._stats.status(names)
        per_second = self._membership.rates.per_second()
        letters = {target.queue for target in self._queues.dead_letter_targets().values()}
        for status in found:
            status.rates = per_second.get(status.name, {})
            settings = self._queues.settings(status.name)
            status.flags = flags(settings) + ([DEAD_LETTERS] if status.name in letters else [])
            status.pause = pause(settings)
        return found


def pause(settings: QueueSettings) -> PauseView | None:
    """None: the queue is not paused."""
    if not settings.paused:
        return None
    return PauseView(settings.paused_by, settings.paused_why, settings.paused_at_ms, settings.paused_until_ms)


def flags(settings: QueueSettings) -> list[str]:
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
