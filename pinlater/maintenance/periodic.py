"""The clockwork of background jobs: APScheduler's, with one entry for some jobs of one interval.

A run that is not over when the next one is due is not begun a second time. An error is logged and changes nothing.

Most jobs find nothing to do most of the time, and then their wake-up is what they cost. So those of one interval share
it, AT_ONCE of them at most: more would keep a caller waiting.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from itertools import count

import structlog
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

from pinlater.eager import EagerTask

_log = structlog.get_logger("pinlater.periodic")
_LOOK_EVERY_S = 1.0
AT_ONCE = 8
"""Jobs that begin in one turn of the loop."""


class Every(BaseTrigger):  # type: ignore[misc]
    """So long after now: after a leap of the clock nothing is made up for, however many runs were missed."""

    def __init__(self, interval: timedelta) -> None:
        self.interval = interval

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime:
        return now + self.interval


class _Job(EagerTask):
    """One of them, and its run that is under way, if any."""

    __slots__ = ("begins_s", "name", "run")

    def __init__(self, name: str, run: Callable[[], Awaitable[None]], begins_s: float) -> None:
        super().__init__(asyncio.get_running_loop())
        self.name, self.run, self.begins_s = name, run, begins_s

    async def run_once(self) -> None:
        try:
            await self.run()
        except Exception:
            _log.exception("periodic_run_failed", name=self.name)


class _Round:
    """Jobs of one interval that begin together."""

    def __init__(self, number: int, interval: timedelta) -> None:
        self.id, self.interval = str(number), interval
        self.jobs: dict[str, _Job] = {}


class Periodic:
    """Runs what was added, from `start` to `close`, on the running event loop."""

    def __init__(self, scheduler: AsyncIOScheduler | None = None) -> None:
        self._scheduler = scheduler or AsyncIOScheduler(timezone="UTC")
        self._rounds: list[_Round] = []
        self._numbers = count(1)
        self._running: list[_Job] = []
        """Those that were under way at the end of the last round, also of some that were taken away."""

        self._look: asyncio.TimerHandle | None = None
        self.is_stopping = False

    def every(self, interval_ms: int, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Add one, also later. `name` is for the log, and unlike all others.

        The first run comes after half the interval to one and a half, so that processes do not begin together.
        """
        interval = timedelta(milliseconds=interval_ms)
        begins_s = asyncio.get_running_loop().time() + interval_ms / 2000
        self._round_of(interval).jobs[name] = _Job(name, run, begins_s)

    def _round_of(self, interval: timedelta) -> _Round:
        """One that has room."""
        for each in self._rounds:
            if each.interval == interval and len(each.jobs) < AT_ONCE:
                return each
        new = _Round(next(self._numbers), interval)
        self._rounds.append(new)
        self._scheduler.add_job(
            self._begin,
            Every(interval),
            next_run_time=datetime.now(UTC) + interval * random.uniform(0.5, 1.0),
            args=(new,),
            id=new.id,
            misfire_grace_time=None,
            coalesce=True,
        )
        return new

    def end(self, name: str) -> None:
        """Take one away; a run under way goes on."""
        (found,) = [each for each in self._rounds if name in each.jobs]
        del found.jobs[name]
        if not found.jobs:
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

    def _look_at_clock(self) -> None:
        """The schedule goes by the clock of the machine; when that was set back, the next runs are brought forward."""
        now = datetime.now(UTC)
        for entry in self._scheduler.get_jobs():
            if entry.next_run_time > now + 2 * entry.trigger.interval:
                entry.modify(next_run_time=now)
        self._look = asyncio.get_running_loop().call_later(_LOOK_EVERY_S, self._look_at_clock)

    async def _begin(self, jobs_of: _Round) -> None:
        """A coroutine, as APScheduler runs other functions on threads. It waits for none of them."""
        if self.is_stopping:
            return
        now_s = asyncio.get_running_loop().time()
        self._running = [job for job in self._running if not job.is_done]
        busy = {job.name for job in self._running}
        for job in list(jobs_of.jobs.values()):
            if job.name not in busy and job.begins_s <= now_s:
                job.start(job.run_once())
                if not job.is_done:
                    self._running.append(job)
