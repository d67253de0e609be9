"""Loops that dequeue and ack until the queue is empty, all from one client: `python -m tests.bench.emptying --help`.

The acks of a batch ride on the loop's next dequeue.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial

from pinlater import Ack, AsyncClient, DequeueRequest, Job
from tests.bench.load import QUEUE, parser, run


async def _fill(batches: int, batch: int, client: AsyncClient) -> None:
    body = os.urandom(200)
    for _ in range(batches):
        await client.enqueue(QUEUE, [Job(body) for _ in range(batch)])


async def _loop(client: AsyncClient, batch: int) -> int:
    """Jobs that were dequeued and acked."""
    done, acks = 0, list[Ack]()
    while True:
        jobs = await client.dequeue(DequeueRequest(QUEUE, batch, succeeded=acks))
        if not jobs:
            return done
        acks = [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in jobs]
        done += len(jobs)


async def _drain(in_flight: int, batch: int, client: AsyncClient) -> int:
    return sum(await asyncio.gather(*(_loop(client, batch) for _ in range(in_flight))))


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--batches", type=int, default=0, help="what is put into the queue first [0]")
    options.add_argument("--batch", type=int, default=100)
    given = options.parse_args()
    run(given.server, partial(_fill, given.batches, given.batch), partial(_drain, given.in_flight, given.batch))


if __name__ == "__main__":
    main()
