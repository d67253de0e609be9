"""Callers who ask for much and read nothing, and one beside them that says how long its calls took: `python -m
tests.bench.unread_callers --help`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time

import uvloop

from pinlater import Ack, AsyncClient, DequeueRequest, Job
from tests.bench.callers import QUEUE
from tests.server.running import Plain
from tests.server.unread import large_jobs, lookups, non_readers

CONNECTIONS, LOOKUPS, BODIES = 30, 10, 10
"""Each connection asks so often for all of the bodies, of 1 MB each."""

WARM_UP = 30
PAUSE_S = 0.002


async def cycle(client: AsyncClient, cycles: int) -> list[float]:
    """Milliseconds of each call: a small job stored, handed out and acked, one call after the other."""
    times: list[float] = []
    for _ in range(cycles):
        began_s = time.perf_counter()
        await client.enqueue(QUEUE, Job(b"x"))
        stored_s = time.perf_counter()
        (job,) = await client.dequeue(DequeueRequest(QUEUE, 1))
        handed_out_s = time.perf_counter()
        await client.ack(QUEUE, [Ack(job.descriptor)])
        times += [stored_s - began_s, handed_out_s - stored_s, time.perf_counter() - handed_out_s]
        await asyncio.sleep(PAUSE_S)
    return [1_000 * seconds for seconds in times]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True)
    parser.add_argument("--jobs", type=int, required=True, help="cycles of the caller who reads")
    options = parser.parse_args()
    port = int(options.server.rpartition(":")[2])
    plain = await Plain.to(port)
    descriptors = await large_jobs(plain, "large", BODIES)
    async with AsyncClient(options.server) as client:
        await client.create_queue(QUEUE)
        await cycle(client, WARM_UP)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        async with non_readers(port, CONNECTIONS, lookups(descriptors, LOOKUPS)):
            print(json.dumps({"ms": await cycle(client, options.jobs)}), flush=True)
    await plain.close()


if __name__ == "__main__":
    uvloop.run(main())
