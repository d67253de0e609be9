"""The serialize keys whose first job keeps too many others waiting, or for too long.

The owner of a shard asks it for them, shows how many there are as a gauge, and publishes the worst of them there,
beside its counts, for every server to show.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from pinlater.clock import Clock
from pinlater.cluster.counts import PublishedCounts
from pinlater.cluster.membership import Membership
from pinlater.errors import PinLaterError
from pinlater.metrics import Metrics
from pinlater.model import BlockedChain
from pinlater.shards.handle import ShardHandle
from pinlater.shards.shard_set import ShardSet

_log = structlog.get_logger("pinlater.cluster")

EVERY_MS = 5_000
_MOST_READ = 100
"""Of each kind, in one question: the gauge counts no further."""

_SHOWN = 5
_KEPT_MS = 4 * EVERY_MS


class BlockedChains:
    """Those of the shards of this process, and what other processes say of theirs."""

    def __init__(
        self,
        members: ShardSet,
        membership: Membership,
        published: PublishedCounts,
        clock: Clock,
        metrics: Metrics,
        *,
        max_waiting: int,
        max_age_ms: int,
    ) -> None:
        self._members = members
        self._membership = membership
        self._published = published
        self._clock = clock
        self._metrics = metrics
        self._max_waiting = max_waiting
        self._max_age_ms = max_age_ms
        self._blocked_shards: set[str] = set()
        """Shards on which something is published."""

    async def tick(self) -> None:
        """Ask the shards of this process. Raises nothing."""
        owned = [member for member in self._members.healthy() if self._membership.owns(member.shard.shard_id)]
        ids = {member.shard.shard_id for member in owned}
        gauges = {("blocked_chains", shard_id): 0.0 for shard_id in ids}
        for member in owned:
            try:
                found = await self._blocked_on(member)
                await self._publish(member, found)
            except PinLaterError as error:
                _log.warning("chains_not_looked_at", shard=member.shard.shard_id, error=error.message)
            else:
                gauges["blocked_chains", member.shard.shard_id] = len(found)
        self._blocked_shards &= ids
        self._metrics.set_gauges(("blocked_chains",), gauges)

    async def _blocked_on(self, member: ShardHandle) -> list[BlockedChain]:
        """The one with the most waiting first."""
        now_ms = self._clock.now_ms()
        chains = await member.shard.blocked_chains(_MOST_READ, now_ms)
        by_key = {
            each.serialize_key: each
            for each in chains
            if each.waiting >= self._max_waiting or (each.waiting and now_ms - each.since_ms >= self._max_age_ms)
        }
        return sorted(by_key.values(), key=lambda each: (-each.waiting, each.since_ms))

    async def _publish(self, member: ShardHandle, found: Sequence[BlockedChain]) -> None:
        shard_id = member.shard.shard_id
        if found or shard_id in self._blocked_shards:
            await self._published.put_blocked(member, found[:_SHOWN], _KEPT_MS)
            (self._blocked_shards.add if found else self._blocked_shards.discard)(shard_id)
