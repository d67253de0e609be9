"""One rebalancing of a queue's quotas: what each shard holds, which give and which get. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pinlater.backends.base import Quota


class Demand(NamedTuple):
    """What one shard could do with: the jobs that wait there for want of a quota, highest priority first, and those
    in progress.
    """

    waiting: Sequence[int]
    in_progress: int


def allocate(slots: int, demands: Mapping[str, Demand], rotation: int) -> dict[str, int]:
    """So many claims for each shard, `slots` in all.

    Jobs that wait come first, by priority, and what is in progress after them: it ends by itself, and its place is then
    for those that waited. Among shards with the same need all get the same; what cannot be divided goes to whose turn
    it is. What is left is spread, so that a shard where jobs come next has something already.

    >>> allocate(10, {"1": Demand([8, 0], 0), "2": Demand([1, 9], 0)}, 0)
    {'1': 8, '2': 2}
    >>> [allocate(1, {"1": Demand([5], 1), "2": Demand([5], 0)}, rotation) for rotation in (0, 1)]
    [{'1': 1, '2': 0}, {'1': 0, '2': 1}]
    """
    order = rotated(demands, rotation)
    given = dict.fromkeys(demands, 0)
    levels = max((len(demand.waiting) for demand in demands.values()), default=0)
    for level in range(levels):
        slots -= _fill(slots, {shard: demands[shard].waiting[level] for shard in order}, given)
    slots -= _fill(slots, {shard: demands[shard].in_progress for shard in order}, given)
    _fill(slots, dict.fromkeys(order, slots), given)
    return given


def rotated(shards: Mapping[str, object], rotation: int) -> list[str]:
    """The ids of all shards in order, beginning with the one whose turn it is."""
    order = sorted(shards)
    start = rotation % len(order) if order else 0
    return order[start:] + order[:start]


def _fill(slots: int, wanted: Mapping[str, int], given: dict[str, int]) -> int:
    """Give each what it wants, or all the same; how many were given."""
    left = dict(wanted)
    rest = slots
    while rest > 0:
        hungry = [shard for shard, want in left.items() if want > 0]
        if not hungry:
            break
        each = max(1, rest // len(hungry))
        for shard in hungry[:rest]:
            taken = min(each, left[shard])
            left[shard] -= taken
            given[shard] += taken
            rest -= taken
    return slots - rest


class Rebalance:
    """`held` is, per shard, how many claims can be alive there at most: it becomes the allocation. A shard that was
    not seen holds what the allocation says; one that was seen perhaps more, for claims made before there was a maximum.
    """

    def __init__(self, maximum: int, allocated: Mapping[str, int], seen: Mapping[str, Quota]) -> None:
        self.maximum = maximum
        self._seen = seen
        self.held = dict(allocated)
        for shard_id, state in seen.items():
            self.held[shard_id] = max(allocated.get(shard_id, 0), state.quota, state.in_progress)
        self._targets: dict[str, int] = {}
        self._shrinking: dict[str, int] = {}
        self._starving: list[str] = []

    def full(self) -> list[str]:
        """The shards that can hand out nothing more."""
        return [shard_id for shard_id, state in self._seen.items() if state.in_progress >= state.quota]

    def plan(self, waiting: Mapping[str, Sequence[int]], rotation: int) -> None:
        """Set how much each shard should have, where so many jobs of each priority wait on the shards that are full."""
        away = sum(held for shard_id, held in self.held.items() if shard_id not in self._seen)
        levels = max(map(len, waiting.values()), default=0)
        nothing = [0] * levels
        demands = {
            shard_id: Demand(waiting.get(shard_id, nothing), state.in_progress)
            for shard_id, state in self._seen.items()
        }
        slots = self.maximum - away
        if sum(state.in_progress for state in self._seen.values()) > slots:
            slots = 0  # a maximum that came or fell while claims were alive: no new one before enough of them ended
        self._targets = allocate(max(0, slots), demands, rotation)
        self._shrinking = {
            shard_id: target for shard_id, target in self._targets.items() if target < self.held[shard_id]
        }
        self._starving = [
            shard_id
            for shard_id, jobs in waiting.items()
            if sum(jobs) and self._targets[shard_id] > self._seen[shard_id].quota
        ]

    def is_worth_it(self) -> bool:
        """Something is gained: a shard that needs more gets it, or there is less above the maximum."""
        room = self.maximum - sum(self.held.values())
        if not self._starving and room >= 0:
            return False
        if self._starving and room > 0:
            return True
        return any(self._gains(shard_id) for shard_id in self._seen)

    def _gains(self, shard_id: str) -> bool:
        state, target, held = self._seen[shard_id], self._targets[shard_id], self.held[shard_id]
        if state.quota > target:
            return True
        if target < held:
            return max(state.quota, state.in_progress) < held
        return shard_id in self._starving and state.quota < held

    def to_shrink(self) -> dict[str, int]:
        """New quotas of those that hold more than they should. While the sum is over the maximum, unused quota is taken
        from them, and no quota grows.
        """
        if sum(self.held.values()) <= self.maximum:
            return self._shrinking
        return {shard_id: min(target, self._seen[shard_id].quota) for shard_id, target in self._shrinking.items()}

    def shrunk(self, answers: Mapping[str, Quota]) -> None:
        """Note what the shards that were to shrink have now; one that did not answer may have kept what it had."""
        for shard_id, state in answers.items():
            self.held[shard_id] = max(state.quota, state.in_progress)
        for shard_id in self._shrinking:
            self._targets[shard_id] = 0  # a version serves one step per shard: none of them grows in this round

    def grow(self, rotation: int) -> None:
        """Give what is free to the shards that should have more, first to those that need it."""
        room = self.maximum - sum(self.held.values())
        order = rotated(self._targets, rotation)
        order.sort(key=lambda shard_id: shard_id not in self._starving)
        for shard_id in order:
            more = min(room, self._targets[shard_id] - self.held[shard_id])
            if more > 0:
                self.held[shard_id] += more
                room -= more

    def to_grow(self) -> dict[str, int]:
        """New quotas of those that may have more than they have, once the allocation says so."""
        if sum(self.held.values()) > self.maximum:
            return {}
        quotas = {shard_id: min(target, self.held[shard_id]) for shard_id, target in self._targets.items()}
        return {shard_id: quota for shard_id, quota in quotas.items() if quota > self._seen[shard_id].quota}
