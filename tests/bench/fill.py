"""Millions of jobs put into a store through its shard's own methods, in large batches: what a measure begins with."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import time
from collections.abc import Awaitable, Callable

from pinlater.backends.base import AckRequest, ClaimRequest, Shard
from pinlater.model import Job, JobRef, parse_descriptor
from tests.bench.figures import number

BATCH = 5_000
"""Jobs of one call, and so of one commit."""

AT_A_TIME = 2
"""Calls under way: the store works on one while the next one is packed."""

BODY_BYTES = 200
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
EVERY_FAILED = 10
"""Of so many ended jobs one failed."""

SAY_EVERY_S = 5.0

_NUMBERS = itertools.count()
Say = Callable[[str], None]


async def fill_pending(shard: Shard, queue: str, jobs: int, say: Say) -> None:
    """Jobs that may run now."""
    body = os.urandom(BODY_BYTES)
    each = Job(body, attempts_allowed=5)

    async def one(size: int) -> None:
        await shard.enqueue(queue, [each] * size, now_ms())

    await _in_batches(f"pending jobs in {queue}", jobs, one, say)


async def fill_future(shard: Shard, queue: str, jobs: int, say: Say) -> None:
    """Jobs that are to run at some time of the day after the next hour."""
    body, rng = os.urandom(BODY_BYTES), random.Random(1)

    async def one(size: int) -> None:
        first_ms = now_ms() + HOUR_MS
        times = [first_ms + rng.randrange(DAY_MS) for _ in range(size)]
        await shard.enqueue(queue, [Job(body, attempts_allowed=5, run_after_ms=at_ms) for at_ms in times], now_ms())

    await _in_batches(f"future jobs in {queue}", jobs, one, say)


async def fill_claimed(shard: Shard, queue: str, jobs: int, at_ms: int, timeout_ms: int, say: Say) -> None:
    """Jobs that were claimed at a time, by claims that last so long."""
    each = Job(os.urandom(BODY_BYTES), attempts_allowed=5)

    async def one(size: int) -> None:
        await shard.enqueue(queue, [each] * size, at_ms)
        await _claimed(shard, queue, size, at_ms, timeout_ms)

    await _in_batches(f"jobs in progress in {queue}", jobs, one, say)


async def fill_ended(
    shard: Shard, queue: str, jobs: int, at_ms: int, say: Say, *, every_failed: int = EVERY_FAILED, status: str = ""
) -> None:
    """Jobs that ended at a time, one of `every_failed` as FAILED; 0: none."""
    each = Job(os.urandom(BODY_BYTES), attempts_allowed=5)

    def succeeded(place: int) -> bool:
        return not every_failed or place % every_failed != 0

    async def one(size: int) -> None:
        await shard.enqueue(queue, [each] * size, at_ms)
        acks = [
            AckRequest(ref.priority, ref.id, succeeded(place), append_status=status, permanent=True)
            for place, ref in enumerate(await _claimed(shard, queue, size, at_ms, HOUR_MS))
        ]
        await shard.ack(queue, acks, at_ms)

    await _in_batches(f"ended jobs in {queue}", jobs, one, say)


async def _claimed(shard: Shard, queue: str, size: int, at_ms: int, timeout_ms: int) -> list[JobRef]:
    claim = ClaimRequest(f"bench:1:{at_ms}:{next(_NUMBERS)}:fill", size, (1,), timeout_ms, 1 << 40)
    (jobs,) = await shard.claim(queue, [claim], at_ms)
    return [ref for job in jobs if (ref := parse_descriptor(job.descriptor))]


async def _in_batches(what: str, jobs: int, one: Callable[[int], Awaitable[None]], say: Say) -> None:
    """Call `one` with the sizes of batches until all are done; progress and the rate are said."""
    sizes = [min(BATCH, jobs - start) for start in range(0, jobs, BATCH)]
    begun_at = said_at = time.monotonic()

    async def some() -> None:
        nonlocal said_at
        while sizes:
            await one(sizes.pop())
            if time.monotonic() - said_at > SAY_EVERY_S:
                said_at = time.monotonic()
                say(f"  {what}: {number(jobs - sum(sizes))} of {number(jobs)}")

    await asyncio.gather(*(some() for _ in range(AT_A_TIME)))
    say(f"  {what}: {number(jobs)} in {time.monotonic() - begun_at:.1f} s")


def now_ms() -> int:
    return time.time_ns() // 1_000_000
