"""What dequeues ask of the shards where groups alone have limits."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.model import Ack, DequeuedJob, ExtendedJob
from pinlater.service import ServiceSettings
from tests.unit.breaking import settled
from tests.unit.stand import ME, Stand, stand

SELDOM = ServiceSettings(poll_min_ms=50_000, poll_max_ms=60_000)
"""Looking for what others did never happens within a test: whatever comes, was announced."""

SHARDS = 3


async def limited(at: Stand, **settings: str) -> None:
    await at.service.queues.change("mail", {"group_concurrency": "1", **settings}, [], False, "alice")
    for _ in range(4 * SHARDS):
        await at.service.enqueue("mail", [ExtendedJob(b"x", group="a")])


def asked(at: Stand, what: str) -> int:
    return sum(store.begun[what] for store in at.stores)


async def in_line(at: Stand) -> asyncio.Task[list[DequeuedJob]]:
    waiting = at.service.waiting
    task = asyncio.create_task(at.dequeue(1, wait_ms=60_000))
    while at.service.waiting == waiting:
        await asyncio.sleep(0)
    await settled()
    return task


async def succeed(at: Stand, *jobs: DequeuedJob) -> None:
    await at.service.ack(
        "mail", [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in jobs], (), context=ME
    )


@pytest.mark.parametrize(("settings", "counts"), [({}, 0), ({"max_jobs_per_second": "100/s"}, 1)])
async def test_jobs_are_counted_before_a_claim_only_where_a_limit_is_of_all_of_them(
    settings: dict[str, str], counts: int
) -> None:
    async with stand() as at:
        await limited(at, **settings)
        assert len(await at.dequeue(5)) == 1
        assert asked(at, "count_ready") == counts


async def test_who_waits_gets_the_next_job_behind_an_ack_and_nobody_polls_for_more() -> None:
    async with stand(shards=SHARDS, settings=SELDOM) as at:
        await limited(at)
        (job,) = await at.dequeue(1)
        waiting = [await in_line(at) for _ in range(3)]
        await at.service.limits.drain()
        polls = asked(at, "next_due")
        await succeed(at, job)
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        await at.service.limits.drain()
        await settled()
        assert sum(each.done() for each in waiting) == 1
        assert asked(at, "next_due") == polls
        for each in waiting:
            each.cancel()
