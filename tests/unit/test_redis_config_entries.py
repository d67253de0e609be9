"""Records as Redis keeps them: those of a store from before there were any, and their order in time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import redis

from pinlater.backends.base import NO_RULES, ConfigEntry, DeadLetterTarget, PerQueue, Retention
from pinlater.backends.redis import RedisShard
from pinlater.errors import NothingStored, StoreRefused
from pinlater.model import Job, JobState, new_version
from tests.conformance.subject import ALL, START_MS, Subject, key_of
from tests.queues import drop_queue, make_queue, names_of, record_of
from tests.stores.places import Places
from tests.stores.process import StoreServer

pytestmark = pytest.mark.store("redis")

KEEP = PerQueue(Retention(10**9, 10**9))


@pytest.fixture
def url(redis_places: Places) -> str:
    return redis_places.fresh()


@pytest.fixture
def admin(url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(url, decode_responses=True) as client:
        yield client


@pytest.fixture
def shard(url: str, runner: asyncio.Runner) -> Iterator[RedisShard]:
    opened = RedisShard(url, "1")
    runner.run(opened.open())
    yield opened
    runner.run(opened.close())


async def test_no_entry_comes_into_a_store_that_was_wiped(shard: RedisShard, admin: redis.Redis) -> None:
    admin.flushdb()
    with pytest.raises(StoreRefused):
        await make_queue(shard, "mail", START_MS)
    with pytest.raises(StoreRefused):
        await shard.put_config([ConfigEntry("mail", new_version(START_MS))], START_MS)
    assert not list(admin.scan_iter())


async def test_queues_from_before_there_were_entries_get_theirs_when_the_store_is_opened(
    shard: RedisShard, admin: redis.Redis
) -> None:
    admin.hset("{pinlater}:queues", mapping={"mail": START_MS, "push": 7})
    await make_queue(shard, "new", START_MS)
    await shard.open()
    assert await names_of(shard) == {"mail", "push", "new"}
    assert await record_of(shard, "mail") == ConfigEntry("mail", f"{START_MS * 1000:016d}-00000000")
    assert await record_of(shard, "push") == ConfigEntry("push", "0000000000007000-00000000")
    revision = (await shard.list_config(0, 100)).revision
    await shard.open()
    assert (await shard.list_config(0, 100)).revision == revision


async def test_a_queue_from_before_there_were_entries_keeps_its_jobs_when_it_is_changed(
    shard: RedisShard, admin: redis.Redis
) -> None:
    admin.hset("{pinlater}:queues", "mail", START_MS)
    await shard.open()
    await shard.enqueue("mail", [Job(b"x")], START_MS)
    before = await record_of(shard, "mail")
    assert before is not None
    changed = ConfigEntry("mail", new_version(START_MS, before.version), '{"set": {}}')
    assert await shard.put_config([changed], START_MS) == [True]
    assert await shard.count("mail", JobState.PENDING, ALL, False, START_MS) == 1


async def test_a_refused_opening_makes_no_entries(shard: RedisShard, admin: redis.Redis, url: str) -> None:
    admin.hset("{pinlater}:queues", "mail", START_MS)
    stranger = RedisShard(url, "2")
    with pytest.raises(StoreRefused, match="not '2'"):
        await stranger.open()
    await stranger.close()
    assert await names_of(shard) == set()


async def test_revisions_do_not_begin_again_where_a_store_lost_its_last_ones(
    shard: RedisShard, admin: redis.Redis
) -> None:
    await make_queue(shard, "mail", START_MS)
    seen = (await shard.list_config(0, 100)).revision
    admin.delete("{pinlater}:revision")
    await make_queue(shard, "push", START_MS + 1)
    assert [record.name for record in (await shard.list_config(seen, 100)).entries] == ["push"]


async def test_old_tombstones_go_in_steps_and_live_entries_stay(shard: RedisShard) -> None:
    names = [f"q{number}" for number in range(5)]
    for name in names:
        await make_queue(shard, name, START_MS)
        await drop_queue(shard, name, START_MS + 1)
    await make_queue(shard, "q4", START_MS + 2)
    later = new_version(START_MS + 60_000)
    assert await shard.prune(3, START_MS, KEEP, tombstones_before=later) == {}
    assert len((await shard.list_config(0, 100)).entries) == 2
    assert await shard.prune(3, START_MS, KEEP, tombstones_before=later) == {}
    assert [record.name for record in (await shard.list_config(0, 100)).entries] == ["q4"]


async def test_in_a_redis_out_of_memory_settings_change_and_queues_go(
    durable_redis_server: StoreServer,
) -> None:
    shard = RedisShard(durable_redis_server.url(), "1")
    await shard.open()
    await make_queue(shard, "mail", START_MS)
    with redis.Redis.from_url(durable_redis_server.url(), decode_responses=True) as admin:
        admin.config_set("maxmemory", "1mb")
        paused = ConfigEntry("mail", new_version(START_MS + 1_000), '{"set": {"paused": "true"}}')
        assert await shard.put_config([paused], START_MS) == [True]
        assert await record_of(shard, "mail") == paused
        assert (await shard.set_quota("mail", 3, 1, START_MS)).quota == 3
        assert (await shard.take_tokens("mail", 1, 1.0, 1.0, START_MS)).granted == 1
        assert await shard.kv_put("lease", "a/1", b"{}", START_MS + 1, START_MS) == 1
        assert await drop_queue(shard, "mail", START_MS + 2_000)
        assert await names_of(shard) == set()
        admin.config_set("maxmemory", "0")
    await shard.close()


async def test_in_a_redis_out_of_memory_dead_letters_wait(durable_redis_server: StoreServer) -> None:
    shard = RedisShard(durable_redis_server.url(), "1")
    await shard.open()
    await make_queue(shard, "mail", START_MS)
    await make_queue(shard, "dead", START_MS)
    subject = Subject(shard)
    descriptor = await subject.job()
    await subject.claimed()
    await subject.ack_with(descriptor, False, permanent=True, dead_letters=True)
    with redis.Redis.from_url(durable_redis_server.url(), decode_responses=True) as admin:
        admin.config_set("maxmemory", "1mb")
        with pytest.raises(NothingStored):
            await shard.dead_letter(10, START_MS, {"mail": DeadLetterTarget("dead", 1)})
        admin.config_set("maxmemory", "0")
    assert await shard.dead_letter(10, START_MS, {"mail": DeadLetterTarget("dead", 1)}) == {"mail": 1}
    assert await shard.dead_letter(10, START_MS, {"mail": DeadLetterTarget("dead", 1)}) == {}
    await shard.close()


async def test_an_ordinary_job_has_no_link(shard: RedisShard, admin: redis.Redis) -> None:
    await make_queue(shard, "mail", START_MS)
    await make_queue(shard, "dead", START_MS)
    subject = Subject(shard)
    for state in reversed(JobState):
        await subject.job_in(state)
    assert not list(admin.scan_iter(match="*:links"))
    assert not list(admin.scan_iter(match="*:dead"))


async def test_what_is_left_of_a_dead_letter_is_nothing(shard: RedisShard, admin: redis.Redis) -> None:
    await make_queue(shard, "mail", START_MS)
    await make_queue(shard, "dead", START_MS)
    subject = Subject(shard)
    descriptor = await subject.job()
    await subject.claimed()
    await subject.ack_with(descriptor, False, permanent=True, dead_letters=True)
    assert await shard.dead_letter(10, START_MS, {"mail": DeadLetterTarget("dead", 1)}) == {"mail": 1}
    letter = (await subject.info(descriptor)).moved_to
    assert letter is not None
    assert len(await shard.replay("dead", [key_of(letter)], START_MS, None)) == 1
    ((taken,),) = [await subject.claim()]
    await subject.ack_with(taken.descriptor, True, keep_succeeded=False)
    subject.tick(10**10)
    assert await subject.prune() == {"mail": 1}
    assert await shard.expire_claims(10, subject.now_ms, PerQueue(NO_RULES)) == {}
    assert not list(admin.scan_iter(match="*:q:*"))
    assert not list(admin.scan_iter(match="*:dead"))
