"""Dequeues whose callers leave at any moment: every job is in somebody's hands or goes back."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from pinlater.errors import PinLaterError
from pinlater.model import DequeuedJob, DequeueRequest, Job, JobState
from pinlater.shards.health import Health, HealthSettings
from pinlater.shards.resilience import ResilientShard
from tests.unit.stand import ME, Stand, stand

ROUNDS = 60
WITHIN_S = 60.0


def guards(at: Stand) -> list[ResilientShard]:
    return [member.shard.inner for member in at.members.all]  # type: ignore[attr-defined]


def hurry(at: Stand, deadline_ms: int) -> None:
    """Give up waiting for the stores so soon, and keep them in use all the same."""
    for guard, member in zip(guards(at), at.members.all, strict=True):
        guard.bulkhead.settings = replace(guard.bulkhead.settings, deadline_ms=deadline_ms)
        member.health = Health(HealthSettings(min_good=0, failures_in_a_row=10**9))
        member.readmit()


async def in_progress(at: Stand) -> int:
    now_ms = at.clock.now_ms()
    return sum([await store.inner.count("mail", JobState.IN_PROGRESS, (1, 2, 3), False, now_ms) for store in at.stores])


async def one_round(at: Stand, dice: random.Random) -> list[DequeuedJob]:
    """What the callers that stayed got. Errors of the product are theirs to bear; a surprise is a failure."""
    calls = []
    for _ in range(dice.randint(1, 6)):
        request = DequeueRequest("mail", dice.randint(1, 4), wait_ms=dice.choice([0, 0, 3, 40]))
        calls.append(asyncio.create_task(at.service.dequeue(request, context=ME)))
    jobs = [Job(b"x", priority=dice.randint(1, 3)) for _ in range(dice.randint(1, 6))]
    feeding = [asyncio.create_task(at.service.enqueue("mail", [job])) for job in jobs]
    for call in calls:
        if dice.random() < 0.7:
            for _ in range(dice.randint(0, 40)):
                await asyncio.sleep(0)
            call.cancel()
    await asyncio.gather(*feeding, return_exceptions=True)
    got: list[DequeuedJob] = []
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(outcome, list):
            got += outcome
        else:
            assert isinstance(outcome, asyncio.CancelledError | PinLaterError), outcome
    return got


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("deadline_ms", [2, 10_000], ids=["late stores", "stores in time"])
async def test_no_job_is_lost_between_a_store_and_a_caller_that_leaves(shards: int, deadline_ms: int) -> None:
    dice = random.Random(shards * deadline_ms)
    async with stand(shards) as at:
        hurry(at, deadline_ms)
        held = 0
        for _ in range(ROUNDS):
            got = await one_round(at, dice)
            assert len({job.descriptor for job in got}) == len(got)
            held += len(got)
            async with asyncio.timeout(WITHIN_S):
                while await in_progress(at) != held:
                    await asyncio.sleep(0.001)
        hurry(at, 10_000)
        await asyncio.wait_for(at.service.close(), WITHIN_S)
        assert all(guard.bulkhead.free == guard.bulkhead.settings.max_running for guard in guards(at))


@pytest.mark.parametrize("shards", [1, 3])
async def test_nor_where_the_queue_has_a_rate(shards: int) -> None:
    dice = random.Random(shards)
    async with stand(shards) as at:
        await at.service.queues.change("mail", {"max_jobs_per_second": "100/s"}, [], False, "me")
        held = 0
        for _ in range(ROUNDS):
            at.clock.tick(20)
            got = await one_round(at, dice)
            held += len(got)
            async with asyncio.timeout(WITHIN_S):
                while await in_progress(at) != held:
                    await asyncio.sleep(0.001)
        assert 0 < held <= ROUNDS * 2 * 1.05 + 50
        await asyncio.wait_for(at.service.close(), WITHIN_S)
