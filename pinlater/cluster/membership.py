"""Membership of the cluster: every server process puts a lease on some shards, the same ones as the others, and reads
theirs there.

A lease on every shard would be read by every process from every shard, and name every shard: its cost would grow with
the third power of a cluster. So leases have PLACES: the first shards that the process can use, in an order that is the
same for all. Two processes know each other as long as they share one place; where that is so of none, each reaches
PLACES shards that the other one does not.

A shard is owned by one of the processes that are ready and can use it, found by all without asking
(shards/rendezvous.py). Where two see different processes, both may take a shard for their own: what an owner does
can be done twice without harm. A lease counts by the clock of its store, so that no server's own clock, fast or slow,
makes others seem gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, NamedTuple

import structlog

from pinlater.clock import Clock
from pinlater.cluster.clocks import ClusterClock
from pinlater.cluster.lease import (
    DRAINING,
    KNOWS,
    Lease,
    LeaseTable,
    LostLease,
    LostLeases,
    ServerName,
    ShardOwners,
    encode,
)
from pinlater.cluster.throughput import LOST_KEY, CounterBook, QueueCounters, Throughput
from pinlater.errors import PinLaterError
from pinlater.metrics import Metrics
from pinlater.shards.handle import ShardHandle
from pinlater.shards.rendezvous import rendezvous_pick, score
from pinlater.shards.shard_set import ShardSet

_log = structlog.get_logger("pinlater.cluster")
KIND = "lease"
PLACES = 8
"""So many shards have the leases of a process; all of them where there are no more."""

RENEWALS = 3
"""So often a lease is renewed before it would expire."""

GIVE_UP_MS = 1_000
"""How long one step of leaving may wait for the shards."""

LOOK_MS = 1_000
"""How long a look at the leases may wait for the shards."""

LOOK_EVERY_S = 0.1
"""Two looks at the leases begin no closer to each other: anybody can name a shard that nobody has."""


class _Looks(NamedTuple):
    """How many looks at the leases have begun; when the next one may; and of the last one, whether it is over, and
    whether there was a place, and each answered.
    """

    begun: int = 0
    next_s: float = 0.0
    is_over: bool = False
    is_complete: bool = False


class Membership:
    """The lease of this process, and those of all. `describe` tells what else others should know of this one.

    `clock` is the one by which the skews of the stores' clocks are measured; what the leases tell of the clocks of
    other servers is judged by `clocks`.
    """

    def __init__(
        self,
        members: ShardSet,
        clock: Clock,
        me: ServerName,
        lease_ms: int,
        describe: Callable[[], Mapping[str, Any]] = dict,
        *,
        metrics: Metrics | None = None,
        clocks: ClusterClock | None = None,
    ) -> None:
        self.me = me
        self.clocks = clocks or ClusterClock()
        self.rates = Throughput()
        self.counters = CounterBook()
        self._members = members
        self._clock = clock
        self._lease_ms = lease_ms
        self._describe = describe
        self._counters = QueueCounters(metrics)
        self._table = LeaseTable()
        self._owners = ShardOwners()
        self._lost = LostLeases()
        self._alive: list[Lease] = []
        self._places: list[ShardHandle] = []
        self._places_of: list[ShardHandle] | None = None
        self._alive_of: object = None
        self._alive_with: object = None
        """From which leases the list was made."""
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._renewed = (0, 0)
        """The last renewal that a shard took, and when it began."""
        self._draining = ""
        self._is_given_up = False
        self._looking = asyncio.Lock()
        self._looks = _Looks()
        self._mine = Lease(**me._asdict(), renewed_ms=me.started_ms, renewal=0, is_ready=False, trouble="starting")

    @property
    def renew_every_ms(self) -> int:
        return self._lease_ms // RENEWALS

    # -- who is alive ------------------------------------------------------------------------------------------------

    def alive(self) -> list[Lease]:
        """The newest lease of each process that has not expired, this process among them, by name. The list is kept
        from one change to the next: not to be changed.
        """
        newest = self._table.newest(self._clock.now_ms())
        if self._alive_of is not newest or self._alive_with is not self._mine:
            all_of_them = {**newest, self.me.lease_name: self._mine}
            if self._is_given_up:
                del all_of_them[self.me.lease_name]
            self._alive = [all_of_them[name] for name in sorted(all_of_them)]
            self._owners.update(self._alive)
            self._alive_of, self._alive_with = newest, self._mine
        return self._alive

    def lost(self) -> list[LostLease]:
        """The processes whose lease ran out in the last hour, and that have none in their place, by name. What one
        process never saw, or could not read in time, is not among them.
        """
        return self._lost.all()

    def up_since_ms(self) -> int:
        """When the oldest of the live processes began."""
        return min((lease.started_ms for lease in self.alive()), default=self.me.started_ms)

    def unaware_of(self, feature: str) -> list[str]:
        """The live processes of others whose version does not know one of `lease.KNOWS`, as SERVER/PROCESS."""
        others = (lease for lease in self.alive() if lease.name != self.me.lease_name)
        return [lease.name for lease in others if feature not in lease.knows]

    def lacking_tier(self, tier: str) -> list[str]:
        """The live processes of others that do not have a tier of bodies, as SERVER/PROCESS."""
        others = (lease for lease in self.alive() if lease.name != self.me.lease_name)
        return [lease.name for lease in others if tier not in lease.tiers]

    def does(self, work: str) -> bool:
        """Whether this process, of all that are ready, is the one for a piece of work that one is to do."""
        able = [lease.name for lease in self.alive() if lease.is_ready]
        return self._may_own() and rendezvous_pick(work, able) == self.me.lease_name

    def others(self) -> list[Lease]:
        """The live processes of other servers."""
        return [lease for lease in self.alive() if lease.server != self.me.server]

    async def others_may_use(self, shard_id: str) -> bool:
        """Whether a process is configured with a shard, so that jobs may be there: also one whose lease ran out, or was
        put a moment ago, since a process does that before it serves. True also where that cannot be told now.
        """
        return self._is_listed(shard_id) or not await self._look_anew() or self._is_listed(shard_id)

    def _is_listed(self, shard_id: str) -> bool:
        leases = (*self.alive(), *(each.lease for each in self.lost()))
        return any(shard_id in lease.shards_in or shard_id in lease.shards_out for lease in leases)

    async def _look_anew(self) -> bool:
        """Look at the leases, once for all who wait for that; whether there is a place, and each answered."""
        begun = self._looks.begun
        loop = asyncio.get_running_loop()
        async with self._looking:
            if self._looks.begun == begun or not self._looks.is_over:  # else one has begun and ended since
                await asyncio.sleep(self._looks.next_s - loop.time())
                self._looks = _Looks(self._looks.begun + 1, loop.time() + LOOK_EVERY_S)
                looking = [loop.create_task(self._look_on(member)) for member in self.places()]
                try:
                    await _within(looking, LOOK_MS)
                finally:
                    for task in looking:
                        task.cancel()
                answered = await asyncio.gather(*looking, return_exceptions=True)
                self._looks = self._looks._replace(is_over=True, is_complete={*answered} == {True})
            return self._looks.is_complete

    def owner(self, shard_id: str) -> str | None:
        """The process that owns a shard, as SERVER/PROCESS; None where none is ready and can use it."""
        self.alive()
        return self._owners.of(shard_id)

    def owns(self, shard_id: str) -> bool:
        """Whether this process owns the shard now. Never if it is not ready, or is cut off from all shards."""
        return self._may_own() and self.owner(shard_id) == self.me.lease_name

    def does_among(self, work: str, word: str) -> bool:
        """Whether this process is the one for a piece of work, of those that are ready and whose lease says that word:
        one of those that can use the most shards, whichever it is. Earlier versions may not know the work.
        """
        able = [lease for lease in self.alive() if lease.is_ready and lease.more.get(word)]
        most = max((len(lease.shards_in) for lease in able), default=0)
        names = [lease.name for lease in able if len(lease.shards_in) == most]
        return self._may_own() and rendezvous_pick(work, names) == self.me.lease_name

    def _may_own(self) -> bool:
        renewal, at_ms = self._renewed
        is_fresh = renewal > 0 and 0 <= self._clock.now_ms() - at_ms < self._lease_ms
        return is_fresh and not self._is_given_up and not self.unready_reason()

    def unready_reason(self) -> str:
        """Why this process is not ready; "" if it is. A wrong clock is no reason: it serves, by the time of others."""
        return self._draining

    def judge_clocks(self) -> None:
        """What time it is, by all that is known now."""
        self.clocks.judge(self._members.all, self.alive(), self.me.server)

    # -- the lease of this process -----------------------------------------------------------------------------------

    def places(self) -> list[ShardHandle]:
        """The shards that have the leases now."""
        healthy = self._members.healthy()
        if self._places_of is not healthy:
            ranked = sorted(healthy, key=lambda each: score(KIND, each.shard.shard_id))
            self._places, self._places_of = ranked[:PLACES], healthy
        return self._places

    async def renew(self) -> None:
        """Put the lease on its places, and read the others there. Raises nothing.

        Waits for no shard longer than until the next renewal; one that is late is not asked again before it answered.
        """
        if self._is_given_up:
            return
        self.judge_clocks()
        self._mine = self._lease()
        body = encode(self._mine)
        places = self.places()
        for member in places:
            shard_id = member.shard.shard_id
            if shard_id not in self._under_way:
                self._under_way[shard_id] = asyncio.get_running_loop().create_task(self._renew_on(member, body))
        await _within(self._under_way.values(), self.renew_every_ms)
        if places:
            self._table.keep_only({member.shard.shard_id for member in places})
        if self._renewed[0] == self._mine.renewal:
            self._lost.update(self.alive(), self._table.until_ms(), self._clock.now_ms())
        self.rates.update(self.alive())
        self.counters.update(self.alive(), self.clocks.now_ms())
        self.judge_clocks()

    async def drain(self, why: str = DRAINING) -> None:
        """From now on this process is not ready: it owns nothing, and says so at once."""
        self._draining = why
        await _within(self._under_way.values(), GIVE_UP_MS)
        await self.renew()

    async def give_up(self) -> None:
        """Take the lease away wherever that is possible at once, so that others need not wait. Raises nothing."""
        self._is_given_up, self._alive_of = True, None
        await _within(self._under_way.values(), GIVE_UP_MS)
        late = [*self._under_way.values()]
        removing = [
            asyncio.get_running_loop().create_task(self._remove_from(member))
            for member in self.places()
            if member.shard.shard_id not in self._under_way
        ]
        await _within(removing, GIVE_UP_MS)
        for task in (*late, *removing):
            task.cancel()
        await asyncio.gather(*late, *removing, return_exceptions=True)

    def _lease(self) -> Lease:
        reason = self.unready_reason()
        counters = self._counters.read()
        lost = {LOST_KEY: self._counters.lost} if self._counters.lost else {}
        return Lease(
            server=self.me.server,
            process=self.me.process,
            address=self.me.address,
            started_ms=self.me.started_ms,
            renewed_ms=self.clocks.now_ms(),
            renewal=self._mine.renewal + 1,
            is_ready=not reason,
            trouble=reason or self.clocks.warning(),
            maintains=self._owned(),
            shards_in=_ids(self._members.healthy()),
            shards_out=_ids(member for member in self._members.all if not member.is_healthy),
            shards_full=_ids(self._members.full()),
            counters=counters,
            more={**self._describe(), **self.clocks.describe(self.places()), **lost, "knows": KNOWS},
        )

    def _owned(self) -> tuple[str, ...]:
        ids = _ids(member for member in self._members.healthy() if self.owns(member.shard.shard_id))
        if ids != self._mine.maintains:
            _log.info("shards_maintained", shards=list(ids), before=list(self._mine.maintains))
        return ids

    # -- one shard ---------------------------------------------------------------------------------------------------

    async def _renew_on(self, member: ShardHandle, body: bytes) -> None:
        began = self._mine.renewal, self._clock.now_ms()
        now_ms = began[1] + member.skew_ms

        async def exchange() -> None:
            shard = member.shard
            await shard.kv_put(KIND, self.me.lease_name, body, now_ms + self._lease_ms, now_ms)
            self._table.take(shard.shard_id, await shard.kv_list(KIND, now_ms), member.skew_ms)
            self._renewed = max(self._renewed, began)

        try:
            await self._quietly("lease_not_renewed", member, exchange())
        finally:
            del self._under_way[member.shard.shard_id]

    async def _look_on(self, member: ShardHandle) -> bool:
        """Read the leases on one shard; whether it answered."""
        try:
            entries = await member.shard.kv_list(KIND, self._clock.now_ms() + member.skew_ms)
        except PinLaterError:
            return False
        self._table.take(member.shard.shard_id, entries, member.skew_ms)
        return True

    async def _remove_from(self, member: ShardHandle) -> None:
        now_ms = self._clock.now_ms() + member.skew_ms
        removal = member.shard.kv_put(KIND, self.me.lease_name, b"", 0, now_ms)
        await self._quietly("lease_not_removed", member, removal)

    async def _quietly(self, event: str, member: ShardHandle, work: Coroutine[Any, Any, object]) -> None:
        try:
            await work
        except PinLaterError as error:
            _log.warning(event, shard=member.shard.shard_id, error=error.message)
        except Exception:
            _log.exception(event, shard=member.shard.shard_id)


def _ids(members: Iterable[ShardHandle]) -> tuple[str, ...]:
    return tuple(sorted(member.shard.shard_id for member in members if member.shard.shard_id))


async def _within(tasks: Iterable[asyncio.Task[Any]], ms: int) -> None:
    """Wait for all of them, but no longer than that."""
    waiting = [*tasks]
    if waiting:
        await asyncio.wait(waiting, timeout=ms / 1000)
