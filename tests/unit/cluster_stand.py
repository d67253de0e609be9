"""Several servers over the same stores in memory, each with its own clock, and nothing that runs by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from pinlater.backends.base import ClaimRequest, Shard, StoreStatus
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.cluster.clocks import ClusterClock
from pinlater.cluster.lease import ServerName
from pinlater.cluster.membership import Membership
from pinlater.cluster.stats import StatsCollector
from pinlater.cluster.status import Cluster
from pinlater.homes.change import HomesChange
from pinlater.homes.cluster_homes import ClusterHomes
from pinlater.homes.upkeep import EmptyShard, LiftBarriers, MoveWindows
from pinlater.maintenance import MaintenanceRunner, MaintenanceSettings, Periodic, tasks
from pinlater.metrics import Metrics
from pinlater.model import DequeuedJob
from pinlater.queues.directory import QueueDirectory
from pinlater.shards.batching import BatchingShard
from pinlater.shards.decorator import ShardDecorator
from pinlater.shards.handle import ShardHandle
from pinlater.shards.resilience import ResilientShard
from pinlater.shards.router import Router
from pinlater.shards.shard_set import ShardSet
from tests.unit.breaking import Breaking, HeldClock

NEVER_MS = 3_600_000
LEASE_MS = 900
EVERYTHING = 2**53 - 1


class _Lent(ShardDecorator):
    """A store that is open already, and stays so, on a machine whose clock is held."""

    has_own_clock = True

    def __init__(self, inner: Shard, store_id: str, clock: HeldClock) -> None:
        super().__init__(inner)
        self._store_id = store_id
        self._clock = clock

    async def open(self) -> str:
        return self._store_id

    async def close(self) -> None:
        """It is closed with the stand."""

    async def ping(self) -> StoreStatus:
        return (await self.inner.ping())._replace(now_ms=self._clock.now_ms())


@dataclass
class Server:
    """The parts of one process. `woken` is what the long polls were told."""

    clock: HeldClock
    time: ClusterClock
    """What the server takes for the time, by `clock` and all others."""
    members: ShardSet
    queues: QueueDirectory
    metrics: Metrics
    membership: Membership
    periodic: Periodic
    maintenance: MaintenanceRunner
    stats: StatsCollector
    cluster: Cluster
    homes: ClusterHomes
    homes_change: HomesChange
    router: Router
    reach: list[Breaking]
    """The stores as this process reaches them."""
    woken: list[tuple[str, int]] = field(default_factory=list)

    def mine(self) -> set[str]:
        return {member.shard.shard_id for member in self.members.all if self.membership.owns(member.shard.shard_id)}

    async def stop(self) -> None:
        await self.periodic.close()
        await self.stats.close()
        await self.membership.give_up()
        await self.queues.close()
        await self.members.close()


@dataclass
class ClusterStand:
    """Shard ids are 1, 2, …; servers are opened one by one."""

    stores: list[Shard]
    store_ids: list[str]
    servers: list[Server] = field(default_factory=list)
    killed: list[Server] = field(default_factory=list)
    clock: HeldClock = field(default_factory=HeldClock)
    """That of the stores, and of all servers that are not given one of their own."""

    async def server(
        self,
        name: str,
        *,
        clock: HeldClock | None = None,
        ahead_ms: int = 0,
        describe: Callable[[], Mapping[str, Any]] = dict,
        shards: Collection[int] | None = None,
        **settings: int,
    ) -> Server:
        """A process that has begun: its queues are read, its lease is not yet put. `shards`: those that it has."""
        clock = clock or self.clock
        reach = [Breaking(_Lent(*each, self.clock)) for each in zip(self.stores, self.store_ids, strict=True)]
        chains = [
            ShardHandle(BatchingShard(ResilientShard(store)), clock)
            for number, store in enumerate(reach, 1)
            if shards is None or number in shards
        ]
        members = ShardSet(chains, clock, watch_interval_ms=NEVER_MS)
        time = ClusterClock(passed_ns=lambda: clock.now_ms() * 1_000_000, wall_ns=clock.wall_ns)
        queues = QueueDirectory(members, time)
        members.sync_before_serving = queues.sync
        metrics = Metrics()
        me = ServerName(name, "1", f"{name}:9010", clock.now_ms())
        changes: list[HomesChange] = []

        def described() -> Mapping[str, Any]:
            return {**describe(), **(changes[0].describe() if changes else {})}

        membership = Membership(members, clock, me, LEASE_MS, described, metrics=metrics, clocks=time)
        homes = ClusterHomes(members, queues.entries, time, membership.unaware_of)
        router = Router(members, homes, membership.others_may_use)
        changes.append(HomesChange(members, queues, membership, homes, time))
        periodic = Periodic()
        woken: list[tuple[str, int]] = []

        def wake(queue: str, jobs: int) -> None:
            woken.append((queue, jobs))

        work = [
            *tasks(queues, time, metrics, wake),
            LiftBarriers(router, homes, time, wake),
            MoveWindows(router, homes, time),
            EmptyShard(router, homes, time, me, queues.names, membership.alive),
        ]
        maintenance = MaintenanceRunner(periodic, members, membership, work, MaintenanceSettings(**settings))
        stats = StatsCollector(members, queues, membership, time, metrics, 2_000)
        cluster = Cluster(members, queues, membership, stats, time, lambda: homes.table)
        parts = (members, queues, metrics, membership, periodic, maintenance, stats, cluster)
        server = Server(clock, time, *parts, homes, changes[0], router, reach, woken)
        self.servers.append(server)
        await members.open()
        return server

    def kill(self, server: Server) -> None:
        """It says no more, as after kill -9."""
        self.servers.remove(server)
        self.killed.append(server)

    async def round(self, times: int = 2) -> None:
        """All servers renew their leases, so often that each knows all."""
        for _ in range(times):
            for server in self.servers:
                await server.membership.renew()

    async def look_at_homes(self, times: int = 1) -> None:
        """All servers know each other, and look whether the homes of keys are to change."""
        for _ in range(times):
            await self.round()
            for server in self.servers:
                await server.queues.poll()
            for server in self.servers:
                await server.homes_change.look()
            for server in self.servers:
                await server.queues.poll()

    async def claimed(self, store: Shard, queue: str, jobs: int) -> list[DequeuedJob]:
        """Claim so many jobs, for a minute."""
        request = ClaimRequest(f"c:1:1:{jobs}:me", jobs, (1, 2, 3), 60_000, EVERYTHING)
        return (await store.claim(queue, [request], self.clock.now_ms()))[0]


@asynccontextmanager
async def cluster_stand(shards: int = 1) -> AsyncIterator[ClusterStand]:
    """Open stores, and servers over them that are stopped at the end."""
    stores: list[Shard] = [SqliteShard("sqlite://", str(number)) for number in range(1, shards + 1)]
    at = ClusterStand(stores, [await store.open() for store in stores])
    try:
        yield at
    finally:
        for server in (*at.servers, *at.killed):
            for store in server.reach:
                store.broken = None
                for gate in store.gates.values():
                    gate.set()
            await server.stop()
        for store in stores:
            await store.close()
