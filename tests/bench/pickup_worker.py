"""A worker that waits for one job after the other and says how long each was on its way: `python -m
tests.bench.pickup_worker --help`.

A job's body is the time at which it was enqueued, by the clock of the machine, or LAST. A delayed job's way begins
at its time. With `--enqueue-at` the program brings the jobs itself, from a process of its own, to that server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import sys
import time
from multiprocessing.connection import Connection

import uvloop

from pinlater import Ack, AsyncClient, DequeueRequest, Job
from tests.bench.callers import QUEUE

LAST = b"last"
WAIT_MS = 15_000
WARM_UP = 30
BEFORE_END_MS = 500


async def pick_up(server: str, callers: int = 1) -> list[float]:
    """Milliseconds that each job was on its way, in the order in which they came."""
    found: list[float] = []
    async with AsyncClient(server) as client:
        waiting = [asyncio.ensure_future(_pick_up(client, found)) for _ in range(callers)]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    return found


async def _pick_up(client: AsyncClient, found: list[float]) -> None:
    """One job after the other, until the last comes."""
    done: list[Ack] = []
    while True:
        jobs = await client.dequeue(DequeueRequest(QUEUE, 1, succeeded=done, wait_ms=WAIT_MS))
        now_ns = time.time_ns()
        done = [Ack(job.descriptor) for job in jobs]
        for job in jobs:
            if job.body == LAST:
                return
            began_ns = int(job.body) or job.run_after_ms * 1_000_000
            found.append((now_ns - began_ns) / 1e6)


async def bring(server: str, options: argparse.Namespace) -> None:
    """Jobs at a pace, for now or for some time in an interval from now on; then the last."""
    async with AsyncClient(server) as client:
        last_ms, next_s = 0, time.monotonic()
        async with asyncio.TaskGroup() as calls:
            for _ in range(options.jobs + WARM_UP):
                if options.later_ms:
                    last_ms = time.time_ns() // 1_000_000 + random.randint(*options.later_ms)
                    job = Job(b"0", run_after_ms=last_ms)
                else:
                    job = Job(b"%d" % time.time_ns())
                calls.create_task(client.enqueue(QUEUE, job))
                next_s = max(next_s + random.uniform(0.5, 1.5) / options.per_s, time.monotonic())
                await asyncio.sleep(next_s - time.monotonic())
        await client.enqueue(QUEUE, Job(LAST, run_after_ms=_after_all(options)))


def _after_all(options: argparse.Namespace) -> int:
    latest_ms = options.later_ms[1] if options.later_ms else 0
    return time.time_ns() // 1_000_000 + latest_ms + BEFORE_END_MS


def _bring(gate: Connection, options: argparse.Namespace) -> None:
    gate.recv()
    uvloop.run(bring(options.enqueue_at or options.server, options))
    gate.send("brought")


async def _make_queue(server: str) -> None:
    async with AsyncClient(server) as client:
        await client.create_queue(QUEUE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="HOST:PORT where the worker waits")
    parser.add_argument("--enqueue-at", help="HOST:PORT where the jobs are brought [the same]")
    parser.add_argument("--jobs", type=int, required=True)
    parser.add_argument("--per-s", type=float, default=50, help="jobs enqueued per second [50]")
    parser.add_argument("--later-ms", type=_interval, help="LOW-HIGH: how long after now each job is to run")
    parser.add_argument("--callers", type=int, default=1, help="so many wait at a time [1]")
    parser.add_argument("--wait-first", type=int, default=1, help="0: the worker comes when all are enqueued [1]")
    options = parser.parse_args()
    gate, other = multiprocessing.Pipe()
    bringer = multiprocessing.get_context("spawn").Process(target=_bring, args=(other, options), daemon=True)
    bringer.start()
    uvloop.run(_make_queue(options.server))
    print("ready", flush=True)
    sys.stdin.readline()
    began, cpu_began = time.monotonic(), time.process_time()
    gate.send("go")
    if not options.wait_first:
        gate.recv()
    found = uvloop.run(pick_up(options.server, options.callers))[WARM_UP:]
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu_began
    result = {"jobs": len(found), "seconds": seconds, "cpu": round(cpu, 3), "ms": [round(each, 3) for each in found]}
    print(json.dumps(result), flush=True)
    bringer.join()


def _interval(text: str) -> tuple[int, int]:
    low, high = map(int, text.split("-"))
    return low, high


if __name__ == "__main__":
    main()
