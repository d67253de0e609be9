"""The clockwork of background jobs: APScheduler's, with one entry for many jobs.

A run that is not over when the next one is due is not begun a second time. An error is logged and changes nothing.

Most jobs find nothing to do most of the time, and then their wake-up is what they cost. So jobs share it, TOGETHER of
them at most, and each is up to a twentieth of its interval early or late for that. No more than AT_ONCE of them begin
in one turn of the loop, so that no caller waits for all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from itertools import count

import structlog
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

from pinlater.beat import Beat
from pinlater.eager import EagerTask

_log = structlog.get_logger("pinlater.periodic")
AT_ONCE = 8
"""Jobs that begin in one turn of the loop."""

_LOOK_EVERY_S = 1.0
TOGETHER = 32
"""Jobs that share a wake-up. The background jobs of a process with one shard are fewer; with more shards they are
spread, as are what they ask of the stores.
"""

RESTED = 10
"""How many times longer the interval is of a job that rests: it has next to nothing to do."""

Run = Callable[[], Awaitable[None]]

OFF = 0.05
"""How much sooner or later than its interval a job may run, as a part of that."""


class Every(BaseTrigger):  # type: ignore[misc]
    """On a beat about so long after now: after a leap of the clock nothing is made up for, however much was missed."""

    def __init__(self, interval: timedelta, beat: Beat) -> None:
        self.interval = interval
        self._beat = beat

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime:
        return now + self.pause()

    def pause(self) -> timedelta:
        """From now to that beat."""
        now_s = asyncio.get_running_loop().time()
        return timedelta(seconds=self._beat.pause_s(self.interval.total_seconds(), now_s))


class _Job(EagerTask):
    """One of them, and its run that is under way, if any."""

    __slots__ = ("begun_s", "interval_s", "name", "rests", "run")

    def __init__(self, name: str, interval_s: float, run: Run, rests: Callable[[], bool]) -> None:
        super().__init__(asyncio.get_running_loop())
        self.name, self.interval_s, self.run, self.rests = name, interval_s, run, rests
        self.begun_s = self._loop.time()

    async def run_once(self) -> None:
        try:
            await self.run()
        except Exception:
            _log.exception("periodic_run_failed", name=self.name)


class _Round:
    """Jobs that share wake-ups, as often as the most frequent of them runs."""

    def __init__(self, number: int, beat: Beat) -> None:
        self.id = str(number)
        self.jobs: dict[str, _Job] = {}
        self.every = Every(timedelta.max, beat)

    def takes(self, interval_s: float) -> bool:
        """Whether there is room for a job, and all would still run about as often as they should."""
        step_s = min([interval_s, *(job.interval_s for job in self.jobs.values())])
        return len(self.jobs) < TOGETHER and all(
            abs(each_s - step_s * round(each_s / step_s)) <= OFF * each_s
            for each_s in {interval_s, *(job.interval_s for job in self.jobs.values())}
        )

    def add(self, job: _Job) -> None:
        self.jobs[job.name] = job
        self.set_interval()

    def set_interval(self) -> None:
        """After jobs came or went."""
        self.every.interval = timedelta(seconds=min(job.interval_s for job in self.jobs.values()))

    def due(self, now_s: float) -> list[_Job]:
        """Those for which no later wake-up is nearer to the time at which they are due."""
        before_s = now_s + self.every.interval.total_seconds() / 2
        return [
            job
            for job in self.jobs.values()
            if job.begun_s + job.interval_s <= before_s
            and (job.begun_s + job.interval_s * RESTED <= before_s or not job.rests())
        ]


class Periodic:
    """Runs what was added, from `start` to `close`, on the running event loop. `beat`: that of the process."""

    def __init__(self, scheduler: AsyncIOScheduler | None = None, beat: Beat | None = None) -> None:
        self._scheduler = scheduler or AsyncIOScheduler(timezone="UTC")
        self._beat = beat or Beat()
        self._rounds: list[_Round] = []
        self._numbers = count(1)
        self._running: list[_Job] = []
        """Those that were under way at the last wake-up, also of some that were taken away."""

        self._look: asyncio.TimerHandle | None = None
        self.is_stopping = False

    def every(self, interval_ms: int, name: str, run: Run, *, rests: Callable[[], bool] = lambda: False) -> None:
        """Add one, also later. `name` is for the log, and unlike all others. While it `rests` it runs RESTED times less
        often.

        The first run comes after half the interval to one and a half.
        """
        job = _Job(name, interval_ms / 1000, run, rests)
        for each in self._rounds:
            if each.takes(job.interval_s):
                each.add(job)
                self._bring_forward(each, datetime.now(UTC) + each.every.pause())
                return
        new = _Round(next(self._numbers), Beat() if self._rounds else self._beat)
        new.add(job)
        self._rounds.append(new)
        self._scheduler.add_job(
            self._begin,
            new.every,
            next_run_time=datetime.now(UTC) + new.every.pause(),
            args=(new,),
            id=new.id,
            misfire_grace_time=None,
            coalesce=True,
        )

    def end(self, name: str) -> None:
        """Take one away; a run under way goes on."""
        (found,) = [each for each in self._rounds if name in each.jobs]
        del found.jobs[name]
        if found.jobs:
            found.set_interval()
        else:
            self._rounds.remove(found)
            self._scheduler.remove_job(found.id)

    def names(self) -> set[str]:
        """Of all that were added, and not taken away."""
        return {name for each in self._rounds for name in each.jobs}

    def start(self) -> None:
        self._scheduler.start()
        self._look_at_clock()

    async def close(self) -> None:
        """Begin nothing more, and wait for what is under way. May be called twice."""
        self.is_stopping = True
        if self._look is not None:
            self._look.cancel()
        if self._scheduler.running:
            self._scheduler.pause()
            for job in self._running:
                await job.wait()
            self._scheduler.shutdown(wait=False)
            await asyncio.sleep(0)

    def _bring_forward(self, round_of: _Round, latest: datetime) -> None:
        """Its next run is no later than that."""
        for entry in self._scheduler.get_jobs():
            if entry.id == round_of.id and entry.next_run_time > latest:
                entry.modify(next_run_time=latest)

    def _look_at_clock(self) -> None:
        """The schedule goes by the clock of the machine; when that was set back, the next runs are brought forward."""
        now = datetime.now(UTC)
        for each in self._rounds:
            self._bring_forward(each, now + 2 * each.every.interval)
        self._look_later()

    def _look_later(self) -> None:
        """Not at all while jobs run meanwhile: then the clock is as it was."""
        if self._look is not None:
            self._look.cancel()
        self._look = asyncio.get_running_loop().call_later(_LOOK_EVERY_S, self._look_at_clock)

    async def _begin(self, jobs_of: _Round) -> None:
        """A coroutine, as APScheduler runs other functions on threads. It waits for none of them."""
        now_s = asyncio.get_running_loop().time()
        self._look_later()
        self._running = [job for job in self._running if not job.is_done]
        for place, job in enumerate(jobs_of.due(now_s)):
            if place and place % AT_ONCE == 0:
                await asyncio.sleep(0)  # calls get their turn
            if self.is_stopping:
                return
            job.begun_s = now_s
            if jobs_of.jobs.get(job.name) is job and not self._is_running(job.name):
                job.start(job.run_once())
                if not job.is_done:
                    self._running.append(job)

    def _is_running(self, name: str) -> bool:
        return any(job.name == name and not job.is_done for job in self._running)
