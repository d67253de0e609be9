"""Callers that wait and callers that leave, and what an empty queue costs (decisions 11 and 12)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from pinlater.backends.base import ClaimRequest, Shard
from pinlater.errors import QueueNotFound
from pinlater.model import DequeuedJob, DequeueRequest, Job, JobState
from pinlater.shards.decorator import ShardDecorator
from tests.conformance.outage import eventually
from tests.conformance.served import QUEUE, Served

WAIT_MS = 30_000


def wait_for(served: Served, limit: int = 1) -> asyncio.Task[list[DequeuedJob]]:
    request = DequeueRequest(QUEUE, limit, wait_ms=WAIT_MS)
    return asyncio.create_task(served.api.dequeue(request, context=served.context))


@pytest.mark.parametrize("turns", range(0, 40, 3))
async def test_a_job_claimed_for_a_caller_that_left_is_pending_again_with_all_attempts(
    served: Served, turns: int
) -> None:
    (descriptor,) = await served.enqueue(Job(b""))
    caller = asyncio.create_task(served.dequeue(1))
    for _ in range(turns):
        await asyncio.sleep(0)
    if caller.done():
        return
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller

    async def is_handed_out() -> bool:
        return bool(await served.dequeue(1))

    await eventually(is_handed_out)
    info = await served.info(descriptor)
    assert (info.state, info.attempts_remaining) == (JobState.IN_PROGRESS, 2)


async def test_a_waiting_caller_gets_a_job_as_soon_as_there_is_one(served: Served) -> None:
    waiting = wait_for(served)
    await asyncio.sleep(0.02)
    assert not waiting.done()
    (descriptor,) = await served.enqueue(Job(b""))
    jobs = await asyncio.wait_for(waiting, 60)
    assert [job.descriptor for job in jobs] == [descriptor]


async def test_waiting_callers_share_no_job(served: Served) -> None:
    waiting = [wait_for(served) for _ in range(10)]
    await asyncio.sleep(0.02)
    descriptors = [descriptor for _ in range(10) for descriptor in await served.enqueue(Job(b""))]
    answers = await asyncio.wait_for(asyncio.gather(*waiting), 60)
    assert Counter(job.descriptor for jobs in answers for job in jobs) == Counter(descriptors)


async def test_a_waiting_caller_is_told_at_once_that_the_queue_was_deleted(served: Served) -> None:
    waiting = wait_for(served)
    await asyncio.sleep(0.02)
    await served.api.delete_queue(QUEUE, served.password)
    with pytest.raises(QueueNotFound):
        await asyncio.wait_for(waiting, 60)


async def test_a_waiting_caller_of_a_draining_server_is_answered_with_nothing(served: Served) -> None:
    waiting = wait_for(served)
    await asyncio.sleep(0.02)
    served.api.start_draining()
    assert await asyncio.wait_for(waiting, 60) == []


async def test_a_caller_who_stops_waiting_takes_no_job(served: Served) -> None:
    waiting = wait_for(served)
    await asyncio.sleep(0.02)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await served.enqueue(Job(b""))
    assert len(await served.dequeue(1)) == 1


class Counted(ShardDecorator):
    """Counts the round trips to a shard."""

    def __init__(self, inner: Shard) -> None:
        super().__init__(inner)
        self.trips = 0

    async def count_ready(self, queue: str, priorities: Sequence[int], limit: int, now_ms: int) -> list[int]:
        self.trips += 1
        return await self.inner.count_ready(queue, priorities, limit, now_ms)

    async def claim(
        self, queue: str, requests: Sequence[ClaimRequest], now_ms: int, *, enforce_quota: bool = False
    ) -> list[list[DequeuedJob]]:
        self.trips += 1
        return await self.inner.claim(queue, requests, now_ms, enforce_quota=enforce_quota)


async def test_a_dequeue_on_an_empty_queue_takes_at_most_two_round_trips_per_shard(served: Served) -> None:
    counted = []
    for member in served.members.all:
        member.shard = Counted(member.shard)
        counted.append(member.shard)
    assert await served.dequeue(100) == []
    assert all(1 <= shard.trips <= 2 for shard in counted)
