"""A full queue drained over Thrift by plain loops of a client (dequeue and ack, batches of 100) on Redis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from tests.bench.figures import AtLeast, Figure
from tests.bench.floor import drain_rate, on_redis
from tests.bench.processes import Outcome, Program, loaded, served
from tests.bench.run import PERSISTENCE, Run
from tests.stores.process import StoreServer

BATCH = 100
JOBS = 200_000
IN_FLIGHT = 6


def measure(run: Run) -> Iterator[Figure]:
    store, batches = run.store("redis"), run.sizes.jobs(JOBS) // BATCH
    rates, floors = list[float](), list[float]()
    cpu: Mapping[str, float] = {}
    direct = partial(drain_rate, batches=batches // 2, batch=BATCH)
    for number in range(run.sizes.rounds):
        before = on_redis(store, direct)
        outcome = _over_thrift(store, batches)
        floors.append((before + on_redis(store, direct)) / 2)
        rates.append(outcome.rate)
        cpu = outcome.cpu_us
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


def _over_thrift(store: StoreServer, batches: int) -> Outcome:
    """Through the server."""
    store.empty(1)
    with served([store.url(1)], 1) as server:
        program = Program("callers drain", server=server.address, batches=batches, batch=BATCH, in_flight=IN_FLIGHT)
        return loaded(program, server, store)
