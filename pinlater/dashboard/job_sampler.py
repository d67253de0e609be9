"""The sampler of jobs: reads some that ended, of queues where something happens, within a bound of time.

It asks one call after the other, and counts how long each takes: a server cannot work longer for it than that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from heapq import nlargest
from time import monotonic

from pinlater.api import Api
from pinlater.dashboard.failure_sample import sample_of, type_of
from pinlater.dashboard.queue_record import QueueRecord
from pinlater.errors import Forbidden, PinLaterError, QueueNotFound
from pinlater.model import JobFilter, JobInfo, JobState, RequestContext
from pinlater.model.operator_views import COUNTED

BUDGET = 0.008
"""The part of the time that the calls may take."""

JOBS_PER_MINUTE = 10_000
MOST, LEAST = 200, 20
"""Jobs of one queue in a minute: the more queues there are, the fewer."""

MOST_FAILED = 100
"""Their statuses have tracebacks."""

MOST_BODIES, FIRST_BODIES = 50, 10
"""Of one queue in a minute; and as long as nobody knows how large they are."""

BODIES_BYTES = 512 * 1024
"""Of one queue in a minute, by the size of those before."""

EVERY_MS = 50_000
"""No queue is looked at more often."""

LONGEST_MS = 600_000
"""Jobs that ended longer ago are not looked for."""

_CREDIT_S = 60 * BUDGET
"""What is not used of the time is kept up to that, and no more is owed: there is one look a minute at least."""

_SUCCEEDED, _FAILED = COUNTED.index("succeeded"), COUNTED.index("failed")


class JobSampler:
    """`context` is that of the recorder. Jobs that ended before `since_ms` are no concern of it."""

    def __init__(
        self,
        api: Api,
        context: RequestContext,
        since_ms: int,
        *,
        every_ms: int = EVERY_MS,
        now_s: Callable[[], float] = monotonic,
    ) -> None:
        self._api = api
        self._context = context
        self._since_ms = since_ms
        self._every_ms = every_ms
        self._now_s = now_s
        self._pending: dict[str, list[int]] = {}
        """What happened in a queue since it was looked at, as COUNTED."""
        self._sampled_ms: dict[str, int] = {}
        self._seen_ms: dict[tuple[str, JobState], int] = {}
        """Until when the jobs of a queue in one state were looked at: counts come later than what they count."""
        self._body_bytes: dict[str, float] = {}
        self._credit_s = _CREDIT_S
        self.may_see_bodies = True
        """The last queue whose types were asked for gave them."""
        self.refused = 0
        """Queues that the recorder may not look at."""

    def note(self, new: Mapping[str, Sequence[int]]) -> None:
        """This happened."""
        for queue, numbers in new.items():
            pending = self._pending.setdefault(queue, [0] * len(COUNTED))
            for at, number in enumerate(numbers):
                pending[at] += number

    async def sample(self, now_ms: int, passed_s: float) -> dict[str, QueueRecord]:
        """Look at the busiest queues, as far as the time allows: `passed_s` have gone by since the last time."""
        self._credit_s = min(_CREDIT_S, self._credit_s + passed_s * BUDGET)
        self._forget(now_ms)
        due = {
            queue: sum(numbers)
            for queue, numbers in self._pending.items()
            if now_ms - self._sampled_ms.get(queue, 0) >= self._every_ms
        }
        limit = max(LEAST, min(MOST, JOBS_PER_MINUTE // max(1, len(self._pending))))
        found: dict[str, QueueRecord] = {}
        for queue in nlargest(len(due), due, due.__getitem__):
            if self._credit_s <= 0:
                break
            begun_s = self._now_s()
            self._sampled_ms[queue] = now_ms
            with suppress(PinLaterError):  # a store is away, or slow: it stays pending
                found[queue] = await self._look(queue, self._pending[queue], now_ms, limit)
                del self._pending[queue]
            self._credit_s = max(-_CREDIT_S, self._credit_s - (self._now_s() - begun_s))
        return found

    def _forget(self, now_ms: int) -> None:
        old = [queue for queue, at_ms in self._sampled_ms.items() if now_ms - at_ms > LONGEST_MS]
        for queue in old:
            del self._sampled_ms[queue]
            self._body_bytes.pop(queue, None)
        self._seen_ms = {key: at_ms for key, at_ms in self._seen_ms.items() if now_ms - at_ms <= LONGEST_MS}

    async def _look(self, queue: str, happened: Sequence[int], now_ms: int, limit: int) -> QueueRecord:
        """PinLaterError leaves what was seen as it was. A queue that is gone has nothing to see."""
        jobs: list[JobInfo] = []
        failed: list[JobInfo] = []
        seen: list[JobState] = []
        try:
            if happened[_SUCCEEDED]:
                jobs = await self._ended(queue, JobState.SUCCEEDED, limit, now_ms)
                seen.append(JobState.SUCCEEDED)
                if not jobs:  # none is kept: those that run say how long they waited
                    jobs = await self._running(queue, limit, now_ms)
                    seen.append(JobState.IN_PROGRESS)
            if happened[_FAILED]:
                failed = await self._ended(queue, JobState.FAILED, min(limit, MOST_FAILED), now_ms)
                seen.append(JobState.FAILED)
            record = sample_of([*jobs, *failed], await self._types(queue, failed))
        except Forbidden:
            self.refused += 1
            return QueueRecord()
        except QueueNotFound:
            return QueueRecord()
        self._seen_ms |= {(queue, state): now_ms for state in seen}
        return record

    async def _ended(self, queue: str, state: JobState, limit: int, to_ms: int) -> list[JobInfo]:
        """Those that ended since they were looked at."""
        page = await self._api.scan(JobFilter(queue, state), limit=limit, context=self._context)
        from_ms = self._from_ms(queue, state, to_ms)
        return [job for job in page.jobs if job.finished_at_ms is not None and from_ms < job.finished_at_ms <= to_ms]

    async def _running(self, queue: str, limit: int, to_ms: int) -> list[JobInfo]:
        """Those that were handed out since then."""
        page = await self._api.scan(JobFilter(queue, JobState.IN_PROGRESS), limit=limit, context=self._context)
        from_ms = self._from_ms(queue, JobState.IN_PROGRESS, to_ms)
        return [job for job in page.jobs if job.claimed_at_ms is not None and from_ms < job.claimed_at_ms <= to_ms]

    def _from_ms(self, queue: str, state: JobState, to_ms: int) -> int:
        return max(self._seen_ms.get((queue, state), self._since_ms), to_ms - LONGEST_MS)

    async def _types(self, queue: str, failed: Sequence[JobInfo]) -> dict[str, str]:
        """By descriptor; nothing where bodies may not be seen. One that lies in a tier is not fetched for this."""
        limit = FIRST_BODIES
        if (size := self._body_bytes.get(queue)) is not None:
            limit = max(1, min(MOST_BODIES, int(BODIES_BYTES / max(1.0, size))))
        wanted = [job.descriptor for job in failed if not job.cancelled and job.body_stored_at is None][:limit]
        if not wanted:
            return {}
        try:
            found = await self._api.lookup(wanted, include_body=True, context=self._context)
        except Forbidden:
            self.may_see_bodies = False
            return {}
        self.may_see_bodies = True
        bodies = {descriptor: job.body for descriptor, job in found.items() if job.body is not None}
        if bodies:
            self._body_bytes[queue] = sum(map(len, bodies.values())) / len(bodies)
        return {descriptor: type_of(body) for descriptor, body in bodies.items()}
