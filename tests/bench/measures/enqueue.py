"""Enqueue calls with batches of 100 over Thrift on Redis: those of an AsyncClient, and those of the framework."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from pinlater import Client
from tests.bench.figures import Figure, OfFloor
from tests.bench.floor import enqueue_rate, on_redis
from tests.bench.processes import Outcome, Program, loaded, served
from tests.bench.run import PERSISTENCE, Run
from tests.bench.worker_process import QUEUE
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
    yield _of_framework(run, store)


def _of_framework(run: Run, store: StoreServer) -> Figure:
    """A call after the other, beside the enqueue of the plain client in the same way."""
    jobs, rates, floors = run.sizes.jobs(JOBS), list[float](), list[float]()
    for number in range(run.sizes.rounds):
        before = _produced(store, jobs, "producer --plain")
        rates.append(_produced(store, jobs, "producer"))
        floors.append((before + _produced(store, jobs, "producer --plain")) / 2)
        run.say(f"  enqueue/framework, round {number + 1}: {rates[-1]:,.0f} jobs/s, {rates[-1] / floors[-1]:.2f}")
    return Figure(
        "enqueue/framework",
        "jobs/s",
        rates,
        [OfFloor(0.9)],
        floors,
        f"Client.enqueue of {BATCH} jobs, whose bodies were made before",
        persistence=PERSISTENCE["redis"],
        notes=f"enqueue_many of {BATCH} calls, one after the other",
    )


def _produced(store: StoreServer, jobs: int, program: str) -> float:
    """Jobs per second."""
    store.empty(1)
    with served([store.url(1)], 1) as server:
        with Client(server.address) as client:
            client.create_queue(QUEUE)
        producer = Program(program, server=server.address, type="thread", jobs=jobs, at_once=BATCH)
        producer.go()
        result = producer.result()
    return jobs / (result["ended_s"] - result["began_s"])


def _over_thrift(store: StoreServer, batches: int) -> Outcome:
    store.empty(1)
    with served([store.url(1)], 1) as server:
        program = Program("callers batches", server=server.address, batches=batches, batch=BATCH, in_flight=IN_FLIGHT)
        return loaded(program, server, store)
