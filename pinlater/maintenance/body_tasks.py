"""The deletion of bodies whose jobs are gone, a task of maintenance: the object first, then its entry in the shard."""

from __future__ import annotations

from collections import Counter

from pinlater.backends.base import Shard
from pinlater.bodies.tiered_shard import TieredShard
from pinlater.bodies.tiers import Tiers
from pinlater.clock import Clock
from pinlater.errors import TierUnavailable
from pinlater.maintenance.tasks import Summary

PAUSE_MS = 10_000
"""How long nothing is deleted on a shard after its tiers refused."""


class DeleteBodies:
    """Deletes the objects of references that were dropped."""

    name, event = "delete_bodies", "bodies_deleted"

    def __init__(self, tiers: Tiers, clock: Clock) -> None:
        self._tiers = tiers
        self._clock = clock
        self._not_before_ms: dict[str, int] = {}

    async def step(self, shard: Shard, limit: int, summary: Summary) -> int:
        now_ms = self._clock.now_ms()
        if now_ms < self._not_before_ms.get(shard.shard_id, 0):
            return 0
        dropped = await shard.dropped_references(limit)
        if not dropped:
            return 0
        assert isinstance(shard, TieredShard)
        try:
            done = await self._tiers.delete(shard.store_id, dropped)
        except TierUnavailable:
            self._not_before_ms[shard.shard_id] = now_ms + PAUSE_MS
            return 0
        if len(done) < len(dropped):  # one of several tiers refused
            self._not_before_ms[shard.shard_id] = now_ms + PAUSE_MS
        await shard.forget_references(done)
        for queue, bodies in Counter(reference.parts.queue for reference in done).items():
            summary.add(queue, "deleted", bodies)
        return len(done)
