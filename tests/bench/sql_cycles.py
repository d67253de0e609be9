"""Whole cycles on an SQL store beside the same store alone: what the measures of SQLite and MariaDB share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pinlater.backends.base import Shard
from tests.bench.figures import Figure, Goal, number
from tests.bench.floor import floor_rate
from tests.bench.processes import Client, CpuWatch, per_job, served
from tests.bench.run import Run

BATCH = 100
IN_FLIGHT = 6
FLOOR_IS = "one client that calls the store's methods directly, a call at a time"


@dataclass(frozen=True)
class SqlStore:
    """`fresh` gives the address of an empty place, `plain_inserts` the rate of rows that are only inserted there."""

    fresh: Callable[[], str]
    shard: Callable[[str], Shard]
    plain_inserts: Callable[[str, int], float]
    persistence: str
    pids: Mapping[str, int] = field(default_factory=dict)


def cycles(run: Run, name: str, store: SqlStore, jobs: int, goals: list[Goal]) -> Figure:
    """Each round: the floor, the server, the floor again, and rows that are only inserted."""
    rates, floors, plain, cpu = [], [], [], {}
    batches = run.sizes.jobs(jobs) // BATCH
    for round_number in range(1, run.sizes.rounds + 1):
        before = asyncio.run(_direct(store.shard(store.fresh()), batches))
        rate, cpu = _over_thrift(store, batches)
        after = asyncio.run(_direct(store.shard(store.fresh()), batches))
        rates.append(rate)
        floors.append((before + after) / 2)
        plain.append(store.plain_inserts(store.fresh(), batches))
        run.say(f"  round {round_number}: {rates[-1] / floors[-1]:.2f} of the floor")
    client = f"batches of {BATCH}, 200-byte bodies, one client process with {IN_FLIGHT} calls in flight"
    inserts = f"rows that are only inserted: {', '.join(map(number, plain))} a second"
    return Figure(name, "jobs/s", rates, goals, floors, FLOOR_IS, cpu, store.persistence, notes=f"{client}; {inserts}")


async def _direct(shard: Shard, batches: int) -> float:
    await shard.open()
    try:
        return await floor_rate(shard, batches, BATCH)
    finally:
        await shard.close()


def _over_thrift(store: SqlStore, batches: int) -> tuple[float, dict[str, float]]:
    """Jobs per second through one server process, and the processor time of every process per job."""
    with served([store.fresh()], 1) as server:
        client = Client(server.address, batches=batches, batch=BATCH, in_flight=IN_FLIGHT)
        watch = CpuWatch({**store.pids, **server.pids()})
        watch.start()
        client.go()
        result = client.result()
        spent = watch.stop() | {"client": result["cpu"]}
    return result["jobs"] / result["seconds"], per_job(spent, result["jobs"])
