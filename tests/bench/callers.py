"""Callers in one process, all from one client: `python -m tests.bench.callers batches|singles|drain --help`.

batches    each enqueues one batch after the other
singles    each enqueues one job after the other
drain      each dequeues and acks until the queue is empty; the acks of a batch ride on its next dequeue

The program connects, prepares, says `ready`, waits for a line on standard input, and prints one JSON object: how many
jobs, in how many seconds, with how much processor time. It runs on uvloop, as programs that are in a hurry do: that
comes with the extras of the server and of the workers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial

import uvloop

from pinlater import Ack, AsyncClient, DequeueRequest, Job
from tests.bench.cycle_client import KEYS, QUEUE, jobs_of

BODY = os.urandom(200)

Step = Callable[[AsyncClient], Awaitable[int]]


async def enqueue_batches(in_flight: int, batches: int, batch: int, keys: str, client: AsyncClient) -> int:
    """All batches, each taken by the caller that is free first; the jobs enqueued."""
    calls = [1] * batches

    async def caller() -> int:
        done = 0
        while calls:
            calls.pop()
            done += len(await client.enqueue(QUEUE, jobs_of(batch, BODY, keys)))
        return done

    return sum(await asyncio.gather(*(caller() for _ in range(in_flight))))


async def enqueue_singles(in_flight: int, calls: int, client: AsyncClient) -> int:
    """Each caller makes its share of the calls; how many these were."""

    async def caller() -> int:
        for _ in range(calls // in_flight):
            await client.enqueue(QUEUE, Job(BODY))
        return calls // in_flight

    return sum(await asyncio.gather(*(caller() for _ in range(in_flight))))


async def fill(batches: int, batch: int, client: AsyncClient) -> int:
    for _ in range(batches):
        await client.enqueue(QUEUE, [Job(BODY) for _ in range(batch)])
    return batches * batch


async def drain(in_flight: int, batch: int, client: AsyncClient) -> int:
    """The jobs that were dequeued and acked."""

    async def caller() -> int:
        done, acks = 0, list[Ack]()
        while jobs := await client.dequeue(DequeueRequest(QUEUE, batch, succeeded=acks)):
            acks = [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in jobs]
            done += len(jobs)
        return done

    return sum(await asyncio.gather(*(caller() for _ in range(in_flight))))


def steps_of(given: argparse.Namespace) -> tuple[Step, Step]:
    """What is done before it is ready, and what is measured."""
    if given.load == "batches":
        warm_up = partial(enqueue_batches, given.in_flight, given.batches // 10 + 1, given.batch, given.keys)
        return warm_up, partial(enqueue_batches, given.in_flight, given.batches, given.batch, given.keys)
    if given.load == "singles":
        warm_up = partial(enqueue_singles, given.in_flight, given.calls // 10)
        return warm_up, partial(enqueue_singles, given.in_flight, given.calls)
    return partial(fill, given.batches, given.batch), partial(drain, given.in_flight, given.batch)


async def measured(server: str, prepare: Step, load: Step) -> dict[str, object]:
    async with AsyncClient(server) as client:
        await client.create_queue(QUEUE)
        await prepare(client)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        began, cpu_began = time.monotonic(), time.process_time()
        done = await load(client)
        seconds, cpu = time.monotonic() - began, time.process_time() - cpu_began
    return {"jobs": done, "seconds": round(seconds, 4), "cpu": round(cpu, 3)}


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    loads = parser.add_subparsers(dest="load", required=True, metavar="batches|singles|drain")
    for name in ("batches", "singles", "drain"):
        load = loads.add_parser(name)
        load.add_argument("--server", required=True, help="HOST:PORT")
        load.add_argument("--in-flight", type=int, default=1, help="callers at the same time [1]")
        if name == "singles":
            load.add_argument("--calls", type=int, required=True, help="of all callers together")
            continue
        load.add_argument(
            "--batches", type=int, required=name == "batches", default=0, help="to enqueue; a drain's first"
        )
        load.add_argument("--batch", type=int, default=100)
        load.add_argument("--keys", choices=KEYS, default="none", help="what each job has [none]")
    return parser


def main() -> None:
    given = options().parse_args()
    print(json.dumps(uvloop.run(measured(given.server, *steps_of(given)))), flush=True)


if __name__ == "__main__":
    main()
