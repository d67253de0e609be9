"""Single enqueue calls over Thrift, many in flight from one client, which joins them; and one at a time (Redis)."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator

from pinlater.backends.redis import RedisShard
from pinlater.model import Job
from tests.bench.cpu import CpuWatch, per_job
from tests.bench.figure import AtLeast, Figure, Goal
from tests.bench.floor import QUEUE
from tests.bench.processes import Program, served
from tests.bench.run import PERSISTENCE, Run
from tests.queues import make_queue
from tests.stores.process import StoreServer

CALLS = 200_000
IN_FLIGHT = 50
CALLS_ALONE = 20_000


def measure(run: Run) -> Iterator[Figure]:
    yield _figure(run, "single", CALLS, IN_FLIGHT, [AtLeast(60_000)])
    yield _figure(run, "single/alone", CALLS_ALONE, 1, [])


def _figure(run: Run, name: str, usual_calls: int, in_flight: int, goals: list[Goal]) -> Figure:
    store, calls = run.store("redis"), run.sizes.jobs(usual_calls)
    rates, floors = list[float](), list[float]()
    cpu: dict[str, float] = {}
    for number in range(run.sizes.rounds):
        before = _direct(store, calls, in_flight)
        rate, cpu = _over_thrift(store, calls, in_flight)
        after = _direct(store, calls, in_flight)
        rates.append(rate)
        floors.append((before + after) / 2)
        run.say(f"  {name}, round {number + 1}: {rates[-1]:,.0f} calls/s")
    return Figure(
        name,
        "calls/s",
        rates,
        goals,
        floors,
        f"one client that calls the enqueue script, a call at a time, {in_flight} jobs in each",
        cpu,
        PERSISTENCE["redis"],
        notes=f"200-byte bodies, one AsyncClient on uvloop with {in_flight} calls in flight, joined by default",
    )


def _direct(store: StoreServer, jobs: int, batch: int) -> float:
    store.empty(0)
    return asyncio.run(_direct_rate(store.url(0), jobs // batch // 2, batch))


async def _direct_rate(url: str, batches: int, batch: int) -> float:
    """Jobs per second of the script, called by one client."""
    shard = RedisShard(url, "1")
    await shard.open()
    try:
        await make_queue(shard, QUEUE, _now_ms())
        body = os.urandom(200)
        await _enqueues(shard, batches // 10 + 1, batch, body)
        began = time.monotonic()
        await _enqueues(shard, batches, batch, body)
        return batches * batch / (time.monotonic() - began)
    finally:
        await shard.close()


async def _enqueues(shard: RedisShard, batches: int, batch: int, body: bytes) -> None:
    for _ in range(batches):
        await shard.enqueue(QUEUE, [Job(body) for _ in range(batch)], _now_ms())


def _over_thrift(store: StoreServer, calls: int, in_flight: int) -> tuple[float, dict[str, float]]:
    """Calls per second through the server, and the processor time of every process per call."""
    store.empty(1)
    with served([store.url(1)], 1) as server:
        program = Program("singles", server=server.address, calls=calls, in_flight=in_flight)
        watch = CpuWatch({"redis": store.pid, **server.pids()})
        watch.start()
        program.go()
        result = program.result()
        spent = watch.stop() | {"client": result["cpu"]}
    return result["jobs"] / result["seconds"], per_job(spent, result["jobs"])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
