"""How full queues with a maximum of pending jobs are, known cheaply and about right.

The jobs of such a queue are counted twice a second, and what this process enqueues and hands out meanwhile is added and
taken off. So the bound is passed at most by what all servers enqueue in half a second; a count that takes long is made
less often, and it is then by what they enqueue in that time.
"""

from __future__ import annotations

import time

from pinlater.clock import Clock
from pinlater.errors import EnqueueRejected, PinLaterError
from pinlater.model import JobState
from pinlater.queues.registry import Queues
from pinlater.shards.handle import ShardHandle, ask_all
from pinlater.shards.shard_set import ShardSet

_BUSY_SHARE = 0.02
"""Counting one queue takes no more than this part of the time."""

_RETRY_AFTER_MS = 1_000


class _Level:
    """What is known of one queue: the last count, and what changed since it began."""

    __slots__ = ("changed", "counted", "next_at_s")

    def __init__(self) -> None:
        self.counted = 0
        self.changed = 0
        self.next_at_s = 0.0


class Pending:
    """The levels of the queues with `max_pending`, as one process knows them."""

    def __init__(
        self, members: ShardSet, queues: Queues, clock: Clock, priorities: tuple[int, ...] = (1, 2, 3)
    ) -> None:
        self._members = members
        self._queues = queues
        self._clock = clock
        self._priorities = priorities
        self._levels: dict[str, _Level] = {}

    def check(self, queue: str, jobs: int) -> None:
        """EnqueueRejected, reason QUEUE_FULL, where so many more would be too many. A queue that was not counted yet
        counts as empty.
        """
        allowed = self._queues.settings(queue).max_pending
        if allowed is None:
            return
        level = self._levels.get(queue)
        pending = 0 if level is None else max(0, level.counted + level.changed)
        if pending + jobs > allowed:
            raise EnqueueRejected(
                f"queue {queue!r} has about {pending} pending jobs; {jobs} more would pass its bound of {allowed}",
                reason="QUEUE_FULL",
                retry_after_ms=_RETRY_AFTER_MS,
            )

    def added(self, queue: str, jobs: int) -> None:
        """This process enqueued so many."""
        level = self._levels.get(queue)
        if level is None:
            if self._queues.settings(queue).max_pending is None:
                return
            level = self._levels[queue] = _Level()
        level.changed += jobs

    def left(self, queue: str, jobs: int) -> None:
        """This process handed out so many."""
        level = self._levels.get(queue)
        if level is not None:
            level.changed -= jobs

    async def poll(self) -> None:
        """Count the queues that are due. Raises nothing: what could not be counted keeps its last count."""
        bounded = self._queues.bounded()
        for name in self._levels.keys() - bounded:
            del self._levels[name]
        for name in sorted(bounded):
            level = self._levels.setdefault(name, _Level())
            if level.next_at_s <= time.monotonic():
                await self._count(name, level)

    async def _count(self, queue: str, level: _Level) -> None:
        """Over the shards that are in: what lies on another one cannot be worked on, and is counted when it is back."""
        began_s = time.monotonic()
        before, now_ms = level.changed, self._clock.now_ms()
        healthy = self._members.healthy()
        counts = [await self._ask(healthy, queue, future, now_ms) for future in (False, True)]
        ended_s = time.monotonic()
        level.next_at_s = ended_s + (ended_s - began_s) * (1 / _BUSY_SHARE - 1)
        ready, scheduled = counts
        if ready is not None and scheduled is not None:
            level.counted = ready + scheduled
            level.changed -= before

    async def _ask(self, healthy: list[ShardHandle], queue: str, future: bool, now_ms: int) -> int | None:
        outcomes = await ask_all(
            healthy, lambda shard: shard.count(queue, JobState.PENDING, self._priorities, future, now_ms)
        )
        counts = [outcome for outcome in outcomes if not isinstance(outcome, PinLaterError)]
        return sum(counts) if counts else None
