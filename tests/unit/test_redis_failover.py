"""A Redis with replicas: addresses of sentinels, answers that wait for replicas, and a change of the primary."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from redis.crc import key_slot

from pinlater.backends.base import Notification
from pinlater.backends.redis import RedisShard
from pinlater.backends.redis.address import parse_address
from pinlater.backends.redis.cluster_slots import MOST_SHARDS, prefix_of
from pinlater.backends.redis.failover import ReplicatedConnection, ReplicaWait
from pinlater.config.stores import CLUSTER_SHARDS, MOST_CLUSTER_SHARDS, StoreMistake, expanded, parse_store
from pinlater.errors import NothingStored, OutcomeUnknown, PinLaterError, RequestInvalid
from pinlater.model import Job
from tests.queues import make_queue
from tests.stores.process import free_port
from tests.stores.redis_server import RedisServer
from tests.stores.sentinels import NAME, SentinelGroup

NOW_MS = 1_790_000_000_000


# -- addresses ---------------------------------------------------------------------------------------------------------


def test_an_address_of_sentinels_has_its_parts() -> None:
    url = "redis+sentinel://app:p%40ss@s1:26380,s2,[::1]:5/jobs/3?prefix=mail&wait=2&wait_ms=500&sentinel_password=q"
    address = parse_address(url)
    assert address.sentinels is not None
    assert address.sentinels.endpoints == (("s1", 26380), ("s2", 26379), ("::1", 5))
    assert (address.sentinels.name, address.sentinels.login) == ("jobs", ("q",))
    assert (address.db, address.login, address.prefix) == (3, ("app", "p@ss"), "mail")
    assert (address.wait.count, address.wait.within_ms) == (2, 500)
    assert "p@ss" not in repr(address)
    assert "'q'" not in repr(address)


def test_tls_is_for_sentinels_and_redis_alike() -> None:
    assert parse_address("rediss+sentinel://s1/jobs").tls is not None
    assert parse_address("redis+sentinel://s1/jobs").tls is None


@pytest.mark.parametrize(
    "url",
    [
        *(
            "redis+sentinel://s1,s2",
            "redis+sentinel:///jobs/0",
            "redis+sentinel://s1:x/jobs",
            "redis+sentinel://s1,/jobs",
        ),
        *("redis+sentinel://s1/jobs/first", "redis+sentinel://s1/jobs?wait=many", "redis://h/0?wait=-1"),
        *("redis://h/0?wait_ms=99999", "redis+sentinel://s1/jobs?master=jobs"),
    ],
)
def test_mistakes_in_an_address_are_refused(url: str) -> None:
    with pytest.raises(RequestInvalid, match="redis url"):
        parse_address(url)


@pytest.mark.parametrize(
    "url",
    [
        *("redis+cluster:///?shard=1", "redis+cluster://n1/3?shard=1", "redis+cluster://n1,/?shard=1"),
        *("redis+cluster://n1/?shard=0", "redis+cluster://n1/?shard=65", "redis+cluster://n1:port/?shard=1"),
    ],
)
def test_mistakes_in_an_address_of_a_cluster_are_refused(url: str) -> None:
    with pytest.raises(RequestInvalid, match="redis url"):
        parse_address(url)


def test_shards_of_a_cluster_keep_their_slots_and_are_spread_over_them() -> None:
    slots = [key_slot(parse_address(f"redis+cluster://n1/?shard={n}").prefix.encode()) for n in range(1, 65)]
    assert slots[:4] == [2, 8273, 4293, 12419]
    for shards in (4, 16, 64):
        assert len({slot * shards // 16_384 for slot in slots[:shards]}) == shards


def test_an_entry_of_a_cluster_is_as_many_shards() -> None:
    stores = expanded(parse_store("jobs=redis+cluster://:geheim@n1:7001,n2/?shards=3&prefix=mail"))
    assert [store.id for store in stores] == ["jobs1", "jobs2", "jobs3"]
    assert [parse_address(store.url).prefix for store in stores] == [prefix_of("mail", n) for n in (1, 2, 3)]
    assert {store.masked().partition("?")[0] for store in stores} == {"redis+cluster://:***@n1:7001,n2/"}
    assert len(expanded(parse_store("redis+cluster://n1/"))) == CLUSTER_SHARDS
    assert MOST_CLUSTER_SHARDS == MOST_SHARDS
    for wrong in (
        "redis+cluster://n1/?shards=0",
        "redis+cluster://n1/?shards=65",
        "fifteenletters1=redis+cluster://n1/",
    ):
        with pytest.raises(StoreMistake):
            expanded(parse_store(wrong))


# -- answers that wait for replicas ------------------------------------------------------------------------------------


class Replica(RedisServer):
    def __init__(self, primary: int) -> None:
        super().__init__()
        self.primary = primary

    def command(self) -> list[str]:
        return [*super().command(), "--replicaof", "127.0.0.1", str(self.primary)]


@pytest.fixture
def pair() -> Iterator[tuple[RedisServer, Replica]]:
    """A primary and a replica that is in step."""
    primary = RedisServer()
    primary.start()
    replica = Replica(primary.port)
    replica.start()
    try:
        with redis.Redis(port=primary.port) as client:
            while not client.wait(1, 1_000):
                pass
        yield primary, replica
    finally:
        replica.stop()
        primary.stop()


async def opened(url: str) -> RedisShard:
    shard = RedisShard(url, "1")
    await shard.open()
    await make_queue(shard, "mail", NOW_MS)
    return shard


@pytest.mark.store("redis")
async def test_an_answer_waits_for_the_replicas_it_is_to_wait_for(pair: tuple[RedisServer, Replica]) -> None:
    primary, replica = pair
    shard, hasty = await opened(f"{primary.url()}?wait=1&wait_ms=4000"), RedisShard(f"{primary.url()}?wait=1&wait_ms=1")
    with redis.Redis(port=replica.port) as client:
        for number in range(1, 21):
            await asyncio.gather(*[shard.enqueue("mail", [Job(b"x")], NOW_MS) for _ in range(5)])
            (key,) = client.scan_iter("*mail:jobs", count=1000)
            assert client.hlen(key) == 5 * number
    replica.pause()
    try:
        calls = [hasty.enqueue("mail", [Job(b"unknown")], NOW_MS) for _ in range(3)]
        several = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(each) for each in several} == {OutcomeUnknown}
        assert "0 of 1 replicas had it within 1 ms" in str(several[0])
    finally:
        replica.resume()
    await shard.enqueue("mail", [Job(b"again")], NOW_MS)
    assert (await shard.count_ready("mail", [1], 200, NOW_MS))[0] == 104
    await hasty.close()
    await shard.close()


@pytest.mark.store("redis")
async def test_calls_on_a_connection_that_is_given_up_in_that_moment_are_told(
    pair: tuple[RedisServer, Replica],
) -> None:
    connection = ReplicatedConnection(2.0, ReplicaWait(1))
    await asyncio.get_running_loop().create_connection(lambda: connection, "127.0.0.1", pair[0].port)
    connection.waits = True
    first = connection.send(("INCR", "a"))
    connection.retire()
    with pytest.raises(OutcomeUnknown, match="given up"):
        await first
    with pytest.raises(NothingStored):
        connection.send(("INCR", "a"))
    await connection.close()


# -- sentinels ---------------------------------------------------------------------------------------------------------


@pytest.mark.store("redis")
async def test_sentinels_that_do_not_answer_are_named() -> None:
    ports = sorted([free_port(), free_port()])
    shard = RedisShard(f"redis+sentinel://127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}/jobs/0", "1")
    with pytest.raises(NothingStored, match=f"no sentinel names a primary.*{ports[0]}.*{ports[1]}"):
        await shard.open()
    await shard.close()


@pytest.mark.slow
@pytest.mark.store("redis")
async def test_a_shard_follows_its_primary_and_so_do_those_who_wait_for_its_jobs() -> None:
    with SentinelGroup() as group:
        unknown = RedisShard(group.url().replace(f"/{NAME}/", "/other/"), "1")
        with pytest.raises(NothingStored, match="watches nothing called 'other'"):
            await unknown.open()
        await unknown.close()
        shard, other = await opened(group.url()), RedisShard(group.url(), "1")
        await other.open()
        moved, heard = asyncio.Event(), asyncio.Queue[Notification | None]()
        shard.events = Moved(moved)
        assert await shard.subscribe("mail", heard.put_nowait)
        await other.enqueue("mail", [Job(b"1")], NOW_MS)
        assert await asyncio.wait_for(heard.get(), 60) is not None
        before = group.primary()
        with redis.Redis(port=group.sentinels[1].port) as client:
            client.execute_command("SENTINEL", "FAILOVER", NAME)
        await asyncio.to_thread(group.failed_over, before)
        assert await asyncio.wait_for(heard.get(), 60) is None
        await asyncio.wait_for(moved.wait(), 60)
        await until(lambda: other.enqueue("mail", [Job(b"2")], NOW_MS))
        assert await until(lambda: shard.subscribe("mail", heard.put_nowait))
        await other.enqueue("mail", [Job(b"3")], NOW_MS)
        assert await asyncio.wait_for(heard.get(), 60) is not None
        assert (await shard.count_ready("mail", [1], 10, NOW_MS))[0] >= 3
        await other.close()
        await shard.close()


class Moved:
    """Hears that the store moved."""

    def __init__(self, moved: asyncio.Event) -> None:
        self._moved = moved

    def jobs_freed(self, queue: str, run_after_ms: Any) -> None: ...

    def jobs_ended(self, queue: str, ids: Any) -> None: ...

    def store_moved(self) -> None:
        self._moved.set()


async def until(call: Any) -> Any:
    """Its first answer that is one."""
    async with asyncio.timeout(60):
        while True:
            try:
                if answer := await call():
                    return answer
            except PinLaterError:
                pass
            await asyncio.sleep(0.05)
