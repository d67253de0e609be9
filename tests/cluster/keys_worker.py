"""A worker process of the proof of order: `python -m tests.cluster.keys_worker LOG SERVER...`.

A job's body is `KEY NUMBER WAY`; by its way its first attempt succeeds, fails, or is left alone until its claim
expires. Each attempt goes into the log as a Run, a line of JSON: once the job is here, and again before its ack leaves.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Sequence

from pinlater import Ack, AsyncClient
from pinlater.errors import PinLaterError
from pinlater.model import DequeuedJob, DequeueFromQueuesRequest, QueueShare
from tests.cluster.proof_workers import Log
from tests.cluster.runs import Run

QUEUES = ("orders", "mails", "reports")
LIMIT = 50
AT_A_TIME = 4
WAIT_MS = 500
MOST_MS = 20


def began(job: DequeuedJob) -> Run:
    key, number, _ = job.body.decode().split()
    return Run(key, int(number), job.claim_expires_at_ms, began_ns=time.time_ns())


def goes(job: DequeuedJob) -> str:
    """What becomes of this attempt."""
    way = job.body.decode().split()[2]
    return way if job.attempts_remaining == job.attempts_allowed else "succeeds"


async def one_round(client: AsyncClient, log: Log, rng: random.Random) -> None:
    shares = [QueueShare(queue) for queue in rng.sample(QUEUES, len(QUEUES))]
    jobs = await client.dequeue_from_queues(DequeueFromQueuesRequest(shares, LIMIT, wait_ms=WAIT_MS))
    runs = {job.descriptor: began(job) for job in jobs}
    log.write(runs.values())
    await asyncio.sleep(rng.uniform(0, MOST_MS) / 1000)
    for queue in QUEUES:
        held = [job for job in jobs if job.descriptor.startswith(f"{queue}:") and goes(job) != "lapses"]
        for job in held:
            runs[job.descriptor].ended_ns = time.time_ns()
        log.write(runs[job.descriptor] for job in held)
        good = [job for job in held if goes(job) == "succeeds"]
        bad = [job for job in held if goes(job) == "fails"]
        if held:
            acks = [
                [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in each] for each in (good, bad)
            ]
            await client.ack(queue, *acks)


async def work(path: str, servers: Sequence[str]) -> None:
    log, rng = Log(path), random.Random()
    async with AsyncClient(servers=servers) as client:

        async def forever() -> None:
            while True:
                try:
                    await one_round(client, log, rng)
                except PinLaterError:
                    await asyncio.sleep(0.1)

        await asyncio.gather(*(forever() for _ in range(AT_A_TIME)))


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], sys.argv[2:]))
