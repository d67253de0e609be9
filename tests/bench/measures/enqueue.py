"""Enqueue calls with batches of 100 over Thrift on Redis."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tests.bench.figures import Figure, OfFloor
from tests.bench.floor import enqueue_rate, on_redis
from tests.bench.processes import Outcome, Program, loaded, served
from tests.bench.run import PERSISTENCE, Run
from tests.stores.process import StoreServer

BATCH = 100
JOBS = 200_000
IN_FLIGHT = 6


def measure(run: Run) -> Iterator[Figure]:
    store, batches = run.store("redis"), run.sizes.jobs(JOBS) // BATCH
    direct = partial(enqueue_rate, calls=batches // 2, batch=BATCH)
    outcomes, floors = [], []
    for number in range(run.sizes.rounds):
        before = on_redis(store, direct)
        outcomes.append(_over_thrift(store, batches))
        floors.append((before + on_redis(store, direct)) / 2)
        run.say(f"  round {number + 1}: {outcomes[-1].rate / floors[-1]:.2f} of the floor")
    yield Figure(
        "enqueue",
        "jobs/s",
        [outcome.rate for outcome in outcomes],
        [OfFloor(0.8)],
        floors,
        "one client that calls the enqueue script, a call at a time",
        outcomes[-1].cpu_us,
        PERSISTENCE["redis"],
        notes=f"batches of {BATCH}, 200-byte bodies, one AsyncClient on uvloop with {IN_FLIGHT} calls in flight",
    )


def _over_thrift(store: StoreServer, batches: int) -> Outcome:
    store.empty(1)
    with served([store.url(1)], 1) as server:
        program = Program("callers batches", server=server.address, batches=batches, batch=BATCH, in_flight=IN_FLIGHT)
        return loaded(program, server, store)
