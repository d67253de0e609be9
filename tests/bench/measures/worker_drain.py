"""No-op jobs that the framework's own workers drain from one Redis, per second."""

from __future__ import annotations

from collections.abc import Iterator

from tests.bench.figures import AtLeast, Figure
from tests.bench.run import PERSISTENCE, Run
from tests.bench.worker_runs import Shape, drained

JOBS = 150_000

SHAPES = {
    "worker_drain/threads": (Shape("thread", 2), AtLeast(50_000)),
    "worker_drain/asyncio": (Shape("async", 2), AtLeast(50_000)),
    "worker_drain/one, threads": (Shape("thread", 1), AtLeast(20_000)),
    "worker_drain/one, asyncio": (Shape("async", 1), AtLeast(20_000)),
    "worker_drain/one, batches of 100": (Shape("batch", 1), AtLeast(20_000)),
}


def measure(run: Run) -> Iterator[Figure]:
    for name, (shape, goal) in SHAPES.items():
        rates: list[float] = []
        cpu: dict[str, float] = {}
        for number in range(run.sizes.rounds):
            rate, cpu = drained(run.store("redis"), shape, run.sizes.jobs(JOBS))
            rates.append(rate)
            run.say(f"  {name}, round {number + 1}: {rate:,.0f} jobs/s")
        yield Figure(name, "jobs/s", rates, [goal], cpu_us=cpu, persistence=PERSISTENCE["redis"], notes=str(shape))
