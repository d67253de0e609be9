"""Collection of the numbers of jobs per queue: the owner of a shard counts them there, and publishes them on it.

A StatsCollector has a ShardStats for each shard that this process owns. That begins one of its three counts when it is
due (job_counter.py), shows the result as gauges, and publishes it for all servers (counts.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence, Set
from typing import Any

import structlog

from pinlater.backends.base import LevelCounts
from pinlater.clock import Clock
from pinlater.cluster.counts import KEPT_MS, PublishedCounts, QueueCounts, ShardCounts, summed, views
from pinlater.cluster.job_counter import CountRequest, JobCounter
from pinlater.cluster.membership import Membership
from pinlater.metrics import Metrics
from pinlater.model import BlockedChain, QueueStatus
from pinlater.queues.directory import QueueDirectory
from pinlater.shards.handle import ShardHandle
from pinlater.shards.shard_set import ShardSet

_log = structlog.get_logger("pinlater.cluster")

WAIT_MS = 500
"""A tick waits so long for what it began."""

MAX_HOLDERS = 20

SHARE_OF_SMALL, SHARE_OF_LIVE, SHARE, LEAST_SHARE = 0.006, 0.008, 0.01, 0.002
"""The parts of the time that counting takes at most: queues that are not large; live jobs of large ones too; ended ones
too. Each may take what those before it leave, and always LEAST_SHARE."""

MAX_WAIT_MS, MOST_OF_SMALL, MOST_OF_LARGE = 20_000, 0.02, 0.05
"""From one count of live jobs to the next, where the count takes no more than this part of the time: a share of a long
time would be minutes wherever counting is slow. So a backlog that is gone is seen within half a minute, up to about a
million jobs, which take a store a second."""

STATES = ("ready", "scheduled", "in_progress", "succeeded", "failed", "waiting", "cancelled", "replayed")
_FAMILIES = (
    "queue_jobs",
    "queue_ready_limited_jobs",
    "queue_oldest_ready_seconds",
    "queue_count_age_seconds",
    "queue_ended_count_age_seconds",
)
_NO_JOBS = LevelCounts(0, 0, 0, 0, 0, None)


class StatsCollector:
    """Counts the shards of this process, each at most every `interval_ms`, and knows the counts of all shards.

    `priorities` are those that jobs may have.
    """

    def __init__(
        self,
        members: ShardSet,
        queues: QueueDirectory,
        membership: Membership,
        clock: Clock,
        metrics: Metrics,
        interval_ms: int,
        *,
        priorities: Collection[int] = (1, 2, 3),
    ) -> None:
        self._members = members
        self._queues = queues
        self._membership = membership
        self._clock = clock
        self._metrics = metrics
        self._interval_ms = interval_ms
        self._priorities = priorities
        self.published = self._published = PublishedCounts(members, clock)
        self._shards: dict[str, ShardStats] = {}

    # -- counting ----------------------------------------------------------------------------------------------------

    async def tick(self) -> None:
        """Begin to count what is due; waits for it for a while, and lets it go on then."""
        owned = [member for member in self._members.healthy() if self._membership.owns(member.shard.shard_id)]
        for lost in self._shards.keys() - {member.shard.shard_id for member in owned}:
            self._shards.pop(lost).lose()
        for member in owned:
            self._take(member)
        due = [shard for shard in self._shards.values() if shard.is_due()]
        if due:
            request = self._request()
            for shard in due:
                shard.begin(request)
        running = self._running()
        if running:
            await asyncio.wait(running, timeout=WAIT_MS / 1000)

    async def drain(self) -> None:
        """Wait until what is under way has been counted."""
        await asyncio.gather(*self._running())

    async def close(self) -> None:
        """Count no further."""
        running = self._running()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._published.close()

    def _running(self) -> list[asyncio.Task[None]]:
        return [task for shard in self._shards.values() for task in shard.running()]

    def _take(self, member: ShardHandle) -> None:
        shard_id = member.shard.shard_id
        before = self._shards.get(shard_id)
        if before is not None and before.member is member:
            return
        if before is not None:
            before.lose()
        self._published.begin(shard_id)
        self._shards[shard_id] = ShardStats(
            member,
            JobCounter(member, self._priorities, self._clock, lambda: self._membership.owns(shard_id)),
            StatsGauges(shard_id, self._metrics),
            self._published,
            self._clock,
            self._interval_ms,
        )

    def _request(self) -> CountRequest:
        enqueued: dict[str, int] = {}
        for lease in self._membership.alive():
            for queue, numbers in lease.counters.items():
                enqueued[queue] = enqueued.get(queue, 0) + numbers[0]
        dead_letters = self._queues.dead_letter_targets()
        others = {*dead_letters, *(target.queue for target in dead_letters.values()), *self._queues.flow_queues}
        return CountRequest(self._queues.names(), enqueued, others)

    # -- what is known of all shards ---------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Read what others have counted, if that was not done within the last second. Raises nothing."""
        await self._published.refresh()

    def status(self, names: Iterable[str] | None = None) -> list[QueueStatus]:
        """These queues, or all of them, by name, as of the last `refresh`; without rates and flags."""
        known = self._queues.names()
        return [self._of(queue) for queue in sorted(known if names is None else known & set(names))]

    def pending(self, queue: str) -> int | None:
        """Jobs that are ready, scheduled or waiting, over all shards, as they were last counted; None: not known."""
        found = self._published.of(queue)
        if not found:
            return None
        return sum(level.ready + level.scheduled + level.waiting for each in found for level in each.levels.values())

    def unfinished(self, shard_id: str, is_counted: Callable[[str], bool]) -> tuple[int | None, int | None]:
        """The jobs of some queues of one shard that are pending or in progress, and when the oldest of them were
        counted; None, None: nothing is known.
        """
        counts = self._published.on(shard_id)
        if counts is None:
            return None, None
        some = [each for queue, each in counts.queues.items() if is_counted(queue)]
        return sum(map(_unfinished, some)), min([counts.at_ms, *(each.at_ms for each in some)])

    def blocked_on(self, shard_id: str) -> Sequence[BlockedChain]:
        """See PublishedCounts."""
        return self._published.blocked_on(shard_id)

    def holders(self, shard_id: str) -> dict[str, int]:
        """The queues whose jobs these are, the one with the most first; no more of them than MAX_HOLDERS."""
        counts = self._published.on(shard_id)
        jobs = {queue: _unfinished(each) for queue, each in counts.queues.items()} if counts else {}
        most = sorted((queue for queue in jobs if jobs[queue]), key=lambda queue: (-jobs[queue], queue))
        return {queue: jobs[queue] for queue in most[:MAX_HOLDERS]}

    def _of(self, queue: str) -> QueueStatus:
        found = self._published.of(queue)
        counted_at_ms = min((each.at_ms for each in found), default=0)
        status = QueueStatus(queue, counted_at_ms, views(summed(each.levels for each in found)))
        oldest_ms = min((each.oldest_ms for each in found), default=0)
        if oldest_ms < counted_at_ms:
            status.ended_counted_at_ms = oldest_ms
        return status


def _unfinished(counts: QueueCounts) -> int:
    """Jobs that are pending or in progress."""
    return sum(level.ready + level.scheduled + level.waiting + level.in_progress for level in counts.levels.values())


class ShardStats:
    """The counts of one shard, from when this process owns it until it is lost."""

    def __init__(
        self,
        member: ShardHandle,
        counter: JobCounter,
        gauges: StatsGauges,
        published: PublishedCounts,
        clock: Clock,
        interval_ms: int,
    ) -> None:
        self.member = member
        self._counter = counter
        self._gauges = gauges
        self._published = published
        self._clock = clock
        self._interval_ms = interval_ms
        self._schedules = (
            _Schedule(counter.count_small, SHARE_OF_SMALL, MAX_WAIT_MS, MOST_OF_SMALL),
            _Schedule(counter.count_large, SHARE_OF_LIVE, MAX_WAIT_MS, MOST_OF_LARGE),
            _Schedule(counter.count_ended, SHARE, KEPT_MS // 2, MOST_OF_LARGE),  # published anew before it is forgotten
        )
        self._oldest_ms: tuple[int, int] | None = None

    def is_due(self) -> bool:
        """Whether there is something to begin; keeps the age of the figures up to date."""
        self._show_age()
        return bool(self._due())

    def begin(self, request: CountRequest) -> None:
        """Begin what is due."""
        for schedule in self._due():
            schedule.begun_ms = self._clock.now_ms()
            schedule.task = asyncio.get_running_loop().create_task(self._run(schedule, request))

    def _due(self) -> list[_Schedule]:
        now_ms = self._clock.now_ms()
        needed = (True, self._counter.large, self._counter.split)
        return [
            each for each, is_needed in zip(self._schedules, needed, strict=True) if is_needed and each.is_due(now_ms)
        ]

    def running(self) -> list[asyncio.Task[None]]:
        return [each.task for each in self._schedules if each.task is not None and each.is_running()]

    def lose(self) -> None:
        """Somebody else counts it now."""
        for task in self.running():
            task.cancel()
        self._gauges.clear()

    def _share(self, schedule: _Schedule) -> float:
        before = self._schedules[: self._schedules.index(schedule)]
        return max(LEAST_SHARE, schedule.share - sum(each.used for each in before))

    def _show_age(self) -> None:
        if self._oldest_ms is not None and self._counter.at_ms is not None:
            now_ms = self._clock.now_ms()
            self._gauges.show_ages(*(now_ms - at_ms for at_ms in self._oldest_ms))

    async def _run(self, schedule: _Schedule, request: CountRequest) -> None:
        schedule.wait_ms = self._interval_ms
        try:
            took_s = await schedule.count(request)
            if took_s is None:
                return
            schedule.took(took_s * 1000, self._interval_ms, self._share(schedule))
            counts = self._counter.counts()
            self._oldest_ms = counts.oldest_ms()
            self._gauges.show(counts, request.queues)
            self._show_age()
            await self._published.put(self.member, counts)
        except Exception:
            _log.exception("count_failed", shard=self.member.shard.shard_id)


class _Schedule:
    """One of the counts, and when it is due again: so that it keeps to its share of the time, or after `max_wait_ms`
    where that is less and takes no more than `most` of the time.
    """

    def __init__(
        self,
        count: Callable[[CountRequest], Coroutine[Any, Any, float | None]],
        share: float,
        max_wait_ms: int,
        most: float,
    ) -> None:
        self.count = count
        self.share = share
        self._max_wait_ms = max_wait_ms
        self._most = most
        self.task: asyncio.Task[None] | None = None
        self.begun_ms: int | None = None
        self.wait_ms = 0
        self.used = 0.0
        """The share of the time that it took the last time."""

    def took(self, busy_ms: float, interval_ms: int, share: float) -> None:
        """It kept the store busy for so long, and is to keep to that share of the time."""
        wait_ms = min(busy_ms / share, max(self._max_wait_ms, busy_ms / self._most))
        self.wait_ms = max(interval_ms, int(wait_ms))
        self.used = busy_ms / self.wait_ms

    def is_running(self) -> bool:
        return self.task is not None and not self.task.done()

    def is_due(self, now_ms: int) -> bool:
        return not self.is_running() and (self.begun_ms is None or not 0 <= now_ms - self.begun_ms < self.wait_ms)


class StatsGauges:
    """Of one shard. A level that had jobs once stays, at zero: not every collector sees what is gone."""

    def __init__(self, shard_id: str, metrics: Metrics) -> None:
        self._shard_id = shard_id
        self._metrics = metrics
        self._shown: set[tuple[str, int]] = set()

    def show(self, counts: ShardCounts, queues: Set[str]) -> None:
        """`queues` are those that there are."""
        self._shown |= {(queue, priority) for queue, each in counts.queues.items() for priority in each.levels}
        self._shown = {shown for shown in self._shown if shown[0] in queues}
        jobs: dict[tuple[Any, ...], float] = {}
        limited: dict[tuple[Any, ...], float] = {}
        ages: dict[tuple[Any, ...], float] = {}
        for queue, priority in self._shown:
            at_ms, levels, _ = counts.of(queue)
            level = levels.get(priority, _NO_JOBS)
            for state in STATES:
                jobs["queue_jobs", self._shard_id, queue, priority, state] = getattr(level, state)
            limited["queue_ready_limited_jobs", self._shard_id, queue, priority] = level.ready_limited
            age_ms = 0 if level.oldest_ready_ms is None else max(0, at_ms - level.oldest_ready_ms)
            ages["queue_oldest_ready_seconds", self._shard_id, queue, priority] = age_ms / 1000
        self._metrics.set_gauges(("queue_jobs", self._shard_id), jobs)
        self._metrics.set_gauges(("queue_ready_limited_jobs", self._shard_id), limited)
        self._metrics.set_gauges(("queue_oldest_ready_seconds", self._shard_id), ages)

    def show_ages(self, age_ms: int, ended_age_ms: int) -> None:
        """How old the oldest count of live jobs is, and the oldest one of all."""
        self._metrics.gauges["queue_count_age_seconds", self._shard_id] = max(0, age_ms) / 1000
        self._metrics.gauges["queue_ended_count_age_seconds", self._shard_id] = max(0, ended_age_ms) / 1000

    def clear(self) -> None:
        """Somebody else counts it now."""
        for family in _FAMILIES:
            self._metrics.set_gauges((family, self._shard_id), {})
