"""One worker process of a benchmark: `python -m tests.bench.draining --help`.

Says `ready`, waits for a line on standard input, drains the queue until so many jobs have succeeded and all results are
acked, and prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import resource
import sys
import time

from pinlater_workers import App
from pinlater_workers.metrics import Metrics
from pinlater_workers.worker import Worker
from pinlater_workers.worker_settings import WorkerSettings

QUEUE = "bench"
LOOK_EVERY_S = 0.005


def make_app(server: str) -> App:
    """With a job that does nothing, as a plain function and as a coroutine."""
    app = App(servers=[server])

    @app.job(queue=QUEUE, name="thread")
    def plain(number: int) -> None:
        pass

    @app.job(queue=QUEUE, name="async")
    async def coroutine(number: int) -> None:
        pass

    return app


async def drain(worker: Worker, metrics: Metrics, pool: str, warm_up: int, jobs: int) -> tuple[int, float]:
    """How many succeeded and were acked in how many seconds, once so many had warmed it up."""
    run = asyncio.create_task(worker.run())
    while (before := succeeded(metrics, worker, pool)) < warm_up:
        await asyncio.sleep(LOOK_EVERY_S)
    began = time.monotonic()
    while succeeded(metrics, worker, pool) < warm_up + jobs or worker.view().unacked:
        await asyncio.sleep(LOOK_EVERY_S)
    seconds = time.monotonic() - began
    worker.stop()
    await run
    return warm_up + jobs - before, seconds


def succeeded(metrics: Metrics, worker: Worker, pool: str) -> int:
    counted = metrics.read(worker.view()).get(("succeeded", pool))
    return int(counted[0]) if counted else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="HOST:PORT")
    parser.add_argument("--pool", choices=("thread", "async"), required=True)
    parser.add_argument("--jobs", type=int, required=True)
    parser.add_argument("--warm-up", type=int, default=0, help="jobs before these that do not count")
    parser.add_argument("--concurrency", type=int, default=200)
    parser.add_argument("--profile", metavar="FILE", help="write a profile of the main thread there")
    options = parser.parse_args()
    app = make_app(options.server)
    metrics = Metrics()
    settings = WorkerSettings(queues={QUEUE: 1}, concurrency=options.concurrency, pool=options.pool)
    worker = Worker(app, settings, "tests.bench.draining:app", metrics)
    print("ready", flush=True)
    sys.stdin.readline()
    cpu_began = time.process_time()
    profile = cProfile.Profile() if options.profile else None
    if profile:
        profile.enable()
    with asyncio.Runner() as runner:
        jobs, seconds = runner.run(drain(worker, metrics, options.pool, options.warm_up, options.jobs))
    if profile:
        profile.disable()
        profile.dump_stats(options.profile)
    cpu = time.process_time() - cpu_began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpus = {"worker": round(cpu, 2), "heartbeats": round(ended.ru_utime + ended.ru_stime, 2)}
    result = {"jobs": jobs, "seconds": round(seconds, 3), "cpu": cpus, "max_rss_mib": memory}
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
