"""A worker process of the proof of order: `python -m tests.cluster.keys_worker LOG SERVER...`.

A job's body is `KEY NUMBER WAY`; by its way its first attempt succeeds, fails, or is left alone until its claim
expires. Every begin and every ack that is sent goes into the log, a line each, in the order of the world: a line is one
write at the end of the file, a begin is written once the job is here, an end before its ack leaves.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Sequence

from pinlater import Ack, AsyncClient
from pinlater.errors import PinLaterError
from pinlater.model import DequeuedJob, DequeueFromQueuesRequest, QueueShare

QUEUES = ("orders", "mails", "reports")
LIMIT = 50
AT_A_TIME = 4
WAIT_MS = 500
MOST_MS = 20


class Log:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, word: str, jobs: Sequence[DequeuedJob]) -> None:
        for job in jobs:
            key, number, _ = job.body.decode().split()
            os.write(self._file, f"{word} {key} {number}\n".encode())


def goes(job: DequeuedJob) -> str:
    """What becomes of this attempt."""
    way = job.body.decode().split()[2]
    return way if job.attempts_remaining == job.attempts_allowed else "succeeds"


async def one_round(client: AsyncClient, log: Log, rng: random.Random) -> None:
    shares = [QueueShare(queue) for queue in rng.sample(QUEUES, len(QUEUES))]
    jobs = await client.dequeue_from_queues(DequeueFromQueuesRequest(shares, LIMIT, wait_ms=WAIT_MS))
    log.write("begin", jobs)
    await asyncio.sleep(rng.uniform(0, MOST_MS) / 1000)
    for queue in QUEUES:
        held = [job for job in jobs if job.descriptor.startswith(f"{queue}:") and goes(job) != "lapses"]
        good = [job for job in held if goes(job) == "succeeds"]
        bad = [job for job in held if goes(job) == "fails"]
        if held:
            log.write("end", good)
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
