"""Calls of a cluster's servers at their bounds in Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from pinlater.backends.base import ConfigEntry, DeadLetterTarget
from pinlater.backends.redis import RedisShard
from pinlater.backends.token_bucket import BucketLevel, take
from pinlater.model import Job, JobState, new_version
from tests.conformance.subject import START_MS, Subject, key_of
from tests.queues import make_queue
from tests.stores.places import Places

pytestmark = pytest.mark.store("redis")


@pytest.fixture
def shard(redis_places: Places, runner: asyncio.Runner) -> Iterator[RedisShard]:
    opened = RedisShard(redis_places.fresh(), "1")
    runner.run(opened.open())
    runner.run(make_queue(opened, "mail", START_MS))
    yield opened
    runner.run(opened.close())


async def test_a_bucket_loses_no_part_of_a_token_between_calls(shard: RedisShard) -> None:
    level = BucketLevel(1.0, START_MS)
    for number in range(1, 400):
        level = take(level, 1, 0.7, 1.0, START_MS + number).level
        await shard.take_tokens("mail", 1, 0.7, 1.0, START_MS + number)
    assert level.tokens > 0
    wait = take(level, 0, 0.7, 1.0, level.at_ms).retry_after_ms
    assert (await shard.take_tokens("mail", 0, 0.7, 1.0, level.at_ms)).retry_after_ms == wait


async def test_ten_thousand_entries_of_a_namespace_are_read_at_once(shard: RedisShard) -> None:
    count = 10_000
    await asyncio.gather(
        *(shard.kv_put("audit", f"{number}", b"%d" % number, START_MS + 10, START_MS) for number in range(count))
    )
    notes = await shard.kv_list("audit", START_MS)
    assert {name: note.body for name, note in notes.items()} == {f"{n}": b"%d" % n for n in range(count)}
    assert await shard.kv_list("audit", START_MS + 10) == {}


async def test_expired_entries_go_in_steps(shard: RedisShard) -> None:
    count = 2_500
    await asyncio.gather(*(shard.kv_put("kind", f"{n}", b"", START_MS + 1, START_MS) for n in range(count)))
    for left in (1_500, 500, 0):
        await shard.kv_put("kind", "last", b"", START_MS + 100, START_MS + 1)
        assert len(await shard.kv_list("kind", START_MS)) == left + 1


async def test_ten_thousand_config_entries_come_and_go(shard: RedisShard) -> None:
    count = 10_000
    records = [ConfigEntry(f"@shard/{number}", new_version(START_MS)) for number in range(count)]
    assert await shard.put_config(records, START_MS) == [True] * count
    page = await shard.list_config((await shard.list_config(0, 1)).revision, 2 * count)
    assert page.entries == records


async def test_calls_of_10_000_jobs_go_through_the_scripts_of_dead_letters(shard: RedisShard) -> None:
    count = 10_000
    subject = Subject(shard)
    dead = await subject.beside("dead")
    descriptors = await subject.enqueue(*[Job(b"%d" % n, priority=1 + n % 2) for n in range(count)])
    keys = [key_of(descriptor) for descriptor in descriptors]
    assert len(await subject.claim(count)) == count
    subject.tick(10**6)
    (expired,) = (await subject.expire(limit=count, budget=1, dead_letters=True)).values()
    assert expired.failed == count
    assert await shard.dead_letter(count, subject.now_ms, {"mail": DeadLetterTarget("dead", 1)}) == {"mail": count}
    dead.now_ms = subject.now_ms
    letters = await dead.scan(limit=count)
    assert len(letters) == count
    assert {letter.origin for letter in letters} == set(descriptors)
    half = set(descriptors[: count // 2])
    back = [key_of(each.descriptor) for each in letters if each.origin not in half]
    made = await shard.replay("dead", back, subject.now_ms, None)
    assert len(set(made) - {None}) == count // 2
    assert await subject.retry_listed(*descriptors) == count // 2
    assert (await subject.info(descriptors[0])).moved_to is None
    assert await dead.count(JobState.PENDING) == 0
    assert await subject.count(JobState.PENDING) == count
    assert len(await shard.lookup("mail", keys, with_body=False, max_bytes=0)) == count


async def test_dead_letters_with_large_bodies_move_some_at_a_time(shard: RedisShard) -> None:
    subject = Subject(shard)
    await subject.beside("dead")
    count, size = 6, 8 * 2**20
    for _ in range(count):
        descriptor = await subject.job(bytes(size))
        await subject.claimed()
        await subject.ack_with(descriptor, False, permanent=True, dead_letters=True)
    first = await shard.dead_letter(100, START_MS, {"mail": DeadLetterTarget("dead", 1)})
    assert 0 < first["mail"] < count
    second = await shard.dead_letter(100, START_MS, {"mail": DeadLetterTarget("dead", 1)})
    assert first["mail"] + second["mail"] == count
