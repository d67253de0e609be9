"""Whole cycles over Thrift (enqueue, dequeue, ack; batches of 100; clients included) on Redis."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tests.bench.figures import AtLeast, Figure, OfFloor
from tests.bench.floor import floor_rate, on_redis
from tests.bench.processes import Client, Outcome, loaded, served
from tests.bench.run import PERSISTENCE, Run
from tests.stores.process import StoreServer

BATCH = 100
JOBS = 100_000
IN_FLIGHT = 6


def measure(run: Run) -> Iterator[Figure]:
    store, batches = run.store("redis"), run.sizes.jobs(JOBS) // BATCH
    direct = partial(floor_rate, batches=batches, batch=BATCH)
    outcomes, floors = [], []
    for number in range(run.sizes.rounds):
        before = on_redis(store, direct)
        outcomes.append(over_thrift([store], batches))
        floors.append((before + on_redis(store, direct)) / 2)
        run.say(f"  round {number + 1}: {outcomes[-1].rate / floors[-1]:.2f} of the floor")
    yield Figure(
        "cycle",
        "jobs/s",
        [outcome.rate for outcome in outcomes],
        [OfFloor(0.8), AtLeast(75_000)],
        floors,
        "one client that calls the three scripts, a call at a time",
        outcomes[-1].cpu_us,
        PERSISTENCE["redis"],
        notes=f"batches of {BATCH}, 200-byte bodies, one client process with {IN_FLIGHT} calls in flight",
    )


def over_thrift(stores: list[StoreServer], batches: int, processes: int = 1) -> Outcome:
    """Through a server with a shard in each of the stores."""
    for store in stores:
        store.empty(1)
    with served([store.url(1) for store in stores], processes) as server:
        client = Client(server.address, batches=batches, batch=BATCH, in_flight=IN_FLIGHT)
        return loaded(client, server, *stores)
