"""Bodies of jobs that are due soon, fetched ahead into memory, so that a dequeue need not wait for their tier.

Looked at are queues from which this process handed out a body of a tier lately: no others cost anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pinlater.bodies.tiered_shard import TieredShard
from pinlater.bodies.tiers import ReadFailure, Tiers
from pinlater.clock import Clock
from pinlater.errors import PinLaterError
from pinlater.model.body_reference import BodyReference
from pinlater.shards.shard_set import ShardSet

EVERY_MS = 500
LATELY_MS = 60_000
"""A queue from which nothing of a tier was handed out for so long is no longer looked at."""

JOBS_AT_ONCE = 50
"""Of one queue and shard that are fetched ahead in one look."""


class FetchAhead:
    """Fetches for the claims of this process. `ahead_ms`: jobs that are due within this time."""

    def __init__(self, tiers: Tiers, members: ShardSet, clock: Clock, priorities: Sequence[int], ahead_ms: int) -> None:
        self._tiers = tiers
        self._members = members
        self._clock = clock
        self._priorities = priorities
        self._ahead_ms = ahead_ms

    async def look(self) -> None:
        """One look at each shard. What fails is left to the claim itself."""
        shards = [handle.shard for handle in self._members.healthy() if isinstance(handle.shard, TieredShard)]
        await asyncio.gather(*[self._look_at(shard) for shard in shards])

    async def _look_at(self, shard: TieredShard) -> None:
        now_ms = self._clock.now_ms()
        for queue, at_ms in [*shard.dequeued_from.items()]:
            if not 0 <= now_ms - at_ms < LATELY_MS:
                del shard.dequeued_from[queue]
                continue
            try:
                await self._fetch(shard, queue, now_ms)
            except PinLaterError:
                continue

    async def _fetch(self, shard: TieredShard, queue: str, now_ms: int) -> None:
        fetched = self._tiers.fetched
        due = await shard.inner.peek(queue, self._priorities, JOBS_AT_ONCE, fetched.room // 2, now_ms + self._ahead_ms)
        bodies = [job.body for job in due]
        wanted = [body for body in bodies if isinstance(body, BodyReference) and body not in fetched]
        for reference, body in zip(wanted, await self._tiers.read_all(shard.store_id, queue, wanted), strict=True):
            if not isinstance(body, ReadFailure):
                fetched.put(reference, body)
