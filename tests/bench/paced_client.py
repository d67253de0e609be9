"""A client at a moderate rate, and how long its dequeues take: `python -m tests.bench.paced_client --help`.

Connects, says `ready`, begins at a line on standard input, ends at the next one, and prints one JSON object. Its calls
leave at fixed times, whatever became of those before.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from typing import Any

from pinlater import AsyncClient, Job
from pinlater.model import Ack, DequeueRequest

QUEUE = "bench"
EVERY_S = 0.01
BATCH = 100
EVERY_BATCH = 10
"""Every so many dequeues ask for a batch, the others for one job."""

FILL = 50
"""So many batches lie in a queue that is filled at first: calls overlap."""


async def cycle(client: AsyncClient, jobs: int, body: bytes, took_ms: list[float]) -> int:
    """Dequeue, ack what came, and enqueue as many again; how many."""
    began = time.monotonic()
    found = await client.dequeue(DequeueRequest(QUEUE, jobs))
    took_ms.append((time.monotonic() - began) * 1000)
    if found:
        await client.ack(QUEUE, [Ack(job.descriptor) for job in found], [])
        await client.enqueue(QUEUE, [Job(body, attempts_allowed=5) for _ in found])
    return len(found)


async def run(server: str, batch: int | None) -> None:
    body = os.urandom(200)
    took_ms: list[float] = []
    async with AsyncClient(server) as client:
        if batch is None:
            await cycle(client, BATCH, body, [])
        else:
            await client.create_queue(QUEUE)
            await client.enqueue(QUEUE, [Job(body, attempts_allowed=5)] * (FILL * batch))
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        end = asyncio.ensure_future(asyncio.to_thread(sys.stdin.readline))
        cpu_began, next_at, number = time.process_time(), time.monotonic(), 0
        under_way: list[asyncio.Task[int]] = []
        async with asyncio.TaskGroup() as calls:
            while not end.done():
                jobs = batch or (1 if number % EVERY_BATCH else BATCH)
                under_way.append(calls.create_task(cycle(client, jobs, body, took_ms)))
                number += 1
                next_at = max(next_at + EVERY_S, time.monotonic())
                await asyncio.sleep(next_at - time.monotonic())
    jobs_done = sum(each.result() for each in under_way)
    result: dict[str, Any] = {
        "jobs": jobs_done,
        "took_ms": [round(each, 2) for each in took_ms],
        "cpu": round(time.process_time() - cpu_began, 2),
    }
    print(json.dumps(result), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="HOST:PORT")
    parser.add_argument("--batch", type=int, help="all calls are for so many jobs, and the queue is filled at first")
    options = parser.parse_args()
    asyncio.run(run(options.server, options.batch))


if __name__ == "__main__":
    main()
