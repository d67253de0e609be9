"""How many jobs to claim from which shard, so that none is taken while one of a higher priority is left. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Plan(NamedTuple):
    """`shares[shard][request]` jobs to claim; of the first `levels` priorities only."""

    shares: list[list[int]]
    levels: int


def plan_claims(ready: Sequence[Sequence[int]], limits: Sequence[int]) -> Plan:
    """`ready[shard][level]` jobs are eligible, highest priority first; requests are served in their order.

    Every job of a level that is ready anywhere is planned for before one of the next level is, and no shard may give
    jobs of a level below the last one planned for: whatever others take meanwhile, the order holds. The shards give in
    the order in which they stand, and none is asked when there is enough; who calls shuffles them: if the fullest gave
    first, a shard with few jobs beside one that stays full would never have its turn.

    >>> plan_claims([[1, 5], [2, 0]], [4])
    Plan(shares=[[2], [2]], levels=2)
    >>> plan_claims([[1, 5], [2, 0]], [2])
    Plan(shares=[[1], [1]], levels=1)
    """
    shares = [[0] * len(limits) for _ in ready]
    wanted = list(limits)
    current = levels = 0
    for level in range(len(ready[0]) if ready else 0):
        for shard, counts in enumerate(ready):
            left = counts[level]
            while left > 0 and current < len(wanted):
                taken = min(left, wanted[current])
                shares[shard][current] += taken
                left -= taken
                wanted[current] -= taken
                levels = level + 1
                if wanted[current] == 0:
                    current += 1
        if current == len(wanted):
            break
    return Plan(shares, levels)
