"""A worker that does nothing but claim jobs and have them kept alive, for tests that end or block it.

    python -m tests.workers.beaten_worker ADDRESS QUEUE LEASE_S WHAT

Prints its heartbeat process's id and its claims when the first beat was good; then, by WHAT: `wait` for ever; `fork` a
child that holds every descriptor open, print its id and wait; `block` the interpreter as C code does, for BLOCK_S.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import time

from pinlater import AsyncClient, DequeueRequest
from pinlater_workers.heartbeat.link import Heartbeats
from pinlater_workers.heartbeat.messages import Watched

BLOCK_S = 2
FOR_EVER_S = 600.0


async def main(address: str, queue: str, lease_s: float, what: str) -> None:
    good = asyncio.Event()
    beats = Heartbeats([address], "worker", lease_s, lambda key, why: None, beaten=lambda keys, good_s: good.set())
    async with AsyncClient(address) as client:
        jobs = await client.dequeue(DequeueRequest(queue, 10, claim_timeout_ms=int(lease_s * 1000)))
    await beats.open()
    now_s = time.monotonic()
    beats.watch([Watched(queue, job.descriptor, job.claim_descriptor, now_s, now_s + FOR_EVER_S) for job in jobs])
    await good.wait()
    print(beats.pid, *(job.claim_descriptor for job in jobs), flush=True)
    if what == "fork" and (child := os.fork()) == 0:
        signal.pause()
    if what == "fork":
        print(child, flush=True)
    if what == "block":
        ctypes.PyDLL(None).sleep(BLOCK_S)
        print("free again", flush=True)
    await asyncio.sleep(FOR_EVER_S)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]))
