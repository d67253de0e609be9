"""One worker process of a benchmark: `python -m tests.bench.worker_process --help`.

Says `ready`, waits for a line on standard input, runs jobs until none has come for a while, and prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import resource
import sys
import time
from typing import NamedTuple

from pinlater_workers import App, Batch
from pinlater_workers.app.settings import WorkerSettings
from pinlater_workers.cli.run import loop_factory
from pinlater_workers.observability.metrics import WorkerMetrics
from pinlater_workers.worker import Worker
from tests.bench.processes import cpu_seconds, started_by_main_thread

QUEUE = "bench"
BATCH_QUEUE = "bench_batches"
LOOK_EVERY_S = 0.02
QUIET_S = 3.0
"""A machine that others use too can stand still for more than a second."""


class Look(NamedTuple):
    """What this worker had done and used by a moment of time.monotonic, which is one clock for all processes."""

    moment_s: float
    acked: int
    cpu_s: float
    heartbeats_s: float
    """The processor time of its heartbeat process."""


def make_app(server: str) -> App:
    """With a job that does nothing: a plain function, a coroutine, and batches of 100, in a queue of their own."""
    app = App(servers=[server])

    @app.job(queue=QUEUE, name="thread")
    def plain(number: int) -> None:
        pass

    @app.job(queue=QUEUE, name="async")
    async def coroutine(number: int) -> None:
        pass

    @app.job(queue=BATCH_QUEUE, name="batch", batch=100)
    def batched(batch: Batch[int]) -> None:
        pass

    return app


async def drain(worker: Worker, metrics: WorkerMetrics, pool: str) -> list[Look]:
    """How it went, from the start until no job had come for QUIET_S."""
    run = asyncio.create_task(worker.run())
    progress = [look(0)]
    while not progress[-1].acked or time.monotonic() - progress[-1].moment_s < QUIET_S:
        await asyncio.sleep(LOOK_EVERY_S)
        acked = succeeded(metrics, worker, pool) - worker.view().unacked
        if acked > progress[-1].acked:
            progress.append(look(acked))
    worker.stop()
    await run
    return progress


def look(acked: int) -> Look:
    return Look(time.monotonic(), acked, time.process_time(), sum(map(cpu_seconds, started_by_main_thread())))


def succeeded(metrics: WorkerMetrics, worker: Worker, pool: str) -> int:
    counted = metrics.read(worker.view()).get(("succeeded", pool))
    return int(counted[0]) if counted else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="HOST:PORT")
    parser.add_argument("--pool", choices=("thread", "async", "batch"), required=True)
    parser.add_argument("--concurrency", type=int, default=200)
    parser.add_argument("--profile", metavar="FILE", help="write a profile of the main thread there (slow)")
    options = parser.parse_args()
    metrics = WorkerMetrics()
    app = make_app(options.server)
    queue, pool = app.job_types[options.pool].settings.queue, "async" if options.pool == "async" else "thread"
    settings = WorkerSettings(queues={queue: 1}, concurrency=options.concurrency, pool=pool)
    worker = Worker(app, settings, "tests.bench.worker_process:app", metrics)
    print("ready", flush=True)
    sys.stdin.readline()
    profile = cProfile.Profile() if options.profile else None
    if profile:
        profile.enable()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        progress = runner.run(drain(worker, metrics, options.pool))
    if profile:
        profile.disable()
        profile.dump_stats(options.profile)
    result = {
        "jobs": progress[-1].acked,
        "progress": progress,
        "max_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
