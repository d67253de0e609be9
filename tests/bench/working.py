"""Workers of the framework that run no-op jobs, and what their progress says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.bench.cpu import CpuWatch, per_job
from tests.bench.draining import QUEUE, Progress, make_app
from tests.bench.processes import Program, Server, served
from tests.stores.process import StoreServer

WARM = 0.1
"""The first of the jobs do not count in a drain: until connections, threads and heartbeat processes are there."""


@dataclass(frozen=True)
class Shape:
    """So many worker processes, each with so many slots."""

    pool: str
    processes: int
    concurrency: int = 200

    def __str__(self) -> str:
        several = "es" if self.processes > 1 else ""
        return f"{self.processes} worker process{several}, pool {self.pool}, --concurrency {self.concurrency}"


def drained(store: StoreServer, shape: Shape, jobs: int) -> tuple[float, dict[str, float]]:
    """Jobs per second from a full queue, and the processor time of every process per job."""
    store.empty(0)
    with served([store.url(0)], 1) as server:
        app = make_app(server.address)
        app.client.create_queue(QUEUE)
        app.job_types[shape.pool].enqueue_many([(number,) for number in range(jobs)])
        app.close()
        workers = started(server, shape)
        watch = CpuWatch({"redis": store.pid, **server.pids()})
        watch.start()
        for worker in workers:
            worker.go()
        results = [worker.result() for worker in workers]
        spent = watch.stop() | spent_by(results)
    counted = check(results, jobs)
    first = round(counted * WARM)
    progress = together(results)
    seconds = reached_s(progress, counted) - reached_s(progress, first)
    return (counted - first) / seconds, per_job(spent, counted)


def started(server: Server, shape: Shape) -> list[Program]:
    options = {"server": server.address, "pool": shape.pool, "concurrency": shape.concurrency}
    return [Program("draining", **options) for _ in range(shape.processes)]


def check(results: Sequence[dict[str, Any]], jobs: int) -> int:
    """How many jobs were acked: all of them."""
    acked = sum(result["jobs"] for result in results)
    if acked != jobs:
        raise RuntimeError(f"{acked} jobs were acked, of {jobs}")
    return jobs


def spent_by(results: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Processor seconds of the workers, and of their heartbeat processes."""
    return {
        "workers": sum(result["cpu"] for result in results),
        "heartbeats": sum(result["heartbeats_cpu"] for result in results),
    }


def together(results: Sequence[dict[str, Any]]) -> Progress:
    """The progress of all workers as one."""
    steps = sorted(
        (moment, after - before)
        for result in results
        for (_, before), (moment, after) in zip(result["progress"], result["progress"][1:], strict=False)
    )
    acked, progress = 0, []
    for moment, more in steps:
        acked += more
        progress.append((moment, acked))
    return progress


def reached_s(progress: Progress, jobs: int) -> float:
    """When so many jobs were acked, between two looks in proportion."""
    before_s, before = progress[0][0], 0
    for moment, acked in progress:
        if acked >= jobs:
            return before_s + (moment - before_s) * (jobs - before) / (acked - before)
        before_s, before = moment, acked
    raise ValueError(f"{before} jobs were acked, and never {jobs}")
