"""Lookups that wait: answered when the first of the jobs they name has ended.

    lookup ─ join() ─► EndWaits ──► ShardEnds (one per shard, while somebody waits for its jobs) ──► EndWaiter
                          ▲              │  has the store report (watch_ends), or looks up all that is waited for
    acks, cancels, ───────┘              │
    stores (jobs_ended)                  └─ when nobody waits, it asks nothing

Whoever is told of an end looks the job up by itself: a report may be wrong, and costs one lookup then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TypeVar

import structlog

from pinlater.backends.acks import Acks
from pinlater.backends.base import JobKey
from pinlater.clock import Clock
from pinlater.errors import Overloaded, PinLaterError
from pinlater.model import AckOutcome, JobInfo, JobRef, JobState
from pinlater.service.service_context import ServiceContext
from pinlater.shards.handle import ShardHandle
from pinlater.shared_pool import PoolPlace, SharedPool

T = TypeVar("T")
_log = structlog.get_logger("pinlater.service")
_Name = tuple[str, int]
"""A queue, and the id of a job."""

MAX_JOBS = 1_000
"""The most jobs that one lookup that waits may name."""

_MAX_WATCHED = 200_000
"""Jobs that lookups wait for, in all."""

_SLICE = 1_000
"""Jobs in one call of a store."""

_SPARE_S = 30.0
"""A store is asked to report for so much longer than the first who waits needs: others may come for the same job."""

_TRY_AGAIN_S = 5.0
"""The time for which a shard is not asked again that would not, or could not, report ends."""

_SAFETY_S = 5.0
"""How often the jobs of a store that reports ends are looked up nevertheless: its message may have been lost."""

_BUSY_SHARE = 0.1
"""Lookups take no more than this part of the time."""

_ENDS = (AckOutcome.SUCCEEDED, AckOutcome.FAILED, AckOutcome.CANCELLED)


def has_ended(info: JobInfo | None) -> bool:
    """Whether the job has ended, or is not there (None)."""
    return info is None or info.state in (JobState.SUCCEEDED, JobState.FAILED)


class EndWaiter:
    """One lookup that waits."""

    __slots__ = ("_ends_s", "_hint", "_is_hinted", "_loop", "_places", "_watches", "is_over")

    def __init__(self, loop: asyncio.AbstractEventLoop, ends_s: float) -> None:
        self._loop = loop
        self._ends_s = ends_s
        self._hint: asyncio.Future[None] | None = None
        self._is_hinted = False
        self._places: list[tuple[ShardEnds, str, int]] = []
        self._watches: list[asyncio.Future[None]] = []
        self.is_over = False
        """Its time is over, or the server drains: it looks the jobs up once more, and answers with what it finds."""

    @property
    def ends_s(self) -> float:
        return self._ends_s

    def join(self, place: ShardEnds, queue: str, key: JobKey) -> None:
        self._places.append((place, queue, key.id))
        watched = place.join(self, queue, key)
        if watched is not None and watched not in self._watches:
            self._watches.append(watched)

    async def until_watched(self) -> None:
        """Wait until the stores were asked to report the ends of its jobs."""
        if self._watches:
            await asyncio.wait(self._watches)

    async def until_hinted(self, at_most_s: float | None = None) -> None:
        """Wait until one of its jobs may have ended, it `is_over`, or `at_most_s` seconds have passed."""
        if not self._is_hinted and not self.is_over:
            self._hint = self._loop.create_future()
            until_s = self._ends_s if at_most_s is None else self._loop.time() + at_most_s
            if until_s < self._ends_s:
                timer = self._loop.call_at(until_s, self.hint)
            else:
                timer = self._loop.call_at(self._ends_s, self.end)
            try:
                await self._hint
            finally:
                timer.cancel()
                self._hint = None
        self._is_hinted = False

    def hint(self) -> None:
        """One of its jobs may have ended."""
        self._is_hinted = True
        if self._hint is not None and not self._hint.done():
            self._hint.set_result(None)

    def end(self) -> None:
        self.is_over = True
        self.hint()

    def leave(self) -> None:
        for place, queue, job_id in self._places:
            place.leave(self, queue, job_id)


class _WatchedJob:
    """A job that somebody waits for. `watched_until_s`: so long its store reports its end, where it was asked to."""

    __slots__ = ("key", "waiters", "watched_until_s")

    def __init__(self, key: JobKey) -> None:
        self.key = key
        self.waiters: dict[EndWaiter, None] = {}
        self.watched_until_s = 0.0


class ShardEnds:
    """The jobs of one shard that are waited for."""

    def __init__(self, member: ShardHandle, clock: Clock, min_pause_s: float, max_pause_s: float) -> None:
        self.member = member
        self._clock = clock
        self._min_pause_s = min_pause_s
        self._max_pause_s = max_pause_s
        self._jobs: dict[_Name, _WatchedJob] = {}
        self._unwatched: dict[_Name, _WatchedJob] = {}
        """Those whose ends the store does not report, or not yet."""
        self._new: dict[str, dict[_WatchedJob, float]] = {}
        """By queue, those that the store is to be asked about, and how long it is to report their ends."""
        self._watched: asyncio.Future[None] | None = None
        """Done when the store was asked to watch the new ones."""
        self._under_way: asyncio.Future[None] | None = None
        """Done when the store has answered for those before."""
        self._not_before_s = 0.0
        self._wakeup: asyncio.Future[None] | None = None
        self._pause_s = min_pause_s
        self._check_at_s = 0.0
        self.task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._jobs)

    def join(self, waiter: EndWaiter, queue: str, key: JobKey) -> asyncio.Future[None] | None:
        """A future that is done when the store was asked to report the job's end; None: it was, or reports nothing."""
        loop = asyncio.get_running_loop()
        name = (queue, key.id)
        job = self._jobs.get(name)
        if job is None:
            job = self._jobs[name] = _WatchedJob(key)
        job.waiters[waiter] = None
        if self.task is None:
            self.task = loop.create_task(self._run())
        if job.watched_until_s >= waiter.ends_s:
            return self._under_way
        now_s = loop.time()
        self._unwatched[name] = job
        self._pause_s = self._min_pause_s
        self._check_at_s = min(self._check_at_s, now_s + self._min_pause_s)
        self._wake()
        if now_s < self._not_before_s:
            return None
        self._new.setdefault(queue, {})[job] = waiter.ends_s + _SPARE_S
        if self._watched is None:
            self._watched = loop.create_future()
        return self._watched

    def leave(self, waiter: EndWaiter, queue: str, job_id: int) -> None:
        job = self._jobs.get((queue, job_id))
        if job is None:
            return
        job.waiters.pop(waiter, None)
        if not job.waiters:
            del self._jobs[queue, job_id]
            self._unwatched.pop((queue, job_id), None)
            if not self._jobs:
                self._wake()

    def ended(self, queue: str, ids: Iterable[int]) -> None:
        """These may have ended."""
        for job_id in ids:
            job = self._jobs.get((queue, job_id))
            if job is not None:
                for waiter in job.waiters:
                    waiter.hint()

    def queue_deleted(self, queue: str) -> None:
        for name, job in self._jobs.items():
            if name[0] == queue:
                for waiter in job.waiters:
                    waiter.hint()

    def _wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    async def _run(self) -> None:
        """Watch and check the jobs as long as somebody waits for one of them."""
        loop = asyncio.get_running_loop()
        check_all_at_s = loop.time() + _SAFETY_S
        try:
            while self._jobs:
                now_s = loop.time()
                if self._watched is not None:  # first: new waiters look their jobs up only once these are watched
                    await self._watch(now_s)
                    continue
                is_all = now_s >= check_all_at_s
                if not is_all and not (self._unwatched and now_s >= self._check_at_s):
                    await self._rest(loop, min(check_all_at_s, self._check_at_s) if self._unwatched else check_all_at_s)
                    continue
                took_s = await self._check(self._jobs if is_all else self._unwatched)
                now_s = loop.time()
                self._pause_s = min(2 * self._pause_s, self._max_pause_s)
                self._check_at_s = now_s + max(self._pause_s, took_s / _BUSY_SHARE)
                if is_all:
                    check_all_at_s = now_s + _SAFETY_S
        except Exception as error:  # unforeseen: what waits still ends with its time
            _log.error("end_waits_failed", shard=self.member.shard.shard_id, exc_info=error)
        finally:
            self.task = None
            for watched in (self._watched, self._under_way):
                if watched is not None:
                    watched.set_result(None)
            self._watched = self._under_way = None
            self._new.clear()

    async def _rest(self, loop: asyncio.AbstractEventLoop, until_s: float) -> None:
        self._wakeup = loop.create_future()
        timer = loop.call_at(until_s, self._wake)
        try:
            await self._wakeup
        finally:
            timer.cancel()
            self._wakeup = None

    async def _watch(self, now_s: float) -> None:
        """Ask the store to report the ends of what is new."""
        new, self._new = self._new, {}
        self._under_way, self._watched = self._watched, None
        now_ms = self._clock.now_ms()
        watches = True
        try:
            for queue, jobs in new.items():
                until_s = max(jobs.values())
                until_ms = now_ms + int(1000 * (until_s - now_s))
                for some in _slices(list(jobs)):
                    keys = [job.key for job in some]
                    watches = watches and await self.member.shard.watch_ends(queue, keys, until_ms, now_ms)
                    if watches:
                        for job in some:
                            job.watched_until_s = until_s
                            self._unwatched.pop((queue, job.key.id), None)
        except PinLaterError:
            watches = False
        if not watches:
            self._not_before_s = asyncio.get_running_loop().time() + _TRY_AGAIN_S
        if self._under_way is not None:
            self._under_way.set_result(None)
            self._under_way = None

    async def _check(self, jobs: Mapping[_Name, _WatchedJob]) -> float:
        """Look these jobs up and hint to who waits for those that have ended; the seconds it took."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        by_queue: dict[str, list[JobKey]] = {}
        for (queue, _), job in jobs.items():
            by_queue.setdefault(queue, []).append(job.key)
        try:
            for queue, named in by_queue.items():
                for keys in _slices(named):
                    infos = await self.member.shard.lookup(queue, keys, with_body=False, max_bytes=0)
                    self.ended(queue, [key.id for key, info in zip(keys, infos, strict=True) if has_ended(info)])
        except PinLaterError:
            pass  # who waits is told when its time is over
        return loop.time() - began_s


def _slices(items: Sequence[T]) -> Iterable[Sequence[T]]:
    return (items[start : start + _SLICE] for start in range(0, len(items), _SLICE))


class EndWaits:
    """The waits of one service, to which its `JobEvents` report ends; an ack reports its own at once."""

    def __init__(self, context: ServiceContext) -> None:
        settings = context.settings
        context.events.ended = self.ended
        self._router = context.router
        self._clock = context.clock
        self._room = SharedPool(settings.max_waiters, "waiting_lookups", "lookups wait", context.metrics)
        self._watched = SharedPool(_MAX_WATCHED, "watched_jobs", "jobs are waited for", context.metrics)
        self._pauses_s = (settings.poll_min_ms / 1000, settings.poll_max_ms / 1000)
        self._shards: dict[str, ShardEnds] = {}
        self._waiters: dict[EndWaiter, tuple[PoolPlace, PoolPlace]] = {}
        self.waiters = 0
        """Lookups that wait now; every ack asks."""
        self.is_draining = False

    def join(self, jobs: Sequence[JobRef], ends_s: float, holder: str) -> EndWaiter:
        """A waiter for the first of these jobs, until then by the loop's time, or until another caller needs the room
        of `holder`, who has most. Who has it calls `leave` in the end. Overloaded.
        """
        waiter = EndWaiter(asyncio.get_running_loop(), ends_s)
        if self.is_draining:
            waiter.end()
            return waiter
        room = self._room.enter(holder)
        try:
            watched = self._watched.enter(holder, len(jobs))
        except Overloaded:
            room.leave()
            raise
        room.give_way = watched.give_way = waiter.end
        self._waiters[waiter] = room, watched
        self.waiters += 1
        for job in jobs:
            place = self._place(job.shard)
            if place is not None:
                waiter.join(place, job.queue, JobKey(job.priority, job.id))
        return waiter

    def leave(self, waiter: EndWaiter) -> None:
        """It waits no more."""
        for place in self._waiters.pop(waiter, ()):
            place.leave()
        self.waiters = len(self._waiters)
        waiter.leave()

    def _place(self, shard_id: str) -> ShardEnds | None:
        member = self._router.members.by_id(shard_id)
        if member is None:
            return None
        place = self._shards.get(shard_id)
        if place is None or place.member is not member:
            place = self._shards[shard_id] = ShardEnds(member, self._clock, *self._pauses_s)
        return place

    # -- reports of ends ---------------------------------------------------------------------------------------------

    def ended(self, shard_id: str, queue: str, ids: Iterable[int]) -> None:
        """These jobs may have ended."""
        place = self._shards.get(shard_id)
        if place is not None:
            place.ended(queue, ids)

    def acked(self, queue: str, shard_id: str, acks: Acks, outcomes: Sequence[AckOutcome]) -> None:
        """This process carried out acks."""
        place = self._shards.get(shard_id)
        if place is None or not len(place):
            return
        remaining = iter(outcomes)
        for _, ids in acks.runs:
            some = zip(ids, islice(remaining, len(ids)), strict=False)
            place.ended(queue, [job_id for job_id, outcome in some if outcome in _ENDS])

    def queue_deleted(self, queue: str) -> None:
        """All its jobs are gone."""
        for place in self._shards.values():
            place.queue_deleted(queue)

    # -- the end -----------------------------------------------------------------------------------------------------

    def start_draining(self) -> None:
        """From now on nobody waits: waiters answer with what they find."""
        self.is_draining = True
        for waiter in self._waiters:
            waiter.end()

    async def drain(self) -> None:
        """Answer all who wait, and return when no store is asked any more."""
        self.start_draining()
        tasks = [place.task for place in self._shards.values() if place.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
