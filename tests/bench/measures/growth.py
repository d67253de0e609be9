"""What a whole cycle costs with a million pending and a million future jobs in its queue, beside 10,000 of each."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Iterator
from typing import NamedTuple

from tests.bench.cycle_client import QUEUE
from tests.bench.figures import AtMost, Figure
from tests.bench.fill import fill_future, fill_pending, now_ms
from tests.bench.processes import Client, CpuWatch, per_job, served
from tests.bench.run import ALL_STORES, Run, Stand, stand
from tests.queues import make_queue

FEW, MANY = 10_000, 1_000_000
BATCH = 100
JOBS = {"sqlite": 20_000, "mysql": 10_000, "postgres": 10_000}
REDIS_JOBS = 60_000
IN_FLIGHT = 6
MOST = AtMost(1.3)


class _Cost(NamedTuple):
    us: float
    """Of time, per job."""

    cpu_us: dict[str, float]
    """By process, per job."""


def measure(run: Run) -> Iterator[Figure]:
    for name in ALL_STORES:
        with stand(run, name) as store:
            yield from _of(run, store)


def _of(run: Run, store: Stand) -> Iterator[Figure]:
    """The two queues are used in turn, on the same store, each time by a new server."""
    many = run.sizes.jobs(MANY)
    few_url, many_url = store.fresh(), store.fresh()
    for url, jobs in ((few_url, FEW), (many_url, many)):
        asyncio.run(_fill(run, store, url, jobs))
    batches = run.sizes.jobs(JOBS.get(store.name, REDIS_JOBS)) // BATCH
    few_costs, many_costs = [], []
    for number in range(run.sizes.rounds):
        few_costs.append(_cost(store, few_url, batches))
        many_costs.append(_cost(store, many_url, batches))
        run.say(f"  {store.name}, round {number + 1}: {many_costs[-1].us / few_costs[-1].us:.2f} times the time")
    notes = f"{many:,} pending and as many future jobs beside {FEW:,} of each, in the queue that the cycles use"
    yield Figure(
        f"growth/time {store.name}",
        "x",
        [large.us / small.us for small, large in zip(few_costs, many_costs, strict=True)],
        [MOST],
        cpu_us=many_costs[-1].cpu_us,
        persistence=store.persistence,
        notes=f"{notes}; a job takes {_median(few_costs):.0f} and {_median(many_costs):.0f} us",
    )
    yield Figure(
        f"growth/cpu {store.name}",
        "x",
        [
            sum(large.cpu_us.values()) / sum(small.cpu_us.values())
            for small, large in zip(few_costs, many_costs, strict=True)
        ],
        [MOST],
        cpu_us=few_costs[-1].cpu_us,
        persistence=store.persistence,
        notes="processor time of the server and the store; shown are the processes with few jobs",
    )


async def _fill(run: Run, store: Stand, url: str, jobs: int) -> None:
    shard = store.shard(url)
    await shard.open()
    try:
        await make_queue(shard, QUEUE, now_ms())
        await fill_future(shard, QUEUE, jobs, run.say)
        await fill_pending(shard, QUEUE, jobs, run.say)
    finally:
        await shard.close()


def _cost(store: Stand, url: str, batches: int) -> _Cost:
    with served([url], 1) as server:
        client = Client(server.address, batches=batches, batch=BATCH, in_flight=IN_FLIGHT)
        watch = CpuWatch({**store.pids, **server.pids()})
        watch.start()
        client.go()
        result = client.result()
        spent = watch.stop()
    return _Cost(result["seconds"] / result["jobs"] * 1e6, per_job(spent, result["jobs"]))


def _median(costs: list[_Cost]) -> float:
    return statistics.median(cost.us for cost in costs)
