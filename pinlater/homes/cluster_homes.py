"""The homes of keys as one process of a cluster knows them, and how they begin and change.

The record is a config entry, which comes to all shards by itself. A store that knows a newer version than a keyed call
names refuses the call. So, when the members are to be others:

    opening    written to every member there was before: nobody stores a key any more whose home is another one now
    open       written when all of them have it: such keys are stored at their new homes

Only one process writes a successor of a record: it holds a lock on more than half of the members (those before, while
it is opening), and has read there that this record is the newest. A successor is written to more than half of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import structlog

from pinlater.backends.base import ConfigEntry
from pinlater.clock import Clock
from pinlater.cluster.lease import GROUP_LIMITS, GROUPS, KEYS, REPLACE_RULES, TAGS
from pinlater.errors import (
    GroupsNotYet,
    HomeMoving,
    HomeOut,
    KeysNotYet,
    NothingStored,
    PinLaterError,
    ReplaceRulesNotYet,
    TagsNotYet,
)
from pinlater.model import ExtendedJob, ScheduleChange, new_version
from pinlater.queues.replication import ConfigReplicator
from pinlater.shards.handle import ShardHandle
from pinlater.shards.keys.homes_record import HOMES, HomesRecord, HomeTable, parse_record
from pinlater.shards.shard_set import ShardSet

_log = structlog.get_logger("pinlater.homes")

LOCK_KIND, LOCK_NAME = "homes", "change"
LOCK_MS = 16_000
"""How long a lock stands that nobody frees."""

WRITE_WITHIN_S = 5.0
"""A holder begins no write later than so long after it asked for the lock; the rest is for the call itself."""

BEGIN_TRIES, BEGIN_PAUSE_S = 20, 0.05
"""Of making the first record, while another process does the same."""

CHECKED_FOR_MS = 1_000
_SHOWN = 5


class ClusterHomes:
    """Satisfies shards.keys.key_router.Homes. `unaware_of`: the live processes that lack one of `lease.KNOWS`."""

    def __init__(
        self,
        members: ShardSet,
        entries: ConfigReplicator,
        clock: Clock,
        unaware_of: Callable[[str], Sequence[str]],
    ) -> None:
        self._members = members
        self._entries = entries
        self._clock = clock
        self._unaware_of = unaware_of
        self._entry: ConfigEntry | None = None
        self._table: HomeTable | None = None
        self._checked_ms: dict[str, int] = {}
        self._turn = asyncio.Lock()

    # -- what is known -----------------------------------------------------------------------------------------------

    @property
    def table(self) -> HomeTable | None:
        entry = self._entries.latest.get(HOMES)
        if entry is not self._entry and entry is not None:
            try:
                self._table = HomeTable(parse_record(entry.text), entry.version)
            except ValueError as error:  # a newer version of this program wrote it
                _log.error("homes_not_understood", version=entry.version, error=str(error))
            self._entry = entry
        return self._table

    def check(self) -> None:
        self._check(KEYS, "keys", KeysNotYet)

    def check_jobs(self, jobs: Sequence[ExtendedJob | ScheduleChange]) -> None:
        if any(job.tags for job in jobs):
            self._check(TAGS, "tags", TagsNotYet)
        if any(job.group for job in jobs):
            self.check_groups()

    def check_groups(self) -> None:
        self._check(GROUPS, "groups", GroupsNotYet)

    def check_group_limits(self) -> None:
        self._check(GROUP_LIMITS, "limits of groups", GroupsNotYet)

    def check_replace_rules(self) -> None:
        self._check(REPLACE_RULES, "replaceRunning or replaceWithinMillis", ReplaceRulesNotYet)

    def _check(self, feature: str, what: str, error: type[NothingStored]) -> None:
        now_ms, checked_ms = self._clock.now_ms(), self._checked_ms.get(feature)
        if checked_ms is not None and 0 <= now_ms - checked_ms < CHECKED_FOR_MS:
            return
        unaware = self._unaware_of(feature)
        if unaware:
            some = ", ".join(unaware[:_SHOWN])
            raise error(
                f"servers of an earlier version are running, which do not know {what}: {some}; jobs with {what} "
                "are taken when all are of this version",
                retry_after_ms=1_000,
            )
        self._checked_ms[feature] = now_ms

    async def catch_up(self, handle: ShardHandle) -> None:
        try:
            await self._entries.read(handle)
            await self._entries.push(handle)
        except PinLaterError as error:
            _log.debug("homes_not_read", shard=handle.shard.shard_id, error=error.message)

    def usable(self, ids: Sequence[str]) -> list[ShardHandle]:
        """Those that are in."""
        found = [self._members.by_id(shard_id) for shard_id in ids]
        return [handle for handle in found if handle is not None and handle.is_healthy]

    def unusable(self, ids: Sequence[str]) -> list[str]:
        """Those that are not in, and why, as texts."""
        reasons = []
        for shard_id in ids:
            handle = self._members.by_id(shard_id)
            if handle is None:
                reasons.append(f"shard {shard_id} is not in the configuration of this server")
            elif not handle.is_healthy:
                reasons.append(f"shard {shard_id} cannot be used now: {handle.last_error or 'no answer'}")
        return reasons

    def has(self, shard_id: str) -> bool:
        """Whether the shard is known to have the newest record."""
        handle = self._members.by_id(shard_id)
        entry = self._entries.latest.get(HOMES)
        return handle is not None and entry is not None and self._entries.version_at(handle, HOMES) == entry.version

    # -- the first record --------------------------------------------------------------------------------------------

    async def begin(self) -> HomeTable:
        async with self._turn:
            for _ in range(BEGIN_TRIES):
                if self.table is None:
                    await self._entries.read_all()
                if self.table is not None:
                    return self.table
                await self._make_first()
                if self.table is None:
                    await asyncio.sleep(BEGIN_PAUSE_S)
        raise HomeMoving("another server is just deciding where keys live: send it again", retry_after_ms=100)

    async def _make_first(self) -> None:
        """HomeOut: too few shards can be used to decide it."""
        able = [handle for handle in self._members.all if handle.may_be_home] or self._members.all
        usable = [handle for handle in able if handle.is_healthy]
        if 2 * len(usable) <= len(able):
            raise HomeOut(
                f"no job with a key was enqueued before, and only {len(usable)} of {len(able)} shards can be used: "
                "more than half of them are needed to decide where keys live",
                retry_after_ms=1_000,
            )
        ids = tuple(sorted(handle.shard.shard_id for handle in usable))
        async with self._locked(ids) as locked:
            if len(locked) < len(ids) or self._entries.latest.get(HOMES) is not None:
                return
            await self._put(HomesRecord(ids), usable, wanted=len(usable))
            _log.info("homes_begun", members=list(ids))

    # -- its successors ----------------------------------------------------------------------------------------------

    async def replace(
        self, table: HomeTable, record: HomesRecord, electorate: Sequence[str], *, all_of: Sequence[str] = ()
    ) -> bool:
        """Write the successor of a record; `electorate`: the shards that decide, without those that are gone; `all_of`:
        those that must all take it. False: not now, or not any more.

        PinLaterError: it may have come to some shards, and so to all, or to none.
        """
        async with self._turn, self._locked(electorate) as locked:
            newest = self._entries.latest.get(HOMES)
            if 2 * len(locked) <= len(electorate) or newest is None or newest.version != table.version:
                return False
            others = [handle for handle in self.usable(all_of) if handle not in locked]
            await self._put(record, [*locked, *others], wanted=len(all_of) or len(electorate) // 2 + 1)
            return True

    async def _put(self, record: HomesRecord, handles: Sequence[ShardHandle], *, wanted: int) -> None:
        known = self._entries.latest.get(HOMES)
        version = new_version(self._clock.now_ms(), known.version if known else "")
        entry = ConfigEntry(HOMES, version, record.text())
        outcomes = await asyncio.gather(
            *[self._entries.put_on(handle, [entry]) for handle in handles], return_exceptions=True
        )
        failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        taken = sum(outcome == [True] for outcome in outcomes)
        if taken:
            self._entries.merge([entry])
            await self._entries.push_all()
        if taken < wanted:
            why = "; ".join(str(failure) for failure in failures) or "another server was faster"
            raise NothingStored(f"a new record of homes came to {taken} of {wanted} shards: {why}")

    # -- the lock ----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _locked(self, ids: Sequence[str]) -> AsyncIterator[list[ShardHandle]]:
        """The shards that this process holds the lock on and has just read, none where it took too long."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        held: list[tuple[ShardHandle, int]] = []
        try:
            for handle in self.usable(sorted(ids)):
                version = await self._lock(handle)
                if version:
                    held.append((handle, version))
            read = [handle for handle, _ in held if await self._read(handle)]
            yield read if loop.time() - began_s < WRITE_WITHIN_S else []
        finally:
            for handle, version in held:
                await self._unlock(handle, version)

    async def _lock(self, handle: ShardHandle) -> int:
        now_ms = self._clock.now_ms() + handle.skew_ms
        try:
            return await handle.shard.kv_put(LOCK_KIND, LOCK_NAME, b"", now_ms + LOCK_MS, now_ms, expected_version=0)
        except PinLaterError:
            return 0

    async def _unlock(self, handle: ShardHandle, version: int) -> None:
        now_ms = self._clock.now_ms() + handle.skew_ms
        try:
            await handle.shard.kv_put(LOCK_KIND, LOCK_NAME, b"", 0, now_ms, expected_version=version)
        except PinLaterError as error:
            _log.warning("homes_lock_not_freed", shard=handle.shard.shard_id, ends_in_ms=LOCK_MS, error=error.message)

    async def _read(self, handle: ShardHandle) -> bool:
        try:
            await self._entries.read(handle)
        except PinLaterError:
            return False
        return True
