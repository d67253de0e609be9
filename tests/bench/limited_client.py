"""A worker with more slots than a group's maximum, and a backlog of that group: `python -m tests.bench.limited_client
--help`.

Each slot takes one job, holds it for its run time and acks it with its next dequeue. Prints how many jobs were acked in
how many seconds, and the most that were held at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence

import uvloop

from pinlater import Ack, AsyncClient, DequeueRequest
from pinlater.model import DequeuedJob, ExtendedJob
from tests.bench.cycle_client import QUEUE
from tests.bench.queues_stand import PASSWORD

GROUP = "limited"
AT_ONCE = 20
"""Enqueue calls in flight; each call goes to one shard, so that a call for each job spreads the backlog."""

WAIT_MS = 1_000


class Slots:
    """What all slots did."""

    def __init__(self, client: AsyncClient, run_s: float) -> None:
        self._client = client
        self._run_s = run_s
        self.done = self.held = self.most = 0

    async def work(self) -> None:
        """One job after the other, until it is cancelled."""
        jobs: Sequence[DequeuedJob] = ()
        while True:
            acks = [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in jobs]
            self.done += len(acks)
            jobs = await self._client.dequeue(DequeueRequest(QUEUE, 1, succeeded=acks, wait_ms=WAIT_MS))
            if jobs:
                self.held += 1
                self.most = max(self.most, self.held)
                await asyncio.sleep(self._run_s)
                self.held -= 1

    async def have_done(self, jobs: int) -> None:
        while self.done < jobs:
            await asyncio.sleep(self._run_s / 10)


async def fill(client: AsyncClient, jobs: int) -> None:
    calls = [1] * jobs

    async def caller() -> None:
        while calls:
            calls.pop()
            await client.enqueue(QUEUE, ExtendedJob(b"x", group=GROUP))

    await asyncio.gather(*(caller() for _ in range(AT_ONCE)))


async def run(options: argparse.Namespace) -> None:
    async with AsyncClient(options.server) as client:
        await client.create_queue(QUEUE)
        await client.update_queue(QUEUE, PASSWORD, set={"group_concurrency": str(options.concurrency)})
        await fill(client, 2 * options.jobs)
        slots = Slots(client, options.run_ms / 1000)
        working = [asyncio.ensure_future(slots.work()) for _ in range(options.slots)]
        await slots.have_done(options.jobs // 10)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        before, began, cpu_began = slots.done, time.monotonic(), time.process_time()
        await slots.have_done(before + options.jobs)
        jobs, seconds, cpu = slots.done - before, time.monotonic() - began, time.process_time() - cpu_began
        for each in working:
            each.cancel()
        await asyncio.gather(*working, return_exceptions=True)
    result = {"jobs": jobs, "seconds": round(seconds, 3), "most": slots.most, "cpu": round(cpu, 3)}
    print(json.dumps(result), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="HOST:PORT; its admin password is that of queues_stand.py")
    parser.add_argument("--jobs", type=int, required=True, help="that are counted, of about twice as many")
    parser.add_argument("--concurrency", type=int, default=5, help="the maximum of the group [5]")
    parser.add_argument("--slots", type=int, default=20, help="jobs that run at a time [20]")
    parser.add_argument("--run-ms", type=int, default=100, help="how long each runs [100]")
    uvloop.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
