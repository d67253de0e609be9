"""A worker of the framework whose jobs note when they begin: `python -m tests.bench.noting_worker --help`.

Says `ready`, begins at a line on standard input, ends at the next one, and prints one JSON object: for each job its
queue, when it began (seconds of time.time), and how many milliseconds after it was due.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable

from pinlater_workers import App
from pinlater_workers.app.settings import WorkerSettings
from pinlater_workers.cli.run import loop_factory
from pinlater_workers.observability.metrics import WorkerMetrics
from pinlater_workers.worker import Worker


def queue_names(count: int) -> list[str]:
    return [f"bench_{number}" for number in range(count)]


def make_app(server: str, queues: int, noted: list[tuple[str, float, float]]) -> App:
    """With a type of job for each queue, which has its name. The argument is the time when the job is due."""
    app = App(servers=[server])

    def noting(queue: str) -> Callable[[float], None]:
        def note(due_s: float) -> None:
            now_s = time.time()
            noted.append((queue, now_s, (now_s - due_s) * 1000))

        return note

    for queue in queue_names(queues):
        app.job(queue=queue, name=queue)(noting(queue))
    return app


async def work(worker: Worker) -> None:
    run = asyncio.create_task(worker.run())
    await asyncio.to_thread(sys.stdin.readline)
    worker.stop()
    await run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="HOST:PORT")
    parser.add_argument("--queues", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True)
    options = parser.parse_args()
    noted: list[tuple[str, float, float]] = []
    app = make_app(options.server, options.queues, noted)
    settings = WorkerSettings(queues=dict.fromkeys(app.job_types, 1), concurrency=options.slots)
    worker = Worker(app, settings, "tests.bench.noting_worker:app", WorkerMetrics())
    print("ready", flush=True)
    sys.stdin.readline()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(work(worker))
    print(json.dumps({"jobs": noted}), flush=True)


if __name__ == "__main__":
    main()
