"""Compensation: what was claimed for a caller that is gone goes back to PENDING."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import structlog

from pinlater.backends.base import ClaimKey, Shard
from pinlater.background_tasks import BackgroundTasks
from pinlater.errors import PinLaterError
from pinlater.model import DequeuedJob, parse_descriptor

_log = structlog.get_logger("pinlater.shards")

_TRIES = 3
_PAUSE_S = 0.2


def claim_keys(jobs: Iterable[DequeuedJob]) -> list[ClaimKey]:
    """The names of these jobs and their claims for the shard that handed them out."""
    keys = []
    for job in jobs:
        ref = parse_descriptor(job.descriptor)
        if ref is not None:
            keys.append(ClaimKey(ref.priority, ref.id, job.claim_descriptor))
    return keys


async def requeue(shard: Shard, queue: str, jobs: Iterable[DequeuedJob], now_ms: int) -> int:
    """Back to PENDING, with a few tries; a store that cannot be reached leaves them to expire. How many went back."""
    keys = claim_keys(jobs)
    if not keys:
        return 0
    for attempt in range(1, _TRIES + 1):
        try:
            return await shard.requeue(queue, keys, now_ms)
        except PinLaterError as error:
            if attempt == _TRIES:
                _log.warning("jobs_not_requeued", shard=shard.shard_id, queue=queue, jobs=len(keys), error=str(error))
            else:
                await asyncio.sleep(_PAUSE_S)
    return 0


class Compensator:
    """Requeues jobs beside the calls that notice; `drain` waits for all of it."""

    def __init__(self) -> None:
        self._tasks = BackgroundTasks()

    def later(self, shard: Shard, queue: str, jobs: Iterable[DequeuedJob], now_ms: int) -> None:
        self._tasks.start(requeue(shard, queue, jobs, now_ms))

    def after(self, task: asyncio.Task[Any], ended: Callable[[asyncio.Task[Any]], None]) -> None:
        """Call `ended` when a call that nobody waits for is over; it may requeue what that brought."""
        task.add_done_callback(ended)
        self._tasks.add(task)

    async def drain(self) -> None:
        await self._tasks.drain()
