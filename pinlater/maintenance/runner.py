"""Runs of maintenance on the shards that this process owns.

One periodic job per task (tasks.py) and shard of this process, each a bounded run of short steps with rests between
them until nothing is due. A shard that is not healthy is left alone. What is due goes by the earliest time that it may
be, so a wrong clock ends nothing early. Two servers at it at once do no harm.

A step is one call of the store, which does nothing else meanwhile, or nothing else to these jobs. So its size follows
from how long the steps before took: in a store that is slow, or busy with others, steps get smaller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from pinlater.cluster.membership import Membership
from pinlater.errors import PinLaterError
from pinlater.maintenance.periodic import Periodic
from pinlater.maintenance.tasks import Summary, Task
from pinlater.shards.handle import ShardHandle
from pinlater.shards.shard_set import ShardSet

_log = structlog.get_logger("pinlater.maintenance")

RUN_S = 10.0
"""A run that has so much to do ends after this time, and says in the log what it did."""

STEP_S = 0.004
"""What a step may take, and a rest at most. A dequeue that comes in the middle of a step waits for its end."""

MIN_BATCH = 100
"""Smaller steps cost more than they are worth: what a call or a commit costs by itself prevails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceSettings:
    interval_ms: int = 1_000
    """How often each shard is looked at."""

    step_limit: int = 1_000
    """Jobs per step at most, each one call of the store."""

    def __post_init__(self) -> None:
        if self.interval_ms < 1 or self.step_limit < 1:
            raise ValueError("maintenance needs an interval and a step limit of at least 1")


class AdaptiveBatchSize:
    """The size of the next step, from MIN_BATCH up to `maximum`."""

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._minimum = self.limit = min(MIN_BATCH, maximum)

    def record(self, seconds: float, jobs: int) -> float:
        """A step over so many jobs took so long; how long to rest now: the store is busy half of the time at most.

        One step that was held up by something else makes the next one half as large at worst.
        """
        fitting = jobs * STEP_S / max(seconds, 1e-6)
        self.limit = max(self._minimum, min(int(self.limit + fitting) // 2, 2 * self.limit, self._maximum))
        return min(seconds, STEP_S)


class MaintenanceRunner:
    """Runs each task on each shard that this process owns."""

    def __init__(
        self,
        periodic: Periodic,
        members: ShardSet,
        membership: Membership,
        tasks: Sequence[Task],
        settings: MaintenanceSettings,
        rests: Callable[[], bool] = lambda: False,
    ) -> None:
        """`rests`: whether there are no jobs that could be due."""
        self._periodic = periodic
        self._rests = rests
        self._members = members
        self._membership = membership
        self._tasks = {task.name: task for task in tasks}
        self._settings = settings
        self._scheduled: set[str] = set()

    def start(self) -> None:
        """Begin, for the shards of this process, those that it has now and later; it ends with the periodic."""
        self._schedule()
        self._periodic.every(self._settings.interval_ms, "maintenance", self._reschedule)

    async def _reschedule(self) -> None:
        self._schedule()

    def _schedule(self) -> None:
        """Shards come and go with the configuration, and with the servers that can own them."""
        ids = {member.shard.shard_id for member in self._members.all if self._may_touch(member)} - {""}
        for name in self._tasks:
            for shard_id in sorted(ids - self._scheduled):
                self._periodic.every(
                    self._settings.interval_ms,
                    f"{name} {shard_id}",
                    partial(self.run, name, shard_id),
                    rests=self._rests,
                )
            for shard_id in sorted(self._scheduled - ids):
                self._periodic.end(f"{name} {shard_id}")
        self._scheduled = ids

    async def run(self, name: str, shard_id: str) -> None:
        """One task on one shard, step after step until nothing is due or RUN_S are over; a shard's error ends it."""
        task = self._tasks[name]
        loop = asyncio.get_running_loop()
        begun_at = loop.time()
        summary, batch = Summary(), AdaptiveBatchSize(self._settings.step_limit)
        try:
            while True:
                member = self._members.by_id(shard_id)
                if member is None or not self._may_touch(member):
                    break
                step_at = loop.time()
                changed = await task.step(member.shard, batch.limit, summary)
                ended_at = loop.time()
                if changed == 0 or self._periodic.is_stopping or ended_at - begun_at >= RUN_S:
                    break
                await asyncio.sleep(batch.record(ended_at - step_at, changed))
        except PinLaterError as error:
            _log.warning("maintenance_interrupted", task=task.event, shard=shard_id, error=error.message)
        if summary.has_any():
            _log.info(task.event, shard=shard_id, took_ms=round((loop.time() - begun_at) * 1000), **summary.fields())

    def _may_touch(self, member: ShardHandle) -> bool:
        return member.is_healthy and self._membership.owns(member.shard.shard_id)
