"""The wrappers that stand between the service and a shard."""

from __future__ import annotations

from pinlater.backends.base import Shard
from pinlater.clock import Clock
from pinlater.shards.batching import BatchingShard
from pinlater.shards.bulkhead import BulkheadSettings
from pinlater.shards.resilience import ResilientShard


def chained(shard: Shard, *, deadline_ms: int = 30_000, clock: Clock | None = None) -> Shard:
    """What the service sees of a shard."""
    return BatchingShard(ResilientShard(shard, BulkheadSettings(deadline_ms=deadline_ms), clock))
