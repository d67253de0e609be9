"""What the service counts for the metrics: once per request, so that a large one costs little more than a small one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pinlater.backends.acks import Acks
from pinlater.errors import BodyTooLarge, EnqueueRejected, PinLaterError, PriorityNotSupported, RequestInvalid
from pinlater.metrics import Metrics
from pinlater.model import AckOutcome, Job

_WORDS = {outcome: outcome.name.lower() for outcome in AckOutcome}


def rejection(error: PinLaterError) -> str:
    """The word for why an enqueue was refused."""
    if isinstance(error, EnqueueRejected):
        return "draining" if error.reason == "QUEUE_DRAINING" else "pending"
    if isinstance(error, BodyTooLarge):
        return "body"
    if isinstance(error, PriorityNotSupported):
        return "priority"
    return "attempts" if isinstance(error, RequestInvalid) and error.field == "numAttemptsAllowed" else "invalid"


def count_enqueued(metrics: Metrics, queue: str, jobs: Sequence[Job]) -> None:
    priorities = [job.priority for job in jobs]
    if priorities.count(priorities[0]) == len(priorities):  # as most often, and a third of a Counter's work
        metrics.add(len(priorities), "jobs_enqueued", queue, priorities[0])
        return
    for priority, amount in Counter(priorities).items():
        metrics.add(amount, "jobs_enqueued", queue, priority)


def count_acked(metrics: Metrics, queue: str, acks: Acks, outcomes: Sequence[AckOutcome]) -> int:
    """How many of them had no effect."""
    start = ignored = 0
    for kind, ids in acks.runs:
        own = outcomes[start : start + len(ids)]
        start += len(ids)
        for outcome in own[:1] if own.count(own[0]) == len(own) else AckOutcome:
            amount = own.count(outcome)
            if amount:
                metrics.add(amount, "jobs_acked", queue, kind.priority, _WORDS[outcome])
                if outcome is AckOutcome.IGNORED:
                    ignored += amount
                    metrics.add(amount, "acks_without_effect", queue, "claim" if kind.claim_descriptor else "job")
    return ignored
