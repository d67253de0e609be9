"""Callers that each enqueue one job after the other, all from one client: `python -m tests.bench.singles --help`."""

from __future__ import annotations

import asyncio
import os
from functools import partial

from pinlater import AsyncClient, Job
from tests.bench.load import QUEUE, parser, run


async def _calls(client: AsyncClient, count: int, body: bytes) -> int:
    for _ in range(count):
        await client.enqueue(QUEUE, Job(body))
    return count


async def _callers(in_flight: int, calls: int, client: AsyncClient) -> int:
    body = os.urandom(200)
    return sum(await asyncio.gather(*(_calls(client, calls // in_flight, body) for _ in range(in_flight))))


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--calls", type=int, required=True, help="of all callers together")
    given = options.parse_args()
    warm_up = partial(_callers, given.in_flight, given.calls // 10)
    run(given.server, warm_up, partial(_callers, given.in_flight, given.calls))


if __name__ == "__main__":
    main()
