"""The maximum of jobs that wait in each group of a queue, as one process keeps to it.

Groups into which this process has put jobs a moment ago are counted twice a second, and what it puts in meanwhile is
added. So the maximum is passed at most by what all servers enqueue in that time. A group that was not counted yet
counts as empty. Jobs are counted as stores list groups: those that are due, and not those that came due with no dequeue
since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from pinlater.clock import Clock
from pinlater.errors import EnqueueRejected, PinLaterError
from pinlater.queues.directory import QueueDirectory
from pinlater.shards.handle import answers, ask_all
from pinlater.shards.shard_set import ShardSet

BUSY_SHARE = 0.02
"""Counting takes no more than this part of the time."""

_MOST_REST_S = 10.0
"""Groups are counted so often at least: no hand-out is taken off, so a group that was full is so until the next count.
What takes long here is a shard that hardly answers, since no more jobs of a group are counted than its bound.
"""

RETRY_AFTER_MS = 1_000
COUNTED_AT_ONCE = 500
MOST_KEPT = 10_000
"""Groups of a queue that are counted; with more of them, those that got jobs last."""

KEPT_MS = 60_000
"""A group that got no job for so long is counted no more."""


class _Level:
    """The jobs of one group that wait: the last count, and what came since it began."""

    __slots__ = ("added", "added_ms", "counted")

    def __init__(self) -> None:
        self.counted = 0
        self.added = 0
        self.added_ms = 0


class GroupPendingCounts:
    """The levels of the groups of all queues that have such a maximum, as one process knows them."""

    def __init__(self, members: ShardSet, queues: QueueDirectory, clock: Clock, priorities: Sequence[int]) -> None:
        self._members = members
        self._queues = queues
        self._clock = clock
        self._priorities = priorities
        self._levels: dict[str, dict[str, _Level]] = {}
        """By queue and group, those that got jobs last at the end."""
        self._next_at_s = 0.0

    def check(self, queue: str, counts: Mapping[str, int], allowed: int) -> None:
        """EnqueueRejected, reason GROUP_FULL, where so many more jobs of one of the groups would be too many."""
        levels = self._levels.get(queue, {})
        for group, jobs in counts.items():
            level = levels.get(group)
            waiting = 0 if level is None else level.counted + level.added
            if waiting + jobs > allowed:
                raise EnqueueRejected(
                    f"group {group!r} of queue {queue!r} has about {waiting} jobs that wait; {jobs} more would pass "
                    f"its bound of {allowed}",
                    reason="GROUP_FULL",
                    retry_after_ms=RETRY_AFTER_MS,
                )

    def added(self, queue: str, counts: Mapping[str, int]) -> None:
        """This process enqueued so many jobs of groups."""
        levels, now_ms = self._levels.setdefault(queue, {}), self._clock.now_ms()
        for group, jobs in counts.items():
            level = levels[group] = levels.pop(group) if group in levels else _Level()
            level.added += jobs
            level.added_ms = now_ms
        while len(levels) > MOST_KEPT:
            del levels[next(iter(levels))]

    async def poll(self) -> None:
        """Count the groups. Raises nothing: what could not be counted keeps its last count."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._next_at_s:
            return
        began_s, bounded = loop.time(), self._queues.group_bounded()
        for queue in self._levels.keys() - bounded:
            del self._levels[queue]
        for queue, levels in [*self._levels.items()]:  # others come meanwhile
            oldest_ms = self._clock.now_ms() - KEPT_MS
            for group in [group for group, level in levels.items() if level.added_ms < oldest_ms]:
                del levels[group]
            groups = list(levels)
            for start in range(0, len(groups), COUNTED_AT_ONCE):
                await self._count(queue, levels, groups[start : start + COUNTED_AT_ONCE])
        self._next_at_s = loop.time() + min((loop.time() - began_s) * (1 / BUSY_SHARE - 1), _MOST_REST_S)

    async def _count(self, queue: str, levels: Mapping[str, _Level], groups: Sequence[str]) -> None:
        """On the shards that are in: others cannot be worked on."""
        allowed = self._queues.settings(queue).group_max_pending
        before = {group: (levels[group], levels[group].added) for group in groups if group in levels}
        outcomes = await ask_all(
            self._members.healthy(),
            lambda shard: shard.count_groups(queue, self._priorities, groups, (allowed or 0) + 1),
        )
        try:
            found = answers(outcomes)
        except PinLaterError:
            return
        for group, (level, added) in before.items():
            level.counted = sum(counts[group].ready for counts in found if group in counts)
            level.added -= added
