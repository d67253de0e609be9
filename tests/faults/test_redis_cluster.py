"""Shards in a Redis Cluster: a primary is killed, one stands still, and slots move to a new node, under load."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from redis.crc import key_slot

from pinlater.backends.redis.cluster_slots import prefix_of
from pinlater.client.async_client import AsyncClient
from pinlater.model import Job, parse_descriptor
from tests.faults.answered import CALLERS, Load, drained
from tests.faults.recorded_run import RecordedRun
from tests.server.running import running
from tests.speed import slower
from tests.stores.redis_cluster import RedisCluster

pytestmark = [pytest.mark.slow, pytest.mark.store("redis")]
SHARDS = 6


def slot_of(shard: int) -> int:
    return key_slot(prefix_of("pinlater", shard).encode())


Step = Callable[[RedisCluster], Awaitable[None]]


async def kill_a_primary(cluster: RedisCluster) -> None:
    killed = cluster.owner(slot_of(1))
    await asyncio.to_thread(killed.kill)
    await served_by_another(cluster, slot_of(1), killed.port)
    await asyncio.to_thread(killed.start)
    await asyncio.to_thread(cluster.settle)


async def freeze_a_primary(cluster: RedisCluster) -> None:
    still = cluster.owner(slot_of(2))
    await asyncio.to_thread(still.pause)
    await served_by_another(cluster, slot_of(2), still.port)
    still.resume()
    await asyncio.to_thread(cluster.settle)


async def add_a_node(cluster: RedisCluster) -> None:
    """With a replica, and a third of all slots."""
    new = await asyncio.to_thread(cluster.add)
    await asyncio.to_thread(cluster.add, new)
    before = cluster.owner(slot_of(3))
    await asyncio.to_thread(cluster.move, before, new, 16_384 // 3)
    assert cluster.owner(slot_of(3)) is new


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([kill_a_primary], id="killed"),
        pytest.param([kill_a_primary, freeze_a_primary, add_a_node], id="all"),
    ],
)
async def test_nothing_that_was_answered_is_lost_by_a_failover_or_a_move_of_slots(
    tmp_path: Path, steps: Sequence[Step]
) -> None:
    with RedisCluster() as cluster:
        store = f"jobs={cluster.url(f'?shards={SHARDS}&wait=1')}"
        run = RecordedRun(tmp_path)
        with running(tmp_path, "--store", store, "--processes", "1", "--call-timeout", "5s") as server:
            address = f"127.0.0.1:{server.port}"
            async with contextlib.AsyncExitStack() as stack:
                clients = [
                    await stack.enter_async_context(AsyncClient(address, timeout=1.0, history=run.folder))
                    for _ in range(CALLERS)
                ]
                await clients[0].create_queue("mail")
                load = Load(clients)
                async with load.going():
                    await asyncio.sleep(1.0)
                    for step in steps:
                        await step(cluster)
                    answered = load.answered
                    await asyncio.sleep(2.0)
                    assert load.answered > answered
                await asyncio.to_thread(cluster.settle)
                await all_shards_take_jobs(clients[0])
                await drained(clients[0])
                await run.look_up(clients[0])
    print(f"{load.answered:,} answered, errors {load.reasons}")
    assert load.answered > 2_000 / slower(time.monotonic)
    verdict = run.judge()
    assert verdict.jobs >= load.answered
    assert verdict.unsettled_jobs == 0


async def all_shards_take_jobs(client: AsyncClient) -> None:
    """A shard that was refused for a while is let in after a pause that is about as long."""
    out = {f"jobs{number}" for number in range(1, SHARDS + 1)}
    async with asyncio.timeout(240):
        while out:
            ref = parse_descriptor(await client.enqueue("mail", Job(b"one more")))
            assert ref is not None
            out.discard(ref.shard)


async def served_by_another(cluster: RedisCluster, slot: int, port: int) -> None:
    async with asyncio.timeout(120):
        while (await asyncio.to_thread(cluster.owner, slot)).port == port:
            await asyncio.sleep(0.1)
