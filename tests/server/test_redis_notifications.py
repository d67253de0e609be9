"""What Redis tells servers of each other: with looks too rare to help, a job is there as soon as it is enqueued."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import redis

from pinlater.backends.base import ClaimRequest, NoEvents, Notification
from pinlater.backends.deferred_notifications import MOST_JOBS
from pinlater.backends.extended import Offer
from pinlater.backends.redis import RedisShard
from pinlater.clock import SystemClock
from pinlater.model import DequeuedJob, DequeueRequest, ExtendedJob, Job, RequestContext
from pinlater.service import ClaimTokens, Service, ServiceSettings
from pinlater.shards.handle import ShardHandle
from pinlater.shards.resilience import ResilientShard
from pinlater.shards.router import Router
from pinlater.shards.shard_set import ShardSet
from tests.queues import make_queue
from tests.stores.places import Places
from tests.stores.redis_server import RedisServer

pytestmark = pytest.mark.store("redis")

ME = RequestContext("me")
LONG_MS = 60_000
WITHIN_S = 60.0
NEVER_TOLD = ServiceSettings(poll_min_ms=5, poll_max_ms=5, poll_subscribed_ms=600_000)
"""A subscribed server does not poll; another one polls all the time."""


@asynccontextmanager
async def services(*urls: str, settings: ServiceSettings = NEVER_TOLD) -> AsyncIterator[list[Service]]:
    """Servers that share stores and nothing else: each with all of these."""
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        made = []
        for number in range(2):
            shards = [ResilientShard(RedisShard(url, str(place))) for place, url in enumerate(urls, 1)]
            router = Router(ShardSet([ShardHandle(shard, clock) for shard in shards], clock))
            service = Service(router, clock, ClaimTokens("here", number, clock.now_ms()), settings)
            await service.open()
            stack.push_async_callback(service.close)
            await service.create_queue("mail")
            made.append(service)
        yield made


async def waiting(at: Service) -> asyncio.Task[list[DequeuedJob]]:
    """A dequeue that waits and is told of what comes."""
    task = asyncio.create_task(at.dequeue(DequeueRequest("mail", 1, wait_ms=LONG_MS), context=ME))
    await until(lambda: at.long_polls.poller("mail") is not None and is_told(at) and not looks(at))
    return task


def is_told(at: Service) -> bool:
    return at.long_polls.subscriptions.is_subscribed("mail")


def looks(at: Service) -> bool:
    poller = at.long_polls.poller("mail")
    return poller is not None and poller.known.pause_ms < NEVER_TOLD.poll_subscribed_ms


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not is_so():
            await asyncio.sleep(0.005)


async def soon(coming: Awaitable[list[DequeuedJob]]) -> DequeuedJob:
    (job,) = await asyncio.wait_for(coming, WITHIN_S)
    return job


async def test_a_job_that_another_server_brings_ends_the_wait(redis_places: Places) -> None:
    async with services(redis_places.fresh()) as (one, other):
        for body in (b"1", b"2", b"3"):
            at = await waiting(one)
            await other.enqueue("mail", [Job(body)])
            assert (await soon(at)).body == body


async def test_a_job_on_any_of_several_shards_ends_the_wait(redis_places: Places) -> None:
    async with services(redis_places.fresh(), redis_places.fresh()) as (one, other):
        for number in range(8):
            at = await waiting(one)
            await other.enqueue("mail", [Job(b"%d" % number)])
            assert (await soon(at)).body == b"%d" % number


async def test_a_delayed_job_of_another_server_comes_at_its_time_and_not_before(redis_places: Places) -> None:
    async with services(redis_places.fresh()) as (one, other):
        for later_ms in (300, 20, 1):
            at = await waiting(one)
            due_ms = SystemClock().now_ms() + later_ms
            await other.enqueue("mail", [Job(b"x", run_after_ms=due_ms)])
            await soon(at)
            assert SystemClock().now_ms() >= due_ms


async def test_delayed_jobs_from_before_the_wait_come_one_after_the_other(redis_places: Places) -> None:
    async with services(redis_places.fresh()) as (one, other):
        begin_ms = SystemClock().now_ms() + 200
        times_ms = [begin_ms + 40 * number for number in range(6)]
        for time_ms in reversed(times_ms):
            await other.enqueue("mail", [Job(b"x", run_after_ms=time_ms)])
        for time_ms in times_ms:
            job = await soon(one.dequeue(DequeueRequest("mail", 1, wait_ms=LONG_MS), context=ME))
            assert job.run_after_ms == time_ms <= SystemClock().now_ms()


async def test_what_happens_while_the_subscription_is_cut_is_found_and_then_it_is_told_again(
    redis_places: Places,
) -> None:
    url = redis_places.fresh()
    async with services(url) as (one, other):
        at = await waiting(one)
        cut(url)
        await other.enqueue("mail", [Job(b"meanwhile")])
        assert (await soon(at)).body == b"meanwhile"
        at = await waiting(one)
        await other.enqueue("mail", [Job(b"after")])
        assert (await soon(at)).body == b"after"


async def test_a_job_that_a_caller_at_its_own_server_takes_is_told_to_no_other(redis_places: Places) -> None:
    async with services(redis_places.fresh()) as (one, other):
        elsewhere = await waiting(other)
        poller = other.long_polls.poller("mail")
        assert poller is not None
        events = poller.known.events
        for number in range(5):
            at = await waiting(one)
            await one.enqueue("mail", [Job(b"%d" % number)])
            assert (await soon(at)).body == b"%d" % number
        await one.enqueue("mail", [Job(b"for the other")])
        assert (await soon(elsewhere)).body == b"for the other"
        assert poller.known.events == events + 1


class Store:
    """One process's shard, at which a caller waits who claims at once what comes, and what another process hears."""

    def __init__(self, url: str) -> None:
        self.shard, self._other = RedisShard(url, "1"), RedisShard(url, "1")
        self.heard: asyncio.Queue[Notification | None] = asyncio.Queue()
        self.now_ms = SystemClock().now_ms()

    async def __aenter__(self) -> Store:
        for shard in (self.shard, self._other):
            await shard.open()
        await make_queue(self.shard, "mail", self.now_ms)
        self.shard.events = Claiming()
        assert await self.shard.subscribe("mail", lambda event: None)
        assert await self._other.subscribe("mail", self.heard.put_nowait)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shard.close()
        await self._other.close()

    async def enqueue(self, *jobs: Job) -> list[str]:
        return await self.shard.enqueue("mail", jobs, self.now_ms)

    async def claim(self, limit: int) -> int:
        request = ClaimRequest(f"claim {limit}", limit, (1, 2, 3), 60_000, 1_000_000)
        (jobs,) = await self.shard.claim("mail", [request], self.now_ms)
        return len(jobs)

    async def hears(self) -> Notification | None:
        return await asyncio.wait_for(self.heard.get(), WITHIN_S)


class Claiming(NoEvents):
    def claims_at_once(self, queue: str, jobs: int) -> bool:
        return True


async def test_of_what_was_claimed_a_moment_later_nobody_is_told(redis_places: Places) -> None:
    async with Store(redis_places.fresh()) as at:
        await at.enqueue(Job(b"1"), Job(b"2"))
        assert await at.claim(2) == 2
        at.shard.deferred.publish_left()
        await at.enqueue(Job(b"later", run_after_ms=at.now_ms + 60_000))  # of which all are told
        assert await at.hears() == Notification(0, at.now_ms + 60_000)


async def test_what_is_left_a_moment_later_is_told(redis_places: Places) -> None:
    async with Store(redis_places.fresh()) as at:
        await at.enqueue(Job(b"1"), Job(b"2"), Job(b"3"))
        assert await at.claim(1) == 1
        assert await at.hears() == Notification(2, None)
        assert await at.claim(3) == 2
        for body in (b"claimed", b"left"):
            await at.enqueue(Job(body))
            if body == b"claimed":
                assert await at.claim(1) == 1
        assert await at.hears() == Notification(1, None)


async def test_of_jobs_with_keys_only_what_is_left_a_moment_later_is_told(redis_places: Places) -> None:
    async with Store(redis_places.fresh()) as at:
        for key in ("a", "a", "b"):
            await at.shard.enqueue_extended("mail", [Offer(ExtendedJob(b"x", dedupe_key=key), 0)], at.now_ms)
        assert await at.claim(1) == 1
        assert await at.hears() == Notification(1, None)
        first, behind = (ExtendedJob(body, serialize_key="chain") for body in (b"1", b"2"))
        await at.shard.enqueue_extended("mail", [Offer(first, 1), Offer(behind, 1)], at.now_ms)
        assert await at.claim(2) == 2
        at.shard.deferred.publish_left()
        later = ExtendedJob(b"x", dedupe_key="c", run_after_ms=at.now_ms + 60_000)
        await at.shard.enqueue_extended("mail", [Offer(later, 2)], at.now_ms)
        assert await at.hears() == Notification(0, at.now_ms + 60_000)


async def test_many_jobs_are_told_at_once(redis_places: Places) -> None:
    async with Store(redis_places.fresh()) as at:
        await at.enqueue(*[Job(b"x")] * (MOST_JOBS + 1))
        assert await at.claim(MOST_JOBS + 1) == MOST_JOBS + 1
        assert await at.hears() == Notification(MOST_JOBS + 1, None)


async def test_a_shard_that_closes_tells_what_is_left(redis_places: Places) -> None:
    async with Store(redis_places.fresh()) as at:
        await at.enqueue(Job(b"x"))
        await at.shard.close()
        assert await at.hears() == Notification(1, None)


@pytest.mark.parametrize("has_key", [False, True])
async def test_what_may_have_been_stored_is_told(redis_places: Places, has_key: bool) -> None:
    async with Store(redis_places.fresh()) as at:
        offers = [Offer(ExtendedJob(b"x", dedupe_key="a"), 0)]
        call = at.shard.enqueue_extended("mail", offers, at.now_ms) if has_key else at.enqueue(Job(b"x"))
        storing = asyncio.create_task(call)
        await asyncio.sleep(0)
        storing.cancel()
        assert await at.hears() == Notification(1, None)


def cut(url: str) -> None:
    """End the connections of all who listen."""
    with redis.Redis.from_url(url) as client:
        assert client.execute_command("CLIENT", "KILL", "TYPE", "pubsub") >= 1


@pytest.mark.parametrize("denied", ["resetchannels", "-publish", "-subscribe"])
async def test_a_user_who_may_use_no_channels_is_served_by_looking(denied: str) -> None:
    server = RedisServer()
    server.start()
    try:
        with redis.Redis(port=server.port) as client:
            client.execute_command("ACL", "SETUSER", "jobs", "on", ">secret", "~*", "&*", "+@all", denied)
        async with services(f"redis://jobs:secret@127.0.0.1:{server.port}/0") as (one, other):
            for _ in range(3):
                at = asyncio.create_task(one.dequeue(DequeueRequest("mail", 1, wait_ms=LONG_MS), context=ME))
                await until(lambda: one.long_polls.poller("mail") is not None)
                await other.enqueue("mail", [Job(b"x")])
                await soon(at)
                assert not is_told(one)
    finally:
        server.stop()


async def test_a_queue_nobody_waits_for_any_more_is_left(redis_places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinlater.service.longpoll.subscriptions.KEEP_S", 0.01)
    url = redis_places.fresh()
    async with services(url) as (one, other):
        at = await waiting(one)
        await other.enqueue("mail", [Job(b"x")])
        await soon(at)
        with redis.Redis.from_url(url) as client:
            await until(lambda: not client.pubsub_channels("*:q:mail:news"))
        at = await waiting(one)
        await other.enqueue("mail", [Job(b"y")])
        await soon(at)
