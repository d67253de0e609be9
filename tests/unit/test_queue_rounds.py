"""Rounds of plain dequeues, at servers that know no other: what they brought is not kept waiting for the rest."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from pinlater.client.queue_rounds import QueueRounds
from pinlater.model import Checkpoint, DequeuedJob, DequeueFromQueuesRequest, DequeueRequest, QueueShare
from tests.unit.breaking import HeldTime

QUEUES = 1_000


def a_job(queue: str) -> DequeuedJob:
    return DequeuedJob(f"{queue}:s1p1:1", b"x", 1, 1, 1, 0, 0)


async def test_jobs_are_returned_although_many_queues_were_not_asked_yet() -> None:
    """Nothing keeps their claims alive meanwhile, and they may be the only ones."""
    time = HeldTime()
    asked: list[str] = []

    async def dequeue(request: DequeueRequest) -> Sequence[DequeuedJob]:
        asked.append(request.queue)
        await time.leap(0.1)
        return [a_job(request.queue)] if len(asked) == 3 else []

    async def requeue(queue: str, checkpoints: Sequence[Checkpoint]) -> None:
        raise AssertionError("nobody left")

    shares = [QueueShare(f"q{number}") for number in range(QUEUES)]
    request = DequeueFromQueuesRequest(shares, 10, wait_ms=1_000)
    began_s = asyncio.get_running_loop().time()
    rounds = QueueRounds(request, dequeue, requeue, lambda: False, random.Random(1))
    dequeued = await rounds.run(began_s + 1.0, ())
    assert [job.descriptor.partition(":")[0] for job in dequeued] == [asked[2]]
    assert asyncio.get_running_loop().time() - began_s < 2.0
