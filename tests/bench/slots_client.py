"""A worker with slots that are all busy with one group's jobs, while jobs of another group come: `python -m
tests.bench.slots_client --help`.

Each slot takes one job, holds it for its run time, half as long to half as long again, and acks it: with one time for
all, slots that had to wait once would end together ever after. The flood lies ready before the first slot begins; jobs
of the calm groups come one at a time at a pace. Prints how many milliseconds each calm job waited: from its enqueue
call to the answer that hands it out, by the clock of the machine. With `--apart queues` each group is a queue of its
own, of which one dequeue takes the next job; with `--apart nothing` all jobs are alike.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Sequence

import uvloop

from pinlater import Ack, AsyncClient, DequeueRequest
from pinlater.model import DequeuedJob, DequeueFromQueuesRequest, ExtendedJob, QueueAcks, QueueShare, parse_descriptor
from tests.bench.callers import QUEUE

FLOOD = b"flood"
BATCH = 500
WARM_UP = 30
WAIT_MS = 1_000


class Tenants:
    """How jobs of groups are enqueued and taken."""

    def __init__(self, client: AsyncClient, apart: str, groups: Sequence[str]) -> None:
        self._client = client
        self._apart = apart
        self._groups = groups

    async def create_queues(self) -> None:
        for queue in {self._queue(group) for group in self._groups}:
            await self._client.create_queue(queue)

    def _queue(self, group: str) -> str:
        return f"{QUEUE}-{group}" if self._apart == "queues" else QUEUE

    async def enqueue(self, group: str, *bodies: bytes) -> None:
        name = group if self._apart == "groups" else ""
        await self._client.enqueue(self._queue(group), [ExtendedJob(body, group=name) for body in bodies])

    async def take(self, done: Sequence[DequeuedJob]) -> Sequence[DequeuedJob]:
        """The next job, and what was done before is acked."""
        acks = [Ack(job.descriptor) for job in done]
        if self._apart != "queues":
            return await self._client.dequeue(DequeueRequest(QUEUE, 1, succeeded=acks, wait_ms=WAIT_MS))
        by_queue = [QueueAcks(queue_of(ack.descriptor), succeeded=[ack]) for ack in acks]
        shares = [QueueShare(self._queue(group)) for group in self._groups]
        return await self._client.dequeue_from_queues(DequeueFromQueuesRequest(shares, 1, by_queue, wait_ms=WAIT_MS))

    async def left(self) -> int:
        return await self._client.count(self._queue(self._groups[0]))


def queue_of(descriptor: str) -> str:
    ref = parse_descriptor(descriptor)
    assert ref is not None
    return ref.queue


async def flood(tenants: Tenants, jobs: int, group: str) -> None:
    """Enqueue so many jobs of a group."""
    for start in range(0, jobs, BATCH):
        await tenants.enqueue(group, *[FLOOD] * min(BATCH, jobs - start))


async def slot(tenants: Tenants, begins_s: float, run_s: float, waits: list[float]) -> None:
    """One job after the other, until it is cancelled; slots begin apart, so that one is free every now and then."""
    await asyncio.sleep(begins_s)
    jobs: Sequence[DequeuedJob] = ()
    while True:
        jobs = await tenants.take(jobs)
        now_ns = time.time_ns()
        waits += [(now_ns - int(job.body)) / 1e6 for job in jobs if job.body != FLOOD]
        if jobs:
            await asyncio.sleep(random.uniform(0.5, 1.5) * run_s)


async def bring(tenants: Tenants, options: argparse.Namespace) -> None:
    """The calm jobs, each of the next of the calm groups."""
    next_s = time.monotonic()
    for number in range(options.jobs + options.warm_up):
        await tenants.enqueue(calm(number % options.calm_groups), b"%d" % time.time_ns())
        next_s = max(next_s + random.uniform(0.5, 1.5) / options.per_s, time.monotonic())
        await asyncio.sleep(next_s - time.monotonic())


def calm(number: int) -> str:
    return f"calm-{number}"


async def run(options: argparse.Namespace) -> None:
    async with AsyncClient(options.server) as client, AsyncClient(options.server) as other:
        groups = [options.flood_group, *map(calm, range(options.calm_groups))]
        tenants, brought = (Tenants(each, options.apart, groups) for each in (client, other))
        await tenants.create_queues()
        await flood(tenants, options.flood, options.flood_group)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        waits: list[float] = []
        cpu_began = time.process_time()
        run_s = options.run_ms / 1000
        begins = [run_s * number / options.slots for number in range(options.slots)]
        slots = [asyncio.ensure_future(slot(tenants, begins_s, run_s, waits)) for begins_s in begins]
        await asyncio.sleep(run_s)
        await bring(brought, options)
        while len(waits) < options.jobs + options.warm_up:
            await asyncio.sleep(run_s)
        for each in slots:
            each.cancel()
        await asyncio.gather(*slots, return_exceptions=True)
        left = await tenants.left()
        cpu = time.process_time() - cpu_began
    found = waits[options.warm_up :]
    print(json.dumps({"jobs": len(found), "ms": found, "flood_left": left, "cpu": round(cpu, 3)}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="HOST:PORT")
    parser.add_argument("--slots", type=int, default=100, help="jobs that run at a time [100]")
    parser.add_argument("--run-ms", type=int, default=100, help="how long one runs in the mean [100]")
    parser.add_argument("--flood", type=int, default=0, help="jobs of the flooding group, stored first [0]")
    parser.add_argument("--flood-group", default="flood", help="its group [flood]")
    parser.add_argument("--jobs", type=int, required=True, help="calm jobs whose waits are printed")
    parser.add_argument("--calm-groups", type=int, default=1, help="of so many groups in turn [1]")
    parser.add_argument("--apart", choices=("groups", "queues", "nothing"), default="groups", help="[groups]")
    parser.add_argument("--warm-up", type=int, default=WARM_UP, help=f"calm jobs before those [{WARM_UP}]")
    parser.add_argument("--per-s", type=float, default=30, help="calm jobs a second [30]")
    uvloop.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
