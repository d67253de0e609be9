"""Single enqueue calls from 64 plain connections that join nothing, beside single inserts of one client (MariaDB)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tests.bench.figures import Figure, OfFloor
from tests.bench.floor import enqueue_rate, on_mariadb
from tests.bench.measures.plain import NOTES, over_thrift
from tests.bench.run import PERSISTENCE, Run

CALLS = 20_000
CALLS_ALONE = 1_000


def measure(run: Run) -> Iterator[Figure]:
    store = run.store("mysql", durable=True)
    calls = run.sizes.jobs(CALLS)
    alone = partial(enqueue_rate, calls=run.sizes.jobs(CALLS_ALONE), batch=1)
    outcomes, floors = [], []
    for number in range(run.sizes.rounds):
        before = on_mariadb(store, alone)
        outcomes.append(over_thrift(store, "enqueue", calls))
        floors.append((before + on_mariadb(store, alone)) / 2)
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
