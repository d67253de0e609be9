"""Who is alive? Every server process puts a lease on every shard it can use, and reads those of the others there.

A shard belongs to one of the processes that are ready and can use it, found by all without asking
(pinlater/rendezvous.py). Where two see different processes, both may take a shard for their own: what an owner does
can be done twice without harm. A lease counts by the clock of its store, so that no server's own clock, fast or slow,
makes others seem gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from typing import Any, NamedTuple

import structlog

from pinlater.backends.base import Note
from pinlater.clock import Clock
from pinlater.cluster.clocks import Clocks
from pinlater.cluster.counters import Counters
from pinlater.cluster.lease import Lease, ServerName, decode, encode
from pinlater.cluster.rates import Rates
from pinlater.errors import PinLaterError
from pinlater.metrics import Metrics
from pinlater.rendezvous import chosen
from pinlater.shards.member import Member
from pinlater.shards.members import Members

_log = structlog.get_logger("pinlater.cluster")
KIND = "lease"
RENEWALS = 3
"""So often a lease is renewed before it would expire."""

GIVE_UP_MS = 1_000
"""How long taking the lease away at the end may take."""


class _Seen(NamedTuple):
    lease: Lease
    expires_at_ms: int


class Leases:
    """The lease of this process, and those of all. `describe` tells what else others should know of this one."""

    def __init__(
        self,
        members: Members,
        clock: Clock,
        me: ServerName,
        lease_ms: int,
        describe: Callable[[], Mapping[str, Any]] = dict,
        *,
        metrics: Metrics | None = None,
        clocks: Clocks | None = None,
    ) -> None:
        self.me = me
        self.clocks = clocks or Clocks(members)
        self.rates = Rates()
        self._members = members
        self._clock = clock
        self._lease_ms = lease_ms
        self._describe = describe
        self._counters = Counters(metrics)
        self._seen: dict[str, dict[str, _Seen]] = {}
        self._decoded: dict[str, tuple[bytes, Lease]] = {}
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._renewed_at_ms: int | None = None
        self._draining = ""
        self._is_given_up = False
        self._mine = Lease(**me._asdict(), renewed_ms=me.started_ms, renewal=0, is_ready=False, trouble="starting")

    @property
    def renew_every_ms(self) -> int:
        return self._lease_ms // RENEWALS

    # -- who is alive ------------------------------------------------------------------------------------------------

    def alive(self) -> list[Lease]:
        """The newest lease of each process that has not expired, this process among them, by name."""
        now_ms = self._clock.now_ms()
        newest: dict[str, Lease] = {}
        for leases in self._seen.values():
            for name, (lease, expires_at_ms) in leases.items():
                if expires_at_ms > now_ms and (name not in newest or newest[name].age < lease.age):
                    newest[name] = lease
        newest.pop(self.me.note, None)
        if not self._is_given_up:
            newest[self.me.note] = self._mine
        return [newest[name] for name in sorted(newest)]

    def owner(self, shard_id: str) -> str | None:
        """The process that looks after a shard, as SERVER/PROCESS; None where none is ready and can use it."""
        able = [lease.name for lease in self.alive() if lease.is_ready and shard_id not in lease.shards_out]
        return chosen(shard_id, able)

    def is_mine(self, shard_id: str) -> bool:
        """Whether this process looks after the shard now. Never if it is not ready, or is cut off from all shards."""
        return self._may_own() and self.owner(shard_id) == self.me.note

    def _may_own(self) -> bool:
        if self._is_given_up or self.trouble() or self._renewed_at_ms is None:
            return False
        return 0 <= self._clock.now_ms() - self._renewed_at_ms < self._lease_ms

    def trouble(self) -> str:
        """Why this process is not ready; "" if it is."""
        return self._draining or self.clocks.trouble()

    # -- the lease of this process -----------------------------------------------------------------------------------

    async def renew(self) -> None:
        """Put the lease on each shard that is in, and read the others there. Raises nothing.

        Waits for no shard longer than until the next renewal; one that is late is not asked again before it answered.
        """
        if self._is_given_up:
            return
        self._mine = self._lease()
        body = encode(self._mine)
        healthy = self._members.healthy()
        for member in healthy:
            shard_id = member.shard.shard_id
            if shard_id not in self._under_way:
                self._under_way[shard_id] = asyncio.get_running_loop().create_task(self._renew_on(member, body))
        await _within(self._under_way.values(), self.renew_every_ms)
        if healthy:
            self._forget_other_shards({member.shard.shard_id for member in healthy})
        self.rates.heard(self.alive())

    def _forget_other_shards(self, shard_ids: Collection[str]) -> None:
        """What a shard that is out said is old: a process that has left since would stay until its lease ends."""
        self._seen = {shard_id: leases for shard_id, leases in self._seen.items() if shard_id in shard_ids}
        names = {name for leases in self._seen.values() for name in leases}
        self._decoded = {name: known for name, known in self._decoded.items() if name in names}

    async def drain(self, why: str = "draining") -> None:
        """From now on this process is not ready: it owns nothing, and says so at once."""
        self._draining = why
        await self.renew()

    async def give_up(self) -> None:
        """Take the lease away wherever that is possible at once, so that others need not wait. Raises nothing."""
        self._is_given_up = True
        await _within(self._under_way.values(), GIVE_UP_MS)
        late = [*self._under_way.values()]
        removing = [
            asyncio.get_running_loop().create_task(self._remove_from(member))
            for member in self._members.healthy()
            if member.shard.shard_id not in self._under_way
        ]
        await _within(removing, GIVE_UP_MS)
        for task in (*late, *removing):
            task.cancel()
        await asyncio.gather(*late, *removing, return_exceptions=True)

    def _lease(self) -> Lease:
        trouble = self.trouble()
        return Lease(
            server=self.me.server,
            process=self.me.process,
            address=self.me.address,
            started_ms=self.me.started_ms,
            renewed_ms=self._clock.now_ms(),
            renewal=self._mine.renewal + 1,
            is_ready=not trouble,
            trouble=trouble,
            maintains=self._maintained(),
            shards_out=tuple(
                sorted(filter(None, (each.shard.shard_id for each in self._members.all if not each.is_in)))
            ),
            counters=self._counters.read(),
            more=dict(self._describe()),
        )

    def _maintained(self) -> tuple[str, ...]:
        if not self._may_own():
            return ()
        ids = _ids(member for member in self._members.healthy() if self.is_mine(member.shard.shard_id))
        if ids != self._mine.maintains:
            _log.info("shards_maintained", shards=list(ids), before=list(self._mine.maintains))
        return ids

    # -- one shard ---------------------------------------------------------------------------------------------------

    async def _renew_on(self, member: Member, body: bytes) -> None:
        now_ms = self._store_now_ms(member)
        expires_at_ms = now_ms + self._lease_ms

        async def exchange() -> None:
            shard = member.shard
            await member.call(shard.put_note(KIND, self.me.note, body, expires_at_ms, now_ms))
            self._heard(member, await member.call(shard.notes(KIND, now_ms)))

        try:
            await self._quietly("lease_not_renewed", member, exchange())
        finally:
            del self._under_way[member.shard.shard_id]

    def _heard(self, member: Member, notes: Mapping[str, Note]) -> None:
        leases: dict[str, _Seen] = {}
        for name, note in notes.items():
            lease = self._read(name, note.body)
            if lease is not None:
                leases[name] = _Seen(lease, note.expires_at_ms - member.skew_ms)
        self._seen[member.shard.shard_id] = leases
        self._renewed_at_ms = self._clock.now_ms()

    def _read(self, name: str, body: bytes) -> Lease | None:
        """The lease of a note; one that was put on several shards is decoded once."""
        before = self._decoded.get(name)
        if before is not None and before[0] == body:
            return before[1]
        try:
            lease = decode(body)
        except ValueError:
            _log.warning("lease_not_understood", name=name)
            return None
        self._decoded[name] = (body, lease)
        return lease

    async def _remove_from(self, member: Member) -> None:
        removal = member.shard.put_note(KIND, self.me.note, b"", 0, self._store_now_ms(member))
        await self._quietly("lease_not_removed", member, member.call(removal))

    def _store_now_ms(self, member: Member) -> int:
        return self._clock.now_ms() + member.skew_ms

    async def _quietly(self, event: str, member: Member, work: Coroutine[Any, Any, object]) -> None:
        try:
            await work
        except PinLaterError as error:
            _log.warning(event, shard=member.shard.shard_id, error=error.message)
        except Exception:
            _log.exception(event, shard=member.shard.shard_id)


def _ids(members: Iterable[Member]) -> tuple[str, ...]:
    return tuple(sorted(member.shard.shard_id for member in members if member.shard.shard_id))


async def _within(tasks: Iterable[asyncio.Task[None]], ms: int) -> None:
    """Wait for all of them, but no longer than that."""
    waiting = [*tasks]
    if waiting:
        await asyncio.wait(waiting, timeout=ms / 1000)
