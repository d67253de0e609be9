"""Enqueue calls over HTTP: singles beside a plain aiohttp answer, batches of 100 beside Thrift (Redis)."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

from tests.bench.figures import Figure, OfFloor
from tests.bench.processes import CpuWatch, Outcome, Program, loaded, per_job, served
from tests.bench.run import PERSISTENCE, Run
from tests.stores.process import StoreServer, dies_with_us

CALLS = 60_000
BATCHES = 1_500
BATCH = 100
CONNECTIONS = 64
IN_FLIGHT = 6


def measure(run: Run) -> Iterator[Figure]:
    store, calls, batches = run.store("redis"), run.sizes.jobs(CALLS), run.sizes.jobs(BATCHES)
    singles, floors, many, thrift = list[float](), list[float](), list[float](), list[float]()
    for number in range(run.sizes.rounds):
        before = _floor(calls)
        single = _over_http(store, calls, 1)
        after = _floor(calls)
        floors.append((before.rate + after.rate) / 2)
        singles.append(single.rate)
        of_thrift = _over_thrift(store, batches)
        batched = _over_http(store, batches, BATCH)
        thrift.append((of_thrift + _over_thrift(store, batches)) / 2)
        many.append(batched.rate)
        run.say(
            f"  round {number + 1}: {singles[-1] / floors[-1]:.2f} of a plain answer, "
            f"by {BATCH} {many[-1] / thrift[-1]:.2f} of Thrift"
        )
    yield Figure(
        "http",
        "calls/s",
        singles,
        [OfFloor(0.5)],
        floors,
        "a plain aiohttp server that reads JSON and answers JSON",
        {**single.cpu_us, **after.cpu_us},
        PERSISTENCE["redis"],
        notes=f"200-byte bodies, {CONNECTIONS} connections, one request at a time on each",
    )
    yield Figure(
        "http/batches",
        "jobs/s",
        many,
        [OfFloor(0.7)],
        thrift,
        f"the same over Thrift, one AsyncClient with {IN_FLIGHT} calls in flight",
        batched.cpu_us,
        PERSISTENCE["redis"],
        notes=f"batches of {BATCH}, 200-byte bodies, {IN_FLIGHT} connections",
    )


def _over_http(store: StoreServer, calls: int, batch: int) -> Outcome:
    store.empty(1)
    address = f"127.0.0.1:{_free_port()}"
    with served([store.url(1)], 1, options=["--api", address]) as server:
        prepared = Program("callers batches", server=server.address, batches=1, batch=1, in_flight=1)
        prepared.go()
        prepared.result()
        _await(address)
        return loaded(_load(address, calls, batch), server, store)


def _load(address: str, calls: int, batch: int) -> Program:
    path = "/v1/queues/bench/jobs" if batch == 1 else "/v1/queues/bench/jobs/batch"
    connections = CONNECTIONS if batch == 1 else IN_FLIGHT
    options = {"calls": calls, "connections": connections, "batch": batch}
    return Program("http_client load", address=address, path=path, **options)


def _over_thrift(store: StoreServer, batches: int) -> float:
    store.empty(1)
    with served([store.url(1)], 1) as server:
        program = Program("callers batches", server=server.address, batches=batches, batch=BATCH, in_flight=IN_FLIGHT)
        return loaded(program, server, store).rate


def _floor(calls: int) -> Outcome:
    with _plain_server() as (address, pid):
        program = _load(address, calls, 1)
        watch = CpuWatch({"plain": pid})
        watch.start()
        program.go()
        result = program.result()
        return Outcome(result["jobs"] / result["seconds"], per_job(watch.stop(), result["jobs"]))


@contextlib.contextmanager
def _plain_server() -> Iterator[tuple[str, int]]:
    """Its address and its process id."""
    command = [*dies_with_us(), sys.executable, "-m", "tests.bench.http_client", "floor"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip(), process.pid
    finally:
        process.communicate(timeout=30)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _await(address: str) -> None:
    host, _, port = address.rpartition(":")
    for _ in range(200):
        with contextlib.suppress(OSError), socket.create_connection((host, int(port))):
            return
        time.sleep(0.1)
    raise RuntimeError("the HTTP process did not start")
