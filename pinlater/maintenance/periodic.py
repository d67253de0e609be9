"""The clockwork of background jobs: APScheduler's, with one job per name.

A run that is not over when the next one is due is not begun a second time. An error is logged and changes nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import structlog
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

_log = structlog.get_logger("pinlater.periodic")
_LOOK_EVERY_S = 1.0


class Every(BaseTrigger):  # type: ignore[misc]
    """So long after now: after a leap of the clock nothing is made up for, however many runs were missed."""

    def __init__(self, interval: timedelta) -> None:
        self.interval = interval

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime:
        return now + self.interval


class Periodic:
    """Runs what was added, from `start` to `close`, on the running event loop."""

    def __init__(self, scheduler: AsyncIOScheduler | None = None) -> None:
        self._scheduler = scheduler or AsyncIOScheduler(timezone="UTC")
        self._running: set[asyncio.Task[None]] = set()
        self._busy: set[str] = set()
        self._look: asyncio.TimerHandle | None = None
        self.is_stopping = False

    def every(self, interval_ms: int, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Add one, also later. `name` is for the log, and unlike all others.

        The first run comes after half the interval to all of it, so that jobs and processes do not begin together.
        """
        interval = timedelta(milliseconds=interval_ms)
        self._scheduler.add_job(
            self._run,
            Every(interval),
            next_run_time=datetime.now(UTC) + interval * random.uniform(0.5, 1.0),
            args=(name, run),
            id=name,
            misfire_grace_time=None,
            coalesce=True,
            max_instances=2,  # the second ends at once: with 1 the scheduler warns of every run left out
        )

    def end(self, name: str) -> None:
        """Take one away; a run under way goes on."""
        self._scheduler.remove_job(name)

    def names(self) -> set[str]:
        """Of all that were added, and not taken away."""
        return {job.id for job in self._scheduler.get_jobs()}

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
            while self._running:
                await asyncio.wait(self._running)
            self._scheduler.shutdown(wait=False)
            await asyncio.sleep(0)

    def _look_at_clock(self) -> None:
        """The schedule goes by the clock of the machine; when that was set back, the next runs are brought forward."""
        now = datetime.now(UTC)
        for job in self._scheduler.get_jobs():
            if job.next_run_time > now + 2 * job.trigger.interval:
                job.modify(next_run_time=now)
        self._look = asyncio.get_running_loop().call_later(_LOOK_EVERY_S, self._look_at_clock)

    async def _run(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        current = asyncio.current_task()
        if current is None or self.is_stopping or name in self._busy:
            return
        self._running.add(current)
        self._busy.add(name)
        try:
            await run()
        except Exception:
            _log.exception("periodic_run_failed", name=name)
        finally:
            self._running.discard(current)
            self._busy.discard(name)
