"""The floor: one client that calls the very same scripts directly, one call at a time, with no server in between."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable

from pinlater.backends.base import AckRequest, ClaimRequest, Shard
from pinlater.backends.redis import RedisShard
from pinlater.model import Job, parse_descriptor
from tests.queues import make_queue
from tests.stores.process import StoreServer

QUEUE = "floor"


def on_redis(store: StoreServer, rate: Callable[[Shard], Awaitable[float]]) -> float:
    """What `rate` says of an empty shard on that store, opened for it alone."""
    store.empty(0)
    return asyncio.run(_on(RedisShard(store.url(0), "1"), rate))


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


async def _enqueues(shard: Shard, calls: int, batch: int, body: bytes) -> None:
    for _ in range(calls):
        await shard.enqueue(QUEUE, [Job(body, attempts_allowed=5) for _ in range(batch)], _now_ms())


async def _cycles(shard: Shard, batches: int, batch: int, body: bytes) -> int:
    done = 0
    for number in range(batches):
        now_ms = _now_ms()
        await shard.enqueue(QUEUE, [Job(body, attempts_allowed=5) for _ in range(batch)], now_ms)
        claim = ClaimRequest(f"bench:1:{now_ms}:{number}:floor", batch, (1, 2, 3), 300_000, 8 << 20)
        (jobs,) = await shard.claim(QUEUE, [claim], now_ms)
        acks = [AckRequest(ref.priority, ref.id, True) for job in jobs if (ref := parse_descriptor(job.descriptor))]
        await shard.ack(QUEUE, acks, now_ms)
        done += len(jobs)
    return done


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
