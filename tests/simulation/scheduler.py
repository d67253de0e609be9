"""The clockwork of a simulated process, in the place of APScheduler's: a timer of the loop for each job.

A job runs, and is due again, as `Periodic` asks APScheduler for it. A cluster at rest spends a third of its time in
APScheduler; here that is a tenth.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from pinlater.maintenance.periodic import Every
from tests.simulation.virtual_time import VirtualDatetime


class ScheduledJob:
    """One of them. `next_run_time`: when it is due."""

    def __init__(
        self,
        func: Callable[..., Awaitable[None]],
        trigger: Every,
        next_run_time: datetime,
        args: Sequence[Any],
        id: str,
    ) -> None:
        self.id, self.trigger, self.next_run_time = id, trigger, next_run_time
        self._func, self._args = func, args
        self._timer: asyncio.TimerHandle | None = None
        self._runs: set[asyncio.Future[None]] = set()

    def set(self) -> None:
        """Let the timer go by `next_run_time`."""
        self.end()
        now = VirtualDatetime.now(UTC)
        after_s = max(0.0, (self.next_run_time - now).total_seconds())
        self._timer = asyncio.get_running_loop().call_later(after_s, self._run)

    def modify(self, *, next_run_time: datetime) -> None:
        self.next_run_time = next_run_time
        self.set()

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _run(self) -> None:
        now = VirtualDatetime.now(UTC)
        self.next_run_time = self.trigger.get_next_fire_time(self.next_run_time, now)
        self.set()
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
