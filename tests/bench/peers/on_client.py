"""The jobs on PinLater by its plain synchronous client: acks ride on the next dequeue."""

from __future__ import annotations

from pinlater import Ack, Client, DequeueRequest, Job
from tests.bench.peers.record import AT_ONCE, BROKER, QUEUES, body_of, write_begun_of

WAIT_MS = 1_000
client = Client(BROKER)


def send(queue: str, sent_ns: list[int]) -> None:
    client.enqueue(queue, [Job(body_of(queue, each)) for each in sent_ns])


def consume() -> None:
    acks: list[Ack] = []
    while True:
        jobs = client.dequeue(DequeueRequest(QUEUES[0], AT_ONCE, wait_ms=WAIT_MS, succeeded=acks))
        for job in jobs:
            write_begun_of(job.body)
        acks = [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in jobs]
