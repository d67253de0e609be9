"""What runs in the background on every shard: claims that expired go back, ended jobs whose time is over are removed.

One job per shard and task, each a loop of bounded steps until nothing is due or the next one's time has come. A shard
that is out is left alone, and so is one whose clock disagrees with ours: its claims would be ended early or late.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

from pinlater.clock import Clock
from pinlater.errors import PinLaterError
from pinlater.shards.member import Member
from pinlater.shards.members import Members

_log = structlog.get_logger("pinlater.maintenance")

Step = Callable[[Member], Coroutine[Any, Any, int]]
"""One bounded step on one shard; how many jobs it changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceSettings:
    interval_ms: int = 1_000
    """How often each shard is looked at."""

    step_limit: int = 1_000
    """Jobs per step, each one call of the store."""

    succeeded_ttl_ms: int = 86_400_000
    failed_ttl_ms: int = 7 * 86_400_000
    """How long after its end a job is kept."""

    crash_budget: int = 3
    """So many lost claims end a job, whatever attempts remain; 0: no such bound."""

    clock_tolerance_ms: int = 1_000
    """A store's clock may be so far from ours."""


class Every(BaseTrigger):  # type: ignore[misc]
    """So long after now: after a leap of the clock nothing is made up for, however many runs were missed."""

    def __init__(self, interval: timedelta) -> None:
        self.interval = interval

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime:
        return now + self.interval


class Maintenance:
    """Expiry and collection for all shards of a server. `wake` is told the queues whose jobs became eligible."""

    def __init__(
        self, members: Members, clock: Clock, settings: MaintenanceSettings, wake: Callable[[str, int], None]
    ) -> None:
        self._members = members
        self._clock = clock
        self._settings = settings
        self._wake = wake
        self._scheduler: AsyncIOScheduler | None = None
        self._interval = timedelta(milliseconds=settings.interval_ms)
        self._look: asyncio.TimerHandle | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._busy: set[tuple[Callable[[Member], Awaitable[None]], Member]] = set()
        self._disagreeing: set[Member] = set()
        self._is_stopping = False

    # -- the loop around it ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin, on the running event loop."""
        self._is_stopping = False
        self._scheduler = AsyncIOScheduler(timezone="UTC")
        for member in self._members.all:
            for task in (self.expire, self.collect):
                self._scheduler.add_job(
                    self._run,
                    Every(self._interval),
                    args=(task, member),
                    misfire_grace_time=None,
                    coalesce=True,
                    max_instances=2,  # the second ends at once: with 1 the scheduler warns of every run left out
                )
        self._scheduler.start()
        self._look_at_clock()

    async def close(self) -> None:
        """Begin nothing more, and wait for the steps under way. May be called twice."""
        self._is_stopping = True
        if self._look is not None:
            self._look.cancel()
        if self._scheduler is not None:
            self._scheduler.pause()
            while self._running:
                await asyncio.wait(self._running)
            self._scheduler.shutdown(wait=False)
            self._scheduler = None
            await asyncio.sleep(0)

    def _look_at_clock(self) -> None:
        """The schedule goes by the clock of the machine; when that was set back, the next runs are brought forward."""
        assert self._scheduler is not None
        now = datetime.now(UTC)
        for job in self._scheduler.get_jobs():
            if job.next_run_time > now + 2 * self._interval:
                job.modify(next_run_time=now)
        self._look = asyncio.get_running_loop().call_later(self._interval.total_seconds(), self._look_at_clock)

    async def _run(self, task: Callable[[Member], Awaitable[None]], member: Member) -> None:
        current = asyncio.current_task()
        if current is None or self._is_stopping or (task, member) in self._busy:
            return
        self._running.add(current)
        self._busy.add((task, member))
        try:
            await task(member)
        except Exception:
            _log.exception("maintenance_failed", shard=member.shard.shard_id)
        finally:
            self._running.discard(current)
            self._busy.discard((task, member))

    # -- the clocks --------------------------------------------------------------------------------------------------

    def clocks_agree(self) -> bool:
        """Whether this server may call itself ready, as far as time goes: no shard's clock beyond the tolerance."""
        return all(self._clock_agrees(member) for member in self._members.all)

    def _clock_agrees(self, member: Member) -> bool:
        """The clock as the last ping found it; a change of mind is logged once."""
        agrees = abs(member.skew_ms) <= self._settings.clock_tolerance_ms
        if not agrees and member not in self._disagreeing:
            self._disagreeing.add(member)
            _log.error(
                "clock_disagrees",
                shard=member.shard.shard_id,
                store_ahead_ms=member.skew_ms,
                tolerance_ms=self._settings.clock_tolerance_ms,
            )
        elif agrees and member in self._disagreeing:
            self._disagreeing.discard(member)
            _log.info("clock_agrees", shard=member.shard.shard_id)
        return agrees

    # -- the tasks ---------------------------------------------------------------------------------------------------

    async def expire(self, member: Member) -> None:
        """End claims whose time is over."""
        done: Counter[str] = Counter()

        async def step(member: Member) -> int:
            counts = await member.shard.expire_claims(
                self._settings.step_limit, self._clock.now_ms(), crash_budget=self._settings.crash_budget
            )
            for queue, lapsed in counts.items():
                done["retried"] += lapsed.retried
                done["failed"] += lapsed.failed
                self._wake(queue, lapsed.retried)
            return sum(lapsed.retried + lapsed.failed for lapsed in counts.values())

        await self._steps("claims_expired", member, step, done)

    async def collect(self, member: Member) -> None:
        """Remove jobs that ended long enough ago, and what deleted queues left."""
        done: Counter[str] = Counter()

        async def step(member: Member) -> int:
            counts = await member.shard.collect(
                self._settings.step_limit,
                self._clock.now_ms(),
                succeeded_ttl_ms=self._settings.succeeded_ttl_ms,
                failed_ttl_ms=self._settings.failed_ttl_ms,
            )
            done["removed"] += sum(counts.values())
            return sum(counts.values())

        await self._steps("jobs_collected", member, step, done)

    async def _steps(self, event: str, member: Member, step: Step, done: Counter[str]) -> None:
        """Step after step until nothing is due, or the next run's time has come; an error of the shard ends it."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + self._settings.interval_ms / 1000
        try:
            while member.is_in and self._clock_agrees(member):
                changed = await member.call(step(member))
                if changed == 0 or self._is_stopping or loop.time() >= ends_at:
                    break
                await asyncio.sleep(0)
        except PinLaterError as error:
            _log.warning("maintenance_interrupted", task=event, shard=member.shard.shard_id, error=error.message)
        if done.total():
            _log.info(event, shard=member.shard.shard_id, **done)
