"""The plan of a claim over several shards: the one place that decides by priority which shard gives how many jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

Giving = Callable[[int, Sequence[int]], Iterable[tuple[int, int]]]
"""In which order shards give jobs of a level, by how many each has: shards, and how many more each gives."""


class ClaimPlan(NamedTuple):
    """The claims to make: `shares[shard][request]` jobs; of the first `levels` priorities only."""

    shares: list[list[int]]
    levels: int


def in_their_order(level: int, counts: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Each shard gives all it has."""
    return enumerate(counts)


def plan_claims(ready: Sequence[Sequence[int]], limits: Sequence[int], giving: Giving = in_their_order) -> ClaimPlan:
    """`ready[shard][level]` jobs are eligible, highest priority first; requests are served in their order.

    Every job of a level that is ready anywhere is planned for before one of the next level is, and no shard may give
    jobs of a level below the last one planned for: whatever others take meanwhile, the order holds. The shards give in
    the order in which they stand, and none is asked when there is enough; the caller shuffles them: if the fullest gave
    first, a shard with few jobs beside one that stays full would never be asked. Where jobs have groups, `giving` says
    the order (shard_turns.py).

    >>> plan_claims([[1, 5], [2, 0]], [4])
    ClaimPlan(shares=[[2], [2]], levels=2)
    >>> plan_claims([[1, 5], [2, 0]], [2])
    ClaimPlan(shares=[[1], [1]], levels=1)
    """
    shares = [[0] * len(limits) for _ in ready]
    wanted = list(limits)
    current = levels = 0
    for level in range(len(ready[0]) if ready else 0):
        for shard, given in giving(level, [counts[level] for counts in ready]):
            left = given
            while left > 0 and current < len(wanted):
                taken = min(left, wanted[current])
                shares[shard][current] += taken
                left -= taken
                wanted[current] -= taken
                levels = level + 1
                if wanted[current] == 0:
                    current += 1
            if current == len(wanted):
                return ClaimPlan(shares, levels)
    return ClaimPlan(shares, levels)
