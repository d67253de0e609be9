"""Single enqueue calls from 64 plain connections that join nothing, beside single inserts of one client (MariaDB)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from pinlater.backends.sql.mysql import MysqlShard
from tests.bench.figure import Figure, OfFloor
from tests.bench.floor import enqueue_rate
from tests.bench.measures.plain import NOTES, over_thrift
from tests.bench.run import PERSISTENCE, Run
from tests.stores.process import StoreServer

CALLS = 20_000
CALLS_ALONE = 1_000


def measure(run: Run) -> Iterator[Figure]:
    store = run.store("mysql", durable=True)
    calls, alone = run.sizes.jobs(CALLS), run.sizes.jobs(CALLS_ALONE)
    outcomes, floors = [], []
    for number in range(run.sizes.rounds):
        before = _alone(store, alone)
        outcomes.append(over_thrift(store, "enqueue", calls))
        floors.append((before + _alone(store, alone)) / 2)
        run.say(f"  round {number + 1}: {outcomes[-1].rate / floors[-1]:.1f} times the floor")
    yield Figure(
        "mariadb_single",
        "calls/s",
        [outcome.rate for outcome in outcomes],
        [OfFloor(5)],
        floors,
        "one client that enqueues one job at a time by the store's method",
        outcomes[-1].cpu_us,
        PERSISTENCE["mysql"],
        notes=NOTES,
    )


def _alone(store: StoreServer, calls: int) -> float:
    store.empty(0)
    return asyncio.run(_rate(store.url(0), calls))


async def _rate(url: str, calls: int) -> float:
    shard = MysqlShard(url, "1")
    await shard.open()
    try:
        return await enqueue_rate(shard, calls, 1)
    finally:
        await shard.close()
