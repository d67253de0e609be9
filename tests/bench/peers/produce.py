"""A producer of jobs for one product: `python -m tests.bench.peers.produce --help`.

Runs in the environment of the product. Says `ready`, begins at a line, and prints one JSON object: jobs, seconds,
processor time. A product whose `send` is a coroutine runs on uvloop.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from inspect import iscoroutinefunction

import uvloop

from tests.bench.peers.record import QUEUES

Call = tuple[str, list[int]]
"""A queue, and when each of the jobs that one call sends there was sent."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--product", required=True)
    parser.add_argument("--jobs", type=int, required=True, help="in all queues together, in turn")
    parser.add_argument(
        "--per-s", type=float, default=0, help="jobs per second, each to some queue [as fast as it can]"
    )
    parser.add_argument("--at-once", type=int, default=500, help="in a call, without a pace [500]")
    parser.add_argument("--warm-up", type=int, default=0, help="calls before, one at a time [0]")
    parser.add_argument("queue", nargs="*", help="only for these")
    options = parser.parse_args()
    queues = options.queue or QUEUES
    send = import_module(f"tests.bench.peers.on_{options.product}").send
    before = [(queues[0], [0])] * options.warm_up
    calls = (
        paced(queues, options.jobs, options.per_s) if options.per_s else batches(queues, options.jobs, options.at_once)
    )
    if iscoroutinefunction(send):
        seconds, cpu = uvloop.run(_awaited(send, before, calls))
    else:
        seconds, cpu = _called(send, before, calls)
    print(json.dumps({"jobs": options.jobs, "seconds": seconds, "cpu": cpu}), flush=True)


def batches(queues: list[str], jobs: int, at_once: int) -> Iterator[Call]:
    for queue in queues:
        left = jobs // len(queues)
        while left > 0:
            yield queue, [time.time_ns()] * min(left, at_once)
            left -= at_once


def paced(queues: list[str], jobs: int, per_s: float) -> Iterator[Call]:
    chosen = random.Random(1)
    next_s = time.monotonic()
    for _ in range(jobs):
        next_s += chosen.uniform(0.5, 1.5) / per_s
        time.sleep(max(0.0, next_s - time.monotonic()))
        yield chosen.choice(queues), [time.time_ns()]


def _called(send, before: list[Call], calls: Iterator[Call]) -> tuple[float, float]:
    for call in before:
        send(*call)
    began = _begun()
    for call in calls:
        send(*call)
    return _since(began)


async def _awaited(send, before: list[Call], calls: Iterator[Call]) -> tuple[float, float]:
    for call in before:
        await send(*call)
    began = _begun()
    for call in calls:
        await send(*call)
    return _since(began)


def _begun() -> tuple[float, float]:
    """The clock and the processor time, once it is told to begin."""
    print("ready", flush=True)
    sys.stdin.readline()
    return time.monotonic(), time.process_time()


def _since(began: tuple[float, float]) -> tuple[float, float]:
    return time.monotonic() - began[0], time.process_time() - began[1]


if __name__ == "__main__":
    main()
