"""The clockwork of a simulated process, in the place of APScheduler's: a timer of the loop for each job.

A job runs, and is due again, as `Periodic` asks APScheduler for it. A cluster at rest spends a third of its time in
APScheduler; here that is a tenth.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any

from pinlater.maintenance.periodic import Every
from tests.simulation.virtual_time import virtual_seconds, virtual_time_of


class ScheduledJob:
    """One of them."""

    def __init__(
        self,
        func: Callable[..., Awaitable[None]],
        trigger: Every,
        next_run_time: datetime,
        args: Sequence[Any],
        id: str,
    ) -> None:
        self.id, self.trigger = id, trigger
        self._func, self._args = func, args
        self._due_s = virtual_seconds(next_run_time)
        self._timer: asyncio.TimerHandle | None = None
        self._runs: set[asyncio.Future[None]] = set()

    @property
    def next_run_time(self) -> datetime:
        """When it is due."""
        return virtual_time_of(self._due_s)

    def set(self) -> None:
        """Let the timer go by the time at which it is due."""
        self.end()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(max(self._due_s, loop.time()), self._run)

    def modify(self, *, next_run_time: datetime) -> None:
        self._due_s = virtual_seconds(next_run_time)
        self.set()

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _run(self) -> None:
        loop = asyncio.get_running_loop()
        self._due_s = loop.time() + self.trigger.interval.total_seconds()
        self._timer = loop.call_at(self._due_s, self._run)
        run = asyncio.ensure_future(self._func(*self._args))
        self._runs.add(run)
        run.add_done_callback(self._runs.discard)


class Scheduler:
    """What `Periodic` needs of an AsyncIOScheduler."""

    def __init__(self, timezone: str = "UTC") -> None:
        self._jobs: dict[str, ScheduledJob] = {}
        self.running = False

    def add_job(
        self,
        func: Callable[..., Awaitable[None]],
        trigger: Every,
        *,
        next_run_time: datetime,
        args: Sequence[Any],
        id: str,
        **_rules: Any,
    ) -> None:
        job = self._jobs[id] = ScheduledJob(func, trigger, next_run_time, args, id)
        if self.running:
            job.set()

    def remove_job(self, job_id: str) -> None:
        self._jobs.pop(job_id).end()

    def get_jobs(self) -> list[ScheduledJob]:
        return list(self._jobs.values())

    def start(self) -> None:
        self.running = True
        for job in self._jobs.values():
            job.set()

    def pause(self) -> None:
        """Nothing begins any more."""
        for job in self._jobs.values():
            job.end()

    def shutdown(self, wait: bool = True) -> None:
        self.running = False
