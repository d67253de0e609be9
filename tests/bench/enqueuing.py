"""Callers that enqueue batches, all from one client: `python -m tests.bench.enqueuing --help`."""

from __future__ import annotations

import asyncio
import os
from functools import partial

from pinlater import AsyncClient, Job
from tests.bench.load import QUEUE, parser, run


async def _calls(client: AsyncClient, calls: list[int], batch: int, body: bytes) -> int:
    """Take one call after the other off `calls`."""
    done = 0
    while calls:
        calls.pop()
        done += len(await client.enqueue(QUEUE, [Job(body, attempts_allowed=5) for _ in range(batch)]))
    return done


async def _callers(in_flight: int, batches: int, batch: int, client: AsyncClient) -> int:
    calls, body = [1] * batches, os.urandom(200)
    return sum(await asyncio.gather(*(_calls(client, calls, batch, body) for _ in range(in_flight))))


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--batches", type=int, required=True)
    options.add_argument("--batch", type=int, default=100)
    given = options.parse_args()
    warm_up = partial(_callers, given.in_flight, given.batches // 10 + 1, given.batch)
    run(given.server, warm_up, partial(_callers, given.in_flight, given.batches, given.batch))


if __name__ == "__main__":
    main()
