"""A server process with an overflow shard: a service over stores in memory that break on demand, and a data folder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pinlater.access.tokens import TokenBook
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.data_folder.identity import server_id
from pinlater.errors import NothingStored
from pinlater.metrics import Metrics
from pinlater.model import DequeuedJob, DequeueRequest, RequestContext
from pinlater.overflow import Overflow, RoutedCalls, ServerContext
from pinlater.overflow.service import OverflowService
from pinlater.queues.directory import QueueDirectory
from pinlater.schedules.book import ScheduleBook
from pinlater.service import ClaimTokens, Service, ServiceSettings
from pinlater.shards.batching import BatchingShard
from pinlater.shards.handle import ShardHandle
from pinlater.shards.resilience import ResilientShard
from pinlater.shards.router import Router
from pinlater.shards.shard_set import ShardSet
from tests.unit.breaking import Breaking, HeldClock

ME = RequestContext("me")
NEVER_MS = 3_600_000
MIB = 2**20
OUT = NothingStored("connection refused")


@dataclass
class Process:
    """One server process; its shard is named 1."""

    stores: list[Breaking]
    clock: HeldClock
    folder: Path
    members: ShardSet
    queues: QueueDirectory
    router: Router
    service: Service
    overflow: Overflow
    api: Service
    metrics: Metrics = field(default_factory=Metrics)

    @property
    def kept(self) -> OverflowService:
        kept = self.overflow.service
        assert kept is not None, "it owns no overflow shard"
        return kept

    def lose_shards(self) -> None:
        """Every shard refuses, and is known to be out."""
        for store in self.stores:
            store.broken = OUT
        for member in self.members.all:
            member.eject(OUT.message)

    async def find_shards(self) -> None:
        """They answer again, and are in."""
        for store in self.stores:
            store.broken = None
        for member in self.members.all:
            member.readmit()
        await self.queues.poll()

    async def dequeue(self, limit: int = 10, queue: str = "mail", **fields: object) -> list[DequeuedJob]:
        return await self.api.dequeue(DequeueRequest(queue, limit, **fields), context=ME)  # type: ignore[arg-type]


@asynccontextmanager
async def process(
    folder: Path,
    *,
    shard: str = "sqlite://",
    bound: int = MIB,
    addresses: Mapping[str, str] | None = None,
    queue: str = "mail",
    settings: ServiceSettings | None = None,
) -> AsyncIterator[Process]:
    """An open process with one queue and one shard, which others may have as well where it is a file.

    Its overflow shard does nothing by itself: the test looks, tidies and moves.
    """
    clock = HeldClock()
    metrics = Metrics()
    stores = [Breaking(SqliteShard(shard, "1"))]
    members = ShardSet(
        [ShardHandle(BatchingShard(ResilientShard(store)), clock) for store in stores],
        clock,
        watch_interval_ms=NEVER_MS,
    )
    queues = QueueDirectory(members, clock)
    members.sync_before_serving = queues.sync
    router = Router(members)

    schedules, tokens = ScheduleBook(queues, clock), TokenBook(queues, members, clock)

    def new_service(over: Router, names: ClaimTokens) -> Service:
        shared: Any = {"queues": queues, "schedules": schedules, "tokens": tokens, "metrics": metrics}
        return Service(over, clock, names, settings, **shared)

    async with AsyncExitStack() as stack:
        service = new_service(router, ClaimTokens("here", 1, clock.now_ms()))
        await service.open()
        stack.push_async_callback(service.close)
        stack.push_async_callback(queues.close)
        context = ServerContext(
            service=service,
            router=router,
            queues=queues,
            clock=clock,
            new_service=new_service,
            addresses=lambda: addresses or {},
            metrics=metrics,
        )
        overflow = Overflow(folder, server_id(folder), bound, context, host="127.0.0.1")
        service.attach_overflow(RoutedCalls(overflow))
        if queue:
            await service.create_queue(queue)
        await overflow.open()
        stack.push_async_callback(overflow.close)
        yield Process(stores, clock, folder, members, queues, router, service, overflow, service, metrics)
        for store in stores:
            store.broken = None
