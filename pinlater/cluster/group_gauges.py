"""The metrics of groups with settings of their own, as one server of the cluster counts them.

That is the owner of the shard where hand-outs of groups are published. A queue without such groups is not looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence, Set
from typing import Any

import structlog

from pinlater.backends.group_store import GroupCounts
from pinlater.clock import Clock
from pinlater.cluster.stats import StatsCollector
from pinlater.errors import PinLaterError
from pinlater.metrics import Metrics
from pinlater.queues.directory import QueueDirectory
from pinlater.queues.group_hand_outs import GroupHandOuts
from pinlater.queues.group_limits import GroupLimits
from pinlater.queues.group_rules_book import OTHER
from pinlater.shards.handle import answers, ask_all
from pinlater.shards.shard_set import ShardSet

_log = structlog.get_logger("pinlater.cluster")

GAUGES_MS = 10_000
BUSY_SHARE = 0.02
"""Counting takes no more than this part of the time."""

READY, LIMITED, RUNNING = "group_ready_jobs", "group_ready_limited_jobs", "group_running_jobs"


class GroupGauges:
    """The gauges of one process: those of all queues, or none while another process counts."""

    def __init__(
        self,
        members: ShardSet,
        queues: QueueDirectory,
        limits: GroupLimits,
        hand_outs: GroupHandOuts,
        stats: StatsCollector,
        clock: Clock,
        metrics: Metrics,
        priorities: Sequence[int],
    ) -> None:
        self._members = members
        self._queues = queues
        self._limits = limits
        self._hand_outs = hand_outs
        self._stats = stats
        self._clock = clock
        self._metrics = metrics
        self._priorities = priorities
        self._next_at_s = 0.0

    def is_idle(self) -> bool:
        """Whether no queue has groups that metrics name, and none is shown."""
        return not self._queues.group_rules.with_labels() and not any(key[0] == READY for key in self._metrics.gauges)

    async def tick(self, owns: Callable[[str], bool]) -> None:
        """Count what is due. Raises nothing: a queue that cannot be counted is left out until it can be."""
        loop = asyncio.get_running_loop()
        began_s, place = loop.time(), self._hand_outs.place()
        if place is None or not owns(place.shard.shard_id):
            self._show({})
            return
        if began_s < self._next_at_s:
            return
        await self._stats.refresh()
        found: dict[tuple[Any, ...], float] = {}
        for queue in sorted(self._queues.names() & set(self._queues.group_rules.with_labels())):
            try:
                found |= await self._count(queue, self._queues.group_rules.labelled(queue))
            except PinLaterError as error:
                _log.debug("groups_not_counted", queue=queue, error=error.message)
        self._show(found)
        self._next_at_s = loop.time() + (loop.time() - began_s) * (1 / BUSY_SHARE - 1)

    def _show(self, found: dict[tuple[Any, ...], float]) -> None:
        for family in (READY, LIMITED, RUNNING):
            own = {key: value for key, value in found.items() if key[0] == family}
            self._metrics.set_gauges((family,), own)

    async def _count(self, queue: str, labelled: Set[str]) -> dict[tuple[Any, ...], float]:
        """By group, and what is left of all jobs of the queue as they were counted last."""
        names, now_ms = sorted(labelled), self._clock.now_ms()
        outcomes = await ask_all(
            self._members.healthy(),
            lambda shard: shard.count_groups(queue, self._priorities, names, limited_at_ms=now_ms),
        )
        running = await self._limits.running(queue, names)
        counts: dict[str, GroupCounts] = {}
        for on_shard in answers(outcomes):
            for name, own in on_shard.items():
                counts[name] = counts[name].plus(own) if name in counts else own
        left = self._totals(queue)
        found: dict[tuple[Any, ...], float] = {}
        for name in names:
            ready, limited = (counts[name].ready, counts[name].limited) if name in counts else (0, 0)
            limited = ready if self._limits.holds(queue, name, running.get(name)) else limited
            numbers = {READY: ready, LIMITED: limited}
            if name in running:
                numbers[RUNNING] = running[name]
            for family, number in numbers.items():
                found[family, queue, name] = number
                left[family] -= number
        return found | {(family, queue, OTHER): max(0, number) for family, number in left.items()}

    def _totals(self, queue: str) -> dict[str, int]:
        levels = [level for status in self._stats.status([queue]) for level in status.levels]
        return {
            READY: sum(level.ready for level in levels),
            LIMITED: sum(level.ready_limited for level in levels),
            RUNNING: sum(level.in_progress for level in levels),
        }
