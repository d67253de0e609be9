"""Turns of shards that give jobs of a queue with groups: each shard by the weights of its groups with jobs.

On each shard the groups take turns (backends/group_store.py). Over the shards, a job of a group waits for the turns of
its own shard, so shards take turns too: a shard with three groups of weight 1 gives three jobs in the time in which one
with one such group gives one. This is stride scheduling (Waldspurger, Weihl 1995), by what this process has claimed; a
group with jobs on several shards has a share for each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from heapq import heapify, heappop, heapreplace

from pinlater.backends.group_store import ReadyCounts
from pinlater.shards.claim_plan import Giving


class ShardTurns:
    """Of one queue and its priorities."""

    __slots__ = ("_next_turns", "_time")

    def __init__(self) -> None:
        self._time = 0.0
        self._next_turns: dict[str, float] = {}

    def giving(self, shard_ids: Sequence[str], ready: Sequence[Sequence[int]]) -> Giving:
        """As a plan takes it, for shards with these counts."""
        return partial(self._give, shard_ids, ready)

    def _give(
        self, shard_ids: Sequence[str], ready: Sequence[Sequence[int]], level: int, counts: Sequence[int]
    ) -> Iterator[tuple[int, int]]:
        """One job after the other, of the shard whose turn is the lowest; turns count as far as this is asked."""
        left = list(counts)
        strides = [1 / each.weight_at(level) if isinstance(each, ReadyCounts) else 1.0 for each in ready]
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
