"""A worker with slots that are all busy with one group's jobs, while jobs of another group come: `python -m
tests.bench.slots_client --help`.

Each slot takes one job, holds it for its run time and acks it. The flood lies ready before the first slot begins; jobs
of the calm group come one at a time at a pace. Prints how many milliseconds each calm job waited: from its enqueue
call to the answer that hands it out, by the clock of the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time

import uvloop

from pinlater import Ack, AsyncClient, DequeueRequest
from pinlater.model import ExtendedJob
from tests.bench.callers import QUEUE

FLOOD = b"flood"
BATCH = 500
WARM_UP = 30
WAIT_MS = 1_000


async def flood(client: AsyncClient, jobs: int, group: str) -> None:
    """Enqueue so many jobs of a group."""
    for start in range(0, jobs, BATCH):
        batch = [ExtendedJob(FLOOD, group=group) for _ in range(min(BATCH, jobs - start))]
        await client.enqueue(QUEUE, batch)


async def slot(client: AsyncClient, begins_s: float, run_s: float, waits: list[float]) -> None:
    """One job after the other, until it is cancelled; slots begin apart, so that one is free every now and then."""
    await asyncio.sleep(begins_s)
    done: list[Ack] = []
    while True:
        jobs = await client.dequeue(DequeueRequest(QUEUE, 1, succeeded=done, wait_ms=WAIT_MS))
        now_ns = time.time_ns()
        waits += [(now_ns - int(job.body)) / 1e6 for job in jobs if job.body != FLOOD]
        done = [Ack(job.descriptor) for job in jobs]
        if jobs:
            await asyncio.sleep(run_s)


async def bring(client: AsyncClient, options: argparse.Namespace) -> None:
    """The calm jobs, each of the next of the calm groups."""
    next_s = time.monotonic()
    for number in range(options.jobs + WARM_UP):
        group = f"calm-{number % options.calm_groups}"
        await client.enqueue(QUEUE, ExtendedJob(b"%d" % time.time_ns(), group=group))
        next_s = max(next_s + random.uniform(0.5, 1.5) / options.per_s, time.monotonic())
        await asyncio.sleep(next_s - time.monotonic())


async def run(options: argparse.Namespace) -> None:
    async with AsyncClient(options.server) as client, AsyncClient(options.server) as other:
        await client.create_queue(QUEUE)
        await flood(client, options.flood, options.flood_group)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        waits: list[float] = []
        cpu_began = time.process_time()
        run_s = options.run_ms / 1000
        begins = [run_s * number / options.slots for number in range(options.slots)]
        slots = [asyncio.ensure_future(slot(client, begins_s, run_s, waits)) for begins_s in begins]
        await asyncio.sleep(run_s)
        await bring(other, options)
        while len(waits) < options.jobs + WARM_UP:
            await asyncio.sleep(run_s)
        for each in slots:
            each.cancel()
        await asyncio.gather(*slots, return_exceptions=True)
        left = await client.count(QUEUE)
        cpu = time.process_time() - cpu_began
    found = waits[WARM_UP:]
    print(json.dumps({"jobs": len(found), "ms": found, "flood_left": left, "cpu": round(cpu, 3)}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="HOST:PORT")
    parser.add_argument("--slots", type=int, default=100, help="jobs that run at a time [100]")
    parser.add_argument("--run-ms", type=int, default=100, help="how long each runs [100]")
    parser.add_argument("--flood", type=int, default=0, help="jobs of the flooding group, stored first [0]")
    parser.add_argument("--flood-group", default="flood", help="its group [flood]")
    parser.add_argument("--jobs", type=int, required=True, help="calm jobs whose waits are printed")
    parser.add_argument("--calm-groups", type=int, default=1, help="of so many groups in turn [1]")
    parser.add_argument("--per-s", type=float, default=30, help="calm jobs a second [30]")
    uvloop.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
