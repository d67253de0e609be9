"""Dequeues that come again where there is one shard, which notifies: they claim nothing from an empty queue."""

from __future__ import annotations

import asyncio

from pinlater.backends.base import OnNotification
from pinlater.model import Ack, DequeuedJob, DequeueRequest, Job
from pinlater.service import ServiceSettings
from tests.unit.breaking import until_quiet
from tests.unit.stand import ME, Stand, stand

SELDOM = ServiceSettings(poll_min_ms=5, poll_max_ms=60_000, poll_subscribed_ms=60_000)


def notified(at: Stand) -> None:
    """The shard says that it notifies."""

    async def subscribe(queue: str, on_event: OnNotification | None) -> bool:
        return True

    at.members.all[0].shard.subscribe = subscribe  # type: ignore[method-assign]


async def first(at: Stand, limit: int = 1) -> asyncio.Task[list[DequeuedJob]]:
    """The shard notifies; a dequeue waits for a queue that is known to be empty."""
    notified(at)
    task = await waiting(at, limit)
    poller = at.service.long_polls.poller("mail")
    assert poller is not None
    while poller.wakeup is None or poller.known.pause_ms < 60_000:
        await asyncio.sleep(0.001)
    at.stores[0].begun.clear()
    return task


async def waiting(at: Stand, limit: int = 1, acks: tuple[Ack, ...] = ()) -> asyncio.Task[list[DequeuedJob]]:
    request = DequeueRequest("mail", limit, succeeded=acks, wait_ms=60_000)
    task = asyncio.create_task(at.service.dequeue(request, context=ME))
    while not at.service.waiting:
        await asyncio.sleep(0)
    await until_quiet(*at.stores)
    return task


async def test_a_worker_that_did_its_job_claims_once_for_each() -> None:
    async with stand(1, settings=SELDOM) as at, asyncio.timeout(60):
        for limit in (1, 8):
            task = await first(at, limit)
            for number in range(5):
                await at.service.enqueue("mail", [Job(b"%d" % number)])
                (job,) = await task
                assert job.body == b"%d" % number
                task = await waiting(at, limit, (Ack(job.descriptor, claim_descriptor=job.claim_descriptor),))
            begun = at.stores[0].begun
            assert (begun["claim"], begun["ack"], begun["ack_and_claim"], begun["next_due"]) == (5, 5, 0, 0)
            task.cancel()


async def test_what_came_while_nobody_waited_is_claimed_at_once() -> None:
    async with stand(1, settings=SELDOM) as at, asyncio.timeout(60):
        task = await first(at)
        await at.service.enqueue("mail", [Job(b"a")])
        assert len(await task) == 1
        await at.service.enqueue("mail", [Job(b"b"), Job(b"c")])
        assert [job.body for _ in range(2) for job in await at.dequeue(1, wait_ms=60_000)] == [b"b", b"c"]


async def test_more_than_was_told_is_found_by_who_takes_less_than_there_is() -> None:
    async with stand(1, settings=SELDOM) as at, asyncio.timeout(60):
        task = await first(at)
        await at.stores[0].inner.enqueue("mail", [Job(b"not told")], at.clock.now_ms())
        await at.service.enqueue("mail", [Job(b"a"), Job(b"b")])
        assert [job.body for job in await task] == [b"not told"]
        assert [job.body for _ in range(2) for job in await at.dequeue(1, wait_ms=60_000)] == [b"a", b"b"]


async def test_a_job_of_which_nothing_was_told_is_found_by_the_timed_look() -> None:
    settings = ServiceSettings(poll_min_ms=5, poll_max_ms=60_000, poll_subscribed_ms=200)
    async with stand(1, settings=settings) as at, asyncio.timeout(60):
        notified(at)
        task = await waiting(at)
        poller = at.service.long_polls.poller("mail")
        assert poller is not None
        while not poller.is_empty():
            await asyncio.sleep(0.001)
        task.cancel()
        await at.stores[0].inner.enqueue("mail", [Job(b"not told")], at.clock.now_ms())
        assert [job.body for job in await at.dequeue(1, wait_ms=60_000)] == [b"not told"]
