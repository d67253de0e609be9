"""What the service counts for the metrics: once per request, so that a large one costs little more than a small one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pinlater.backends.base import AckOutcome, AckRequest
from pinlater.errors import BodyTooLarge, EnqueueRejected, PinLaterError, PriorityNotSupported, RequestInvalid
from pinlater.metrics import Metrics
from pinlater.model import Job

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
    for priority, amount in _by_priority(jobs):
        metrics.add(amount, "jobs_enqueued", queue, priority)


def count_acked(metrics: Metrics, queue: str, acks: Sequence[AckRequest], outcomes: Sequence[AckOutcome]) -> None:
    """`outcomes` may be empty, where no such shard is known."""
    if not outcomes:
        return
    if outcomes.count(outcomes[0]) == len(outcomes):
        for priority, amount in _by_priority(acks):
            metrics.add(amount, "jobs_acked", queue, priority, _WORDS[outcomes[0]])
        return
    pairs = Counter((ack.priority, int(outcome)) for ack, outcome in zip(acks, outcomes, strict=False))
    for (priority, number), amount in pairs.items():
        metrics.add(amount, "jobs_acked", queue, priority, _WORDS[AckOutcome(number)])


def _by_priority(items: Sequence[Job] | Sequence[AckRequest]) -> Iterable[tuple[int, int]]:
    priorities = [item.priority for item in items]
    if priorities.count(priorities[0]) == len(priorities):  # as most often, and a third of a Counter's work
        return ((priorities[0], len(priorities)),)
    return Counter(priorities).items()
