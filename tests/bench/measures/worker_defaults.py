"""No-op jobs that two workers drain with the default 8 threads, beside two with 100, per second (Redis)."""

from __future__ import annotations

from collections.abc import Iterator

from pinlater_workers.app.settings import WorkerSettings
from tests.bench.figures import Figure, OfFloor
from tests.bench.run import PERSISTENCE, Run
from tests.bench.worker_runs import Shape, drained

JOBS = 100_000
DEFAULT = Shape("thread", 2, WorkerSettings().concurrency)
MANY = Shape("thread", 2, 100)


def measure(run: Run) -> Iterator[Figure]:
    rates, floors = list[float](), list[float]()
    cpu: dict[str, float] = {}
    for number in range(run.sizes.rounds):
        before, _ = drained(run.store("redis"), MANY, run.sizes.jobs(JOBS))
        rate, cpu = drained(run.store("redis"), DEFAULT, run.sizes.jobs(JOBS))
        after, _ = drained(run.store("redis"), MANY, run.sizes.jobs(JOBS))
        rates.append(rate)
        floors.append((before + after) / 2)
        run.say(f"  round {number + 1}: {rate:,.0f} jobs/s, {rate / floors[-1]:.2f} of that with 100 slots")
    yield Figure(
        "worker_defaults",
        "jobs/s",
        rates,
        [OfFloor(0.9)],
        floors,
        str(MANY),
        cpu,
        PERSISTENCE["redis"],
        notes=str(DEFAULT),
    )
