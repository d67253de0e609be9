"""The counts of a shard as metrics, for the process that counts it."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from pinlater.backends.base import LevelCounts
from pinlater.cluster.counts import ShardCounts
from pinlater.metrics import Metrics

STATES = ("ready", "scheduled", "in_progress", "succeeded", "failed")
_NO_JOBS = LevelCounts(0, 0, 0, 0, 0, None)


class Gauges:
    """Of one shard. A level that had jobs once stays, at zero: not every collector sees what is gone."""

    def __init__(self, shard_id: str, metrics: Metrics) -> None:
        self._shard_id = shard_id
        self._metrics = metrics
        self._shown: set[tuple[str, int]] = set()

    def show(self, counts: ShardCounts, queues: Set[str]) -> None:
        """`queues` are those that there are."""
        self._shown |= {(queue, priority) for queue, each in counts.queues.items() for priority in each.levels}
        self._shown = {shown for shown in self._shown if shown[0] in queues}
        jobs: dict[tuple[Any, ...], float] = {}
        ages: dict[tuple[Any, ...], float] = {}
        for queue, priority in self._shown:
            at_ms, levels = counts.of(queue)
            level = levels.get(priority, _NO_JOBS)
            for state in STATES:
                jobs["queue_jobs", self._shard_id, queue, priority, state] = getattr(level, state)
            age_ms = 0 if level.oldest_ready_ms is None else max(0, at_ms - level.oldest_ready_ms)
            ages["queue_oldest_ready_seconds", self._shard_id, queue, priority] = age_ms / 1000
        self._metrics.set_gauges(("queue_jobs", self._shard_id), jobs)
        self._metrics.set_gauges(("queue_oldest_ready_seconds", self._shard_id), ages)

    def show_age(self, age_ms: int) -> None:
        self._metrics.gauges["queue_count_age_seconds", self._shard_id] = max(0, age_ms) / 1000

    def clear(self) -> None:
        """Somebody else counts it now."""
        for family in ("queue_jobs", "queue_oldest_ready_seconds", "queue_count_age_seconds"):
            self._metrics.set_gauges((family, self._shard_id), {})
