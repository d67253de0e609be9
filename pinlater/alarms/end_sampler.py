"""The sampler of jobs that ended: which types of job fail in a queue, and what they say.

It looks at queues alone in which jobs fail, at most at some of them at a time, and at each only so often.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pinlater.alarms.evidence import MINUTE_MS, WINDOW_MINUTES, TypeSample
from pinlater.backends.base import StoredState
from pinlater.clock import Clock
from pinlater.errors import PinLaterError
from pinlater.job_body import describe_body
from pinlater.job_filters.filter_fields import SERVER_ERRORS
from pinlater.model import JobInfo, JobState
from pinlater.shards.scan import ScanQuery, scan_over
from pinlater.shards.shard_set import ShardSet

EVERY_MS = 30_000
MOST_QUEUES = 5
"""In one judgement."""

MOST_JOBS = 200
"""Of each state of a queue."""

MOST_BYTES = 512 * 1024
MAX_ERROR_CHARS = 300
_CRASHES = f"[{SERVER_ERRORS['too many crashes']}"
_UNHEARD = tuple(f"[{SERVER_ERRORS[name]}" for name in ("claim expired", "connection lost"))


@dataclass(slots=True)
class _Examined:
    at_ms: int
    types: Mapping[str, TypeSample] = field(default_factory=dict)


def sample_of_types(jobs: Iterable[JobInfo]) -> dict[str, TypeSample]:
    """By the type that the body names; "" for bodies that name none, and for cancelled jobs nothing."""
    found: dict[str, TypeSample] = {}
    for job in jobs:
        if job.cancelled:
            continue
        described = None if job.body is None else describe_body(job.body)
        sample = found.setdefault("" if described is None else described.job or "", TypeSample())
        if job.state is JobState.SUCCEEDED:
            sample.succeeded += 1
        else:
            sample.failed += 1
            line = error_line(job.custom_status)
            sample.over_budget += line.startswith(_CRASHES)
            sample.unheard += line.startswith(_UNHEARD)
            sample.error = sample.error or line
    return found


def error_line(status: str) -> str:
    """The last line of a status that tells of an attempt, else its last line.

    >>> error_line("attempt 1 of 2: KeyError: 'a'\\nattempt 2 of 2: Refused: no\\n  File x.py")
    'attempt 2 of 2: Refused: no'
    """
    lines = [line.strip() for line in status.splitlines() if line.strip()]
    attempts = [line for line in lines if line.startswith(("attempt ", "["))]
    return (attempts or lines or [""])[-1][:MAX_ERROR_CHARS]


class EndSampler:
    """For the judge of one process."""

    def __init__(self, members: ShardSet, priorities: Sequence[int], clock: Clock) -> None:
        self._members = members
        self._priorities = priorities
        self._clock = clock
        self._examined: dict[str, _Examined] = {}

    async def types(self, queues: Sequence[str]) -> dict[str, Mapping[str, TypeSample]]:
        """Of these queues, those with the most failures first, as far as they were examined lately. Raises nothing."""
        now_ms = self._clock.now_ms()
        self._examined = {queue: each for queue, each in self._examined.items() if queue in queues}
        due = [queue for queue in queues if now_ms - self._at_ms(queue) >= EVERY_MS] if self._members.healthy() else []
        for queue in due[:MOST_QUEUES]:
            try:
                self._examined[queue] = _Examined(now_ms, sample_of_types(await self._ended(queue, now_ms)))
            except PinLaterError:  # a store or a tier is away: by the queue alone, then
                self._examined[queue] = _Examined(now_ms)
        return {queue: each.types for queue, each in self._examined.items()}

    def _at_ms(self, queue: str) -> int:
        examined = self._examined.get(queue)
        return 0 if examined is None else examined.at_ms

    async def _ended(self, queue: str, now_ms: int) -> list[JobInfo]:
        since_ms = now_ms - WINDOW_MINUTES * MINUTE_MS
        jobs: list[JobInfo] = []
        for state in (StoredState.SUCCEEDED, StoredState.FAILED):
            query = ScanQuery(queue, (state,), self._priorities, False, now_ms, with_body=True, max_bytes=MOST_BYTES)
            jobs += (await scan_over(self._members.healthy(), query, None, MOST_JOBS)).jobs
        return [job for job in jobs if job.updated_at_ms >= since_ms]
