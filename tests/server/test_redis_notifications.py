"""What Redis tells servers of each other: with looks too rare to help, a job is there as soon as it is enqueued."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import redis

from pinlater.backends.redis import RedisShard
from pinlater.clock import SystemClock
from pinlater.model import DequeuedJob, DequeueRequest, Job, RequestContext
from pinlater.service import ClaimTokens, Service, ServiceSettings
from pinlater.shards.handle import ShardHandle
from pinlater.shards.resilience import ResilientShard
from pinlater.shards.router import Router
from pinlater.shards.shard_set import ShardSet
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
