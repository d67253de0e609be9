"""A server process without its sockets: the parts of the product as `pinlater.app` puts them together, over stores that
it reaches through the simulated network.

Overflow, flows, schedules, tiers of bodies and the list of workers are left out: they have no part in what a cluster
costs while it is not asked for them.
"""

from __future__ import annotations

import asyncio

from pinlater.app import keep_up
from pinlater.cluster.blocked_chains import BlockedChains
from pinlater.cluster.clocks import ClusterClock
from pinlater.cluster.lease import KEYS, ServerName
from pinlater.cluster.membership import Membership
from pinlater.cluster.stats import StatsCollector
from pinlater.homes.change import HomesChange
from pinlater.homes.cluster_homes import ClusterHomes
from pinlater.homes.upkeep import EmptyShard, LiftBarriers, MoveWindows
from pinlater.maintenance import MaintenanceRunner, MaintenanceSettings, Periodic, tasks
from pinlater.metrics import Metrics
from pinlater.queues.cluster_limits import PendingCounts
from pinlater.queues.directory import QueueDirectory
from pinlater.queues.quota_balancer import QuotaBalancer
from pinlater.service import ClaimTokens, Service, ServiceSettings
from pinlater.service.settings import queue_defaults
from pinlater.shards.batching import BatchingShard
from pinlater.shards.bulkhead import BulkheadSettings
from pinlater.shards.handle import ShardHandle
from pinlater.shards.resilience import ResilientShard
from pinlater.shards.router import Router
from pinlater.shards.shard_set import ShardSet
from tests.simulation.network import Network, RemoteStore
from tests.simulation.virtual_time import MachineClock, passed_ns

LEASE_MS = 5_000
STATS_INTERVAL_MS = 2_000
PRIORITIES = (1, 2, 3)


class SimulatedServer:
    """Built, opened and stopped in the order of a real one; or killed."""

    def __init__(self, name: str, network: Network, *, ahead_ms: int = 0, lease_ms: int = LEASE_MS) -> None:
        """`ahead_ms`: how far its machine's clock is ahead of the true time."""
        self.name = name
        self.process = f"{name}/1"
        """As leases name it."""
        self.is_alive = True
        self._dying: asyncio.Task[None] | None = None
        self._network = network
        self._machine = MachineClock(ahead_ms)
        self.clock = clock = ClusterClock(wall_ns=self._machine.wall_ns, passed_ns=passed_ns)
        self.metrics = metrics = Metrics()
        self._periodic = Periodic()
        me = ServerName(name, "1", f"{name}:9010", clock.now_ms())
        guard = BulkheadSettings()
        self.members = members = ShardSet(
            [
                ShardHandle(
                    BatchingShard(ResilientShard(RemoteStore(network, self.process, shard_id), guard, clock, metrics)),
                    clock.steady,
                )
                for shard_id in network.stores
            ],
            clock.steady,
        )
        settings = ServiceSettings()
        self.queues = queues = QueueDirectory(members, clock, queue_defaults(settings))
        self._pending = pending = PendingCounts(members, queues, clock, PRIORITIES)
        self._quotas = QuotaBalancer(members, queues, clock, PRIORITIES)
        self.membership = membership = Membership(members, clock.steady, me, lease_ms, metrics=metrics, clocks=clock)
        self._stats = StatsCollector(
            members, queues, membership, clock, metrics, STATS_INTERVAL_MS, priorities=PRIORITIES
        )
        homes = ClusterHomes(members, queues.entries, clock, lambda: membership.unaware_of(KEYS))
        self._homes_change = HomesChange(members, queues, membership, homes, clock)
        self._blocked_chains = BlockedChains(
            members, membership, self._stats.published, clock, metrics, max_waiting=1_000, max_age_ms=3_600_000
        )
        self.router = router = Router(members, homes)
        claims = ClaimTokens(name, 1, me.started_ms)
        self.service = service = Service(
            router, clock, claims, settings, queues=queues, metrics=metrics, pending=pending
        )
        self._maintenance = MaintenanceRunner(
            self._periodic,
            members,
            membership,
            (
                *tasks(queues, clock, metrics, service.events.ready),
                LiftBarriers(router, homes, clock, service.events.ready),
                MoveWindows(router, homes, clock),
                EmptyShard(router, homes, clock, me, queues.names, membership.alive),
            ),
            MaintenanceSettings(),
        )

    async def open(self) -> None:
        self.members.sync_before_serving = self._sync_shard
        await self.service.open()
        await self.membership.renew()
        self._maintenance.start()
        keep_up(
            self._periodic,
            queues=self.queues,
            pending=self._pending,
            membership=self.membership,
            homes_change=self._homes_change,
            quotas=self._quotas,
            stats=self._stats,
            blocked_chains=self._blocked_chains,
        )
        self._periodic.start()

    async def _sync_shard(self, member: ShardHandle) -> None:
        self.membership.judge_clocks()
        await self.queues.sync(member)

    async def stop(self) -> None:
        """As after SIGTERM."""
        await self.membership.drain()
        self.service.start_draining()
        await self._end()

    async def _end(self) -> None:
        await self._stats.close()
        await self._periodic.close()
        await self.membership.give_up()
        await self.service.close()
        self.is_alive = False
        self._network.forget(self.process)

    def kill(self) -> None:
        """As after kill -9: from this moment on nothing of it comes to a store or to a caller."""
        self.is_alive = False
        self._network.kill(self.process)
        self._network.forget(self.process)
        self._dying = asyncio.get_running_loop().create_task(self._end())

    async def ended(self) -> None:
        """Until all of its tasks are over, long after it was killed."""
        if self._dying is not None:
            await self._dying

    def used(self) -> set[str]:
        """The shards that are in, as it sees them."""
        return {each.shard.shard_id for each in self.members.healthy()}

    def owned(self) -> set[str]:
        """The shards that it takes for its own."""
        return {each.shard.shard_id for each in self.members.all if self.membership.owns(each.shard.shard_id)}
