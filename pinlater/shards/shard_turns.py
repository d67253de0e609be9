"""Turns of shards that give jobs of a queue with groups: each shard by the weights of its groups with jobs.

On each shard the groups take turns (backends/group_store.py). Over the shards, a job of a group waits for the turns of
its own shard, so shards take turns too: a shard with three groups of weight 1 gives three jobs in the time in which one
with one such group gives one. Of a group with jobs on several shards each of them counts a part (group_spreads.py).
This is stride scheduling (Waldspurger, Weihl 1995), by what this process has claimed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from heapq import heapify, heappop, heapreplace

from pinlater.backends.aged_levels import Level
from pinlater.backends.group_store import ReadyCounts
from pinlater.shards.claim_plan import Giving
from pinlater.shards.group_spreads import NOTHING_SEEN, SeenSpread


class ShardTurns:
    """Of one queue and its priorities."""

    __slots__ = ("_next_turns", "_time")

    def __init__(self) -> None:
        self._time = 0.0
        self._next_turns: dict[str, float] = {}

    def giving(
        self,
        shard_ids: Sequence[str],
        ready: Sequence[Sequence[int]],
        priorities: Sequence[Level],
        seen: SeenSpread = NOTHING_SEEN,
    ) -> Giving:
        """As a plan takes it, for shards with these counts of these priorities."""
        return partial(self._give, shard_ids, ready, priorities, seen)

    def _give(
        self,
        shard_ids: Sequence[str],
        ready: Sequence[Sequence[int]],
        priorities: Sequence[Level],
        seen: SeenSpread,
        level: int,
        counts: Sequence[int],
    ) -> Iterator[tuple[int, int]]:
        """One job after the other, of the shard whose turn is the lowest; turns count as far as this is asked."""
        left = list(counts)
        strides = [1.0] * len(ready)
        for shard, each in enumerate(ready):
            if isinstance(each, ReadyCounts):
                strides[shard] = 1 / seen.weight_here(shard_ids[shard], priorities[level], each.weights[level])
        heap: list[tuple[float, int]] = []
        for shard, count in enumerate(counts):
            if count:
                # neither credit for the time without jobs, nor a wait by the number of groups that it had before
                turn = self._next_turns.get(shard_ids[shard], self._time)
                heap.append((min(max(turn, self._time), self._time + strides[shard]), shard))
        heapify(heap)
        while heap:
            self._time, shard = heap[0]
            turn = self._next_turns[shard_ids[shard]] = self._time + strides[shard]
            left[shard] -= 1
            if left[shard]:
                heapreplace(heap, (turn, shard))
            else:
                heappop(heap)
            yield shard, 1


def have_groups(ready: Iterable[Sequence[int]]) -> bool:
    """Whether a shard with such counts has jobs in groups."""
    return any(isinstance(each, ReadyCounts) for each in ready)
