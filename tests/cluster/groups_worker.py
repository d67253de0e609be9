"""A worker process of the proof of group limits: `python -m tests.cluster.groups_worker LOG SERVER...`.

A job's body is `GROUP NUMBER`. Each job that is here goes into the log as a Run whose key is the group, a line of JSON,
and again before its ack leaves.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Sequence

from pinlater import Ack, AsyncClient, DequeueRequest
from pinlater.errors import PinLaterError
from pinlater.model import DequeuedJob
from tests.cluster.proof_workers import Log
from tests.cluster.runs import Run

QUEUE = "tenants"
SLOTS = 8
MOST = 3
"""The most jobs of a dequeue."""

WAIT_MS = 500
HELD_MS = 80, 120


async def one_round(client: AsyncClient, log: Log) -> None:
    jobs = await client.dequeue(DequeueRequest(QUEUE, random.randint(1, MOST), wait_ms=WAIT_MS))
    runs = [began(job) for job in jobs]
    log.write(runs)
    await asyncio.gather(*(finish(client, log, job, run) for job, run in zip(jobs, runs, strict=True)))


def began(job: DequeuedJob) -> Run:
    group, number = job.body.decode().split()
    return Run(group, int(number), job.claim_expires_at_ms, began_ns=time.time_ns())


async def finish(client: AsyncClient, log: Log, job: DequeuedJob, run: Run) -> None:
    await asyncio.sleep(random.uniform(*HELD_MS) / 1000)
    run.ended_ns = time.time_ns()
    log.write([run])
    await client.ack(QUEUE, [Ack(job.descriptor, claim_descriptor=job.claim_descriptor)])


async def work(path: str, servers: Sequence[str]) -> None:
    log = Log(path)
    async with AsyncClient(servers=servers) as client:

        async def forever() -> None:
            while True:
                try:
                    await one_round(client, log)
                except PinLaterError:
                    await asyncio.sleep(0.1)

        await asyncio.gather(*(forever() for _ in range(SLOTS)))


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], sys.argv[2:]))
