"""Several servers over the same stores in memory; each one's way to each store breaks by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pinlater.backends.base import Shard
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.errors import NothingStored
from pinlater.queues.directory import QueueDirectory
from pinlater.schedules.book import ScheduleBook
from pinlater.service import ClaimTokens, Service, ServiceSettings
from pinlater.service.settings import queue_defaults
from pinlater.shards.batching import BatchingShard
from pinlater.shards.bulkhead import BulkheadSettings
from pinlater.shards.handle import ShardHandle
from pinlater.shards.resilience import ResilientShard
from pinlater.shards.router import Router
from pinlater.shards.shard_set import ShardSet
from tests.lent import Lent
from tests.unit.breaking import Breaking, HeldClock
from tests.unit.stand import NEVER_MS

AWAY = NothingStored("it is away")


@dataclass
class Server:
    """One server, and its ways to the stores; shard ids are 1, 2, …"""

    ways: list[Breaking]
    members: ShardSet
    queues: QueueDirectory
    service: Service
    clock: HeldClock

    def lose(self, shard: int) -> None:
        """This shard is out, for this server."""
        self.ways[shard - 1].broken = AWAY
        self.members.all[shard - 1].health.trip(self.clock.now_ms())

    async def find(self, shard: int) -> None:
        """And it comes back in, as a probe brings it back."""
        self.ways[shard - 1].broken = None
        member = self.members.all[shard - 1]
        await self.members.let_in(member)
        assert member.is_healthy, member.last_error


MakeQueues = Callable[[ShardSet, HeldClock], QueueDirectory]


@asynccontextmanager
async def several(
    servers: int = 2,
    shards: int = 2,
    *,
    settings: ServiceSettings | None = None,
    make_queues: MakeQueues | None = None,
    deadline_ms: int = 10_000,
    stores: Callable[[], list[Shard]] | None = None,
    older: Sequence[str] = (),
) -> AsyncIterator[list[Server]]:
    """Open servers without a queue; registries are polled, and shards pinged, only where the test does it.

    `stores` makes the stores' clients for one server; without it all share stores in memory. `older`: the live
    servers of an earlier version, as of now.
    """
    clock = HeldClock()
    settings = settings or ServiceSettings()
    shared: list[Shard] = [] if stores else [SqliteShard("sqlite://", str(number)) for number in range(1, shards + 1)]
    ready = [Lent(store, await store.open()) for store in shared]
    made = []
    for number in range(servers):
        ways = [Breaking(store) for store in (stores() if stores else ready)]
        guard = BulkheadSettings(deadline_ms=deadline_ms)
        members = ShardSet(
            [ShardHandle(BatchingShard(ResilientShard(way, guard)), clock) for way in ways],
            clock,
            watch_interval_ms=NEVER_MS,
        )
        queues = (
            make_queues(members, clock) if make_queues else QueueDirectory(members, clock, queue_defaults(settings))
        )
        names = ClaimTokens(f"server{number}", 1, clock.now_ms())
        book = ScheduleBook(queues, clock, lambda: older)
        service = Service(Router(members), clock, names, settings, queues=queues, schedules=book)
        await service.open()
        for member in members.all:
            member.skew_ms = 0  # the stores' clocks were measured against the held one
        made.append(Server(ways, members, queues, service, clock))
    try:
        yield made
    finally:
        for server in made:
            for way in server.ways:
                way.broken = None
                for gate in way.gates.values():
                    gate.set()
            await server.service.close()
        for store in shared:
            await store.close()
