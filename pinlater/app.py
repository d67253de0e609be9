"""The composition root: from a configuration to objects, the only file that imports every part.

    BatchingShard(ResilientShard(backend)) per shard -> ShardSet -> Router -> Service -> ThriftServer
    (and outermost of each chain a TieredShard, where bodies have tiers)
    beside it, on Periodic: QueueDirectory, PendingCounts, QuotaBalancer, Membership, StatsCollector, Maintenance
    and, where it is configured, Overflow

`python -m pinlater.app FD` is a server process of `pinlater serve`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from pinlater import settings_map
from pinlater.access.fair_use import FairUse
from pinlater.access.gate import Gate
from pinlater.access.guesses import TokenGuesses
from pinlater.access.peers import PeerSecret
from pinlater.access.rules_file import RulesFile
from pinlater.access.tokens import TokenBook
from pinlater.alarms.flow_watch import FlowWatch
from pinlater.alarms.judge import CERTIFICATE_ENDS, JUDGE_EVERY_MS, TIERS_AWAY, Judge
from pinlater.alarms.webhooks import AlarmWebhooks
from pinlater.beat import Beat
from pinlater.bodies.body_engine import Bodies, StoreInvalid
from pinlater.cluster.blocked_chains import EVERY_MS as CHAINS_MS
from pinlater.cluster.blocked_chains import BlockedChains
from pinlater.cluster.clocks import ClusterClock
from pinlater.cluster.group_gauges import GAUGES_MS, GroupGauges
from pinlater.cluster.lease import BOTH_PASSES, FLOW_RETRIES, ServerName
from pinlater.cluster.membership import Membership
from pinlater.cluster.stats import StatsCollector
from pinlater.cluster.status import Cluster
from pinlater.cluster.worker_list import WorkerList
from pinlater.config import Config, ConfigInvalid, from_plain, secrets_of
from pinlater.data_folder.disk import describe_disk
from pinlater.data_folder.identity import RecordBroken, new_server_id, server_id
from pinlater.errors import PinLaterError, StoreRefused
from pinlater.flows.flow_engine import Flows
from pinlater.homes.change import LOOK_EVERY_MS, HomesChange
from pinlater.homes.cluster_homes import ClusterHomes
from pinlater.homes.upkeep import EmptyShard, LiftBarriers, MoveWindows
from pinlater.logs import configure
from pinlater.maintenance import MaintenanceRunner, MaintenanceSettings, Periodic, tasks
from pinlater.maintenance.body_tasks import DeleteBodies
from pinlater.maintenance.item_expiry import ExpireItems
from pinlater.metrics import Metrics
from pinlater.overflow.overflow import Overflow
from pinlater.overflow.ownership import overflow_addresses
from pinlater.overflow.routing import RoutedCalls
from pinlater.overflow.store import ServerContext
from pinlater.process_status import remarks, set_gauges, unready_reasons
from pinlater.queues.breakers import BREAKERS_MS, Breakers
from pinlater.queues.cluster_limits import PendingCounts
from pinlater.queues.directory import QueueDirectory
from pinlater.queues.file import QueueFile
from pinlater.queues.group_hand_outs import PUBLISH_MS as HAND_OUTS_MS
from pinlater.queues.group_limits import TICK_MS
from pinlater.queues.quota_balancer import QuotaBalancer
from pinlater.redaction import SECRETS
from pinlater.schedules.book import ScheduleBook
from pinlater.schedules.firer import ScheduleFirer
from pinlater.server import server_process
from pinlater.server.server_process import HandOver, News, StartRefused, Tell
from pinlater.server.thrift_server import ThriftServer
from pinlater.server.tls import PeerTls, ServerTls, TlsInvalid
from pinlater.service import ClaimTokens, Service
from pinlater.service.job_events import JobEvents
from pinlater.service.queue_limits import QueueLimits
from pinlater.service.service_context import Features
from pinlater.service.settings import queue_defaults
from pinlater.shard_factory import data_folder, guard_settings, note_stores, shard_set
from pinlater.shards.handle import ShardHandle
from pinlater.shards.router import Router

log = structlog.get_logger("pinlater.app")
POLL_MS = 500
"""How often configuration entries are read, and pending jobs counted."""

CLOCKS_MS = 1_000
TLS_MS = 1_000
QUOTAS, QUOTAS_MS = "quotas", 200
GROUP_LIMITS, GROUP_LIMITS_MS = "group_limits", TICK_MS
BREAKERS = "circuit breakers"
RULES_MS = 1_000
TOKEN_USES_MS = 60_000
STATS_MS = 500
"""How often it is seen whether a shard is to be counted again."""

SHOWN_ALARMS = 50
SHOWN_WORKERS = 200
"""So many are on the status page."""

LEAST_MOVE_S = 2.0
"""What jobs in the overflow shard get at the end, however long the callers took; less than a supervisor's grace."""

_FLOWS_NEED_A_URL = (
    "server {} shares the stores of this one, and its flows would be others: start all servers with --flows URL of one "
    "PostgreSQL or MariaDB"
)
_BODIES_ELSEWHERE = (
    "it has jobs whose bodies lie in tiers, and this server has none: start it with the same --bodies as the others; "
    "`pinlater bodies move` brings bodies back into shards"
)
_AHEAD = "jobs were stored at times that are yet to come: was a clock ahead then, or is it behind now?"


class ServerProcess:
    """A server process with everything behind it: built, opened, and stopped in order."""

    def __init__(
        self,
        config: Config,
        known: Mapping[str, str],
        address: str,
        gateway_hash: str = "",
        exposed: str = "",
        history_hash: str = "",
    ) -> None:
        """StartRefused. `address` is where the server listens; `gateway_hash`, `history_hash`: of the tokens of its
        HTTP process; `exposed`: why callers may do more here than an operator may want.
        """
        self._exposed = exposed
        self._is_closed = False
        self.clock = clock = ClusterClock(config.clock_tolerance_ms)
        self._tolerance_ms = config.clock_tolerance_ms
        self._folder = folder = data_folder(config)
        self.metrics = metrics = Metrics()
        beat = Beat()
        self._periodic = Periodic(beat=beat)
        server, started_ms = name_of_server(folder), clock.now_ms()
        me = ServerName(server, str(os.getpid()), config.advertise or address, started_ms)
        self._priorities = priorities = tuple(range(1, config.priorities + 1))

        # the shards, and the queues on them
        settings = settings_map.service_settings(config)
        self._bodies = self._new_bodies(config)
        wrap = None if self._bodies is None else self._bodies.wrap
        self._members = shards = shard_set(config, known, metrics, clock, clock.steady, wrap, beat)
        self._queues = queues = QueueDirectory(shards, clock, queue_defaults(settings), queue_file(config))
        self._pending = pending = PendingCounts(shards, queues, clock, priorities)
        self._quotas = QuotaBalancer(shards, queues, clock, priorities)

        # the cluster
        self.membership = membership = Membership(
            shards, clock.steady, me, config.lease_ms, self._describe, metrics=metrics, clocks=clock
        )
        self._stats = stats = StatsCollector(
            shards, queues, membership, clock, metrics, config.stats_interval_ms, priorities=priorities
        )
        homes = ClusterHomes(shards, queues.entries, clock, membership.unaware_of)
        self._homes_change = HomesChange(shards, queues, membership, homes, clock)
        self._blocked_chains = BlockedChains(
            shards,
            membership,
            stats.published,
            clock,
            metrics,
            max_waiting=config.blocked_chain_jobs,
            max_age_ms=config.blocked_chain_age_ms,
        )
        self._cluster = Cluster(shards, queues, membership, stats, clock, lambda: homes.table)
        self._workers = workers = WorkerList(shards, clock, me.lease_name, lambda: membership.alive())

        # the calls
        router = Router(shards, homes, membership.others_may_use)
        limits = settings_map.server_limits(config)

        schedules = ScheduleBook(queues, clock, lambda: membership.unaware_of(BOTH_PASSES))
        self._tokens = tokens = TokenBook(queues, shards, clock)

        def new_service(over: Router, claims: ClaimTokens) -> Service:
            shared: Any = {"queues": queues, "schedules": schedules, "tokens": tokens, "metrics": metrics}
            return Service(over, clock, claims, settings, **shared)

        events = JobEvents()
        self._flows = flows = self._new_flows(config, router, me, events)
        self._judge = judge = Judge(
            shards,
            queues,
            membership,
            stats,
            self._cluster,
            workers,
            clock,
            priorities=priorities,
            flows=None if flows is None else FlowWatch(flows.connection, queues, clock),
            webhooks=AlarmWebhooks(settings_map.webhook_settings(config), clock),
            metrics=metrics,
        )
        self._firer = ScheduleFirer(schedules, router, membership, clock, metrics, events.ready, clock.steady)
        bodies = None
        if self._bodies is not None:
            every, names = self._periodic.every, lambda: sorted(queues.names())
            bodies = self._bodies.begin(shards, names, priorities, membership.owns, every)
        self.service = service = Service(
            router,
            clock,
            ClaimTokens(socket.gethostname(), os.getpid(), started_ms),
            settings,
            queues=queues,
            schedules=schedules,
            tokens=tokens,
            metrics=metrics,
            cluster=self._cluster,
            workers=workers,
            judge=judge,
            pending=pending,
            events=events,
            features=Features(flows, bodies, membership.unaware_of),
            problem_of=self._firer.problem_of,
        )
        guesses, fair_use = TokenGuesses(service.refused), FairUse(settings_map.use_limits(config))
        rules = rules_file(config)
        bounds = settings_map.owner_bounds(config)
        self._gate = gate = Gate(
            tokens, clock, service.refused, guesses, fair_use, rules, gateway_hash, history_hash, bounds
        )
        queues.owned.bounds = gate.bounds_of
        self._tls, self._peer_tls = tls, peer_tls = server_tls(config)
        self._server = ThriftServer(service, limits, metrics, clock, gate, tls)

        # beside the calls
        self._peers = peers = PeerSecret(queues)
        self._only_peers = gate.has_rules or bool(config.tls_client_ca)
        context = ServerContext(
            service=service,
            router=router,
            queues=queues,
            clock=clock,
            new_service=new_service,
            addresses=lambda: overflow_addresses(membership.alive()),
            metrics=metrics,
            limits=limits,
            tls=peer_tls,
            peer_tls=settings_map.peer_tls(config),
            peers=peers,
            only_peers=self._only_peers,
            guard=guard_settings(config),
        )
        host = me.address.rpartition(":")[0].strip("[]")
        self._overflow = Overflow(folder, server, config.overflow_bytes, context, host=config.host, advertised=host)
        service.attach_overflow(RoutedCalls(self._overflow))
        body_tasks = [] if self._bodies is None else [DeleteBodies(self._bodies.tiers, clock)]
        item_tasks = [] if flows is None else [ExpireItems(queues, flows.ends, clock, metrics, events.ready)]
        self._maintenance = MaintenanceRunner(
            self._periodic,
            shards,
            membership,
            (
                *tasks(queues, clock, metrics, events.ready),
                LiftBarriers(router, homes, clock, events.ready),
                MoveWindows(router, homes, clock),
                EmptyShard(router, homes, clock, me, queues.names, membership.alive),
                *item_tasks,
                *body_tasks,
            ),
            MaintenanceSettings(interval_ms=config.maintenance_interval_ms),
            queues.is_empty,
        )

    def _new_bodies(self, config: Config) -> Bodies | None:
        """None: all bodies are in their shards. StartRefused."""
        settings = settings_map.body_settings(config)
        if settings is None:
            return None
        try:
            return Bodies(
                settings,
                self.clock,
                self.clock.steady,
                self.metrics,
                lacking=lambda tier: self.membership.lacking_tier(tier),
                rule_of_queue=lambda queue: self._queues.settings(queue).bodies,
                fail_for_good=lambda queue, acks: self.service.ack(queue, (), acks),
            )
        except StoreInvalid as error:
            raise StartRefused(str(error)) from error

    def _new_flows(self, config: Config, router: Router, me: ServerName, events: JobEvents) -> Flows | None:
        """None: they are off."""
        settings, membership = settings_map.flow_settings(config), self.membership
        if settings is None:
            return None

        def refusal() -> str:
            others = membership.others() if settings.url.startswith("sqlite") else ()
            return _FLOWS_NEED_A_URL.format(others[0].server) if others else ""

        return Flows(
            settings,
            me.lease_name,
            router,
            self._queues,
            self.clock,
            self.metrics,
            events.ready,
            refusal,
            lambda: len(membership.alive()) > 1,
            lambda owner: self._gate.bounds_of(owner),
            lambda: membership.unaware_of(FLOW_RETRIES),
        )

    def _describe(self) -> Mapping[str, Any]:
        """What the lease says beside what it knows itself."""
        exposed: dict[str, Any] = {"exposed": self._exposed} if self._exposed else {}
        if self._bodies is not None:
            exposed["tiers"] = list(self._bodies.tiers.all)
            if away := self._bodies.tiers.away():
                exposed[TIERS_AWAY] = away
        if self._flows is not None:
            exposed |= self._flows.callbacks.describe()
        ends = [tls.ends_ms for tls in (self._tls, self._peer_tls) if tls is not None and tls.ends_ms is not None]
        if ends:
            exposed[CERTIFICATE_ENDS] = min(ends)
        return {
            **exposed,
            **self._overflow.describe(),
            **self._workers.describe(),
            **self._homes_change.describe(),
            **self._firer.describe(),
            **self._judge.describe(),
            **describe_disk(self._folder),
        }

    async def _sync_shard(self, member: ShardHandle) -> None:
        """A shard that is to serve has said its time; what is due there goes by what that says of all clocks."""
        self.membership.judge_clocks()
        ahead_ms = member.newest_ms - self.clock.now_ms() - self.clock.uncertainty_ms
        if ahead_ms > self._tolerance_ms:
            log.warning("store_is_ahead", shard=member.shard.shard_id, jobs_stored_ahead_ms=ahead_ms, hint=_AHEAD)
        if self._bodies is None and (await member.shard.list_references("", 1)).references:
            raise StoreRefused(_BODIES_ELSEWHERE)
        await self._queues.sync(member)

    async def open(self) -> None:
        """Open what can be opened of the shards, and begin. StartRefused."""
        self._members.sync_before_serving = self._sync_shard
        if self._bodies is not None:
            await self._bodies.open()
        try:
            await self.service.open()
        except PinLaterError as refused:
            raise StartRefused(refused.message) from refused
        await self.membership.renew()
        if self._only_peers:
            with suppress(PinLaterError):  # no store can be reached: it is tried each second
                await self._peers.make()
            self._periodic.every(RULES_MS, "secret of the cluster", self._peers.make)
        await self._overflow.open(self._periodic)
        await self._server.start()
        self._maintenance.start()
        self._firer.start()
        if self._flows is not None:
            self._flows.start()
        self._begin_background_jobs()
        self._periodic.start()

    def _begin_background_jobs(self) -> None:
        """What this process does beside its calls; the first lease has been put."""
        keep_up(
            self._periodic,
            queues=self._queues,
            pending=self._pending,
            membership=self.membership,
            homes_change=self._homes_change,
            quotas=self._quotas,
            limits=self.service.limits,
            breakers=self.service.breakers,
            stats=self._stats,
            group_gauges=GroupGauges(
                self._members,
                self._queues,
                self.service.limits.groups,
                self.service.limits.hand_outs,
                self._stats,
                self.clock,
                self.metrics,
                self._priorities,
            ),
            blocked_chains=self._blocked_chains,
        )
        every = self._periodic.every
        every(JUDGE_EVERY_MS, "alarms", self._judge.tick)
        every(TOKEN_USES_MS, "token uses", self._tokens.note_uses)
        if self._gate.has_rules:
            every(RULES_MS, "rules", self._gate.look)
        if self._tls is not None:
            every(TLS_MS, "tls", self._tls.look)
        if self._peer_tls is not None:
            every(TLS_MS, "peer tls", self._peer_tls.look)

    def adopt(self, connection: socket.socket) -> None:
        self._server.adopt(connection)

    def share(self, tell: Tell) -> None:
        self.service.admin_password.share = tell

    def learn(self, news: News) -> None:
        self.service.admin_password.learn(news)

    async def report(self, kind: str) -> Any:
        """For the supervisor: metrics, status, remarks or readiness."""
        if kind == "metrics":
            set_gauges(self.metrics, self._members, self._server, self.service, self._overflow, self.clock)
            if not self._is_closed:  # the last report of a process comes when its shards are closed
                await self._workers.set_gauges(self.metrics, self._queues.names(), self.membership.alive())
            return self.metrics.snapshot()
        if kind == "status":
            workers = await self._workers.page(limit=SHOWN_WORKERS)
            alarms = asdict(await self._judge.page(SHOWN_ALARMS))
            return {**asdict(await self._cluster.status()), "workers": asdict(workers), "alarms": alarms}
        if kind == "remarks":
            return [*remarks(self._members, self.clock), *([self._exposed] if self._exposed else [])]
        return unready_reasons(self._members, self.membership, self._overflow)

    async def drain(self, hand_over: HandOver | None, timeout_s: float) -> None:
        """Leave the cluster and answer what was read; then see that jobs in the overflow shard find a shard."""
        ends_at = asyncio.get_running_loop().time() + timeout_s
        await asyncio.gather(self.membership.drain(), self._server.drain(hand_over, timeout_s))
        await self._overflow.drain(max(LEAST_MOVE_S, ends_at - asyncio.get_running_loop().time()))

    async def close(self) -> None:
        self._is_closed = True
        await self._firer.close()
        if self._flows is not None:
            await self._flows.close()
        await self._stats.close()
        await self._periodic.close()
        await self._judge.close()
        await self.membership.give_up()
        await self._overflow.close()
        await self._workers.close()
        note_stores(self._folder, self._members.store_ids())
        await self.service.close()
        if self._bodies is not None:
            await self._bodies.close()


def keep_up(
    periodic: Periodic,
    *,
    queues: QueueDirectory,
    pending: PendingCounts,
    membership: Membership,
    homes_change: HomesChange,
    quotas: QuotaBalancer,
    limits: QueueLimits,
    breakers: Breakers,
    stats: StatsCollector,
    group_gauges: GroupGauges,
    blocked_chains: BlockedChains,
) -> None:
    """What every server process does to keep up with its cluster."""
    every = periodic.every

    async def judge_clocks() -> None:
        membership.judge_clocks()

    def run_while_needed(_changed: str) -> None:
        """What few clusters need costs the others nothing: maxima in progress, limits of groups, circuit breakers."""
        for name, interval_ms, tick, is_needed in (
            (QUOTAS, QUOTAS_MS, quotas.tick, bool(queues.limited())),
            (GROUP_LIMITS, GROUP_LIMITS_MS, limits.groups.tick, bool(queues.group_limited)),
            (BREAKERS, BREAKERS_MS, breakers.tick, bool(queues.breaker_rules() or queues.breaker_records())),
        ):
            if is_needed and name not in periodic.names():
                every(interval_ms, name, partial(tick, membership.owns))
            elif not is_needed and name in periodic.names():
                periodic.end(name)

    queues.on_change(run_while_needed)
    run_while_needed("")
    every(POLL_MS, "queues", queues.poll)
    every(POLL_MS, "pending", pending.poll, rests=lambda: not (queues.bounded() or queues.group_bounded()))
    every(HAND_OUTS_MS, "hand-outs of groups", limits.hand_outs.publish, rests=lambda: not limits.hand_outs.queues)
    every(membership.renew_every_ms, "leases", membership.renew)
    every(LOOK_EVERY_MS, "homes", homes_change.look)
    every(CLOCKS_MS, "clocks", judge_clocks)
    every(STATS_MS, "stats", stats.tick, rests=queues.is_empty)
    every(GAUGES_MS, "groups", partial(group_gauges.tick, membership.owns), rests=group_gauges.is_idle)
    every(CHAINS_MS, "chains", blocked_chains.tick, rests=queues.is_empty)


def server_tls(config: Config) -> tuple[ServerTls | None, PeerTls | None]:
    """On the port of callers, and on those between servers. StartRefused."""
    files, takes_plain = settings_map.tls_files(config), config.tls == "optional"
    if files is None:
        return None, None
    try:
        peers = PeerTls(settings_map.peer_files(config), config.tls_peers, takes_plain=takes_plain)
        return ServerTls(files, takes_plain=takes_plain), peers
    except TlsInvalid as error:
        raise StartRefused(str(error)) from error


def name_of_server(folder: Path) -> str:
    """The id of this server, kept in the data folder; where that cannot be written, one for this time only."""
    try:
        return server_id(folder)
    except (OSError, RecordBroken) as error:
        log.warning("server_id_not_kept", folder=str(folder), reason=str(error))
        return new_server_id()


def queue_file(config: Config) -> QueueFile | None:
    """StartRefused: it cannot be read, or has mistakes."""
    if not config.queue_file:
        return None
    try:
        return QueueFile(Path(config.queue_file).expanduser())
    except ConfigInvalid as invalid:
        raise StartRefused("; ".join(str(mistake) for mistake in invalid.mistakes)) from invalid


def rules_file(config: Config) -> RulesFile | None:
    """StartRefused."""
    if not config.rules:
        return None
    try:
        return RulesFile(Path(config.rules).expanduser())
    except ConfigInvalid as invalid:
        raise StartRefused(f"the rules are invalid: {invalid}") from invalid


async def build(payload: dict[str, Any]) -> ServerProcess:
    """What a server process serves. StartRefused."""
    config = from_plain(payload["config"])
    config = replace(config, admin_password_hash=config.admin_password_hash or payload.get("operator_hash", ""))
    SECRETS.keep(secrets_of(config))
    configure(config.log_level, config.log_format, worker=os.getpid())
    address = payload.get("address", f"{config.host}:{config.port}")
    app = ServerProcess(
        config,
        payload["known"],
        address,
        payload.get("gateway_hash", ""),
        payload.get("exposed", ""),
        payload.get("history_hash", ""),
    )
    await app.open()
    return app


if __name__ == "__main__":
    server_process.main(int(sys.argv[1]), build)
