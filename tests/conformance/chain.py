"""The wrappers that stand between the service and a shard."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pinlater.backends.base import Shard
from pinlater.bodies.placement import PlacementRules
from pinlater.bodies.tier import Tier
from pinlater.bodies.tiered_shard import TieredShard
from pinlater.bodies.tiers import Tiers
from pinlater.clock import Clock, SystemClock
from pinlater.config.body_rules import parse_rule
from pinlater.metrics import Metrics
from pinlater.model import Ack
from pinlater.shards.batching import BatchingShard
from pinlater.shards.bulkhead import BulkheadSettings
from pinlater.shards.resilience import ResilientShard

PATIENT_MS = 200_000
"""No test here is of time-outs; on a busy machine ten thousand files take a minute."""


def tiered(shard: Shard, folder: Path) -> TieredShard:
    """The same where every body, however small, lies in a tier."""
    clock, metrics = SystemClock(), Metrics()
    tier = Tier("files", folder.as_uri(), clock, metrics, put_ms=PATIENT_MS, get_ms=PATIENT_MS)
    rules = PlacementRules([parse_rule("files: size > 0B")], ["files"], least_bytes=1)

    async def fail_for_good(queue: str, acks: Sequence[Ack]) -> None:
        raise AssertionError(f"bodies of {queue} cannot be read: {acks}")

    tiers = Tiers(
        [tier],
        rules,
        clock,
        metrics,
        lambda name: (),
        lambda queue: "",
        fail_for_good,
        max_in_shard=0,
        cache_bytes=2**20,
    )
    return TieredShard(chained(shard), tiers, clock, metrics)


def chained(shard: Shard, *, deadline_ms: int = PATIENT_MS, clock: Clock | None = None) -> Shard:
    """What the service sees of a shard."""
    return BatchingShard(ResilientShard(shard, BulkheadSettings(deadline_ms=deadline_ms), clock))
