"""The change of homes when shards come or go: its owner, its steps, and what holds it up."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from pinlater.clock import Clock
from pinlater.cluster.lease import Lease
from pinlater.cluster.membership import Membership
from pinlater.errors import PinLaterError
from pinlater.homes.cluster_homes import LOCK_MS, ClusterHomes
from pinlater.queues.directory import QueueDirectory
from pinlater.shards.keys.homes_record import HOMES, HomesRecord, HomeTable, home_of
from pinlater.shards.keys.homes_record import Membership as ShardIds
from pinlater.shards.rendezvous import rendezvous_pick
from pinlater.shards.shard_set import ShardSet

_log = structlog.get_logger("pinlater.homes")

LOOK_EVERY_MS = 1_000
LEFT_EVERY_MS = 5_000
"""How often it is seen whether keys still live at their former homes."""

COUNTED_BARRIERS = 1_000
DEQUEUE_ONLY = "dequeue_only_shards"
"""In a lease: the shards that the process is told to store no new jobs on."""

SAID = "homes"
"""In a lease: what the process knows of the homes of keys, where it looks after them."""


@dataclass(slots=True)
class _Left:
    """What is left of a change: slots whose keys still live at a former home, and barriers, by shard; and the shards
    that are no homes any more, but have windows yet.
    """

    slots: dict[str, int] = field(default_factory=dict)
    barriers: dict[str, int] = field(default_factory=dict)
    windows: list[str] = field(default_factory=list)


class HomesChange:
    """Looks once a second; acts where this process is the one to."""

    def __init__(
        self, members: ShardSet, queues: QueueDirectory, membership: Membership, homes: ClusterHomes, clock: Clock
    ) -> None:
        self._members = members
        self._queues = queues
        self._membership = membership
        self._homes = homes
        self._clock = clock
        self.blocked = ""
        """Why a change that is due is not made, or not ended."""
        self._left = _Left()
        self._counted_ms: int | None = None

    def describe(self) -> Mapping[str, Any]:
        """For the lease of this process."""
        closed = sorted(each.shard.shard_id for each in self._members.all if each.dequeue_only)
        described: dict[str, Any] = {DEQUEUE_ONLY: closed} if closed else {}
        left = self._left
        if self.blocked or left.slots or left.barriers or left.windows:
            described[SAID] = {
                "blocked": self.blocked,
                "slots": left.slots,
                "barriers": left.barriers,
                "windows": left.windows,
            }
        return described

    async def look(self) -> None:
        """One step, where there is one to take. Raises nothing."""
        table = self._homes.table
        if table is None or not self._is_elected(table.record):
            self.blocked, self._left = "", _Left()
            return
        try:
            why = await self._step(table)
        except PinLaterError as error:
            why = error.message
        if why and why != self.blocked:
            _log.warning("homes_change_blocked", why=why, hint="see docs/operations.md")
        self.blocked = why

    def _is_elected(self, record: HomesRecord) -> bool:
        """One of the ready processes, of those which can use most of the shards that decide."""
        needed = set(record.before[0] if record.is_opening else record.members)
        ready = [lease for lease in self._membership.alive() if lease.is_ready]
        most = max((len(needed & set(lease.shards_in)) for lease in ready), default=0)
        able = [lease.name for lease in ready if len(needed & set(lease.shards_in)) == most]
        return rendezvous_pick(HOMES, able) == self._membership.me.lease_name

    async def _step(self, table: HomeTable) -> str:
        """Why it cannot be taken; "" where it was, or there is none."""
        leases = [lease for lease in self._membership.alive() if lease.is_ready]
        record = table.record
        gone = self._gone(record, leases)
        if record.is_opening:
            return await self._open(table, gone)
        if why := self._unconfigured(record, leases, gone):
            return why
        wanted = self._wanted(record, leases)
        if wanted != record.members:
            return await self._begin_change(table, wanted, gone)
        await self._look_at_what_is_left(table, gone)
        return ""

    # -- who should be a member --------------------------------------------------------------------------------------

    def _gone(self, record: HomesRecord, leases: list[Lease]) -> ShardIds:
        """Of all that the record names: those given up, and those where no key lives any more but what ended, and that
        no live process is configured with.
        """
        given_up, configured = self._queues.given_up_shards(), self._configured(leases)
        homes = {*record.members, *(record.before[0] if record.is_opening else ())}
        named = homes.union(*record.before)
        return tuple(sorted(each for each in named if each in given_up or each not in homes | configured))

    def _configured(self, leases: list[Lease]) -> set[str]:
        """By any live process."""
        configured = {shard_id for lease in leases for shard_id in (*lease.shards_in, *lease.shards_out)}
        return configured | {member.shard.shard_id for member in self._members.all}

    def _unconfigured(self, record: HomesRecord, leases: list[Lease], gone: ShardIds) -> str:
        """Why nothing changes while a home is in no file: it may be back, with jobs of its keys. "": all are there."""
        configured = self._configured(leases)
        lost = ", ".join(each for each in record.members if each not in configured and each not in gone)
        if not lost:
            return ""
        return (
            f"shard {lost} is in no server's configuration, but keys live there, which are refused now; put it back, "
            "and drain it before it is taken out, or give it up: `pinlater shard give-up ID`"
        )

    def _wanted(self, record: HomesRecord, leases: list[Lease]) -> ShardIds:
        """Without those that take no new jobs or are gone; with those that every process can use. Never none."""
        closed = {str(shard_id) for lease in leases for shard_id in lease.more.get(DEQUEUE_ONLY, ())}
        closed |= {member.shard.shard_id for member in self._members.all if not member.may_be_home}
        closed |= set(self._gone(record, leases))
        stay = [shard_id for shard_id in record.members if shard_id not in closed]
        new = [
            member.shard.shard_id
            for member in self._members.healthy()
            if member.shard.shard_id not in (*stay, *closed)
            and all(member.shard.shard_id in lease.shards_in for lease in leases)
        ]
        return tuple(sorted([*stay, *new])) or record.members

    # -- the two steps of a change -----------------------------------------------------------------------------------

    async def _begin_change(self, table: HomeTable, wanted: ShardIds, gone: ShardIds) -> str:
        """Only where all members before can take it now: else keys that move would be refused all the while."""
        record = table.record
        needed = [shard_id for shard_id in record.members if shard_id not in gone]
        if out := self._homes.unusable(needed):
            return (
                f"keys are to live on shards {', '.join(wanted)}; all where they live now must know: {'; '.join(out)}"
            )
        before = (record.members, *(each for each in record.before if each not in (record.members, wanted)))
        opening = HomesRecord(wanted, before, is_opening=bool(needed), gone=gone)
        if not needed:  # nothing can be stored there: nobody has to know
            await self._homes.replace(table, opening, wanted)
            _log.warning("homes_lost", members=list(wanted), gone=list(gone))
        elif await self._homes.replace(table, opening, needed, all_of=needed):
            _log.info("homes_opening", members=list(wanted), before=list(record.members), gone=list(gone))
            newer = self._homes.table
            return "" if newer is None or not newer.record.is_opening else await self._open(newer, gone)
        else:
            return self._why_not_replaced(table)
        return ""

    async def _open(self, table: HomeTable, gone: ShardIds) -> str:
        record = table.record
        needed = [shard_id for shard_id in record.before[0] if shard_id not in gone]
        for handle in self._homes.usable(needed):
            await self._homes.catch_up(handle)
        if lacking := [shard_id for shard_id in needed if not self._homes.has(shard_id)]:
            out = "; ".join(self._homes.unusable(lacking)) or "they were not reached yet"
            return f"keys that move wait until shards {', '.join(lacking)} took note: {out}"
        opened = replace(record, is_opening=False, gone=tuple(each for each in gone if each not in record.members))
        if await self._homes.replace(table, opened, needed or record.members):
            _log.info("homes_opened", members=list(record.members), before=list(record.before[0]), gone=list(gone))
            return ""
        return self._why_not_replaced(table)

    def _why_not_replaced(self, table: HomeTable) -> str:
        newer = self._homes.table
        if newer is not None and newer.version != table.version:
            return ""  # another process did it
        return (
            "another process is changing the homes of keys, or ended while it did: its lock ends within "
            f"{LOCK_MS // 1000} s"
        )

    # -- what is left of changes before ------------------------------------------------------------------------------

    async def _look_at_what_is_left(self, table: HomeTable, gone: ShardIds) -> None:
        """Forget memberships by which no key lives any more, and what is gone."""
        record = table.record
        gone = tuple(each for each in gone if each not in record.members)
        now_ms = self._clock.now_ms()
        if not record.before:
            self._left = _Left()
        if record.gone == gone and (
            not record.before or (self._counted_ms is not None and 0 <= now_ms - self._counted_ms < LEFT_EVERY_MS)
        ):
            return
        self._counted_ms = now_ms
        slots = await self._slots_of([*dict.fromkeys(each for members in record.before for each in members)], gone)
        before = tuple(members for members in record.before if self._is_needed(members, slots, record, gone))
        self._left = _Left(
            {
                shard_id: left
                for shard_id, found in slots.items()
                if found is not None and (left := sum(table.places(slot).home != shard_id for slot in found))
            },
            await self._barriers(),
            [shard_id for shard_id in slots if shard_id not in record.members and await self._has_windows(shard_id)],
        )
        if before != record.before or gone != record.gone:
            electorate = [each for each in record.members if each not in gone]
            if await self._homes.replace(table, replace(record, before=before, gone=gone), electorate):
                _log.info("homes_settled", members=list(record.members), before=[list(each) for each in before])

    async def _slots_of(self, ids: list[str], gone: ShardIds) -> dict[str, set[int] | None]:
        """The slots of the keys on each shard; None: it cannot be told now."""
        found: dict[str, set[int] | None] = dict.fromkeys((each for each in ids if each not in gone), None)
        for handle in self._homes.usable(list(found)):
            try:
                found[handle.shard.shard_id] = set(await handle.shard.key_slots())
            except PinLaterError as error:
                _log.info("key_slots_not_read", shard=handle.shard.shard_id, error=error.message)
        return found

    @staticmethod
    def _is_needed(
        members: ShardIds, slots: Mapping[str, set[int] | None], record: HomesRecord, gone: ShardIds
    ) -> bool:
        """Whether a key may live by it that lives elsewhere now."""
        for shard_id in members:
            if shard_id in gone:
                continue
            found = slots.get(shard_id)
            if found is None:
                return True
            if any(home_of(slot, members) == shard_id != home_of(slot, record.members) for slot in found):
                return True
        return False

    async def _has_windows(self, shard_id: str) -> bool:
        """Also where it cannot be told."""
        for handle in self._homes.usable([shard_id]):
            try:
                return bool(await handle.shard.list_windows(1, "", self._clock.now_ms()))
            except PinLaterError:
                break
        return True

    async def _barriers(self) -> dict[str, int]:
        handles = self._members.healthy()
        requests = [handle.shard.list_barriers(COUNTED_BARRIERS) for handle in handles]
        answers = await asyncio.gather(*requests, return_exceptions=True)
        return {
            handle.shard.shard_id: len(answer)
            for handle, answer in zip(handles, answers, strict=True)
            if not isinstance(answer, BaseException) and answer
        }
