"""A full queue drained over Thrift by plain loops of a client (dequeue and ack, batches of 100) on Redis."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator

from pinlater.backends.base import AckRequest, ClaimRequest
from pinlater.backends.redis import RedisShard
from pinlater.model import Job, parse_descriptor
from tests.bench.cpu import CpuWatch, per_job
from tests.bench.figure import AtLeast, Figure
from tests.bench.floor import QUEUE
from tests.bench.processes import Program, served
from tests.bench.run import PERSISTENCE, Run
from tests.queues import make_queue
from tests.stores.process import StoreServer

BATCH = 100
JOBS = 200_000
IN_FLIGHT = 6


def measure(run: Run) -> Iterator[Figure]:
    store, batches = run.store("redis"), run.sizes.jobs(JOBS) // BATCH
    rates, floors = list[float](), list[float]()
    cpu: dict[str, float] = {}
    for number in range(run.sizes.rounds):
        before = _direct(store, batches // 2)
        rate, cpu = _over_thrift(store, batches)
        after = _direct(store, batches // 2)
        rates.append(rate)
        floors.append((before + after) / 2)
        run.say(f"  round {number + 1}: {rates[-1]:,.0f} jobs/s, {rates[-1] / floors[-1]:.2f} of the floor")
    yield Figure(
        "drain",
        "jobs/s",
        rates,
        [AtLeast(100_000)],
        floors,
        "one client that calls the claim script and the ack script, a call at a time",
        cpu,
        PERSISTENCE["redis"],
        notes=f"batches of {BATCH}, 200-byte bodies, one AsyncClient on uvloop with {IN_FLIGHT} loops, "
        "in each of which the acks ride on the next dequeue",
    )


def _direct(store: StoreServer, batches: int) -> float:
    store.empty(0)
    return asyncio.run(_direct_rate(store.url(0), batches))


async def _direct_rate(url: str, batches: int) -> float:
    """Jobs per second, claimed and acked."""
    shard = RedisShard(url, "1")
    await shard.open()
    try:
        await make_queue(shard, QUEUE, _now_ms())
        body = os.urandom(200)
        for _ in range(batches):
            await shard.enqueue(QUEUE, [Job(body) for _ in range(BATCH)], _now_ms())
        began = time.monotonic()
        done = await _drained(shard)
        return done / (time.monotonic() - began)
    finally:
        await shard.close()


async def _drained(shard: RedisShard) -> int:
    done = 0
    while True:
        now_ms = _now_ms()
        claim = ClaimRequest(f"bench:1:{now_ms}:{done}:floor", BATCH, (1, 2, 3), 300_000, 8 << 20)
        (jobs,) = await shard.claim(QUEUE, [claim], now_ms)
        if not jobs:
            return done
        acks = [AckRequest(ref.priority, ref.id, True) for job in jobs if (ref := parse_descriptor(job.descriptor))]
        await shard.ack(QUEUE, acks, now_ms)
        done += len(jobs)


def _over_thrift(store: StoreServer, batches: int) -> tuple[float, dict[str, float]]:
    """Jobs per second through the server, and the processor time of every process per job."""
    store.empty(1)
    with served([store.url(1)], 1) as server:
        program = Program("emptying", server=server.address, batches=batches, batch=BATCH, in_flight=IN_FLIGHT)
        watch = CpuWatch({"redis": store.pid, **server.pids()})
        watch.start()
        program.go()
        result = program.result()
        spent = watch.stop() | {"client": result["cpu"]}
    return result["jobs"] / result["seconds"], per_job(spent, result["jobs"])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
