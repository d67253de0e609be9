"""Servers that a recorder of history asks: totals, counts and jobs under the test's control, and its clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from pinlater.api import Api
from pinlater.dashboard.history_recorder import HistoryRecorder
from pinlater.dashboard.history_store import HistoryStore
from pinlater.dashboard.job_sampler import JobSampler
from pinlater.errors import Forbidden, PinLaterError
from pinlater.model import (
    ClusterStatus,
    JobFilter,
    JobInfo,
    JobState,
    LevelView,
    ProcessCounters,
    QueueStatus,
    RequestContext,
    ScanPage,
)

START_MS = 1_790_000_040_000 // 3_600_000 * 3_600_000
"""The beginning of an hour."""

MINUTE_MS = 60_000
CONTEXT = RequestContext("history")


@dataclass
class Process:
    started_ms: int
    queues: dict[str, list[int]] = field(default_factory=dict)


@dataclass
class Servers:
    """An Api as far as a recorder uses it."""

    now_ms: int = START_MS
    processes: dict[str, Process] = field(default_factory=dict)
    levels: dict[str, LevelView] = field(default_factory=dict)
    jobs: dict[tuple[str, JobState], list[JobInfo]] = field(default_factory=dict)
    bodies: dict[str, bytes] = field(default_factory=dict)
    readable: set[str] | None = None
    shows_bodies: bool = True
    tells_counters: bool = True
    error: PinLaterError | None = None
    calls: list[str] = field(default_factory=list)
    limits: list[int] = field(default_factory=list)

    @property
    def api(self) -> Api:
        return cast(Api, self)

    def process(self, name: str = "a/1", started_ms: int | None = None) -> Process:
        made = self.processes[name] = Process(self.now_ms if started_ms is None else started_ms)
        return made

    def count(self, queue: str, *numbers: int, name: str = "a/1") -> None:
        """So many more were enqueued, dequeued, succeeded, failed, retried."""
        sums = self.processes[name].queues.setdefault(queue, [0] * 5)
        for at, number in enumerate(numbers):
            sums[at] += number
        self.levels.setdefault(queue, LevelView(1))

    def failed(self, queue: str, status: str, body: bytes = b"plain", *, ran_ms: int = 100) -> None:
        """A job failed just now, after it had waited for 50 ms."""
        self.ended(queue, JobState.FAILED, status, body, ran_ms=ran_ms)

    def ended(self, queue: str, state: JobState, status: str = "", body: bytes = b"", *, ran_ms: int = 100) -> None:
        jobs = self.jobs.setdefault((queue, state), [])
        begun_ms = self.now_ms - ran_ms
        descriptor = f"{queue}:s1:p1:{1_790_000_000_000_000 + len(self.bodies)}"
        info = JobInfo(descriptor, state, 1, 1, 0, status, begun_ms - 50, begun_ms - 50, self.now_ms)
        info.claimed_at_ms = begun_ms
        info.finished_at_ms = None if state is JobState.IN_PROGRESS else self.now_ms
        jobs.insert(0, info)
        self.bodies[descriptor] = body

    # -- the Api -------------------------------------------------------------------------------------------------------

    async def cluster_status(
        self, *, queues: Sequence[str] | None = None, counters_since_ms: int | None = None, context: RequestContext
    ) -> ClusterStatus:
        self.calls.append("status")
        if self.error is not None:
            raise self.error
        if self.readable is not None and not (queues and self.readable.issuperset(queues)):
            raise Forbidden("not all queues")
        names = set(self.levels) if queues is None else set(queues)
        counters = [
            ProcessCounters(
                name,
                process.started_ms,
                self.now_ms,
                {queue: tuple(numbers) for queue, numbers in process.queues.items() if queue in names},
            )
            for name, process in self.processes.items()
        ]
        told = counters if self.tells_counters and counters_since_ms is not None else None
        found = [QueueStatus(name, self.now_ms, [self.levels[name]]) for name in sorted(names & set(self.levels))]
        return ClusterStatus(self.now_ms, [], [], found, counters=told)

    async def queue_names(self, *, context: RequestContext) -> set[str]:
        if self.readable is not None and not self.readable:
            raise Forbidden("no queue")
        return set(self.levels) if self.readable is None else set(self.readable)

    async def scan(self, filter: JobFilter, *, limit: int, context: RequestContext, **_: Any) -> ScanPage:
        self.calls.append(f"scan {filter.queue} {filter.state.name}")
        self.limits.append(limit)
        return ScanPage(self.jobs.get((filter.queue, filter.state), [])[:limit])

    async def lookup(
        self, descriptors: Sequence[str], *, include_body: bool, context: RequestContext
    ) -> dict[str, JobInfo]:
        self.calls.append(f"lookup {len(descriptors)}")
        if not self.shows_bodies:
            raise Forbidden("no bodies")
        found = {info.descriptor: info for jobs in self.jobs.values() for info in jobs}
        for descriptor in descriptors:
            found[descriptor].body = self.bodies[descriptor]
        return {descriptor: found[descriptor] for descriptor in descriptors}


async def recorder(servers: Servers, store: HistoryStore) -> HistoryRecorder:
    """One that writes, and looks at jobs whenever it asks."""
    await store.open()
    assert await store.claim()
    found = HistoryRecorder(
        servers.api,
        CONTEXT,
        store,
        new_sampler=lambda since_ms: JobSampler(servers.api, CONTEXT, since_ms, every_ms=0),
    )
    await found.resume()
    return found


async def pass_minutes(servers: Servers, at: HistoryRecorder, minutes: float, step_ms: int = 10_000) -> None:
    """The time goes by, and the recorder asks every so often."""
    end_ms = servers.now_ms + int(minutes * MINUTE_MS)
    while servers.now_ms < end_ms:
        servers.now_ms = min(end_ms, servers.now_ms + step_ms)
        await at.poll()
