"""The sampler of waits: for how long jobs that succeeded lately had waited, in queues that have a `latency_goal`.

It looks at queues alone of which jobs were handed out, at most at some of them at a time, and at each only so often: no
dequeue measures anything, and queues without a goal cost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pinlater.alarms.evidence import MINUTE_MS, WINDOW_MINUTES, JobWait
from pinlater.backends.base import StoredState
from pinlater.clock import Clock
from pinlater.errors import PinLaterError
from pinlater.shards.scan import ScanQuery, scan_over
from pinlater.shards.shard_set import ShardSet

EVERY_MS = 30_000
MOST_QUEUES = 5
"""In one judgement."""

MOST_JOBS = 200
"""Of a queue."""


class _Sampled(NamedTuple):
    at_ms: int
    waits: Sequence[JobWait]


class WaitSampler:
    """For the judge of one process."""

    def __init__(self, members: ShardSet, priorities: Sequence[int], clock: Clock) -> None:
        self._members = members
        self._priorities = priorities
        self._clock = clock
        self._sampled: dict[str, _Sampled] = {}
        """Those that were looked at last at the end."""

    async def sample(self, queues: Sequence[str]) -> Mapping[str, Sequence[JobWait]]:
        """Of these queues, as far as they were looked at lately. Raises nothing."""
        now_ms = self._clock.now_ms()
        self._sampled = {queue: each for queue, each in self._sampled.items() if queue in queues}
        new = [queue for queue in queues if queue not in self._sampled]
        due = [queue for queue, each in self._sampled.items() if now_ms - each.at_ms >= EVERY_MS]
        for queue in [*new, *due][:MOST_QUEUES] if self._members.healthy() else ():
            self._sampled.pop(queue, None)
            try:
                self._sampled[queue] = _Sampled(now_ms, await self._look(queue, now_ms))
            except PinLaterError:  # a store is away: nothing is known, then
                self._sampled[queue] = _Sampled(now_ms, ())
        return {queue: each.waits for queue, each in self._sampled.items()}

    async def _look(self, queue: str, now_ms: int) -> list[JobWait]:
        """Of jobs that waited for nothing but a worker."""
        since_ms = now_ms - WINDOW_MINUTES * MINUTE_MS
        query = ScanQuery(queue, (StoredState.SUCCEEDED,), self._priorities, False, now_ms)
        jobs = (await scan_over(self._members.healthy(), query, None, MOST_JOBS)).jobs
        return [
            JobWait(max(job.run_after_ms, job.created_at_ms), job.claimed_at_ms)
            for job in jobs
            if job.claimed_at_ms is not None and job.claimed_at_ms >= since_ms and job.serialize_key is None
        ]
