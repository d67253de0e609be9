"""The floor: one client that calls the very same scripts directly, one call at a time, with no server in between."""

from __future__ import annotations

import os
import time

from pinlater.backends.base import AckRequest, ClaimRequest, Shard
from pinlater.model import Job, parse_descriptor
from tests.queues import make_queue

QUEUE = "floor"


async def floor_rate(shard: Shard, batches: int, batch: int) -> float:
    """Whole cycles (enqueue, claim, ack) per second and job, in batches."""
    await make_queue(shard, QUEUE, _now_ms())
    body = os.urandom(200)
    await _cycles(shard, batches // 10 + 1, batch, body)
    began = time.monotonic()
    done = await _cycles(shard, batches, batch, body)
    return done / (time.monotonic() - began)


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
