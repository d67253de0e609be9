"""The tasks of maintenance: claims and jobs whose time is over end, dead letters are copied, ended jobs are removed.

A further task is a class with these members, and an entry in `tasks`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pinlater.backends.base import DeadLetterTarget, EndRules, PerQueue, Retention, Shard
from pinlater.clock import Clock
from pinlater.metrics import Metrics

TOMBSTONES_EVERY_MS = 600_000
"""How often a shard is looked through for tombstones of deleted queues that are no longer kept."""

_FEW_QUEUES = 10
"""Up to so many queues are shown one by one."""


class Rules(Protocol):
    """The settings of all queues, as far as they say what becomes of jobs that end."""

    def end_rules(self) -> PerQueue[EndRules]: ...

    def retention(self) -> PerQueue[Retention]: ...

    def dead_letter_targets(self) -> Mapping[str, DeadLetterTarget]: ...

    def tombstones_before(self, now_ms: int) -> str: ...


class Summary:
    """The effect of one run in numbers, as its line in the log shows them: jobs by outcome, in all and per queue."""

    def __init__(self) -> None:
        self._in_all: Counter[str] = Counter()
        self._by_queue: dict[str, Counter[str]] = {}

    def add(self, queue: str, outcome: str, jobs: int) -> None:
        self._in_all[outcome] += jobs
        self._by_queue.setdefault(queue, Counter())[outcome] += jobs

    def add_leftovers(self, jobs: int) -> None:
        """Of deleted queues, whose names say nothing any more."""
        self._in_all["leftovers_removed"] += jobs

    def has_any(self) -> bool:
        return self._in_all.total() > 0

    def fields(self) -> dict[str, object]:
        """For the log."""
        if len(self._by_queue) > _FEW_QUEUES:
            return {**self._in_all, "queues": len(self._by_queue)}
        return {**self._in_all, "queues": {queue: dict(jobs) for queue, jobs in sorted(self._by_queue.items())}}


class Task(Protocol):
    """One kind of maintenance. `event` is its line in the log after a run that changed something."""

    name: str
    event: str

    async def step(self, shard: Shard, limit: int, summary: Summary) -> int:
        """Work on at most `limit` jobs of a shard; how many were changed. 0: nothing more is due."""


@dataclass(frozen=True, slots=True)
class ExpireClaims:
    """Ends claims whose time is over. `wake` is told the queues whose jobs became eligible."""

    name, event = "expire", "claims_expired"

    _queues: Rules
    _clock: Clock
    _metrics: Metrics
    _wake: Callable[[str, int], None]

    async def step(self, shard: Shard, limit: int, summary: Summary) -> int:
        counts = await shard.expire_claims(limit, self._clock.now_ms(), self._queues.end_rules())
        for queue, expired in counts.items():
            for outcome, jobs in expired._asdict().items():
                if jobs:
                    summary.add(queue, outcome, jobs)
                    self._metrics.add(jobs, "claims_expired", queue, outcome)
            if expired.cancelled:
                self._metrics.add(expired.cancelled, "jobs_cancelled", queue)
            if expired.retried:
                self._wake(queue, expired.retried)
        return sum(sum(expired) for expired in counts.values())


@dataclass(frozen=True, slots=True)
class ExpireJobs:
    """Ends jobs that were not handed out before their expiry."""

    name, event = "expire_jobs", "jobs_expired"

    _queues: Rules
    _clock: Clock
    _metrics: Metrics

    async def step(self, shard: Shard, limit: int, summary: Summary) -> int:
        counts = await shard.expire_jobs(limit, self._clock.now_ms(), self._queues.end_rules())
        for queue, jobs in counts.items():
            summary.add(queue, "expired", jobs)
            self._metrics.add(jobs, "jobs_expired", queue)
        return sum(counts.values())


@dataclass(frozen=True, slots=True)
class CopyDeadLetters:
    """Copies jobs that failed for good to the dead-letter queues of theirs."""

    name, event = "dead_letter", "jobs_buried"

    _queues: Rules
    _clock: Clock
    _metrics: Metrics
    _wake: Callable[[str, int], None]

    async def step(self, shard: Shard, limit: int, summary: Summary) -> int:
        targets = self._queues.dead_letter_targets()
        if not targets:
            return 0
        counts = await shard.dead_letter(limit, self._clock.now_ms(), targets)
        for queue, jobs in counts.items():
            summary.add(queue, "moved", jobs)
            self._metrics.add(jobs, "jobs_buried", queue)
            self._metrics.add(jobs, "letters_stored", targets[queue].queue)
            self._wake(targets[queue].queue, jobs)
        return sum(counts.values())


class Prune:
    """Removes jobs that ended long enough ago, what deleted queues left, and in the end the tombstones of these."""

    name, event = "prune", "jobs_collected"

    def __init__(self, queues: Rules, clock: Clock, metrics: Metrics) -> None:
        self._queues = queues
        self._clock = clock
        self._metrics = metrics
        self._tombstones_at_ms: dict[str, int] = {}

    async def step(self, shard: Shard, limit: int, summary: Summary) -> int:
        now_ms = self._clock.now_ms()
        before = self._tombstones_before(shard.shard_id, now_ms)
        counts = await shard.prune(limit, now_ms, self._queues.retention(), tombstones_before=before)
        for queue, jobs in counts.items():
            if queue:
                summary.add(queue, "removed", jobs)
                self._metrics.add(jobs, "jobs_collected", queue)
            else:
                summary.add_leftovers(jobs)
        return sum(counts.values())

    def _tombstones_before(self, shard_id: str, now_ms: int) -> str:
        """A version every ten minutes, else "" (no tombstones are removed)."""
        at_ms = self._tombstones_at_ms.get(shard_id)
        if at_ms is not None and 0 <= now_ms - at_ms < TOMBSTONES_EVERY_MS:
            return ""
        self._tombstones_at_ms[shard_id] = now_ms
        return self._queues.tombstones_before(now_ms)


def tasks(queues: Rules, clock: Clock, metrics: Metrics, wake: Callable[[str, int], None]) -> Sequence[Task]:
    """All tasks of a server."""
    return (
        ExpireClaims(queues, clock, metrics, wake),
        ExpireJobs(queues, clock, metrics),
        CopyDeadLetters(queues, clock, metrics, wake),
        Prune(queues, clock, metrics),
    )
