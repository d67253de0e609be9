"""One client process of a benchmark: `python -m tests.bench.cycle_client --help`.

Connects, says `ready`, waits for a line on standard input, runs its share, and prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import sys
import time
from collections.abc import Sequence

from pinlater import AsyncClient, Job
from pinlater.model import Ack, DequeueRequest, ExtendedJob
from tests.bench.queues_stand import PASSWORD

QUEUE = "bench"
KEYS = ("none", "dedupe", "serialize", "group", "limited")
GROUPS = 10
FAR_AWAY = 1_000
"""The maximum of each group in the queue of "limited" ones, which they never reach."""

_NUMBERS = itertools.count()


def jobs_of(batch: int, body: bytes, keys: str = "none") -> Sequence[Job]:
    """A batch; where they have keys, no key stands twice in a run; groups, also limited ones, are GROUPS in turn."""
    if keys == "none":
        return [Job(body, attempts_allowed=5) for _ in range(batch)]
    if keys in ("group", "limited"):
        return [ExtendedJob(body, attempts_allowed=5, group=f"tenant-{number % GROUPS}") for number in range(batch)]
    names = [f"{os.getpid()}:{next(_NUMBERS)}" for _ in range(batch)]
    if keys == "dedupe":
        return [ExtendedJob(body, attempts_allowed=5, dedupe_key=name) for name in names]
    return [ExtendedJob(body, attempts_allowed=5, dedupe_key=name, serialize_key=name) for name in names]


async def cycles(client: AsyncClient, calls: list[int], batch: int, body: bytes, keys: str = "none") -> int:
    """Take one cycle after the other off `calls`: enqueue, dequeue and ack a batch. Returns the jobs acked."""
    done = 0
    while calls:
        calls.pop()
        await client.enqueue(QUEUE, jobs_of(batch, body, keys))
        jobs = await client.dequeue(DequeueRequest(QUEUE, batch))
        await client.ack(QUEUE, [Ack(job.descriptor) for job in jobs], [])
        done += len(jobs)
    return done


async def drain(client: AsyncClient, jobs_left: int, batch: int) -> int:
    """As many jobs as concurrent cycles left behind: a dequeue may have found fewer than a batch."""
    done = 0
    while done < jobs_left and (jobs := await client.dequeue(DequeueRequest(QUEUE, min(batch, jobs_left - done)))):
        await client.ack(QUEUE, [Ack(job.descriptor) for job in jobs], [])
        done += len(jobs)
    return done


async def run(server: str, batches: int, batch: int, in_flight: int, keys: str) -> None:
    body = os.urandom(200)
    async with AsyncClient(server) as client:
        await client.create_queue(QUEUE)
        if keys == "limited":
            await client.update_queue(QUEUE, PASSWORD, set={"group_concurrency": str(FAR_AWAY)})
        await cycles(client, [1] * in_flight, batch, body, keys)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        calls = [1] * batches
        began, cpu_began = time.monotonic(), time.process_time()
        done = sum(await asyncio.gather(*(cycles(client, calls, batch, body, keys) for _ in range(in_flight))))
        done += await drain(client, batches * batch - done, batch)
        seconds, cpu = time.monotonic() - began, time.process_time() - cpu_began
    print(json.dumps({"jobs": done, "seconds": round(seconds, 3), "cpu": round(cpu, 2)}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="HOST:PORT")
    parser.add_argument("--batches", type=int, required=True)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--in-flight", type=int, default=4)
    parser.add_argument("--keys", choices=KEYS, default="none", help="what each job has [none]")
    options = parser.parse_args()
    asyncio.run(run(options.server, options.batches, options.batch, options.in_flight, options.keys))


if __name__ == "__main__":
    main()
