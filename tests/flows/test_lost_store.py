"""A cluster whose only store loses all that it had: flows go on from their database."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pinlater import Ack, AsyncClient
from pinlater.errors import QueueNotFound
from pinlater.model import DequeueRequest
from pinlater.model.flow_words import FlowState, NewFlow, NewItem, Stage
from tests.server.running import running
from tests.stores.process import StoreServer
from tests.stores.redis_server import RedisServer

WITHIN_S = 60.0


async def _done(port: int, queue: str, limit: int) -> int:
    """Take up to so many items, and say that they succeeded; how many there were."""
    async with AsyncClient(f"127.0.0.1:{port}") as client:
        async with asyncio.timeout(WITHIN_S):
            while True:
                try:
                    jobs = await client.dequeue(DequeueRequest(queue, limit, wait_ms=5_000))
                except QueueNotFound:
                    await asyncio.sleep(0.05)
                    continue
                if jobs:
                    break
        acks = [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in jobs]
        await client.ack(queue, acks, [])
        return len(jobs)


async def test_items_come_again_into_queues_that_no_store_knows_any_more(tmp_path: Path) -> None:
    store: StoreServer = RedisServer()
    store.start()
    try:
        shard = f"1={store.url()}"
        stages = [Stage("work", "", "lost_work"), Stage("after", "", "lost_after", parent="work", is_final=True)]
        with running(tmp_path, "--store", shard) as server:
            async with AsyncClient(f"127.0.0.1:{server.port}") as client:
                items = {"work": [NewItem(b"%d" % number) for number in range(5)]}
                flow = await client.create_flow(NewFlow("lost", stages, items=items, sealed=["work"]))
            assert await _done(server.port, "lost_work", 2) == 2
        store.kill()
        store.start()
        with running(tmp_path, "--store", shard, "--accept-new-store", "1") as server:
            done = 0
            while done < 3:
                done += await _done(server.port, "lost_work", 10)
            done = 0
            while done < 5:
                done += await _done(server.port, "lost_after", 10)
            async with AsyncClient(f"127.0.0.1:{server.port}") as client:
                status = await client.get_flow(flow.id, wait_ms=20_000)
                assert status.state is FlowState.COMPLETE
                assert [(each.items, each.succeeded) for each in status.stages] == [(5, 5), (5, 5)]
    finally:
        store.stop()


async def test_items_go_on_where_shards_are_while_another_one_is_away(tmp_path: Path) -> None:
    """Also those that were added behind more than come into a queue in one step."""
    stores = [RedisServer(durable=True) for _ in range(2)]
    for store in stores:
        store.start()
    try:
        shards = [part for number, store in enumerate(stores, 1) for part in ("--store", f"{number}={store.url()}")]
        with running(tmp_path, *shards) as server:
            async with AsyncClient(f"127.0.0.1:{server.port}") as client:
                first = {"work": [NewItem(b"0")]}  # by the first of all keys it is decided where they live
                stage = Stage("work", "", "parts", is_final=True)
                flow = await client.create_flow(NewFlow("parts", [stage], items=first))
                assert await _done(server.port, "parts", 1) == 1
                stores[1].kill()
                for start in range(0, 3_000, 1_000):
                    items = [NewItem(b"%d" % number) for number in range(start, start + 1_000)]
                    await client.add_flow_items(flow.id, "work", items, seal=start == 2_000, timeout=60)
                done = 1
                while done < 1_100:  # of 1,500 or so
                    done += await _done(server.port, "parts", 500)
                async with asyncio.timeout(60):  # said once a step has waited for the store
                    while not any(
                        each.startswith("stage work: ") for each in (await client.get_flow(flow.id)).troubles
                    ):
                        await asyncio.sleep(0.1)
                stores[1].start()
                while done < 3_001:
                    done += await _done(server.port, "parts", 500)
                status = await client.get_flow(flow.id, wait_ms=20_000)
                assert (status.state, status.stages[0].succeeded, status.troubles) == (FlowState.COMPLETE, 3_001, [])
    finally:
        for store in stores:
            store.stop()
