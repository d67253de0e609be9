"""The overflow shard in the process that owns it: a service of its own over one SQLite file, and what keeps it tidy.

Jobs come in when no shard takes them, are handed out while no shard can be used, and leave for the shards (mover.py).
What is said about a job that has left goes on to its copy.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pinlater.backends.base import PerQueue, Retention
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.errors import EnqueueRejected, NoHealthyShards, QueueNotFound, ShardConnectionFailed
from pinlater.model import (
    Ack,
    CancelOutcome,
    Checkpoint,
    DequeuedJob,
    DequeueRequest,
    Job,
    JobInfo,
    JobState,
    RequestContext,
    parse_descriptor,
)
from pinlater.overflow.delegate import Delegating
from pinlater.overflow.mover import CLAIMED_BY, PRIORITIES, Mover
from pinlater.overflow.naming import MARK, fit
from pinlater.overflow.room import Room
from pinlater.overflow.rules import Surroundings
from pinlater.service import ClaimNames
from pinlater.service.limits import is_limited
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


class Kept(Delegating):
    """Satisfies the server's Service: other processes call it over the network as this one does directly.

    Opened before anything else is asked of it, and closed once.
    """

    def __init__(self, path: Path, shard_id: str, bound: int, around: Surroundings) -> None:
        super().__init__(around.service)
        self._around = around
        self._shard_id = shard_id
        self._clock = around.clock
        self._room = Room(path, bound)
        self._store = Guarded(SqliteShard(str(path), shard_id), around.guard)
        self._member = Member(Coalescing(self._store), around.clock, store=str(path))
        self._members = Members([self._member], around.clock)
        self._members.bring_up = self._bring_up
        self.mover = Mover(self._store, around.router, around.clock, self._names(f"{CLAIMED_BY}-"), self._moved)
        self._bringing = asyncio.Lock()
        self._brought_up_at = 0.0
        self.waiting = self.in_progress = 0
        """Jobs that wait to be moved, and jobs under a worker's claim, as of the last count."""

    # -- the life of it ----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """PinLaterError: it cannot be used."""
        try:
            await self._members.open()
            if not self._member.is_in:
                raise NoHealthyShards(self._member.trouble)
            page = await self._store.records(0, ALL_RECORDS)
            await self.mover.recover(each.name for each in page.records if not each.is_deleted and "@" not in each.name)
            await self.count_jobs()
            await self._room.measure()
        except BaseException:
            await self._members.close()
            raise
        self._service = self._around.new_service(Router(self._members), self._names())

    async def close(self) -> None:
        await self._service.close()

    def _names(self, before: str = "") -> ClaimNames:
        return ClaimNames(f"{before}{self._shard_id[1:]}", os.getpid(), self._clock.now_ms())

    async def tidy(self) -> None:
        """Once a second: learn of queues, expire claims, remove what is old, and count. PinLaterError."""
        if self.mover.holding:
            await self._freshen()
            await self._room.measure()
        await self._expire()
        await self._bury()
        retention = _longer(self._around.queues.retention())
        await self._store.collect(STEP_JOBS, self._clock.now_ms(), retention)
        await self.count_jobs()

    async def _expire(self) -> None:
        rules = self._around.queues.end_rules()
        lapsed = await self._store.expire_claims(STEP_JOBS, self._clock.now_ms(), rules)
        for queue, counts in lapsed.items():
            self._service.wake(queue, counts.retried)

    async def _bury(self) -> None:
        """Copies come into the dead-letter queue here, and move like all that waits."""
        graves = self._around.queues.graves()
        for queue in await self._store.bury(STEP_JOBS, self._clock.now_ms(), graves):
            self.mover.came(graves[queue].queue)

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
            if not pending and not claimed and self.mover.holding.get(queue) == comings:
                del self.mover.holding[queue]
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
        self._around.metrics.add(jobs, "overflow_jobs_moved", queue)
        if is_ready:
            self._around.service.wake(queue, jobs)

    # -- the calls that are about its jobs ---------------------------------------------------------------------------

    async def enqueue(self, queue: str, jobs: Sequence[Job], *, context: RequestContext | None = None) -> list[str]:
        """EnqueueRejected: no room. NoHealthyShards: it takes nothing any more."""
        if self._room.bound == 0:
            raise NoHealthyShards("the overflow shard of this server takes no new jobs (overflow is 0)")
        try:
            await self._room.reserve(jobs)
        except EnqueueRejected:
            self._around.metrics.add(1, "limits_hit", "overflow_full")
            raise
        if not self.mover.holding:  # else that is done every second
            await self._freshen()
        try:
            descriptors = await self._service.enqueue(queue, jobs, context=context)
        except QueueNotFound:  # it may be new
            await self._freshen()
            descriptors = await self._service.enqueue(queue, jobs, context=context)
        self.mover.came(queue)
        self._around.metrics.add(len(jobs), "overflow_jobs_taken", queue)
        return descriptors

    async def dequeue(self, request: DequeueRequest, *, context: RequestContext | None = None) -> list[DequeuedJob]:
        """Nothing for a queue that is paused or has limits: whoever keeps the count of those cannot be asked now."""
        if is_limited(self._around.queues.settings(request.queue)):
            await self.ack(request.ack_queue or request.queue, request.succeeded, request.failed, context=context)
            return []
        return await self._service.dequeue(request, context=context)

    async def ack(
        self, queue: str, succeeded: Sequence[Ack], failed: Sequence[Ack], *, context: RequestContext | None = None
    ) -> None:
        self._check_own(ack.descriptor for ack in (*succeeded, *failed))
        await self._service.ack(queue, succeeded, failed, context=context)

    async def checkpoint(
        self, queue: str, checkpoints: Sequence[Checkpoint], *, context: RequestContext | None = None
    ) -> None:
        self._check_own(each.descriptor for each in checkpoints)
        await self._service.checkpoint(queue, checkpoints, context=context)

    async def lookup(
        self, descriptors: Sequence[str], *, include_body: bool = False, context: RequestContext | None = None
    ) -> dict[str, JobInfo]:
        """A job that was moved is answered as its copy is now; where the copy is gone, as it was when it was moved."""
        self._check_own(descriptors)
        found = await self._service.lookup(descriptors, include_body=include_body, context=context)
        moved = _moved(found)
        if not moved:
            return found
        copies = list(dict.fromkeys(moved.values()))
        live = await self._around.service.lookup(copies, include_body=include_body, context=context)
        for old, new in moved.items():
            if new in live:
                found[old] = replace(live[new], descriptor=old, moved_to=live[new].moved_to or new)
        fit(found, self._service.settings.max_answer_bytes)
        return found

    async def cancel(
        self, queue: str, descriptors: Sequence[str], *, context: RequestContext | None = None
    ) -> Mapping[str, CancelOutcome]:
        """A job that was moved is cancelled where it is now."""
        self._check_own(descriptors)
        outcomes = dict(await self._service.cancel(queue, descriptors, context=context))
        ended = [descriptor for descriptor, outcome in outcomes.items() if outcome is CancelOutcome.ENDED]
        moved = _moved(await self._service.lookup(ended, context=context)) if ended else {}
        if moved:
            live = await self._around.service.cancel(queue, list(moved.values()), context=context)
            outcomes |= {old: live[new] for old, new in moved.items() if live[new] is not CancelOutcome.NOT_FOUND}
        return outcomes

    async def give_back(self, jobs: Sequence[DequeuedJob]) -> None:
        await self._service.give_back(jobs)

    def start_draining(self) -> None:
        self._service.start_draining()

    def _check_own(self, descriptors: Iterable[str]) -> None:
        """A caller may have an old address, which is ours now: then nobody's jobs must count as not found."""
        for descriptor in descriptors:
            if MARK in descriptor:
                ref = parse_descriptor(descriptor)
                if ref is not None and ref.shard != self._shard_id:
                    raise ShardConnectionFailed(f"here is overflow shard {self._shard_id}, not {ref.shard}")


def _moved(found: Mapping[str, JobInfo]) -> dict[str, str]:
    """Which of these were moved, and to where. (A dead letter's original is FAILED, and its copy is here.)"""
    return {
        descriptor: info.moved_to
        for descriptor, info in found.items()
        if info.moved_to and info.state is JobState.SUCCEEDED
    }


def _longer(retention: PerQueue[Retention]) -> PerQueue[Retention]:
    def longer(each: Retention) -> Retention:
        return each._replace(succeeded_ms=max(each.succeeded_ms, MOVED_KEPT_MS))

    return PerQueue(longer(retention.default), {queue: longer(each) for queue, each in retention.of.items()})
