"""A worker of the two steps, a plain client: `python -m tests.bench.flows.worker --help`.

It reads each job, makes its result, and sends that with the ack, which rides on the next dequeue. It ends when it is
told to.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

import uvloop

from pinlater import Ack, AsyncClient, DequeueRequest, PinLaterError
from tests.bench.flows.steps import QUEUES, calculate, pay

LOOPS = 2
"""On each queue."""


STEPS = {"calculate": calculate, "pay": pay}


async def work(client: AsyncClient, queue: str, limit: int) -> None:
    acks: list[Ack] = []
    while True:
        try:
            jobs = await client.dequeue(DequeueRequest(queue, limit, wait_ms=1_000, succeeded=acks))
        except PinLaterError:
            acks = []  # they come again
            continue
        acks = [Ack(job.descriptor, claim_descriptor=job.claim_descriptor, result=result_of(job.body)) for job in jobs]


def result_of(body: bytes) -> bytes:
    envelope: dict[str, Any] = json.loads(body.partition(b"\n")[2])
    return json.dumps(STEPS[envelope["job"]](**envelope["kwargs"])).encode()


async def run(server: str, slots: int) -> None:
    async with AsyncClient(server) as client:
        await asyncio.gather(
            *(work(client, queue, slots // (LOOPS * len(QUEUES))) for queue in QUEUES for _ in range(LOOPS))
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="HOST:PORT")
    parser.add_argument("--slots", type=int, default=400, help="jobs that it has at the same time at most [400]")
    options = parser.parse_args()
    uvloop.run(run(options.server, options.slots))


if __name__ == "__main__":
    main()
