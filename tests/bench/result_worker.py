"""A caller that enqueues and waits for the result, and a worker in another process: `python -m
tests.bench.result_worker --help`.

A job's body is the time of its enqueue. Its result is the time at which the worker began to ack it, and how long the
job was on its way, both by the clock of the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import sys
import time

import uvloop

from pinlater import Ack, AsyncClient, DequeueRequest, Job
from tests.bench.cycle_client import QUEUE

WAIT_MS = 2_000
WARM_UP = 30
LAST = b"last"


async def work(server: str) -> None:
    async with AsyncClient(server) as client:
        while True:
            for job in await client.dequeue(DequeueRequest(QUEUE, 1, wait_ms=WAIT_MS)):
                now_ns = time.time_ns()
                if job.body == LAST:
                    return
                result = b"%d %d" % (time.time_ns(), now_ns - int(job.body))
                await client.ack(QUEUE, [Ack(job.descriptor, result=result)], [])


def _work(server: str) -> None:
    uvloop.run(work(server))


async def call_and_wait(client: AsyncClient, jobs: int) -> tuple[list[float], list[float]]:
    """One after the other: milliseconds on the way to the worker, and from its ack to here."""
    pickups, results = [], []
    for _ in range(jobs):
        descriptor = await client.enqueue(QUEUE, Job(b"%d" % time.time_ns()))
        found = await client.lookup([descriptor], wait_ms=WAIT_MS, include_result=True)
        now_ns = time.time_ns()
        acked_ns, way_ns = map(int, (found[descriptor].result or b"").split())
        pickups.append(way_ns / 1e6)
        results.append((now_ns - acked_ns) / 1e6)
    return pickups, results


async def measured(server: str, jobs: int) -> dict[str, object]:
    async with AsyncClient(server) as client:
        await client.create_queue(QUEUE)
        worker = multiprocessing.get_context("spawn").Process(target=_work, args=(server,), daemon=True)
        worker.start()
        await call_and_wait(client, WARM_UP)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        pickups, results = await call_and_wait(client, jobs)
        await client.enqueue(QUEUE, Job(LAST))
    worker.join()
    return {"jobs": jobs, "pickup_ms": pickups, "result_ms": results}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="HOST:PORT")
    parser.add_argument("--jobs", type=int, required=True)
    options = parser.parse_args()
    print(json.dumps(uvloop.run(measured(options.server, options.jobs))), flush=True)


if __name__ == "__main__":
    main()
