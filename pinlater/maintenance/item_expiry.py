"""The expiry of claims on items' jobs, a task of maintenance: recorded first, then sent to the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pinlater.backends.base import Shard
from pinlater.backends.requests import ExpiryRequest
from pinlater.clock import Clock
from pinlater.flows.item_ends import ItemEnds
from pinlater.maintenance.tasks import Summary
from pinlater.metrics import Metrics
from pinlater.model import AckOutcome
from pinlater.queues.directory import QueueDirectory

_WORDS = {
    AckOutcome.RETRIED: "retried",
    AckOutcome.FAILED: "failed",
    AckOutcome.CANCELLED: "cancelled",
    AckOutcome.SUCCEEDED: "ended",
}
"""The last one: the item had ended before."""

REASON = "the claim expired: the worker was lost, or did not renew it"


@dataclass(frozen=True, slots=True)
class ExpireItems:
    """Ends claims of items' jobs whose time is over. `wake` is told the queues whose jobs became eligible."""

    name, event = "expire_items", "item_claims_expired"

    _queues: QueueDirectory
    _ends: ItemEnds
    _clock: Clock
    _metrics: Metrics
    _wake: Callable[[str, int], None]

    async def step(self, shard: Shard, limit: int, summary: Summary) -> int:
        queues = sorted(self._queues.flow_queues)
        if not queues:
            return 0
        found = await shard.expired_claims(queues, limit, self._clock.now_ms())
        changed = 0
        for queue, claims in found.items():
            requests = [
                ExpiryRequest(claim.priority, claim.id, claim.claim_descriptor, claim.expires_at_ms) for claim in claims
            ]
            rules = self._queues.end_rules().get(queue)
            outcomes = await self._ends.expire(queue, shard.shard_id, requests, REASON, rules)
            for outcome, word in _WORDS.items():
                jobs = outcomes.count(outcome)
                if jobs:
                    changed += jobs
                    summary.add(queue, word, jobs)
                    self._metrics.add(jobs, "claims_expired", queue, word)
            if outcomes.count(AckOutcome.RETRIED):
                self._wake(queue, outcomes.count(AckOutcome.RETRIED))
        return changed
