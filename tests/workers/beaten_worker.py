"""A worker that does nothing but claim jobs and have them kept alive, for tests that end or block it.

    python -m tests.workers.beaten_worker ADDRESS QUEUE LEASE_S WHAT

By WHAT: `wait` until the first beat is good, print the heartbeat process's id, and stay; `fork`: the same, and print
the id of a child that holds every descriptor open; `block` the interpreter for BLOCK_S as C code does, from the moment
on that the claims are handed over, and print that.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import time

from pinlater import AsyncClient, DequeueRequest
from pinlater_workers.heartbeat.heartbeats import Heartbeats
from pinlater_workers.heartbeat.messages import HeartbeatEntry

BLOCK_S = 12
FOR_EVER_S = 600.0


async def main(address: str, queue: str, lease_s: float, what: str) -> None:
    beats = Heartbeats([address], "worker", lease_s, print, print, print)
    await beats.open()
    await beats.ready()
    async with AsyncClient(address) as client:
        jobs = await client.dequeue(DequeueRequest(queue, 10, claim_timeout_ms=int(lease_s * 1000)))
    now_s = time.monotonic()
    watched = [
        HeartbeatEntry(number, queue, job.descriptor, job.claim_descriptor, now_s, now_s, now_s + FOR_EVER_S)
        for number, job in enumerate(jobs)
    ]
    beats.watch(watched)
    if what == "block":
        ctypes.PyDLL(None).sleep(BLOCK_S)
        print("free again", flush=True)
    while watched[0].good_s == now_s:
        await asyncio.sleep(0.01)
    print(beats.pid, flush=True)
    if what == "fork" and (child := os.fork()) == 0:
        signal.pause()
    if what == "fork":
        print(child, flush=True)
    await asyncio.sleep(FOR_EVER_S)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]))
