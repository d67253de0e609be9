"""A producer of jobs for one product, and how many seconds it took: `python -m tests.bench.peers.produce --help`.

Runs in the environment of the product.
"""

from __future__ import annotations

import argparse
import random
import time
from importlib import import_module

from tests.bench.peers.record import QUEUES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--product", required=True)
    parser.add_argument("--jobs", type=int, required=True, help="in all queues together, in turn")
    parser.add_argument(
        "--per-s", type=float, default=0, help="jobs per second, each to some queue [as fast as it can]"
    )
    parser.add_argument("--at-once", type=int, default=500, help="in a call, without a pace [500]")
    parser.add_argument("queue", nargs="*", help="only for these")
    options = parser.parse_args()
    queues = options.queue or QUEUES
    send = import_module(f"tests.bench.peers.on_{options.product}").send
    began_s = time.monotonic()
    if options.per_s:
        _at_a_pace(send, queues, options.jobs, options.per_s)
    else:
        for queue in queues:
            left = options.jobs // len(queues)
            while left > 0:
                send(queue, [time.time_ns()] * min(left, options.at_once))
                left -= options.at_once
    print(time.monotonic() - began_s)


def _at_a_pace(send, queues: list[str], jobs: int, per_s: float) -> None:
    chosen = random.Random(1)
    next_s = time.monotonic()
    for _ in range(jobs):
        next_s += chosen.uniform(0.5, 1.5) / per_s
        time.sleep(max(0.0, next_s - time.monotonic()))
        send(chosen.choice(queues), [time.time_ns()])


if __name__ == "__main__":
    main()
