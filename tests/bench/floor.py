"""The floor: one client that calls the very same scripts directly, one call at a time, with no server in between."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from itertools import count

from pinlater.backends.base import AckRequest, ClaimRequest, Shard
from pinlater.backends.redis import RedisShard
from pinlater.backends.sql.mysql import MysqlShard
from pinlater.model import Job, parse_descriptor
from tests.queues import make_queue
from tests.stores.process import StoreServer

QUEUE = "floor"
_claims = count()


def on_redis(store: StoreServer, rate: Callable[[Shard], Awaitable[float]]) -> float:
    """What `rate` says of an empty shard on that store, opened for it alone."""
    store.empty(0)
    return asyncio.run(_on(RedisShard(store.url(0), "1"), rate))


def on_mariadb(store: StoreServer, rate: Callable[[Shard], Awaitable[float]]) -> float:
    """As on_redis."""
    store.empty(0)
    return asyncio.run(_on(MysqlShard(store.url(0), "1"), rate))


async def _on(shard: Shard, rate: Callable[[Shard], Awaitable[float]]) -> float:
    await shard.open()
    try:
        return await rate(shard)
    finally:
        await shard.close()


async def floor_rate(shard: Shard, batches: int, batch: int) -> float:
    """Whole cycles (enqueue, claim, ack) per second and job, in batches."""
    await make_queue(shard, QUEUE, _now_ms())
    body = os.urandom(200)
    await _cycles(shard, batches // 10 + 1, batch, body)
    began = time.monotonic()
    done = await _cycles(shard, batches, batch, body)
    return done / (time.monotonic() - began)


async def enqueue_rate(shard: Shard, calls: int, batch: int) -> float:
    """Jobs per second that are enqueued, in batches."""
    await make_queue(shard, QUEUE, _now_ms())
    body = os.urandom(200)
    await _enqueues(shard, calls // 10 + 1, batch, body)
    began = time.monotonic()
    await _enqueues(shard, calls, batch, body)
    return calls * batch / (time.monotonic() - began)


async def drain_rate(shard: Shard, batches: int, batch: int) -> float:
    """Jobs per second that are claimed and acked, of so many batches that are there."""
    await make_queue(shard, QUEUE, _now_ms())
    await _enqueues(shard, batches, batch, os.urandom(200))
    began = time.monotonic()
    total = 0
    while done := await _claim_and_ack(shard, batch):
        total += done
    return total / (time.monotonic() - began)


async def _enqueues(shard: Shard, calls: int, batch: int, body: bytes) -> None:
    for _ in range(calls):
        await shard.enqueue(QUEUE, [Job(body, attempts_allowed=5) for _ in range(batch)], _now_ms())


async def _cycles(shard: Shard, batches: int, batch: int, body: bytes) -> int:
    done = 0
    for _ in range(batches):
        await _enqueues(shard, 1, batch, body)
        done += await _claim_and_ack(shard, batch)
    return done


async def _claim_and_ack(shard: Shard, batch: int) -> int:
    """How many jobs there were, up to `batch`."""
    now_ms = _now_ms()
    claim = ClaimRequest(f"bench:1:{now_ms}:{next(_claims)}:floor", batch, (1, 2, 3), 300_000, 8 << 20)
    (jobs,) = await shard.claim(QUEUE, [claim], now_ms)
    if jobs:
        acks = [AckRequest(ref.priority, ref.id, True) for job in jobs if (ref := parse_descriptor(job.descriptor))]
        await shard.ack(QUEUE, acks, now_ms)
    return len(jobs)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
