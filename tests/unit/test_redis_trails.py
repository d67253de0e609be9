"""What is Redis' own of the trails of jobs: they lie apart, and nothing of them is left when their jobs are gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest
import redis

from pinlater.backends.redis import RedisShard
from pinlater.backends.redis.records import ID
from pinlater.model import JobState
from tests.conformance.subject import START_MS, Subject, key_of
from tests.queues import drop_queue, make_queue
from tests.stores.places import Places


@pytest.fixture
def url(redis_places: Places) -> str:
    return redis_places.fresh()


@pytest.fixture
def admin(url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(url) as client:
        yield client


@pytest.fixture
def subject(url: str, runner: asyncio.Runner) -> Iterator[Subject]:
    shard = RedisShard(url, "1")
    runner.run(shard.open())
    runner.run(make_queue(shard, "mail", START_MS))
    yield Subject(shard)
    runner.run(shard.close())


async def _retried(subject: Subject, jobs: int = 1) -> list[str]:
    descriptors = [await subject.job() for _ in range(jobs)]
    await subject.claim(jobs)
    for descriptor in descriptors:
        await subject.fail(descriptor)
    return descriptors


async def _deleted(subject: Subject, descriptor: str) -> None:
    await subject.delete_listed(JobState.PENDING, descriptor)


async def _cancelled(subject: Subject, descriptor: str) -> None:
    await subject.cancel(descriptor)


async def _not_kept(subject: Subject, descriptor: str) -> None:
    await subject.claimed()
    await subject.ack_with(descriptor, True, keep_succeeded=False)


async def _pruned(subject: Subject, descriptor: str) -> None:
    await subject.claimed()
    await subject.succeed(descriptor)
    subject.tick(10)
    await subject.prune(succeeded_ttl_ms=5)


async def _with_its_queue(subject: Subject, descriptor: str) -> None:
    await drop_queue(subject.shard, subject.queue, subject.now_ms)


@pytest.mark.parametrize("remove", [_deleted, _cancelled, _not_kept, _pruned, _with_its_queue])
async def test_nothing_is_left_of_the_trail_of_a_job_that_is_gone(
    subject: Subject, admin: redis.Redis, remove: Callable[[Subject, str], Awaitable[None]]
) -> None:
    (descriptor,) = await _retried(subject)
    assert len(admin.keys("*:trails")) == 2
    await remove(subject, descriptor)
    await subject.prune()  # what a queue leaves
    assert admin.keys("*:trails") == []


async def test_a_job_that_succeeds_at_once_leaves_no_trail(subject: Subject, admin: redis.Redis) -> None:
    descriptor = await subject.job()
    await subject.claimed()
    await subject.succeed(descriptor)
    assert admin.keys("*:trails") == []


async def test_pruning_removes_what_versions_before_left(subject: Subject, admin: redis.Redis) -> None:
    """These remove jobs, and queues, without their trails."""
    stays, goes = await _retried(subject, 2)
    other = await subject.beside("gone")
    await _retried(other)
    (trails,) = admin.keys("*:q:mail:trails")
    (of_gone,) = admin.keys("*:q:gone:trails")
    (queues,) = [key for key in admin.keys("*:trails") if b":q:" not in key]
    left = admin.hgetall(of_gone)
    await drop_queue(subject.shard, "gone", subject.now_ms)
    record = admin.hgetall(trails)[ID.pack(key_of(goes).id)]
    await subject.delete_listed(JobState.PENDING, goes)
    admin.hset(trails, ID.pack(key_of(goes).id), record)
    admin.hset(of_gone, mapping=left)
    admin.sadd(queues, "gone")
    for _ in range(100):  # which queue is looked at is by chance
        await subject.prune()
    assert admin.hkeys(trails) == [ID.pack(key_of(stays).id)]
    assert admin.smembers(queues) == {b"mail"}
