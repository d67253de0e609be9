"""What runs in the background for every shard that is this server's own: claims that expired go back, dead letters are
moved, ended jobs whose time is over are removed.

One periodic job per shard and task, each a loop of short steps (stride.py) with rests between them until nothing is
due. A shard that is out is left alone. What is due goes by the earliest time that it may be, so a wrong clock ends
nothing early. Two servers at it at once do no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from pinlater.backends.base import DeadLetterTarget, EndRules, PerQueue, Retention
from pinlater.clock import Clock
from pinlater.cluster.leases import Leases
from pinlater.errors import PinLaterError
from pinlater.maintenance.stride import Stride
from pinlater.maintenance.tally import Tally
from pinlater.metrics import Metrics
from pinlater.periodic import Periodic
from pinlater.shards.handle import ShardHandle
from pinlater.shards.shard_set import ShardSet

_log = structlog.get_logger("pinlater.maintenance")
MARKS_EVERY_MS = 600_000
"""How often a shard is looked through for marks of deleted queues that are no longer kept."""

RUN_S = 10.0
"""A run that has so much to do ends after this time, and says in the log what it did."""

Step = Callable[[ShardHandle, Tally, int], Coroutine[Any, Any, int]]
"""One step on one shard over at most so many jobs; how many it changed."""


class Rules(Protocol):
    """What the settings of all queues say about the ends of jobs."""

    def end_rules(self) -> PerQueue[EndRules]: ...

    def retention(self) -> PerQueue[Retention]: ...

    def dead_letter_targets(self) -> Mapping[str, DeadLetterTarget]: ...

    def tombstones_before(self, now_ms: int) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceSettings:
    interval_ms: int = 1_000
    """How often each shard is looked at."""

    step_limit: int = 1_000
    """Jobs per step at most, each one call of the store."""


class Maintenance:
    """Expiry, dead letters and collection. `wake` is told the queues whose jobs became eligible."""

    def __init__(
        self,
        periodic: Periodic,
        members: ShardSet,
        clock: Clock,
        settings: MaintenanceSettings,
        wake: Callable[[str, int], None],
        queues: Rules,
        leases: Leases,
        metrics: Metrics,
    ) -> None:
        self._periodic = periodic
        self._members = members
        self._clock = clock
        self._settings = settings
        self._wake = wake
        self._queues = queues
        self._leases = leases
        self._metrics = metrics
        self._scheduled: set[str] = set()
        self._marks_looked_at_ms: dict[str, int] = {}

    def start(self) -> None:
        """Begin, for the shards that there are and those that come later; it ends with the periodic."""
        self._schedule()
        self._periodic.every(self._settings.interval_ms, "maintenance", self._follow)

    async def _follow(self) -> None:
        self._schedule()

    def _schedule(self) -> None:
        """Shards come and go with the configuration."""
        ids = {member.shard.shard_id for member in self._members.all} - {""}
        for shard_id in ids - self._scheduled:
            for task in (self.expire, self.bury, self.collect):
                self._periodic.every(self._settings.interval_ms, _job(task, shard_id), _on(task, shard_id))
        for shard_id in self._scheduled - ids:
            for task in (self.expire, self.bury, self.collect):
                self._periodic.end(_job(task, shard_id))
        self._scheduled = ids

    # -- the tasks ---------------------------------------------------------------------------------------------------

    async def expire(self, shard_id: str) -> None:
        """End claims whose time is over."""
        await self._steps("claims_expired", shard_id, self._expire)

    async def bury(self, shard_id: str) -> None:
        """Copy jobs that failed for good to the dead-letter queues of theirs."""
        if self._queues.dead_letter_targets():
            await self._steps("jobs_buried", shard_id, self._bury)

    async def collect(self, shard_id: str) -> None:
        """Remove jobs that ended long enough ago, what deleted queues left, and in the end the marks of these."""
        await self._steps("jobs_collected", shard_id, self._collect)

    async def _expire(self, member: ShardHandle, tally: Tally, limit: int) -> int:
        counts = await member.shard.expire_claims(limit, self._clock.now_ms(), self._queues.end_rules())
        for queue, lapsed in counts.items():
            for outcome, jobs in (("retried", lapsed.retried), ("failed", lapsed.failed)):
                if jobs:
                    tally.add(queue, outcome, jobs)
                    self._metrics.add(jobs, "claims_expired", queue, outcome)
            if lapsed.retried:
                self._wake(queue, lapsed.retried)
        return sum(sum(lapsed) for lapsed in counts.values())

    async def _bury(self, member: ShardHandle, tally: Tally, limit: int) -> int:
        graves = self._queues.dead_letter_targets()
        counts = await member.shard.dead_letter(limit, self._clock.now_ms(), graves)
        for queue, jobs in counts.items():
            tally.add(queue, "moved", jobs)
            self._metrics.add(jobs, "jobs_buried", queue)
            self._wake(graves[queue].queue, jobs)
        return sum(counts.values())

    async def _collect(self, member: ShardHandle, tally: Tally, limit: int) -> int:
        counts = await member.shard.prune(
            limit, self._clock.now_ms(), self._queues.retention(), tombstones_before=self._marks_before(member)
        )
        for queue, jobs in counts.items():
            if queue:
                tally.add(queue, "removed", jobs)
                self._metrics.add(jobs, "jobs_collected", queue)
            else:
                tally.add_leftovers(jobs)
        return sum(counts.values())

    def _marks_before(self, member: ShardHandle) -> str:
        """ "" but for now and then."""
        now_ms = self._clock.now_ms()
        looked_at_ms = self._marks_looked_at_ms.get(member.shard.shard_id)
        if looked_at_ms is not None and 0 <= now_ms - looked_at_ms < MARKS_EVERY_MS:
            return ""
        self._marks_looked_at_ms[member.shard.shard_id] = now_ms
        return self._queues.tombstones_before(now_ms)

    # -- the loop around their steps ---------------------------------------------------------------------------------

    async def _steps(self, event: str, shard_id: str, step: Step) -> None:
        """Step after step until nothing is due, or RUN_S are over; an error of the shard ends it."""
        loop = asyncio.get_running_loop()
        begun_at = loop.time()
        tally, stride = Tally(), Stride(self._settings.step_limit)
        try:
            while True:
                member = self._members.by_id(shard_id)
                if member is None or not self._may_touch(member):
                    break
                step_at = loop.time()
                changed = await step(member, tally, stride.limit)
                ended_at = loop.time()
                if changed == 0 or self._periodic.is_stopping or ended_at - begun_at >= RUN_S:
                    break
                await asyncio.sleep(stride.took(ended_at - step_at, changed))
        except PinLaterError as error:
            _log.warning("maintenance_interrupted", task=event, shard=shard_id, error=error.message)
        if tally.has_any():
            _log.info(event, shard=shard_id, took_ms=round((loop.time() - begun_at) * 1000), **tally.shown())

    def _may_touch(self, member: ShardHandle) -> bool:
        return member.is_healthy and self._leases.is_mine(member.shard.shard_id)


def _job(task: Callable[[str], Awaitable[None]], shard_id: str) -> str:
    return f"{task.__name__} {shard_id}"


def _on(task: Callable[[str], Awaitable[None]], shard_id: str) -> Callable[[], Awaitable[None]]:
    return lambda: task(shard_id)
