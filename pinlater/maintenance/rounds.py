"""What every server process does again and again to keep up with its cluster, and how often."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from pinlater.cluster.census import Census
from pinlater.cluster.leases import Leases
from pinlater.periodic import Periodic

POLL_MS = 500
"""Records, and counts of pending jobs."""

CLOCKS_MS = 1_000
SHARES_MS = 200
CENSUS_MS = 500
"""How often it is seen whether a shard is to be counted again."""


class Polled(Protocol):
    async def poll(self) -> None:
        """See what is new in the stores."""


class Shared(Protocol):
    async def tick(self, is_mine: Callable[[str], bool]) -> None:
        """Share out what queues may have in progress, those whose record is on a shard of ours."""


def begin_rounds(
    periodic: Periodic, *, queues: Polled, leases: Leases, pending: Polled, shares: Shared, census: Census
) -> None:
    """Add all of these; they end with `periodic`. The first lease is to be put before: `await leases.renew()`."""

    def balance() -> Awaitable[None]:
        return shares.tick(leases.is_mine)

    async def judge() -> None:
        leases.judge_clocks()

    periodic.every(POLL_MS, "queues", queues.poll)
    periodic.every(leases.renew_every_ms, "leases", leases.renew)
    periodic.every(CLOCKS_MS, "clocks", judge)
    periodic.every(POLL_MS, "pending", pending.poll)
    periodic.every(SHARES_MS, "shares", balance)
    periodic.every(CENSUS_MS, "census", census.tick)
