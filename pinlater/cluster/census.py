"""How many jobs has each queue? The owner of a shard counts them there, and tells everybody by a note on it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from pinlater.clock import Clock
from pinlater.cluster.counted_shard import CountedShard
from pinlater.cluster.counting import Asked, Counting
from pinlater.cluster.counts import QueueCounts, summed, views
from pinlater.cluster.gauges import Gauges
from pinlater.cluster.known import Queues
from pinlater.cluster.leases import Leases
from pinlater.cluster.published import Published
from pinlater.metrics import Metrics
from pinlater.model import QueueStatus
from pinlater.shards.handle import ShardHandle
from pinlater.shards.shard_set import ShardSet

WAIT_MS = 500
"""A tick waits so long for what it began."""

MOST_HOLDERS = 20


class Census:
    """Counts the shards of this process, each at most every `interval_ms`, and knows the counts of all shards.

    `priorities` are those that jobs may have.
    """

    def __init__(
        self,
        members: ShardSet,
        queues: Queues,
        leases: Leases,
        clock: Clock,
        metrics: Metrics,
        interval_ms: int,
        *,
        priorities: Collection[int] = (1, 2, 3),
    ) -> None:
        self._members = members
        self._queues = queues
        self._leases = leases
        self._clock = clock
        self._metrics = metrics
        self._interval_ms = interval_ms
        self._priorities = priorities
        self._published = Published(members, clock)
        self._shards: dict[str, CountedShard] = {}

    # -- counting ----------------------------------------------------------------------------------------------------

    async def tick(self) -> None:
        """Begin to count what is due; waits for it for a while, and lets it go on then."""
        mine = [member for member in self._members.healthy() if self._leases.is_mine(member.shard.shard_id)]
        for lost in self._shards.keys() - {member.shard.shard_id for member in mine}:
            self._shards.pop(lost).lose()
        for member in mine:
            self._take(member)
        due = [shard for shard in self._shards.values() if shard.is_due()]
        if due:
            asked = self._asked()
            for shard in due:
                shard.begin(asked)
        running = self._running()
        if running:
            await asyncio.wait(running, timeout=WAIT_MS / 1000)

    async def drain(self) -> None:
        """Wait until what is under way has been counted."""
        await asyncio.gather(*self._running())

    async def close(self) -> None:
        """Count no further."""
        running = self._running()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._published.close()

    def _running(self) -> list[asyncio.Task[None]]:
        return [task for shard in self._shards.values() for task in shard.running()]

    def _take(self, member: ShardHandle) -> None:
        shard_id = member.shard.shard_id
        before = self._shards.get(shard_id)
        if before is not None and before.member is member:
            return
        if before is not None:
            before.lose()
        self._shards[shard_id] = CountedShard(
            member,
            Counting(member, self._priorities, self._clock, lambda: self._leases.is_mine(shard_id)),
            Gauges(shard_id, self._metrics),
            self._published,
            self._clock,
            self._interval_ms,
        )

    def _asked(self) -> Asked:
        enqueued: dict[str, int] = {}
        for lease in self._leases.alive():
            for queue, numbers in lease.counters.items():
                enqueued[queue] = enqueued.get(queue, 0) + numbers[0]
        graves = self._queues.dead_letter_targets().values()
        return Asked(self._queues.names(), enqueued, {grave.queue for grave in graves})

    # -- what is known of all shards ---------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Read what others have counted, if that was not done within the last second. Raises nothing."""
        await self._published.refresh()

    def status(self, names: Iterable[str] | None = None) -> list[QueueStatus]:
        """These queues, or all of them, by name, as of the last `refresh`; without rates and flags."""
        known = self._queues.names()
        return [self._of(queue) for queue in sorted(known if names is None else known & set(names))]

    def pending(self, queue: str) -> int | None:
        """Jobs that are ready or scheduled, over all shards, as they were last counted; None: not known."""
        found = self._published.of(queue)
        if not found:
            return None
        return sum(level.ready + level.scheduled for each in found for level in each.levels.values())

    def unfinished(self, shard_id: str) -> tuple[int | None, int | None]:
        """The jobs of one shard that are pending or in progress, and when the oldest of them were counted; None, None:
        nothing is known."""
        counts = self._published.on(shard_id)
        if counts is None:
            return None, None
        jobs = sum(map(_unfinished, counts.queues.values()))
        return jobs, min([counts.at_ms, *(each.at_ms for each in counts.queues.values())])

    def holders(self, shard_id: str) -> dict[str, int]:
        """The queues whose jobs these are, the one with the most first; no more of them than MOST_HOLDERS."""
        counts = self._published.on(shard_id)
        jobs = {queue: _unfinished(each) for queue, each in counts.queues.items()} if counts else {}
        most = sorted((queue for queue in jobs if jobs[queue]), key=lambda queue: (-jobs[queue], queue))
        return {queue: jobs[queue] for queue in most[:MOST_HOLDERS]}

    def _of(self, queue: str) -> QueueStatus:
        found = self._published.of(queue)
        counted_at_ms = min((each.at_ms for each in found), default=0)
        return QueueStatus(queue, counted_at_ms, views(summed(each.levels for each in found)))


def _unfinished(counts: QueueCounts) -> int:
    """Jobs that are pending or in progress."""
    return sum(level.ready + level.scheduled + level.in_progress for level in counts.levels.values())
