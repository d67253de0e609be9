"""Whole cycles over Thrift (enqueue, dequeue, ack) on Redis, beside the store alone: `scripts/bench --help`.

In one run, several times in turn: the floor (one client that calls the same scripts directly), the cycle over Thrift
with clients, server and store as separate processes on this machine's cores, and a yardstick of the machine
(`redis-benchmark -P 16` SET). What counts is the ratio of figures of one round; machines are noisy. Then a worker
process drains no-op jobs, with threads and with the event loop: `scripts/bench-workers` measures that alone.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
from typing import Any

from pinlater.backends.redis import RedisShard
from tests.bench import workers
from tests.bench.cpu import CpuWatch
from tests.bench.figures import keep, show, yardstick
from tests.bench.floor import floor_rate
from tests.bench.processes import Client, served
from tests.stores.places import start_server
from tests.stores.process import StoreServer


async def direct(url: str, batches: int, batch: int) -> float:
    shard = RedisShard(url, "1")
    await shard.open()
    try:
        return await floor_rate(shard, batches, batch)
    finally:
        await shard.close()


def over_thrift(store: StoreServer, options: argparse.Namespace) -> dict[str, Any]:
    """Jobs per second through the server, and the processor time of every process meanwhile."""
    store.empty(1)
    with served([store.url(1)], options.processes) as server:
        share = options.batches // options.clients
        clients = [
            Client(server.address, batches=share, batch=options.batch, in_flight=options.in_flight)
            for _ in range(options.clients)
        ]
        watch = CpuWatch({"redis": store.pid, **server.pids()})
        watch.start()
        for client in clients:
            client.go()
        results = [client.result() for client in clients]
        cpu = watch.stop()
    cpu |= {f"client {number}": result["cpu"] for number, result in enumerate(results, 1)}
    jobs = sum(result["jobs"] for result in results)
    return {"rate": jobs / max(result["seconds"] for result in results), "jobs": jobs, "cpu_s": cpu}


def one_round(store: StoreServer, options: argparse.Namespace) -> dict[str, Any]:
    store.empty(0)
    before = asyncio.run(direct(store.url(0), options.batches, options.batch))
    cycle = over_thrift(store, options)
    store.empty(0)
    after = asyncio.run(direct(store.url(0), options.batches, options.batch))
    floor = (before + after) / 2
    return {"floor": floor, "cycle": cycle["rate"], "ratio": cycle["rate"] / floor} | cycle


def report(rounds: list[dict[str, Any]], measure: float, options: argparse.Namespace) -> dict[str, Any]:
    def middle(key: str) -> float:
        return statistics.median(each[key] for each in rounds)

    return {
        "what": f"enqueue, dequeue, ack in batches of {options.batch}, 200-byte bodies",
        "cycle_jobs_per_s": round(middle("cycle")),
        "floor_jobs_per_s": round(middle("floor")),
        "ratio": round(middle("ratio"), 3),
        "ratios": [round(each["ratio"], 3) for each in rounds],
        "yardstick_sets_per_s": round(measure),
        "cycle_per_yardstick": round(middle("cycle") / measure, 4),
        "cpu_s_last_round": rounds[-1]["cpu_s"],
        "cpu_us_per_job": {
            name: round(seconds / rounds[-1]["jobs"] * 1e6, 1) for name, seconds in rounds[-1]["cpu_s"].items()
        },
        "persistence": "appendonly no, save ''",
        "shape": {name: getattr(options, name) for name in ("processes", "clients", "in_flight", "batches", "rounds")},
        "cores": len(os.sched_getaffinity(0)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description=__doc__,
        epilog="example: scripts/bench --rounds 5 --json bench.json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often floor and cycle are measured [3]")
    parser.add_argument("--batches", type=int, default=1000, help="batches in each measurement [1000]")
    parser.add_argument("--batch", type=int, default=100, help="jobs in a batch [100]")
    parser.add_argument("--processes", type=int, default=1, help="server processes [1]")
    parser.add_argument("--clients", type=int, default=1, help="client processes [1]")
    parser.add_argument("--in-flight", type=int, default=6, help="calls under way in each client [6]")
    parser.add_argument("--without-workers", action="store_true", help="leave out the drains of a worker process")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    store = start_server("redis")
    try:
        measure = yardstick(store.port)
        rounds = []
        for number in range(1, options.rounds + 1):
            rounds.append(one_round(store, options))
            print(f"round {number} of {options.rounds}: {rounds[-1]['ratio']:.2f} of the floor", file=sys.stderr)
        figures = report(rounds, measure, options)
        if not options.without_workers:
            figures |= workers.measured(store, measure, workers.DEFAULTS)
    finally:
        store.stop()
    show(figures)
    keep(figures, options.json)


if __name__ == "__main__":
    main()
