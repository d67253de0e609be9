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
    jobs of a level below the last one planned for: whatever others take meanwhile, the order holds. The shard with the
    most jobs of a level gives first: shards drain evenly, and as few as possible are asked.

    >>> plan_claims([[1, 5], [2, 0]], [4])
    Plan(shares=[[2], [2]], levels=2)
    >>> plan_claims([[1, 5], [2, 0]], [2])
    Plan(shares=[[0], [2]], levels=1)
    """
    shares = [[0] * len(limits) for _ in ready]
    wanted = list(limits)
    current = levels = 0
    for level in range(len(ready[0]) if ready else 0):
        for shard in sorted(range(len(ready)), key=lambda shard: -ready[shard][level]):
            left = ready[shard][level]
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
