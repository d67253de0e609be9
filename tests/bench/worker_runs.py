"""Workers of the framework that run no-op jobs, and what their progress says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.bench.processes import CpuWatch, Program, Server, per_job, served
from tests.bench.worker_process import Look, make_app
from tests.stores.process import StoreServer

SETTLED_S = 1.0
"""What was before does not count in a drain: connections, threads and heartbeat processes begin."""


Progress = list[tuple[float, int]]
"""At which moment how many jobs were acked, by all workers."""


@dataclass(frozen=True)
class Shape:
    """So many worker processes, each with so many slots. `pool` "batch": threads, with batches of 100."""

    pool: str
    processes: int
    concurrency: int = 200

    def __str__(self) -> str:
        several = "es" if self.processes > 1 else ""
        return f"{self.processes} worker process{several}, pool {self.pool}, --concurrency {self.concurrency}"


def drained(store: StoreServer, shape: Shape, jobs: int) -> tuple[float, dict[str, float]]:
    """Jobs per second from a full queue, and the processor time of every process per job.

    Neither counts the start of the workers: what they do in SETTLED_S, or the first half of the jobs.
    """
    store.empty(0)
    with served([store.url(0)], 1) as server:
        app = make_app(server.address)
        job_type = app.job_types[shape.pool]
        app.client.create_queue(job_type.settings.queue)
        job_type.enqueue_many([(number,) for number in range(jobs)])
        app.close()
        workers = started(server, shape)
        watch = CpuWatch({"redis": store.pid, **server.pids()})
        watch.start()
        for worker in workers:
            worker.go()
        results = [worker.result() for worker in workers]
        spent = watch.stop()
    counted = check(results, jobs)
    progress = together(results)
    settled_s = min(reached_s(progress, counted // 2), progress[0][0] + SETTLED_S)
    first = next(acked for moment, acked in progress if moment >= settled_s)
    seconds = reached_s(progress, counted) - reached_s(progress, first)
    return (counted - first) / seconds, per_job(spent, counted) | per_job(spent_by(results, settled_s), counted - first)


def started(server: Server, shape: Shape) -> list[Program]:
    options = {"server": server.address, "pool": shape.pool, "concurrency": shape.concurrency}
    return [Program("worker_process", **options) for _ in range(shape.processes)]


def check(results: Sequence[dict[str, Any]], jobs: int) -> int:
    """How many jobs were acked: all of them."""
    acked = sum(result["jobs"] for result in results)
    if acked != jobs:
        raise RuntimeError(f"{acked} jobs were acked, of {jobs}")
    return jobs


def spent_by(results: Sequence[dict[str, Any]], since_s: float) -> dict[str, float]:
    """Processor seconds of the workers, and of their heartbeat processes, from that moment until the last ack."""
    spent = {"workers": 0.0, "heartbeats": 0.0}
    for result in results:
        looks = [Look(*each) for each in result["progress"]]
        began = next((each for each in looks if each.moment_s >= since_s), looks[-1])
        spent["workers"] += looks[-1].cpu_s - began.cpu_s
        spent["heartbeats"] += looks[-1].heartbeats_s - began.heartbeats_s
    return spent


def together(results: Sequence[dict[str, Any]]) -> Progress:
    """The progress of all workers as one."""
    steps = sorted(
        (moment, after - before)
        for result in results
        for (_, before, *_), (moment, after, *_) in zip(result["progress"], result["progress"][1:], strict=False)
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
