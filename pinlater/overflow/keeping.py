"""The overflow shard's file in the process that owns it: opened, brought up to the shards, and kept tidy."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from pinlater.backends.base import PerQueue, Retention
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.errors import NoHealthyShards, QueueNotFound
from pinlater.model import JobState
from pinlater.overflow.mover import CLAIMED_BY, PRIORITIES, Mover
from pinlater.overflow.room import Room
from pinlater.overflow.rules import Surroundings
from pinlater.service import ClaimTokens
from pinlater.shards.coalesce import Coalescing
from pinlater.shards.guard import Guarded
from pinlater.shards.member import Member
from pinlater.shards.members import Members
from pinlater.shards.router import Router

STEP_JOBS = 5_000
"""Of each kind of maintenance, once a second."""

MOVED_KEPT_MS = 3_600_000
"""The least time for which a moved job answers under its old descriptor, whatever its queue keeps ended jobs for."""

ALL_RECORDS = 1_000_000
_FRESH_S = 1.0
"""How old the queues and their settings here may be."""


class Keeping:
    """Opened before anything else is asked of it, and closed once."""

    def __init__(self, path: Path, shard_id: str, bound: int, around: Surroundings) -> None:
        self._around = around
        self._shard_id = shard_id
        self._clock = around.clock
        self._room = Room(path, bound)
        self._store = Guarded(SqliteShard(str(path), shard_id), around.guard, around.clock)
        self._member = Member(Coalescing(self._store), around.clock, store=str(path))
        self._members = Members([self._member], around.clock)
        self._members.bring_up = self._bring_up
        self.mover = Mover(self._store, around.router, around.clock, self._names(f"{CLAIMED_BY}-"), self._moved)
        self._bringing = asyncio.Lock()
        self._brought_up_at = 0.0
        self.waiting = self.in_progress = 0
        """Jobs that wait to be moved, and jobs under a worker's claim, as of the last count."""
        self._may_come: dict[str, int] = {}
        """Until when jobs of a queue may still be stored here by calls that nobody waits for any more."""

    async def open(self) -> None:
        """PinLaterError: it cannot be used."""
        try:
            await self._members.open()
            if not self._member.is_in:
                raise NoHealthyShards(self._member.trouble)
            page = await self._store.list_config(0, ALL_RECORDS)
            await self.mover.recover(each.name for each in page.entries if not each.is_deleted and "@" not in each.name)
            await self.count_jobs()
            await self._room.measure()
        except BaseException:
            await self._members.close()
            raise
        self._service = self._around.new_service(Router(self._members), self._names())

    async def close(self) -> None:
        await self._service.close()

    def _names(self, before: str = "") -> ClaimTokens:
        return ClaimTokens(f"{before}{self._shard_id[1:]}", os.getpid(), self._clock.now_ms())

    async def tidy(self) -> None:
        """Once a second: learn of queues, expire claims, remove what is old, and count. PinLaterError."""
        if self.mover.holding:
            await self._freshen()
            await self._room.measure()
        await self._expire()
        await self._bury()
        retention = _longer(self._around.queues.retention())
        await self._store.prune(STEP_JOBS, self._clock.now_ms(), retention)
        await self.count_jobs()
        await self._service.count_pending()

    async def _expire(self) -> None:
        rules = self._around.queues.end_rules()
        lapsed = await self._store.expire_claims(STEP_JOBS, self._clock.now_ms(), rules)
        for queue, counts in lapsed.items():
            for outcome, jobs in (("retried", counts.retried), ("failed", counts.failed)):
                if jobs:
                    self._around.metrics.add(jobs, "claims_expired", queue, outcome)
            self._service.jobs_ready(queue, counts.retried)

    async def _bury(self) -> None:
        """Copies come into the dead-letter queue here, and move like all that waits."""
        graves = self._around.queues.graves()
        buried = await self._store.dead_letter(STEP_JOBS, self._clock.now_ms(), graves)
        for queue, jobs in buried.items():
            self._around.metrics.add(jobs, "jobs_buried", queue)
            self.mover.came(graves[queue].queue)

    def _perhaps_came(self, queue: str) -> None:
        """A call that stores jobs of this queue was left: it may be carried out yet."""
        self._may_come[queue] = self._clock.now_ms() + 2 * self._around.guard.deadline_ms
        self.mover.came(queue)

    async def count_jobs(self) -> None:
        """Look at the queues that may have jobs here, and forget those that have none."""
        waiting = in_progress = 0
        now_ms = self._clock.now_ms()
        for queue, comings in list(self.mover.holding.items()):
            try:
                pending, claimed = [
                    sum([await self._store.count(queue, state, PRIORITIES, future, now_ms) for future in (False, True)])
                    for state in (JobState.PENDING, JobState.IN_PROGRESS)
                ]
            except QueueNotFound:
                pending = claimed = 0
            waiting += pending
            in_progress += claimed
            may_come = self._may_come.get(queue, 0) > now_ms
            if not pending and not claimed and not may_come and self.mover.holding.get(queue) == comings:
                del self.mover.holding[queue]
                self._may_come.pop(queue, None)
        self.waiting, self.in_progress = waiting, in_progress
        self._around.metrics.set_gauges(("overflow_jobs",), {("overflow_jobs",): waiting})

    async def _bring_up(self, member: Member) -> None:
        await self._around.queues.bring_up(member)
        self._brought_up_at = asyncio.get_running_loop().time()

    async def _freshen(self) -> None:
        async with self._bringing:
            if asyncio.get_running_loop().time() - self._brought_up_at >= _FRESH_S:
                await self._bring_up(self._member)

    def _moved(self, queue: str, jobs: int, is_ready: bool) -> None:
        self._service.on_removed(queue, jobs)
        self._around.metrics.add(jobs, "overflow_jobs_moved", queue)
        if is_ready:
            self._around.service.jobs_ready(queue, jobs)


def _longer(retention: PerQueue[Retention]) -> PerQueue[Retention]:
    def longer(each: Retention) -> Retention:
        return each._replace(succeeded_ms=max(each.succeeded_ms, MOVED_KEPT_MS))

    return PerQueue(longer(retention.default), {queue: longer(each) for queue, each in retention.of.items()})
