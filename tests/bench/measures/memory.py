"""Bytes of a store for each pending delayed job, with bodies of 200 and of 1,000 random bytes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pymysql
import redis

from pinlater.model import Job
from tests.bench.figures import AtMost, Figure
from tests.bench.run import REPLICATED, Run, Stand, stand
from tests.queues import make_queue

JOBS = 1_000_000
LARGE_JOBS = 250_000
"""A quarter, so that the tables of Redis, which double, are just as full."""

BODY, LARGE_BODY = 200, 1_000
BATCH = 1_000
DUE_WITHIN_MS = 86_400_000
_HOW = "enqueued on the shard directly, as a server would; every job with a run_after of its own"
_WHERE = {"postgres": "growth of the jobs' table with its indexes on the disk"}
_IN_REDIS = "growth of used_memory, of the primaries alone and without what they hold for replicas"


def measure(run: Run) -> Iterator[Figure]:
    for name in ("redis", *REPLICATED, "postgres"):
        for body, usual, goal, notes in (
            (BODY, JOBS, AtMost(400), f"{BODY}-byte bodies included"),
            (LARGE_BODY, LARGE_JOBS, AtMost(200), f"{LARGE_BODY}-byte bodies left out"),
        ):
            jobs = run.sizes.jobs(usual, BATCH)
            with stand(run, name) as store:
                each = asyncio.run(growth_of(store, jobs, body)) / jobs
            run.say(f"  {name}, {jobs:,} jobs of {body} bytes: {each:.1f} bytes each")
            is_large = body != BODY
            yield Figure(
                f"memory{'/beside a large body' * is_large}{f', {name}' * (name != 'redis')}",
                "bytes",
                [each - body * is_large],
                [goal] * (name == "redis"),
                persistence=store.persistence,
                notes=f"{notes}; {_WHERE.get(name, _IN_REDIS)}; {_HOW}",
            )


async def growth_of(store: Stand, jobs: int, body: int) -> int:
    """Bytes that a store needs more when it has so many delayed jobs."""
    url = store.fresh()
    shard = store.shard(url)
    await shard.open()
    try:
        now_ms = time.time_ns() // 1_000_000
        await make_queue(shard, "bench", now_ms)
        before = _used(store, url)
        for first in range(0, jobs, BATCH):
            await shard.enqueue("bench", [_delayed(now_ms, first + i, jobs, body) for i in range(BATCH)], now_ms)
        return _used(store, url) - before
    finally:
        await shard.close()


def _used(store: Stand, url: str) -> int:
    if store.name == "postgres":
        with contextlib.closing(psycopg.connect(url.replace("+psycopg", ""))) as connection:
            row = connection.execute("SELECT pg_total_relation_size('pinlater_jobs')").fetchone()
            assert row is not None
            return int(row[0])
    if store.name == "mysql":
        parts = urlsplit(url)
        database = parts.path.strip("/")
        with contextlib.closing(
            pymysql.connect(host=parts.hostname, port=parts.port or 0, user="root", database=database)
        ) as other:
            cursor = other.cursor()
            cursor.execute("ANALYZE TABLE pinlater_jobs")
            cursor.execute(
                "SELECT data_length + index_length FROM information_schema.tables "
                "WHERE table_schema = %s AND table_name = 'pinlater_jobs'",
                [database],
            )
            return int(cursor.fetchone()[0])  # type: ignore[index]
    if store.name == "sqlite":
        path = url.removeprefix("sqlite:///")
        return sum(each.stat().st_size for each in Path(path).parent.glob(f"{Path(path).name}*"))
    return sum(used_memory(port) for port in store.ports if _is_primary(port))


def _is_primary(port: int) -> bool:
    with redis.Redis(port=port) as client:
        return bool(client.role()[0] == b"master")


def _delayed(now_ms: int, number: int, jobs: int, body: int) -> Job:
    """Spread over a day, from tomorrow on."""
    run_after_ms = now_ms + DUE_WITHIN_MS + number * DUE_WITHIN_MS // jobs
    return Job(os.urandom(body), run_after_ms=run_after_ms, attempts_allowed=5)


def used_memory(port: int) -> int:
    """Of a Redis, in bytes, when it has freed what was emptied; without what it holds for replicas: it is bounded."""
    with redis.Redis(port=port) as client:
        while (about := client.info("memory"))["lazyfree_pending_objects"]:
            time.sleep(0.01)
    return int(about["used_memory"] - about["mem_replication_backlog"] - about["mem_clients_slaves"])
