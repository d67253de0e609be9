"""A producer and the framework's own workers at once, on one Redis: jobs enqueued and completed per second."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.bench.figures import AtLeast, Figure
from tests.bench.processes import CpuWatch, Program, per_job, served
from tests.bench.run import PERSISTENCE, Run
from tests.bench.worker_process import QUEUE, make_app
from tests.bench.worker_runs import Shape, check, spent_by, started, together
from tests.stores.process import StoreServer

JOBS = 200_000
AT_ONCE = 1_000
SETTLED_S = 2.0
"""Then the workers wait for jobs, and their heartbeat processes are there."""

SHAPES = {"together/threads": Shape("thread", 2), "together/asyncio": Shape("async", 2)}


def measure(run: Run) -> Iterator[Figure]:
    for name, shape in SHAPES.items():
        rates: list[float] = []
        cpu: dict[str, float] = {}
        for number in range(run.sizes.rounds):
            rate, cpu = _at_once(run.store("redis"), shape, run.sizes.jobs(JOBS))
            rates.append(rate)
            run.say(f"  {name}, round {number + 1}: {rate:,.0f} jobs/s")
        notes = f"one producer with enqueue_many of {AT_ONCE} jobs; {shape}"
        goal, kept = AtLeast(35_000), PERSISTENCE["redis"]
        yield Figure(name, "jobs/s", rates, [goal], cpu_us=cpu, persistence=kept, notes=notes)


def _at_once(store: StoreServer, shape: Shape, jobs: int) -> tuple[float, dict[str, float]]:
    """Jobs per second, from the first enqueue into an empty queue until the last ack."""
    store.empty(0)
    with served([store.url(0)], 1) as server:
        app = make_app(server.address)
        app.client.create_queue(QUEUE)
        app.close()
        producer = Program("producer", server=server.address, type=shape.pool, jobs=jobs, at_once=AT_ONCE)
        workers = started(server, shape)
        watch = CpuWatch({"redis": store.pid, **server.pids()})
        watch.start()
        for worker in workers:
            worker.go()
        time.sleep(SETTLED_S)
        producer.go()
        produced = producer.result()
        results = [worker.result() for worker in workers]
        began_s = produced["began_s"]
        spent = watch.stop() | spent_by(results, began_s) | {"producer": produced["cpu"]}
    counted = check(results, jobs)
    return counted / (together(results)[-1][0] - began_s), per_job(spent, counted)
