"""Dequeues that wait while stores notify on which shard a job came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from pinlater.backends.base import UNKNOWN_CHANGE, Notification, OnNotification
from pinlater.backends.extended import Offer
from pinlater.errors import NothingStored
from pinlater.model import (
    Ack,
    DequeuedFromQueues,
    DequeuedJob,
    DequeueFromQueuesRequest,
    ExtendedJob,
    Job,
    QueueShare,
)
from pinlater.service import ServiceSettings
from pinlater.shards.handle import ShardHandle
from tests.unit.breaking import until_quiet
from tests.unit.stand import ME, Stand, stand
from tests.unit.test_limits_pause import change

SELDOM = ServiceSettings(poll_min_ms=5, poll_max_ms=60_000, poll_subscribed_ms=60_000)
ONE_LOOK = replace(SELDOM, poll_min_ms=60_000)
ONE_JOB = Notification(1, None)


@dataclass
class Told:
    """A service over three shards, all of which tell of their jobs."""

    at: Stand
    tell: dict[ShardHandle, OnNotification] = field(default_factory=dict)

    def subscribe(self, handle: ShardHandle) -> None:
        async def subscribe(queue: str, on_event: OnNotification | None) -> bool:
            if on_event is not None and queue == "mail":
                self.tell[handle] = on_event
            return True

        handle.shard.subscribe = subscribe  # type: ignore[method-assign]

    async def waiting(self, limit: int = 1) -> asyncio.Task[list[DequeuedJob]]:
        """One more dequeue that waits, for a queue that is known to be empty."""
        task = asyncio.create_task(self.at.dequeue(limit, wait_ms=60_000))
        async with asyncio.timeout(60):
            while len(self.tell) < 3 or not self.at.service.waiting:
                await asyncio.sleep(0)
            poller = self.at.service.long_polls.poller("mail")
            assert poller is not None
            while poller.wakeup is None or poller.known.pause_ms < 60_000:
                await asyncio.sleep(0.001)
        self.forget()
        return task

    def forget(self) -> None:
        for store in self.at.stores:
            store.begun.clear()

    def asked(self) -> list[bool]:
        """Which shards were asked for jobs since."""
        calls = ("count_ready", "claim", "next_due")
        return [any(store.begun[call] for call in calls) for store in self.at.stores]

    async def put(self, shard: int, body: bytes, priority: int = 1) -> None:
        """A job, as another process enqueues it; shards count from 0."""
        await self.at.stores[shard].inner.enqueue("mail", [Job(body, priority)], self.at.clock.now_ms())

    def told(self, shard: int, event: Notification = ONE_JOB) -> None:
        self.tell[self.at.members.all[shard]](event)


@asynccontextmanager
async def telling(settings: ServiceSettings = SELDOM) -> AsyncIterator[Told]:
    async with stand(3, settings=settings) as at:
        told = Told(at)
        for handle in at.members.all:
            told.subscribe(handle)
        yield told


async def test_only_the_shard_that_told_of_a_job_is_asked_for_it() -> None:
    async with telling() as told, asyncio.timeout(60):
        waiting = await told.waiting()
        await told.put(1, b"x")
        told.told(1)
        (job,) = await waiting
        assert job.body == b"x"
        assert told.asked() == [False, True, False]


async def test_a_job_of_this_server_is_claimed_from_the_shard_that_it_went_to() -> None:
    async with telling() as told, asyncio.timeout(60):
        for number in range(5):
            waiting = await told.waiting()
            await told.at.service.enqueue("mail", [Job(b"%d" % number)])
            (job,) = await waiting
            assert job.body == b"%d" % number
            went_to = [store.begun["enqueue"] == 1 for store in told.at.stores]
            assert went_to.count(True) == 1
            assert told.asked() == went_to


async def test_a_job_that_its_first_shard_did_not_take_is_claimed_from_the_one_that_did() -> None:
    async with telling() as told, asyncio.timeout(60):
        for number in range(5):
            waiting = await told.waiting()
            for store in told.at.stores[:2]:
                store.failures["enqueue"].append(NothingStored("gone"))
            await told.at.service.enqueue("mail", [Job(b"%d" % number)])
            (job,) = await waiting
            assert job.body == b"%d" % number
            for store in told.at.stores:
                store.failures["enqueue"].clear()


async def test_a_retry_is_claimed_from_the_shard_of_its_job() -> None:
    async with telling() as told, asyncio.timeout(60):
        await told.put(1, b"x")
        (job,) = await told.at.dequeue(1)
        waiting = await told.waiting()
        await told.at.service.ack("mail", [], [Ack(job.descriptor, claim_descriptor=job.claim_descriptor)])
        (again,) = await waiting
        assert again.descriptor == job.descriptor
        assert told.asked() == [False, True, False]


async def test_a_job_with_a_key_is_claimed_from_its_home() -> None:
    async with telling() as told, asyncio.timeout(60):
        waiting = await told.waiting()
        (descriptor,) = await told.at.service.enqueue("mail", [ExtendedJob(b"x", dedupe_key="k")])
        (job,) = await waiting
        assert job.descriptor == descriptor
        assert told.asked().count(True) == 1


async def test_only_the_shard_that_is_told_to_have_room_for_a_group_is_asked_for_its_next_job() -> None:
    async with telling(ONE_LOOK) as told, asyncio.timeout(60):
        at, now_ms = told.at, told.at.clock.now_ms()
        await change(at, group_concurrency="1")
        for store in at.stores[:2]:
            await store.inner.enqueue_extended(
                "mail", [Offer(ExtendedJob(b"x", group="a", run_after_ms=now_ms))], now_ms
            )
        (job,) = await at.dequeue(1)
        waiting = await told.waiting()
        await at.service.ack("mail", [Ack(job.descriptor, claim_descriptor=job.claim_descriptor)], [])
        (other,) = await waiting
        assert told.asked() == [f":s{store.shard_id}:" in other.descriptor for store in at.stores]


async def test_a_job_that_somebody_else_took_costs_one_call_and_the_next_one_is_found() -> None:
    async with telling() as told, asyncio.timeout(60):
        waiting = await told.waiting()
        told.told(2)
        await told.at.stores[2].until_begun("claim")
        await until_quiet(*told.at.stores)
        assert told.asked() == [False, False, True]
        await told.put(0, b"y")
        told.told(0)
        (job,) = await waiting
        assert job.body == b"y"
        assert told.asked() == [True, False, True]


async def test_of_two_shards_that_told_the_more_urgent_job_comes_first() -> None:
    async with telling() as told, asyncio.timeout(60):
        waiting = await told.waiting()
        gate = told.at.stores[1].hold("claim")
        told.told(1)
        await told.at.stores[1].until_begun("claim")
        await told.put(0, b"later", 3)
        await told.put(2, b"first", 1)
        told.told(0)
        told.told(2)
        gate.set()
        (job,) = await waiting
        assert job.body == b"first"
        assert told.at.stores[0].begun["count_ready"] == told.at.stores[2].begun["count_ready"] == 1
        assert not told.at.stores[1].begun["count_ready"]


async def test_who_joined_without_a_look_is_given_a_job_after_a_look_at_all_shards() -> None:
    async with telling() as told, asyncio.timeout(60):
        first = await told.waiting()
        second = asyncio.create_task(told.at.dequeue(1, wait_ms=60_000))
        while told.at.service.waiting < 2:
            await asyncio.sleep(0)
        await told.put(0, b"urgent", 1)  # of which is not told yet
        await told.put(1, b"told", 2)
        told.told(1)
        assert [job.body for job in await first] == [b"urgent"]
        assert [job.body for job in await second] == [b"told"]


async def test_who_joined_without_a_look_is_given_a_job_of_the_first_priority_by_its_shard_alone() -> None:
    async with telling() as told, asyncio.timeout(60):
        first = await told.waiting()
        second = asyncio.create_task(told.at.dequeue(1, wait_ms=60_000))
        while told.at.service.waiting < 2:
            await asyncio.sleep(0)
        for shard, body in ((1, b"a"), (2, b"b")):
            await told.put(shard, body)
            told.told(shard)
        assert [[job.body for job in await each] for each in (first, second)] == [[b"a"], [b"b"]]
        assert told.asked() == [False, True, True]


async def test_who_comes_again_asks_the_shard_of_its_last_job_alone() -> None:
    async with telling() as told, asyncio.timeout(60):
        waiting = await told.waiting()
        for _ in range(5):
            await told.put(1, b"x")
            told.told(1)
            assert len(await waiting) == 1
            told.forget()
            waiting = asyncio.create_task(told.at.dequeue(1, wait_ms=60_000))
            while not told.at.service.waiting:
                await asyncio.sleep(0)
            await until_quiet(*told.at.stores)
            assert told.asked() == [False, True, False]
            assert not told.at.stores[1].begun["claim"]
        waiting.cancel()


async def test_who_comes_again_for_several_queues_asks_the_shard_of_its_last_job_alone() -> None:
    async with telling() as told, asyncio.timeout(60):
        queues = [QueueShare("mail"), QueueShare("other")]
        await told.at.service.create_queue("other")

        async def come() -> asyncio.Task[DequeuedFromQueues]:
            request = DequeueFromQueuesRequest(queues, 1, wait_ms=60_000)
            task = asyncio.create_task(told.at.service.dequeue_from_queues(request, context=ME))
            while not told.at.service.waiting:
                await asyncio.sleep(0)
            await until_quiet(*told.at.stores)
            return task

        (await told.waiting()).cancel()
        waiting = await come()
        await told.put(1, b"x")
        told.told(1)
        assert len(await waiting) == 1
        told.forget()
        waiting = await come()
        assert told.asked() == [False, True, False]
        waiting.cancel()


async def test_who_comes_again_gets_what_came_meanwhile_and_the_most_urgent_of_all_shards() -> None:
    async with telling() as told, asyncio.timeout(60):
        waiting = await told.waiting()
        await told.put(1, b"x")
        told.told(1)
        assert len(await waiting) == 1
        await told.put(2, b"meanwhile")
        told.told(2)
        assert [job.body for job in await told.at.dequeue(1, wait_ms=60_000)] == [b"meanwhile"]
        await told.put(0, b"urgent", 2)  # of which is not told yet
        await told.put(1, b"told", 3)
        told.told(1)
        assert [job.body for job in await told.at.dequeue(1, wait_ms=60_000)] == [b"urgent"]
        assert [job.body for job in await told.at.dequeue(1, wait_ms=60_000)] == [b"told"]


async def test_who_comes_again_while_something_has_become_due_gets_it() -> None:
    async with telling() as told, asyncio.timeout(60):
        waiting = await told.waiting()
        await told.put(1, b"x")
        told.told(1)
        assert len(await waiting) == 1
        due_ms = told.at.clock.now_ms() + 10
        await told.at.stores[0].inner.enqueue("mail", [Job(b"due", 1, due_ms)], due_ms)
        told.told(0, Notification(0, due_ms))
        told.at.clock.tick(20)
        assert [job.body for job in await told.at.dequeue(1, wait_ms=60_000)] == [b"due"]


async def test_a_job_of_which_nothing_was_told_is_found_once_all_were_not_asked_for_a_while() -> None:
    async with stand(3, settings=ServiceSettings(poll_min_ms=5, poll_subscribed_ms=200)) as at, asyncio.timeout(60):
        told = Told(at)
        for handle in at.members.all:
            told.subscribe(handle)
        await told.put(0, b"not told")
        found = False
        while not found:  # jobs come to another shard all the time
            await told.put(1, b"x")
            if told.tell:
                told.told(1)
            found = [job.body for job in await at.dequeue(1, wait_ms=60_000)] == [b"not told"]


async def test_what_the_limit_left_on_a_shard_is_found_by_those_who_still_wait() -> None:
    async with telling() as told, asyncio.timeout(60):
        first = await told.waiting()
        second = asyncio.create_task(told.at.dequeue(1, wait_ms=60_000))
        while told.at.service.waiting < 2:
            await asyncio.sleep(0)
        await told.put(1, b"a")
        await told.put(1, b"b")
        told.told(1)  # of one of them
        assert [[job.body for job in await each] for each in (first, second)] == [[b"a"], [b"b"]]


async def test_after_a_change_that_no_shard_explains_all_are_asked() -> None:
    async with telling() as told, asyncio.timeout(60):
        waiting = await told.waiting()
        await told.put(0, b"x")
        told.told(1, UNKNOWN_CHANGE)
        (job,) = await waiting
        assert job.body == b"x"
        assert told.asked() == [True, True, True]


async def test_what_this_process_does_itself_is_looked_for_everywhere() -> None:
    async with telling() as told, asyncio.timeout(60):
        waiting = await told.waiting()
        gate = told.at.stores[1].hold("claim")
        told.told(1)
        await told.at.stores[1].until_begun("claim")
        await told.put(0, b"x")
        told.at.service.events.ready("mail", 1)
        gate.set()
        (job,) = await waiting
        assert job.body == b"x"
        assert [store.begun["count_ready"] for store in told.at.stores] == [1, 1, 1]
