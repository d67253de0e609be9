"""Aging between priorities over several shards, and in the ways of a dequeue."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from pinlater.backends.aged_levels import AgedLevel, JobPlace, by_level, levels_of
from pinlater.backends.extended import Offer
from pinlater.model import DequeuedJob, DequeueFromQueuesRequest, ExtendedJob, Job, QueueShare
from tests.unit.stand import ME, Stand, acks, stand

AGING_MS = 60_000


async def age(at: Stand, value: str = "1m") -> None:
    await at.service.queues.change("mail", {"priority_aging": value}, [], False, "me")


async def put(at: Stand, shard: int, *jobs: tuple[int, int], group: str = "") -> list[str]:
    """Store jobs of these priorities, that have been due for so many seconds; shards count from 0."""
    now_ms = at.clock.now_ms()
    new = [
        ExtendedJob(f"{priority}:{ago_s}".encode(), priority, now_ms - ago_s * 1_000, group=group)
        for priority, ago_s in jobs
    ]
    found = await at.stores[shard].inner.enqueue_extended("mail", [Offer(job, slot=17) for job in new], now_ms, "")
    return [each.descriptor for each in found]


def bodies(jobs: Sequence[DequeuedJob]) -> list[str]:
    return [bytes(job.body).decode() for job in jobs]


async def test_a_shard_whose_aged_jobs_outrank_those_of_others_is_asked_first() -> None:
    async with stand(3) as at:
        await age(at)
        await put(at, 0, *[(2, 5)] * 5)
        await put(at, 1, (3, 120), (3, 119))
        await put(at, 2, (2, 61), (3, 1))
        assert bodies(await at.dequeue(2)) == ["3:120", "2:61"]
        assert [store.begun["claim"] for store in at.stores] == [0, 1, 1]
        assert sorted(bodies(await at.dequeue(6))) == ["2:5"] * 5 + ["3:119"]
        assert bodies(await at.dequeue(5)) == ["3:1"]


async def test_an_answer_has_the_jobs_of_all_shards_by_level_and_time() -> None:
    async with stand(3) as at:
        await age(at)
        await put(at, 0, (1, 3), (2, 90), (3, 5))
        await put(at, 1, (3, 121), (2, 2))
        await put(at, 2, (1, 100), (3, 70))
        expected = ["3:121", "1:100", "2:90", "1:3", "3:70", "2:2", "3:5"]
        assert bodies(await at.dequeue(10, dry_run=True)) == expected
        assert bodies(await at.dequeue(10)) == expected


async def test_a_queue_without_aging_is_strict_and_so_is_one_without_it_again() -> None:
    async with stand(2) as at:
        await put(at, 0, (3, 10_000), (3, 10_000))
        await put(at, 1, (2, 1), (2, 1))
        assert bodies(await at.dequeue(1)) == ["2:1"]
        await age(at)
        assert bodies(await at.dequeue(1)) == ["3:10000"]
        await age(at, "none")
        assert bodies(await at.dequeue(5)) == ["2:1", "3:10000"]


async def test_jobs_are_counted_under_the_priority_that_they_were_stored_with() -> None:
    async with stand(1) as at:
        await age(at)
        await put(at, 0, (1, 130), (3, 125), (1, 1))
        assert bodies(await at.dequeue(3)) == ["1:130", "3:125", "1:1"]
        counters = at.service.metrics.counters
        assert [counters["jobs_dequeued", "mail", priority] for priority in (1, 3)] == [2, 1]


@pytest.mark.parametrize("shards", [1, 2])
async def test_all_ways_of_a_dequeue_know_the_age(shards: int) -> None:
    async with stand(shards) as at:
        await age(at)
        await put(at, 0, (1, 1), (1, 2), (3, 124), (3, 123), (3, 122), (2, 60))
        first = await at.dequeue(1)
        riding = await at.dequeue(1, succeeded=acks(first))
        waiting = await at.dequeue(1, wait_ms=1_000)
        shares = [QueueShare("mail")]
        of_many = await at.service.dequeue_from_queues(DequeueFromQueuesRequest(shares, 1), context=ME)
        assert [bodies(each) for each in (first, riding, waiting, of_many)] == [
            ["3:124"],
            ["3:123"],
            ["3:122"],
            ["2:60"],
        ]
        await at.service.queues.change("mail", {"max_jobs_per_second": "1000/s"}, [], False, "me")
        await put(at, 0, (2, 65))
        assert bodies(await at.dequeue(1)) == ["2:65"]


async def test_a_dequeue_that_waits_is_given_what_counts_most_when_jobs_come() -> None:
    async with stand(2) as at:
        await age(at)
        waiting = asyncio.ensure_future(at.dequeue(2, wait_ms=5_000))
        await at.stores[1].until_begun("next_due")
        now_ms = at.clock.now_ms()
        jobs = [Job(b"high", 1), Job(b"low", 3, now_ms - 200_000), Job(b"middle", 2)]
        await at.service.enqueue("mail", jobs, context=ME)
        assert bodies(await waiting) == ["low", "high"]


async def test_groups_of_a_priority_that_has_come_up_have_their_turn_on_every_shard() -> None:
    async with stand(2) as at:
        await age(at)
        for shard in range(2):
            await put(at, shard, *[(1, 10)] * 20, group="flood")
        await put(at, 1, (3, 130), group="calm")
        await put(at, 1, (3, 1), group="other")
        assert "3:130" in [body for _ in range(6) for body in bodies(await at.dequeue(1))]


def test_the_levels_of_a_job() -> None:
    last = AgedLevel(3, (1, 2, 3), 10)
    jobs = [JobPlace(3, 75, 0), JobPlace(3, 90, 1)]
    assert list(by_level(last, [[(each, each.id) for each in jobs]], 100)) == [(1, 0), (2, 1)]
    assert levels_of((), 10) == ()
