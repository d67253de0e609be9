"""The judge of alarms: one server process, chosen by the leases, which checks the cluster every few seconds and keeps
what it finds in the shards, where all processes read it.

With no shard that can be used each process judges by what it knows itself, and says so.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import thread_time
from typing import Any

import structlog

from pinlater.alarms import alarm_entries
from pinlater.alarms.alarm_entries import StandingEntry
from pinlater.alarms.end_sampler import EndSampler
from pinlater.alarms.evidence import FlowFacts, GoneServer, LimitSet, LostCallback, Snapshot, WorkerSeen, snapshot_of
from pinlater.alarms.flow_watch import FlowWatch
from pinlater.alarms.judgement import Judgement, Mute
from pinlater.alarms.wait_sampler import WaitSampler
from pinlater.alarms.webhooks import AlarmWebhooks
from pinlater.clock import Clock
from pinlater.cluster.lease import Lease
from pinlater.cluster.membership import Membership
from pinlater.cluster.stats import StatsCollector
from pinlater.cluster.status import Cluster
from pinlater.cluster.throughput import LOST_KEY
from pinlater.cluster.worker_entries import SeenWorker
from pinlater.cluster.worker_list import WorkerList
from pinlater.data_folder.disk import DESCRIBED as DISK_LOW
from pinlater.errors import NoHealthyShards, PinLaterError
from pinlater.flows.callbacks import LOST_CALLBACKS
from pinlater.metrics import Metrics
from pinlater.model import ProcessCounters
from pinlater.model.alarm_views import OLD_MS, Alarm, AlarmsPage
from pinlater.queues.directory import QueueDirectory
from pinlater.schedules.firer import DESCRIBED, DESCRIBED_CAUSES, DESCRIBED_OF_SHARDS
from pinlater.shards.handle import NOT_TRIED, ShardHandle
from pinlater.shards.shard_set import ShardSet

_log = structlog.get_logger("pinlater.alarms")
JUDGE_EVERY_MS = 5_000
SHARE = 0.001
"""The part of the time that judging may take, a tenth of what the snapshot takes: a cluster of very many queues is
judged less often.
"""

MOST_REST_MS = 30_000
"""And not less often than that: a judgement of a minute ago is said to be old."""

REMEMBERED_MS = 30_000
"""A process whose turn comes again so soon still knows what it saw before."""

WRITE_EVERY_MS = 60_000
"""What did not change is written so often, so that others see that it still counts."""

LOST_AFTER_MS = 15_000
"""After its connection broke a worker that has not reported for so long is gone: they report every ten seconds."""

WORK, JUDGES = "judge", "judges"
"""What one process does; what the lease of a process says that can judge: earlier versions cannot."""

REFUSED = "refused_calls"
"""What a lease says, by shard."""

SLOW_SHARDS = "shards_slow"
"""What a lease says: the shards that are in, and at which many calls of its process go wrong."""

TIERS_AWAY = "tiers_away"
"""What a lease says: tiers of bodies that its process cannot use, and why."""

CERTIFICATE_ENDS = "certificate_ends_ms"
"""What a lease says, where the process speaks TLS: when the first of its certificates ends."""

SLOW_BAD = 10
"""Of the last hundred calls to a shard, so many failed or took longer than half of their deadline."""

READ_FOR_MS = 1_000
READ_WITHIN_S = 2.0


class Judge:
    """That of one process, which judges while it is its turn."""

    def __init__(
        self,
        members: ShardSet,
        queues: QueueDirectory,
        membership: Membership,
        stats: StatsCollector,
        cluster: Cluster,
        workers: WorkerList,
        clock: Clock,
        *,
        priorities: Sequence[int] = (1, 2, 3),
        flows: FlowWatch | None = None,
        webhooks: AlarmWebhooks,
        metrics: Metrics,
    ) -> None:
        self._members = members
        self._queues = queues
        self._membership = membership
        self._stats = stats
        self._cluster = cluster
        self._workers = workers
        self._clock = clock
        self._webhooks = webhooks
        self._metrics = metrics
        self._sampler = EndSampler(members, priorities, clock)
        self._waits = WaitSampler(members, priorities, clock)
        self._flows = flows
        self._judgement: Judgement | None = None
        """What it knows, also for a while when it is not its turn any more."""
        self._is_my_turn = False
        self._mutes: list[Mute] = []
        self._is_alone = False
        self._entry: StandingEntry | None = None
        self._written: tuple[tuple[Alarm, ...], int] | None = None
        self._judged_ms = self._written_ms = 0
        self._counted_ms = 0
        self._rest_until_ms = 0
        self._read_ms = -READ_FOR_MS
        self._reading: asyncio.Task[StandingEntry | None] | None = None

    # -- judging -----------------------------------------------------------------------------------------------------

    async def tick(self) -> None:
        """Judge, where it is this process's turn and it has rested long enough from the last time."""
        places = self._membership.places()
        was_alone, self._is_alone = self._is_alone, not places
        if places and not self._membership.does_among(WORK, JUDGES):
            await self._leave()
            return
        now_ms = self._clock.now_ms()
        if self._is_my_turn and was_alone == self._is_alone and 0 < self._rest_until_ms - now_ms <= MOST_REST_MS:
            return
        try:
            judgement = await self._take_turn(places, was_alone, now_ms)
            if places:
                self._mutes = await alarm_entries.read_mutes(places, now_ms, self._mutes)
        except PinLaterError as error:  # that shard is about to be out
            _log.warning("alarms_not_read", error=error.message)
            return
        snapshot = await self._snapshot()
        judgement.observe(snapshot)
        self._counted_ms = snapshot.now_ms - 2 * self._membership.renew_every_ms
        if failing := judgement.failing_queues():
            snapshot = replace(snapshot, types=await self._sampler.types(failing))
        if awaited := judgement.handed_out(snapshot.latency_goals, snapshot.now_ms):
            snapshot = replace(snapshot, waits=await self._waits.sample(awaited))
        began_s = thread_time()
        judged = judgement.judge(snapshot, self._mutes)
        took_ms = (thread_time() - began_s) * 1000
        self._rest_until_ms = now_ms + min(int(took_ms / SHARE) - JUDGE_EVERY_MS // 2, MOST_REST_MS)
        for alarm in judged.ended:
            _log.info("alarm_ended", alarm=alarm.name, subject=alarm.subject, since_ms=alarm.since_ms)
        name = self._membership.me.lease_name
        self._judged_ms = snapshot.now_ms
        self._entry = StandingEntry(name, snapshot.now_ms, tuple(judged.standing), judged.more)
        self._show(self._entry)
        if places:
            await self._write(places, self._entry, judged.ended)
        self._webhooks.take(judged.standing, places)

    def _show(self, entry: StandingEntry | None) -> None:
        """As metrics. None: another process judges."""
        standing = () if entry is None else entry.alarms
        gauges = {
            ("alarms", each.name, each.severity, each.subject, each.queue): 1.0
            for each in standing
            if not each.is_muted
        }
        self._metrics.set_gauges(("alarms",), gauges)
        judged = {} if entry is None else {("alarms_judged_at_seconds",): entry.judged_at_ms / 1000}
        self._metrics.set_gauges(("alarms_judged_at_seconds",), judged)

    async def _take_turn(self, places: list[ShardHandle], was_alone: bool, now_ms: int) -> Judgement:
        """What this process knows, and what is kept of others that have judged since. PinLaterError.

        Two may judge at once, for a moment: while leases change, or where one stood still. Each goes by what the other
        one wrote, so what began keeps its beginning, and what was written late is written over.
        """
        stored = await alarm_entries.read_standing(places, now_ms) if places else self._recent(now_ms)
        is_mine = stored is not None and stored.judged_by == self._membership.me.lease_name
        if not is_mine:
            self._written = None
        is_new = not self._is_my_turn
        if self._judgement is None or (is_new and not 0 <= now_ms - self._judged_ms < REMEMBERED_MS):
            self._judgement, self._counted_ms = Judgement(), 0
        is_newer = stored is not None and not is_mine and stored.judged_at_ms > self._judged_ms
        if is_new or is_newer or (was_alone and places):
            self._judgement.resume(() if stored is None else stored.alarms, now_ms, is_new=is_new)
            alone = self._entry.alarms if was_alone and self._entry is not None else ()  # each process has sent them
            await self._webhooks.resume(places, alone)
            self._entry = stored if is_new and stored is not None else self._entry
            self._is_my_turn = True
        return self._judgement

    async def _leave(self) -> None:
        """It is the turn of another process."""
        if self._is_my_turn:
            self._is_my_turn, self._written = False, None
            self._show(None)
            await self._webhooks.forget()

    def _recent(self, now_ms: int) -> StandingEntry | None:
        """What was judged last, by whom ever, as far as this process knows, and where that still counts."""
        entry = self._entry
        return entry if entry is not None and 0 <= now_ms - entry.judged_at_ms < OLD_MS else None

    async def _write(self, places: list[ShardHandle], entry: StandingEntry, ended: list[Alarm]) -> None:
        now_ms = self._clock.now_ms()
        for alarm in ended:
            await alarm_entries.put_ended(places, alarm, now_ms)
        state = entry.alarms, entry.more
        is_known = state == self._written and 0 <= now_ms - self._written_ms < WRITE_EVERY_MS
        if not is_known and await alarm_entries.put_standing(places, entry, now_ms):
            self._written, self._written_ms = state, now_ms

    def describe(self) -> Mapping[str, Any]:
        """For the lease of this process: that it can judge, the calls that shards which are out were needed for, and
        the shards at which many calls go wrong.
        """
        refused = {each.shard.shard_id: each.refused_calls for each in self._members.all if each.refused_calls}
        slow = {each.shard.shard_id: "" for each in self._members.all if each.is_healthy and _is_slow(each)}
        problems = {REFUSED: refused, SLOW_SHARDS: slow}
        return {JUDGES: True, **{word: shards for word, shards in problems.items() if shards}}

    async def _snapshot(self) -> Snapshot:
        """Of the queues that have jobs somewhere, and all that was counted; without samples."""
        await self._stats.refresh()
        names = self._stats.published.queues()
        status = await self._cluster.status(names)
        status.counters = self._membership.counters.since(self._counted_ms, self._queues.has)
        status.shards = [each for each in status.shards if each.trouble != NOT_TRIED]
        leases = self._membership.alive()
        observed = await self._workers.observed(leases)
        refused = Counter[str]()
        for lease in leases:
            refused.update(lease.more.get(REFUSED, {}))
        settings = {name: self._queues.settings(name) for name in names}
        limits = {name: LimitSet(each.max_jobs_per_second, each.max_in_progress) for name, each in settings.items()}
        return snapshot_of(
            status,
            workers=None
            if observed is None
            else [
                WorkerSeen(each.view(include_running=False), _takes_no_more(each), each.report.job_types)
                for each in observed
                if each.lost_ms is None or status.now_ms - each.lost_ms < LOST_AFTER_MS
            ],
            queue_names=self._queues.names(),
            dead_letter_queues=frozenset(each.queue for each in self._queues.dead_letter_targets().values()),
            latency_goals={
                name: each.latency_goal_ms for name, each in settings.items() if each.latency_goal_ms is not None
            },
            limits={name: each for name, each in limits.items() if each != LimitSet()},
            refused=refused,
            gone_servers=[GoneServer(each.lease.view(), each.noticed_ms) for each in self._membership.lost()],
            lost=[ProcessCounters(each.name, each.started_ms, each.renewed_ms, _lost_of(each)) for each in leases],
            flows=FlowFacts() if self._flows is None else await self._flows.facts(),
            lost_callbacks=[
                LostCallback(str(flow_id), str(flow), str(queue), str(why), int(at_ms))
                for lease in leases
                for flow_id, flow, queue, why, at_ms in lease.more.get(LOST_CALLBACKS, ())
            ],
            tiers_away=_by_subject(leases, TIERS_AWAY),
            slow_shards={shard: list(names) for shard, names in _by_subject(leases, SLOW_SHARDS).items()},
            certificates={
                lease.server: int(lease.more[CERTIFICATE_ENDS]) for lease in leases if CERTIFICATE_ENDS in lease.more
            },
            webhook_problems=self._webhooks.problems,
            low_disks={
                lease.server: (int(free), int(total))
                for lease in leases
                for free, total in [lease.more.get(DISK_LOW, (0, 0))]
                if total
            },
            schedule_problems={
                str(name): (str(queue), str(problem))
                for lease in leases
                for name, queue, problem in lease.more.get(DESCRIBED, ())
            },
            schedule_causes={
                str(name): str(cause)
                for lease in leases
                for name, cause in lease.more.get(DESCRIBED_CAUSES, {}).items()
            },
            schedules_of_shards=frozenset(
                str(name) for lease in leases for name in lease.more.get(DESCRIBED_OF_SHARDS, ())
            ),
        )

    # -- for everybody -----------------------------------------------------------------------------------------------

    async def page(self, limit: int) -> AlarmsPage:
        """The alarms that stand, as they were judged last, by whichever process."""
        entry = await self._latest()
        if entry is None:
            return AlarmsPage(self._clock.now_ms(), is_alone=self._is_alone)
        return AlarmsPage(
            self._clock.now_ms(),
            [*entry.alarms[:limit]],
            entry.judged_by,
            entry.judged_at_ms,
            self._is_alone,
            entry.more + max(0, len(entry.alarms) - limit),
        )

    async def ended_page(self, limit: int) -> AlarmsPage:
        """The last that ended. NoHealthyShards: none can be read."""
        self._members.require_any()
        ended = await alarm_entries.read_ended(self._membership.places(), self._clock.now_ms())
        latest = await self._latest()
        page = AlarmsPage(self._clock.now_ms(), ended[:limit])
        return page if latest is None else replace(page, judged_by=latest.judged_by, judged_at_ms=latest.judged_at_ms)

    async def mute(self, mute: Mute) -> None:
        """From the next judgement on, until it ends. NoHealthyShards."""
        healthy = self._members.healthy()
        if not await alarm_entries.put_mute(healthy, mute, self._clock.now_ms()):
            raise self._members.none_left() if not healthy else NoHealthyShards("no shard took the mute")

    async def _latest(self) -> StandingEntry | None:
        if self._is_my_turn:
            return self._entry
        now_ms = self._clock.now_ms()
        if not 0 <= now_ms - self._read_ms < READ_FOR_MS:
            self._read_ms = now_ms
            reading = alarm_entries.read_standing(self._membership.places(), now_ms)
            self._reading = asyncio.get_running_loop().create_task(reading)
        if self._reading is not None:
            await asyncio.wait([self._reading], timeout=READ_WITHIN_S)
            if self._reading.done() and not self._reading.cancelled() and self._reading.exception() is None:
                self._entry = self._reading.result() or self._entry
        return self._entry

    async def close(self) -> None:
        """Wait for no answer any more."""
        await self._webhooks.close()
        if self._flows is not None:
            await self._flows.close()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)


def _is_slow(member: ShardHandle) -> bool:
    good, samples = member.health.good()
    return samples - good >= SLOW_BAD


def _by_subject(leases: Sequence[Lease], key: str) -> dict[str, dict[str, str]]:
    """What the leases say of some things under that key: by thing, and process."""
    found: dict[str, dict[str, str]] = {}
    for lease in leases:
        for subject, text in lease.more.get(key, {}).items():
            found.setdefault(str(subject), {})[lease.name] = str(text)
    return found


def _lost_of(lease: Lease) -> dict[str, tuple[int, ...]]:
    """By queue, in the order of LOST."""
    return {str(queue): tuple(numbers) for queue, numbers in lease.more.get(LOST_KEY, {}).items()}


def _takes_no_more(worker: SeenWorker) -> bool:
    """As it is meant: it stops, has stopped, or was ordered to rest."""
    report = worker.report
    return report.is_stopping or report.has_stopped or bool(report.is_quiet)
