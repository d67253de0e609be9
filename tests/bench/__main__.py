"""Whole cycles over Thrift (enqueue, dequeue, ack) on Redis, beside the store alone: `scripts/bench --help`.

In one run, several times in turn: the floor (one client that calls the same scripts directly), the cycle over Thrift
with clients, server and store as separate processes on this machine's cores, and a yardstick of the machine
(`redis-benchmark -P 16` SET). What counts is the ratio of figures of one round; machines are noisy.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
from typing import Any

from pinlater.backends.redis import RedisShard
from tests.bench.cpu import CpuWatch
from tests.bench.floor import floor_rate
from tests.bench.processes import Client, served
from tests.stores.places import start_server
from tests.stores.process import StoreServer

YARDSTICK_CALLS = 500_000


def yardstick(port: int) -> float:
    """SETs per second of `redis-benchmark` with sixteen in a pipeline."""
    program = shutil.which("redis-benchmark")
    if program is None:
        raise SystemExit("redis-benchmark is missing: ./scripts/services installs it")
    command = [program, "-p", str(port), "-n", str(YARDSTICK_CALLS), "-P", "16", "-t", "set", "-d", "200", "--csv"]
    last = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    return float(last.split(",")[1].strip('"'))


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


def show(figures: dict[str, Any]) -> None:
    for name, value in figures.items():
        print(f"{name:24} {json.dumps(value) if isinstance(value, dict | list) else value}")


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
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    store = start_server("redis")
    try:
        measure = yardstick(store.port)
        rounds = []
        for number in range(1, options.rounds + 1):
            rounds.append(one_round(store, options))
            print(f"round {number} of {options.rounds}: {rounds[-1]['ratio']:.2f} of the floor", file=sys.stderr)
    finally:
        store.stop()
    figures = report(rounds, measure, options)
    show(figures)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=2)


if __name__ == "__main__":
    main()
