"""The store of an overflow shard in the process that owns it: one SQLite file, its bound in bytes, and its maintenance.

It takes over the queues and settings of the shards, and its jobs expire, become dead letters and are pruned as on a
shard. What it needs of the server around it is a ServerContext.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from pinlater.access.peers import PeerSecret
from pinlater.backends.base import DeadLetterTarget, EndRules, PerQueue, Retention
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.client.client_tls import Tls
from pinlater.clock import Clock
from pinlater.errors import EnqueueRejected, NoHealthyShards, NothingStored, QueueNotFound
from pinlater.homes.job_mover import PRIORITIES, JobMover
from pinlater.metrics import Metrics
from pinlater.model import Job, JobState
from pinlater.queues.settings import QueueSettings
from pinlater.server.limits import ServerLimits
from pinlater.server.tls import PeerTls
from pinlater.service import ClaimTokens, Service
from pinlater.shards.batching import BatchingShard
from pinlater.shards.bulkhead import BulkheadSettings
from pinlater.shards.handle import ShardHandle
from pinlater.shards.resilience import ResilientShard
from pinlater.shards.router import Router
from pinlater.shards.shard_set import ShardSet

JOB_BYTES = 400
"""Of a job in the file, beside its body and its status: its row and its entries in the indexes."""

OVERFLOW_FULL = "OVERFLOW_FULL"
CLAIMED_BY = "overflow-mover"

STEP_JOBS = 5_000
"""Of each kind of maintenance, once a second."""

MOVED_KEPT_MS = 3_600_000
"""The least time for which a moved job answers under its old descriptor, whatever its queue keeps ended jobs for."""

ALL_ENTRIES = 1_000_000
_FRESH_S = 1.0
"""How old the queues and their settings here may be."""


class QueueSource(Protocol):
    """The part of the registry of queues that counts here."""

    def settings(self, queue: str) -> QueueSettings: ...

    def any_group_paused(self, queue: str) -> bool: ...

    async def sync(self, member: ShardHandle) -> None:
        """Both know afterwards what either knew. PinLaterError."""

    def end_rules(self) -> PerQueue[EndRules]: ...

    def retention(self) -> PerQueue[Retention]: ...

    def dead_letter_targets(self) -> Mapping[str, DeadLetterTarget]: ...


def holds_jobs_back(queues: QueueSource, queue: str) -> bool:
    """Whether anything keeps jobs of the queue, or of a group of it, from being handed out as they are asked for."""
    return queues.settings(queue).is_limited or queues.any_group_paused(queue)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerContext:
    """`service` and `router` are those of this process over the shards; `new_service` makes one like it over others.

    `addresses` is asked for the owners that other servers name: overflow shard id to HOST:PORT, or to tls://HOST:PORT.
    `peer_tls`: how owners are called; while `tls` takes callers without it too, only those that say so are.
    """

    service: Service
    router: Router
    queues: QueueSource
    clock: Clock
    new_service: Callable[[Router, ClaimTokens], Service]
    addresses: Callable[[], Mapping[str, str]] = dict
    metrics: Metrics = field(default_factory=Metrics)
    limits: ServerLimits = field(default_factory=ServerLimits)
    tls: PeerTls | None = None
    peer_tls: Tls | None = None
    peers: PeerSecret | None = None
    """What servers of the cluster show each other."""

    only_peers: bool = False
    """The port of the overflow shard takes calls of those alone."""

    guard: BulkheadSettings = field(default_factory=BulkheadSettings)


class OverflowQuota:
    """`used` bytes of `bound`.

    What counts are the pages of the file that hold something, plus what was taken since they were counted. The bound is
    kept but for the calls that are under way at the same moment; the write-ahead log beside the file is not in it.
    """

    def __init__(self, path: Path, bound: int) -> None:
        self._path = path
        self.bound = bound
        self.used = 0
        self._taken = Counter[str]()
        """By identity, about so much of what is used."""

    async def reserve(self, jobs: Sequence[Job], identity: str = "") -> None:
        """EnqueueRejected: these jobs would pass the bound, or what `identity` has would pass what is left; "" is
        nobody's. NothingStored.
        """
        wanted = sum(len(job.body) + len(job.custom_status) + JOB_BYTES for job in jobs)
        if self.used + wanted + self._taken[identity] > self.bound:
            await self.measure()
        if self.used + wanted > self.bound:
            raise EnqueueRejected(
                f"no shard takes jobs now, and the overflow shard is full: it has {self.used} bytes, these jobs take "
                f"{wanted}; allowed: {self.bound}",
                reason=OVERFLOW_FULL,
                retry_after_ms=1_000,
            )
        taken = self._taken[identity]
        if taken and self.used + wanted + taken > self.bound:
            raise EnqueueRejected(
                f"no shard takes jobs now, and {identity} has {taken} bytes of the overflow shard, as much as is left "
                f"for all others",
                reason=OVERFLOW_FULL,
                retry_after_ms=1_000,
            )
        self.used += wanted
        if identity:
            self._taken[identity] = taken + wanted

    async def measure(self) -> None:
        """NothingStored: the file cannot be read."""
        before = self.used
        try:
            self.used = await asyncio.to_thread(used_bytes, self._path)
        except sqlite3.Error as error:
            raise NothingStored(f"{self._path}: {error}") from error
        if self.used < before:  # what has moved away was of all alike, as far as it is known
            left = {identity: taken * self.used // before for identity, taken in self._taken.items()}
            self._taken = Counter({identity: taken for identity, taken in left.items() if taken > 0})


def used_bytes(path: Path) -> int:
    """The pages of an SQLite file that hold something."""
    with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
        pages, free, size = (
            int(connection.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
    return (pages - free) * size


class OverflowStore:
    """Opened before anything else is asked of it, and closed once."""

    def __init__(self, path: Path, shard_id: str, bound: int, context: ServerContext) -> None:
        self._context = context
        self._shard_id = shard_id
        self._clock = context.clock
        self._quota = OverflowQuota(path, bound)
        self.store = ResilientShard(SqliteShard(str(path), shard_id), context.guard, context.clock)
        self._member = ShardHandle(BatchingShard(self.store), context.clock, store=str(path))
        self._members = ShardSet([self._member], context.clock)
        self._members.sync_before_serving = self._sync
        self.mover = JobMover(self.store, context.router, context.clock, self._names(f"{CLAIMED_BY}-"), self._moved)
        self._sync_lock = asyncio.Lock()
        self.synced_s = 0.0
        """When it last took over the shards' queues, by the loop's clock."""
        self.waiting = self.in_progress = 0
        """Jobs that wait to be moved, and jobs under a worker's claim, as of the last count."""
        self._may_come: dict[str, int] = {}
        """Until when jobs of a queue may still be stored here by calls that nobody waits for any more."""

    async def open(self) -> None:
        """PinLaterError: it cannot be used."""
        try:
            await self._members.open()
            if not self._member.is_healthy:
                raise NoHealthyShards(self._member.last_error)
            page = await self.store.list_config(0, ALL_ENTRIES)
            queues = [each.name for each in page.entries if not each.is_deleted and "@" not in each.name]
            await self.mover.recover(queues, lambda claim: claim.startswith(CLAIMED_BY))
            await self.count_jobs()
            await self._quota.measure()
        except BaseException:
            await self._members.close()
            raise
        self.service = self._context.new_service(Router(self._members), self._names())

    async def close(self) -> None:
        await self.service.close()

    def _names(self, before: str = "") -> ClaimTokens:
        return ClaimTokens(f"{before}{self._shard_id[1:]}", os.getpid(), self._clock.now_ms())

    async def tidy(self) -> None:
        """Once a second: learn of queues, expire claims, remove what is old, and count. PinLaterError."""
        if self.mover.holding:
            await self._refresh_queues()
            await self._quota.measure()
        await self._expire()
        await self._dead_letter()
        retention = _with_longer_retention(self._context.queues.retention())
        await self.store.prune(STEP_JOBS, self._clock.now_ms(), retention)
        await self.count_jobs()
        await self.service.count_pending()

    async def _expire(self) -> None:
        rules = self._context.queues.end_rules()
        expired = await self.store.expire_claims(STEP_JOBS, self._clock.now_ms(), rules)
        for queue, counts in expired.items():
            for outcome, jobs in (("retried", counts.retried), ("failed", counts.failed)):
                if jobs:
                    self._context.metrics.add(jobs, "claims_expired", queue, outcome)
            self.service.events.ready(queue, counts.retried)

    async def _dead_letter(self) -> None:
        """Copies come into the dead-letter queue here, and move like all that waits."""
        targets = self._context.queues.dead_letter_targets()
        copied = await self.store.dead_letter(STEP_JOBS, self._clock.now_ms(), targets)
        for queue, jobs in copied.items():
            self._context.metrics.add(jobs, "jobs_buried", queue)
            self._context.metrics.add(jobs, "letters_stored", targets[queue].queue)
            self.mover.jobs_arrived(targets[queue].queue)

    def _jobs_may_arrive(self, queue: str) -> None:
        """A call that stores jobs of this queue was left: it may be carried out yet."""
        self._may_come[queue] = self._clock.now_ms() + 2 * self._context.guard.deadline_ms
        self.mover.jobs_arrived(queue)

    async def count_jobs(self) -> None:
        """Look at the queues that may have jobs here, and forget those that have none."""
        waiting = in_progress = 0
        now_ms = self._clock.now_ms()
        for queue, comings in list(self.mover.holding.items()):
            try:
                pending, claimed = [
                    sum([await self.store.count(queue, state, PRIORITIES, future, now_ms) for future in (False, True)])
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
        self._context.metrics.set_gauges(("overflow_jobs",), {("overflow_jobs",): waiting})

    async def sync(self) -> None:
        """The file knows the queues and settings of the shards. PinLaterError."""
        await self._sync(self._member)

    async def _sync(self, member: ShardHandle) -> None:
        await self._context.queues.sync(member)
        self.synced_s = asyncio.get_running_loop().time()

    async def _refresh_queues(self) -> None:
        async with self._sync_lock:
            if asyncio.get_running_loop().time() - self.synced_s >= _FRESH_S:
                await self.sync()

    def _moved(self, queue: str, jobs: int, is_ready: bool) -> None:
        self.service.on_removed(queue, jobs)
        self._context.metrics.add(jobs, "overflow_jobs_moved", queue)
        if is_ready:
            self._context.service.events.ready(queue, jobs)


def _with_longer_retention(retention: PerQueue[Retention]) -> PerQueue[Retention]:
    def longer(each: Retention) -> Retention:
        return each._replace(succeeded_ms=max(each.succeeded_ms, MOVED_KEPT_MS))

    return PerQueue(longer(retention.default), {queue: longer(each) for queue, each in retention.of.items()})
