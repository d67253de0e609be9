"""The shards on which jobs of a queue may be, as one poller knows it.

Where stores notify of jobs, a poller that found all shards empty need not ask all of them whenever one gets a job: the
one that notified is enough. Else every process that waits for the queue would ask every shard for every job.

This holds as long as everybody who waits was waiting at the moment when all were empty, or has asked all shards
itself (decision 3 in docs/semantics.md: order over shards).
"""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.backends.base import ClaimRequest
from pinlater.model import DequeuedJob
from pinlater.service.longpoll.poller_context import PollerContext
from pinlater.shards.handle import ShardHandle


class CandidateShards:
    """`shards` have notified of jobs since all were empty; None: there may be jobs on any."""

    __slots__ = ("changes", "shards")

    def __init__(self) -> None:
        self.shards: set[ShardHandle] | None = None
        self.changes = 0
        """How many notifications came: for `empty_since`, as it was before all shards began to be asked."""

    def notified(self, shard: ShardHandle | None) -> None:
        """Jobs came to this shard; None: it is not known to which."""
        self.changes += 1
        if shard is None:
            self.shards = None
        elif self.shards is not None:
            self.shards.add(shard)

    def anywhere(self) -> None:
        """There may be jobs on any, or somebody waits from now on who has asked none."""
        self.changes += 1
        self.shards = None

    def empty_since(self, changes: int) -> None:
        """All shards were asked and had nothing, and all notify of what comes; it counts where nothing came since."""
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
        """Claim at the shards that notified of jobs, or at all; what that finds is what is known then."""
        if not (is_subscribed := context.subscriptions.is_subscribed(queue)):
            self.anywhere()
        candidates, changes, unsure = self.take(), self.changes, context.router.claims.unsure
        claimed = await context.router.claim_at(candidates, queue, requests, context.clock.now_ms())
        if context.router.claims.unsure != unsure:
            self.anywhere()
        elif any(claimed):
            self.give_back(candidates)
        elif is_subscribed and not candidates:
            self.empty_since(changes)
        return claimed
