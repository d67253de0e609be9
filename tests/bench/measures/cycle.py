"""Whole cycles over Thrift (enqueue, dequeue, ack; batches of 100; clients included) on Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from pinlater.backends.redis import RedisShard
from tests.bench.cpu import CpuWatch, per_job
from tests.bench.figure import AtLeast, Figure, OfFloor
from tests.bench.floor import floor_rate
from tests.bench.processes import Client, served
from tests.bench.run import PERSISTENCE, Run
from tests.stores.process import StoreServer

BATCH = 100
JOBS = 100_000
IN_FLIGHT = 6


def measure(run: Run) -> Iterator[Figure]:
    store, batches = run.store("redis"), run.sizes.jobs(JOBS) // BATCH
    rates, floors, cpu = [], [], {}
    for number in range(run.sizes.rounds):
        before = _direct(store, batches)
        rate, cpu = _over_thrift(store, batches)
        after = _direct(store, batches)
        rates.append(rate)
        floors.append((before + after) / 2)
        run.say(f"  round {number + 1}: {rates[-1] / floors[-1]:.2f} of the floor")
    yield Figure(
        "cycle",
        "jobs/s",
        rates,
        [OfFloor(0.8), AtLeast(75_000)],
        floors,
        "one client that calls the three scripts, a call at a time",
        cpu,
        PERSISTENCE["redis"],
        notes=f"batches of {BATCH}, 200-byte bodies, one client process with {IN_FLIGHT} calls in flight",
    )


def _direct(store: StoreServer, batches: int) -> float:
    store.empty(0)
    return asyncio.run(_direct_rate(store.url(0), batches))


async def _direct_rate(url: str, batches: int) -> float:
    shard = RedisShard(url, "1")
    await shard.open()
    try:
        return await floor_rate(shard, batches, BATCH)
    finally:
        await shard.close()


def _over_thrift(store: StoreServer, batches: int) -> tuple[float, dict[str, float]]:
    """Jobs per second through the server, and the processor time of every process per job."""
    store.empty(1)
    with served([store.url(1)], 1) as server:
        client = Client(server.address, batches=batches, batch=BATCH, in_flight=IN_FLIGHT)
        watch = CpuWatch({"redis": store.pid, **server.pids()})
        watch.start()
        client.go()
        result = client.result()
        spent = watch.stop() | {"client": result["cpu"]}
    return result["jobs"] / result["seconds"], per_job(spent, result["jobs"])
