"""A whole service over stores in memory that break on demand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.clock import Clock
from pinlater.flows.flow_engine import Flows
from pinlater.model import Ack, DequeuedJob, DequeueRequest, RequestContext
from pinlater.queues.directory import QueueDirectory
from pinlater.service import ClaimTokens, Service, ServiceSettings
from pinlater.service.job_events import JobEvents
from pinlater.service.service_context import Features
from pinlater.service.settings import queue_defaults
from pinlater.shards.batching import BatchingShard
from pinlater.shards.bulkhead import BulkheadSettings
from pinlater.shards.handle import ShardHandle
from pinlater.shards.health import HealthSettings
from pinlater.shards.resilience import ResilientShard
from pinlater.shards.router import Router
from pinlater.shards.shard_set import ShardSet
from tests.unit.breaking import Breaking, HeldClock

ME = RequestContext("me")
NEVER_MS = 3_600_000


@dataclass
class Stand:
    """The parts of one service; shard ids are 1, 2, …"""

    stores: list[Breaking]
    clock: HeldClock
    members: ShardSet
    router: Router
    service: Service

    async def dequeue(self, limit: int = 10, **fields: object) -> list[DequeuedJob]:
        return await self.service.dequeue(DequeueRequest("mail", limit, **fields), context=ME)  # type: ignore[arg-type]


def acks(jobs: Sequence[DequeuedJob]) -> list[Ack]:
    return [Ack(job.descriptor) for job in jobs]


@asynccontextmanager
async def stand(
    shards: int = 1,
    *,
    settings: ServiceSettings | None = None,
    deadline_ms: int = 10_000,
    dequeue_only: Sequence[int] = (),
    queue: str = "mail",
    health: HealthSettings | None = None,
    flows: Callable[[Router, QueueDirectory, Clock, JobEvents], Flows] | None = None,
    unaware_of: Callable[[str], Sequence[str]] = lambda feature: (),
) -> AsyncIterator[Stand]:
    """An open service with one queue; its shards are pinged only where the test does it."""
    clock = HeldClock()
    stores = [Breaking(SqliteShard("sqlite://", str(number))) for number in range(1, shards + 1)]
    guard = BulkheadSettings(deadline_ms=deadline_ms)
    chain = [
        ShardHandle(
            BatchingShard(ResilientShard(store, guard)), clock, dequeue_only=number in dequeue_only, health=health
        )
        for number, store in enumerate(stores, 1)
    ]
    members = ShardSet(chain, clock, watch_interval_ms=NEVER_MS)
    router = Router(members)
    queues, events = QueueDirectory(members, clock, queue_defaults(settings or ServiceSettings())), JobEvents()
    service = Service(
        router,
        clock,
        ClaimTokens("here", 1, clock.now_ms()),
        settings,
        queues=queues,
        events=events,
        features=Features(flows and flows(router, queues, clock, events), unaware_of=unaware_of),
    )
    await service.open()
    for member in members.all:
        member.skew_ms = 0  # the stores' clocks were measured against the held one
    try:
        await service.create_queue(queue)
        yield Stand(stores, clock, members, router, service)
    finally:
        for store in stores:
            store.heal()
        await service.close()
