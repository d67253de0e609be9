"""No-op jobs through one worker process on Redis: `scripts/bench-workers --help`.

The worker, the server and the store are separate processes on this machine's cores, as in life. Beside the jobs per
second stands what each process took, and a yardstick of the machine (`redis-benchmark -P 16` SET).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from typing import Any

from tests.bench.cpu import CpuWatch
from tests.bench.draining import make_app
from tests.bench.yardsticks import sets_per_s as yardstick
from tests.bench.processes import STOP_WITHIN_S, served
from tests.stores.places import start_server
from tests.stores.process import StoreServer, dies_with_us

WARM_UP = 2_000
"""Jobs that do not count: until connections, threads and the heartbeat process are there."""

POOLS = ("thread", "async")


def one_drain(store: StoreServer, pool: str, options: argparse.Namespace) -> dict[str, Any]:
    """Jobs per second of one worker process, and the processor time of every process meanwhile."""
    store.empty(0)
    with served([store.url(0)], 1) as server:
        app = make_app(server.address)
        app.client.create_queue("bench")
        app.job_types[pool].enqueue_many([(number,) for number in range(options.jobs + WARM_UP)])
        app.close()
        shape = ["--pool", pool, "--jobs", str(options.jobs), "--concurrency", str(options.concurrency)]
        shape += ["--warm-up", str(WARM_UP)]
        profile = ["--profile", options.profile] if options.profile else []
        command = [sys.executable, "-m", "tests.bench.draining", "--server", server.address, *shape, *profile]
        with subprocess.Popen(
            [*dies_with_us(), *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as worker:
            assert worker.stdout is not None
            if not worker.stdout.readline():
                raise RuntimeError(f"the worker ended with {worker.wait()}")
            watch = CpuWatch({"redis": store.pid, **server.pids()})
            watch.start()
            said, _ = worker.communicate("go\n", timeout=STOP_WITHIN_S * 4)
            cpu = watch.stop()
    result: dict[str, Any] = json.loads(said)
    return {"rate": result["jobs"] / result["seconds"], "cpu_s": cpu | result["cpu"]} | result


def report(pool: str, rounds: list[dict[str, Any]], jobs: int, measure: float) -> dict[str, Any]:
    last = rounds[-1]
    all_jobs = jobs + WARM_UP
    rate = statistics.median(each["rate"] for each in rounds)
    return {
        f"{pool}_jobs_per_s": round(rate),
        f"{pool}_rounds": [round(each["rate"]) for each in rounds],
        f"{pool}_per_yardstick": round(rate / measure, 4),
        f"{pool}_cpu_us_per_job": {name: round(spent / all_jobs * 1e6, 1) for name, spent in last["cpu_s"].items()},
        f"{pool}_max_rss_mib": last["max_rss_mib"],
    }


def measured(store: StoreServer, measure: float, options: argparse.Namespace) -> dict[str, Any]:
    """The figures of all pools that `options` name."""
    figures: dict[str, Any] = {"worker": f"{options.jobs} no-op jobs, one process, {options.concurrency} slots"}
    for pool in options.pool or POOLS:
        rounds = [one_drain(store, pool, options) for _ in range(options.rounds)]
        figures |= report(pool, rounds, options.jobs, measure)
    return figures


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/bench-workers",
        description=__doc__,
        epilog="example: scripts/bench-workers --concurrency 500 --json workers.json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often each pool is measured [3]")
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs in each measurement [20000]")
    parser.add_argument("--concurrency", type=int, default=200, help="slots of the worker [200]")
    parser.add_argument("--pool", choices=POOLS, action="append", help="measure this one alone")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    parser.add_argument("--profile", metavar="FILE", help="have the worker write a profile of its loop there (slow)")
    return parser


DEFAULTS = _parser().parse_args([])
"""What is measured where nothing else is asked for."""


def main() -> None:
    options = _parser().parse_args()
    store = start_server("redis")
    try:
        measure = yardstick(store.port)
        figures = measured(store, measure, options)
    finally:
        store.stop()
    figures |= {"yardstick_sets_per_s": round(measure), "cores": len(os.sched_getaffinity(0))}
    show(figures)
    keep(figures, options.json)


if __name__ == "__main__":
    main()
