"""How a queue's claims are split among its shards: who should have how many. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Demand(NamedTuple):
    """What one shard could do with: the jobs that wait there for want of a share, highest priority first, and those
    in progress.
    """

    waiting: Sequence[int]
    in_progress: int


def split(slots: int, demands: Mapping[str, Demand], turn: int) -> dict[str, int]:
    """So many claims for each shard, `slots` in all.

    Jobs that wait come first, by priority, and what is in progress after them: it ends by itself, and its place is then
    for those that waited. Among shards with the same need all get the same; what cannot be divided goes to whose turn
    it is. What is left is spread, so that a shard where jobs come next has something already.

    >>> split(10, {"1": Demand([8, 0], 0), "2": Demand([1, 9], 0)}, 0)
    {'1': 8, '2': 2}
    >>> [split(1, {"1": Demand([5], 1), "2": Demand([5], 0)}, turn) for turn in (0, 1)]
    [{'1': 1, '2': 0}, {'1': 0, '2': 1}]
    """
    order = rotated(demands, turn)
    given = dict.fromkeys(demands, 0)
    levels = max((len(demand.waiting) for demand in demands.values()), default=0)
    for level in range(levels):
        slots -= _fill(slots, {shard: demands[shard].waiting[level] for shard in order}, given)
    slots -= _fill(slots, {shard: demands[shard].in_progress for shard in order}, given)
    _fill(slots, dict.fromkeys(order, slots), given)
    return given


def rotated(shards: Mapping[str, object], turn: int) -> list[str]:
    """All of them, beginning with whose turn it is."""
    order = sorted(shards)
    start = turn % len(order) if order else 0
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
