"""The wrappers that stand between the service and a shard."""

from __future__ import annotations

from pinlater.backends.base import Shard
from pinlater.clock import Clock
from pinlater.shards.calls import GuardSettings
from pinlater.shards.coalesce import Coalescing
from pinlater.shards.guard import Guarded


def chained(shard: Shard, *, deadline_ms: int = 30_000, clock: Clock | None = None) -> Shard:
    """What the service sees of a shard."""
    return Coalescing(Guarded(shard, GuardSettings(deadline_ms=deadline_ms), clock))
