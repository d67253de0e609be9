"""Cycles of single jobs from 64 plain connections, the ack riding on the next dequeue (Redis)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tests.bench.figures import Figure, OfFloor
from tests.bench.floor import floor_rate, on_redis
from tests.bench.measures.plain import NOTES, over_thrift
from tests.bench.run import PERSISTENCE, Run

CYCLES = 20_000


def measure(run: Run) -> Iterator[Figure]:
    store, cycles = run.store("redis"), run.sizes.jobs(CYCLES)
    direct = partial(floor_rate, batches=cycles // 5, batch=1)
    outcomes, floors = [], []
    for number in range(run.sizes.rounds):
        before = on_redis(store, direct)
        outcomes.append(over_thrift(store, "cycles", cycles))
        floors.append((before + on_redis(store, direct)) / 2)
        run.say(f"  round {number + 1}: {outcomes[-1].rate / floors[-1]:.2f} of the floor")
    yield Figure(
        "single_cycles",
        "cycles/s",
        [outcome.rate for outcome in outcomes],
        [OfFloor(1.5)],
        floors,
        "one client that calls the enqueue, the claim and the ack script for one job after the other",
        outcomes[-1].cpu_us,
        PERSISTENCE["redis"],
        notes=NOTES,
    )
