"""Several services over the same stores, as the processes of a cluster are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pinlater.backends.base import Shard
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.clock import Clock
from pinlater.errors import DequeueRateLimited
from pinlater.model import DequeuedJob, DequeueRequest
from pinlater.service import ClaimTokens, Service, ServiceSettings
from pinlater.shards.handle import ShardHandle
from pinlater.shards.resilience import ResilientShard
from pinlater.shards.router import Router
from pinlater.shards.shard_set import ShardSet
from tests.lent import Lent
from tests.unit.breaking import HeldClock

NEVER_MS = 3_600_000


@dataclass
class Process:
    members: ShardSet
    service: Service

    async def take(self, queue: str, limit: int) -> list[DequeuedJob]:
        """What a dequeue gets, nothing where it is limited."""
        try:
            return await self.service.dequeue(DequeueRequest(queue, limit))
        except DequeueRateLimited:
            return []

    def lose(self, shard_id: str, now_ms: int) -> None:
        member = self.members.by_id(shard_id)
        assert member is not None
        member.health.trip(now_ms)


@dataclass
class Fleet:
    clock: HeldClock
    stores: Sequence[Shard]
    processes: list[Process]

    async def change(self, queue: str, **settings: str) -> None:
        """At one process, and known to all."""
        await self.processes[0].service.queues.change(queue, settings, [], False, "me")
        for process in self.processes[1:]:
            await process.service.queues.poll()


async def process_over(stores: Sequence[Shard], ids: Sequence[str], number: int, clock: Clock) -> Process:
    chain = [
        ShardHandle(ResilientShard(Lent(store, store_id)), clock) for store, store_id in zip(stores, ids, strict=True)
    ]
    members = ShardSet(chain, clock, watch_interval_ms=NEVER_MS)
    settings = ServiceSettings(poll_min_ms=5, poll_max_ms=50)
    service = Service(Router(members), clock, ClaimTokens("here", number, clock.now_ms()), settings)
    await service.open()
    for member in members.all:
        member.skew_ms = 0
    return Process(members, service)


@asynccontextmanager
async def fleet(processes: int, shards: int, queue: str = "mail") -> AsyncIterator[Fleet]:
    """`queue` is there."""
    clock = HeldClock()
    stores = [SqliteShard("sqlite://", str(number)) for number in range(1, shards + 1)]
    ids = [await store.open() for store in stores]
    all_of_them = [await process_over(stores, ids, number, clock) for number in range(1, processes + 1)]
    try:
        await all_of_them[0].service.create_queue(queue)
        for process in all_of_them[1:]:
            await process.service.queues.poll()
        yield Fleet(clock, stores, all_of_them)
    finally:
        for process in all_of_them:
            await process.service.close()
        for store in stores:
            await store.close()
