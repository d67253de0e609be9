"""A dequeue from many queues: what is asked of each, and the answer.

Queues share by weight: of those that have jobs, one with weight 3 gives three jobs where one with weight 1 gives one,
over many dequeues of a single job as well as within one dequeue of many.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pinlater.errors import PinLaterError
from pinlater.model.job_rules import AckOutcome
from pinlater.model.jobs import Ack, DequeuedJob
from pinlater.model.workers import WorkerReport

MAX_QUEUES = 1_000
"""Of one dequeue."""

MAX_WEIGHT = 1_000


@dataclass(slots=True)
class QueueShare:
    """One of the queues of a dequeue. `prefetch` is that of a DequeueRequest, of this queue."""

    queue: str
    weight: int = 1
    prefetch: int = 0


@dataclass(slots=True)
class QueueAcks:
    """The acks of one queue that ride on a dequeue from many."""

    queue: str
    succeeded: Sequence[Ack] = ()
    failed: Sequence[Ack] = ()


@dataclass(slots=True)
class DequeueFromQueuesRequest:
    """One dequeue from whichever of these queues has jobs. `limit` is that of all together; all else is as in a
    DequeueRequest.
    """

    queues: Sequence[QueueShare]
    limit: int
    acks: Sequence[QueueAcks] = ()
    wait_ms: int = 0
    claim_timeout_ms: int | None = None
    release_on_disconnect: bool = False
    confirms_receipt: bool = False
    worker: WorkerReport | None = None


class DequeuedFromQueues(list[DequeuedJob]):
    """The answer: jobs, queue by queue, those of each in order of priority; a job's descriptor names its queue.

    `queue_errors`: why a queue could not be looked at, or gave nothing although it has jobs. `ack_outcomes`: as that of
    DequeuedJobs, a sequence for each of the request's `acks`; empty where every ack had an effect.
    """

    __slots__ = ("ack_outcomes", "queue_errors")

    def __init__(
        self,
        jobs: Iterable[DequeuedJob] = (),
        queue_errors: Mapping[str, PinLaterError] | None = None,
        ack_outcomes: Sequence[Sequence[AckOutcome]] = (),
    ) -> None:
        super().__init__(jobs)
        self.queue_errors: Mapping[str, PinLaterError] = queue_errors or {}
        self.ack_outcomes = ack_outcomes


class Weighted(Protocol):
    """What has a weight."""

    @property
    def weight(self) -> int: ...


W = TypeVar("W", bound=Weighted)


def in_weighted_order(items: Sequence[W], rng: random.Random) -> list[W]:
    """In random order: each place goes to one of those left, with the chance that is its share of their weights."""
    if len(items) < 2:
        return list(items)
    draw = rng.random
    return sorted(items, key=lambda item: draw() ** (1.0 / item.weight), reverse=True)
