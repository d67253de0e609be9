"""The bodies of one server process: its tiers, the sweep, and what runs beside the calls.

Only a process with tiers has one. `wrap` is for each shard; `begin` comes when there are queues and leases.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from pinlater.backends.base import Shard
from pinlater.bodies.body_operations import TierOperations
from pinlater.bodies.fetch_ahead import EVERY_MS, FetchAhead
from pinlater.bodies.object_store import StoreInvalid as StoreInvalid
from pinlater.bodies.placement import PlacementRules
from pinlater.bodies.sweep import Sweeper
from pinlater.bodies.tier import Tier
from pinlater.bodies.tiered_shard import TieredShard
from pinlater.bodies.tiers import Tiers
from pinlater.clock import Clock
from pinlater.config.body_rules import TierUrl
from pinlater.metrics import Metrics
from pinlater.model import Ack
from pinlater.shards.shard_set import ShardSet

SWEEP_LOOK_MS = 60_000
"""How often it is seen whether a shard was swept within the day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BodySettings:
    tiers: Sequence[TierUrl]
    rules: PlacementRules
    max_in_shard: int
    put_ms: int
    get_ms: int
    tries: int
    ahead_ms: int
    cache_bytes: int
    orphan_age_ms: int


class Bodies:
    """StoreInvalid from the constructor. `steady` is a clock that nobody sets."""

    def __init__(
        self,
        settings: BodySettings,
        clock: Clock,
        steady: Clock,
        metrics: Metrics,
        *,
        lacking: Callable[[str], Sequence[str]],
        rule_of_queue: Callable[[str], str],
        fail_for_good: Callable[[str, Sequence[Ack]], Awaitable[object]],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self.tiers = Tiers(
            [
                Tier(each.name, each.url, steady, metrics, put_ms=settings.put_ms, get_ms=settings.get_ms)
                for each in settings.tiers
            ],
            settings.rules,
            clock,
            metrics,
            lacking,
            rule_of_queue,
            fail_for_good,
            max_in_shard=settings.max_in_shard,
            cache_bytes=settings.cache_bytes,
        )

    def wrap(self, shard: Shard) -> TieredShard:
        """The shard with its bodies in the tiers."""
        return TieredShard(shard, self.tiers, self._clock, self._metrics, max_tries=self._settings.tries)

    def begin(
        self,
        members: ShardSet,
        queues: Callable[[], Sequence[str]],
        priorities: Sequence[int],
        owns: Callable[[str], bool],
        every: Callable[[int, str, Callable[[], Awaitable[None]]], None],
    ) -> TierOperations:
        """What operators may ask for. From the start of `every` on bodies are fetched ahead, and swept each day."""
        self._sweeper = sweeper = Sweeper(self.tiers, members, self._clock, self._metrics, self._settings.orphan_age_ms)
        if self._settings.ahead_ms and self._settings.cache_bytes:
            ahead = FetchAhead(self.tiers, members, self._clock, priorities, self._settings.ahead_ms)
            every(EVERY_MS, "bodies ahead", ahead.look)
        every(SWEEP_LOOK_MS, "sweep of bodies", lambda: sweeper.look(owns))
        return TierOperations(self.tiers, sweeper, members, self._clock, self._metrics, queues, priorities)

    async def open(self) -> None:
        """Try the tiers once. Raises nothing."""
        await self.tiers.open()

    async def close(self) -> None:
        await self._sweeper.close()
        await self.tiers.close()
