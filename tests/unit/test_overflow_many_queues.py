"""Dequeues from many queues where no shard can be used: from the overflow shard, as plain dequeues are."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pinlater.errors import NoHealthyShards
from pinlater.model import (
    Ack,
    AckOutcome,
    DequeuedFromQueues,
    DequeueFromQueuesRequest,
    Job,
    JobState,
    QueueAcks,
    QueueShare,
)
from tests.unit.breaking import settled
from tests.unit.overflow_stand import ME, Process, process

SHARES = [QueueShare("mail"), QueueShare("more")]
WITHIN_S = 60.0


async def asked(it: Process, limit: int = 10, **fields: object) -> DequeuedFromQueues:
    request = DequeueFromQueuesRequest(SHARES, limit, **fields)  # type: ignore[arg-type]
    return await it.api.dequeue_from_queues(request, context=ME)


async def with_another_queue(it: Process) -> None:
    await it.api.create_queue("more")
    it.kept.synced_s -= 2  # it learns of new queues once a second


async def kept(it: Process) -> list[str]:
    """A job of each queue that came while the shards were out; they still are."""
    await with_another_queue(it)
    it.lose_shards()
    return [(await it.api.enqueue(share.queue, [Job(share.queue.encode())], context=ME))[0] for share in SHARES]


async def test_its_jobs_are_handed_out_and_acked_by_the_next_call(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        descriptors = await kept(it)
        jobs = await asked(it)
        assert {job.descriptor for job in jobs} == set(descriptors)
        acks = [
            QueueAcks(job.descriptor.partition(":")[0], [Ack(job.descriptor, claim_descriptor=job.claim_descriptor)])
            for job in jobs
        ]
        with pytest.raises(NoHealthyShards) as refused:
            await asked(it, acks=acks)
        assert refused.value.acks_applied is True
        found = await it.api.lookup(descriptors)
        assert {info.state for info in found.values()} == {JobState.SUCCEEDED}


async def test_a_long_poll_waits_there_and_goes_back_to_the_shards(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        await with_another_queue(it)
        it.lose_shards()
        poll = asyncio.ensure_future(asked(it, wait_ms=20_000))
        await settled()
        await it.api.enqueue("more", [Job(b"x")], context=ME)
        assert [job.body for job in await asyncio.wait_for(poll, WITHIN_S)] == [b"x"]
        poll = asyncio.ensure_future(asked(it, wait_ms=20_000))
        await settled()
        await it.find_shards()
        await it.service.enqueue("more", [Job(b"there")])
        jobs = await asyncio.wait_for(poll, WITHIN_S)
        assert [job.body for job in jobs] == [b"there"]
        assert jobs.queue_errors == {}


async def test_one_that_waited_at_the_shards_gets_jobs_when_its_time_is_over(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        await with_another_queue(it)
        poll = asyncio.ensure_future(asked(it, wait_ms=3_000))
        await settled()
        it.lose_shards()
        await it.api.enqueue("more", [Job(b"x")], context=ME)
        assert len(await asyncio.wait_for(poll, WITHIN_S)) == 1


async def test_a_queue_with_a_limit_is_left_out(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        await it.queues.change("mail", {"max_jobs_per_second": "100/s"}, [], False, "me")
        await kept(it)
        assert [job.body for job in await asked(it)] == [b"more"]
        with pytest.raises(NoHealthyShards):
            await asked(it)


async def test_acks_without_effect_are_told_of_each_queue(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        descriptors = await kept(it)
        ack = QueueAcks("mail", [Ack(descriptors[0])])
        jobs = await asked(it, acks=[ack])
        assert len(jobs) == 2
        assert [list(outcomes) for outcomes in jobs.ack_outcomes] == [[AckOutcome.IGNORED]]
