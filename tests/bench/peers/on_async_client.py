"""The jobs on PinLater by its plain asynchronous client, in two loops: acks ride on the next dequeue."""

from __future__ import annotations

import asyncio

from pinlater import Ack, AsyncClient, DequeueRequest, Job
from tests.bench.peers.record import AT_ONCE, BROKER, QUEUES, body_of, write_begun_of

WAIT_MS = 1_000
LOOPS = 2
client = AsyncClient(BROKER)


async def send(queue: str, sent_ns: list[int]) -> None:
    await client.enqueue(queue, [Job(body_of(queue, each)) for each in sent_ns])


async def consume() -> None:
    await asyncio.gather(*(_work() for _ in range(LOOPS)))


async def _work() -> None:
    acks: list[Ack] = []
    while True:
        jobs = await client.dequeue(DequeueRequest(QUEUES[0], AT_ONCE, wait_ms=WAIT_MS, succeeded=acks))
        for job in jobs:
            write_begun_of(job.body)
        acks = [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in jobs]
