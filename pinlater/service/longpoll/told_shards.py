"""The shards on which jobs of a queue may be, as one poller knows it.

Where stores tell of jobs, a poller that found all shards empty need not ask all of them whenever one gets a job: the
one that told is enough. Else every process that waits for the queue would ask every shard for every job.

This holds as long as everybody who waits was waiting at the moment when all were empty, or has looked at all shards
himself (decision 3 in docs/semantics.md: order over shards).
"""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.backends.base import ClaimRequest
from pinlater.model import DequeuedJob
from pinlater.service.longpoll.poller_context import PollerContext
from pinlater.shards.handle import ShardHandle


class ToldShards:
    """`shards` have told of jobs since all were empty; None: there may be jobs on any."""

    __slots__ = ("changes", "shards")

    def __init__(self) -> None:
        self.shards: set[ShardHandle] | None = None
        self.changes = 0
        """How often something was told: for `empty_since`, as it was before a look at all shards began."""

    def told(self, shard: ShardHandle | None) -> None:
        """Jobs came to this shard; None: nobody says to which."""
        self.changes += 1
        if shard is None:
            self.shards = None
        elif self.shards is not None:
            self.shards.add(shard)

    def anywhere(self) -> None:
        """There may be jobs on any, or somebody waits from now on who has looked at none."""
        self.changes += 1
        self.shards = None

    def empty_since(self, changes: int) -> None:
        """That look found nothing, and all shards tell of what comes; it counts where nothing has happened since."""
        if changes == self.changes:
            self.shards = set()

    def take(self) -> set[ShardHandle]:
        """Those to ask now; none: all. They are taken to be empty, unless `give_back` says otherwise."""
        shards = self.shards
        if not shards:
            self.shards = None
            return set()
        self.shards = set()
        return shards

    def give_back(self, shards: set[ShardHandle]) -> None:
        """These had jobs, and may have more."""
        if self.shards is not None:
            self.shards |= shards

    async def claim(
        self, context: PollerContext, queue: str, requests: Sequence[ClaimRequest]
    ) -> list[list[DequeuedJob]]:
        """Claim at the shards that told of jobs, or at all; what that finds is what is known then."""
        if not (is_subscribed := context.subscriptions.is_subscribed(queue)):
            self.anywhere()
        told, changes, unsure = self.take(), self.changes, context.router.claims.unsure
        claimed = await context.router.claim_at(told, queue, requests, context.clock.now_ms())
        if context.router.claims.unsure != unsure:
            self.anywhere()
        elif any(claimed):
            self.give_back(told)
        elif is_subscribed and not told:
            self.empty_since(changes)
        return claimed
