"""Bytes of Redis for each pending delayed job, with bodies of 200 and of 1,000 random bytes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Iterator

from pinlater.backends.redis import RedisShard
from pinlater.model import Job
from tests.bench.figures import AtMost, Figure
from tests.bench.run import PERSISTENCE, Run
from tests.queues import make_queue
from tests.stores.process import StoreServer

JOBS = 1_000_000
LARGE_JOBS = 250_000
"""A quarter, so that the tables of Redis, which double, are just as full."""

BODY, LARGE_BODY = 200, 1_000
BATCH = 1_000
DUE_WITHIN_MS = 86_400_000
_HOW = "growth of used_memory; enqueued on the shard directly, as a server would; every job with a run_after of its own"


def measure(run: Run) -> Iterator[Figure]:
    store = run.store("redis")
    for name, body, usual, goal, notes in (
        ("memory", BODY, JOBS, AtMost(400), f"{BODY}-byte bodies included"),
        ("memory/beside a large body", LARGE_BODY, LARGE_JOBS, AtMost(200), f"{LARGE_BODY}-byte bodies left out"),
    ):
        jobs = run.sizes.jobs(usual, BATCH)
        each = _bytes_per_job(store, jobs, body)
        run.say(f"  {jobs:,} jobs of {body} bytes: {each:.1f} bytes each")
        value = each if body == BODY else each - body
        yield Figure(name, "bytes", [value], [goal], persistence=PERSISTENCE["redis"], notes=f"{notes}; {_HOW}")
    store.empty(0)


def _bytes_per_job(store: StoreServer, jobs: int, body: int) -> float:
    store.empty(0)
    return asyncio.run(_growth(store, jobs, body)) / jobs


async def _growth(store: StoreServer, jobs: int, body: int) -> int:
    shard = RedisShard(store.url(0), "1")
    await shard.open()
    try:
        now_ms = time.time_ns() // 1_000_000
        await make_queue(shard, "bench", now_ms)
        before = used_memory(store.port)
        for first in range(0, jobs, BATCH):
            await shard.enqueue("bench", [_delayed(now_ms, first + i, jobs, body) for i in range(BATCH)], now_ms)
        return used_memory(store.port) - before
    finally:
        await shard.close()


def _delayed(now_ms: int, number: int, jobs: int, body: int) -> Job:
    """Spread over a day, from tomorrow on."""
    run_after_ms = now_ms + DUE_WITHIN_MS + number * DUE_WITHIN_MS // jobs
    return Job(os.urandom(body), run_after_ms=run_after_ms, attempts_allowed=5)


def used_memory(port: int) -> int:
    """Of a Redis, in bytes."""
    command = ["redis-cli", "-p", str(port), "INFO", "memory"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return int(next(line for line in said.splitlines() if line.startswith("used_memory:")).partition(":")[2])
