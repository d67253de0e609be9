"""Replication of the configuration entries over all shards.

What every shard has is read, the highest version of each name counts, and it is put on the shards that are behind. A
shard that does not answer delays nobody.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import structlog

from pinlater.backends.base import ConfigEntry
from pinlater.background_tasks import BackgroundTasks
from pinlater.clock import Clock
from pinlater.errors import PinLaterError
from pinlater.model import version_ms
from pinlater.shards.handle import ShardHandle
from pinlater.shards.shard_set import ShardSet

R = TypeVar("R")
_log = structlog.get_logger("pinlater.queues")

PAGE = 1_000
"""Entries of one call."""

WAIT_S = 0.5
"""How long a change waits for slow shards where others have answered."""

POLL_WAIT_S = 0.3
"""How long a poll waits; what comes later counts when it comes."""

READ_AT_ONCE = 8
"""Shards that one poll reads, in turn; more only where it found something new. A change comes to all shards at once
from who makes it, so each of them tells it.
"""

KEEP_TOMBSTONES_MS = 30 * 86_400_000
"""How long the tombstone of a deleted queue is kept."""


class ShardRecords:
    """The entries that a shard has: up to which revision that is known, and the version of each name."""

    __slots__ = ("pushed", "revision", "versions")

    def __init__(self) -> None:
        self.revision = 0
        self.versions: dict[str, str] = {}
        self.pushed = -1
        """The generation of `latest` that it has all of."""


class PutResult(NamedTuple):
    """The result of writing an entry: how many healthy shards took it. `was_beaten`: some shard has a newer one."""

    taken: int
    was_beaten: bool
    errors: list[PinLaterError]


class ConfigReplicator:
    """The latest entries, and what each shard has of them. `on_merge` is told the names that have a new one."""

    def __init__(self, members: ShardSet, clock: Clock, on_merge: Callable[[set[str]], None]) -> None:
        self.members = members
        self.latest: dict[str, ConfigEntry] = {}
        self._clock = clock
        self._on_merge = on_merge
        self._shards: dict[tuple[str, str | None], ShardRecords] = {}
        self._generation = 0
        self._tombstones: set[str] = set()
        """The names whose latest entry is the tombstone of a deleted queue."""
        self._turn = random.randrange(2**16)
        """Which shard is read next; not the same for all processes."""
        self._busy: dict[ShardHandle, asyncio.Task[bool]] = {}
        """Shards that `poll` and `push_all` are reading or writing."""
        self._tasks = BackgroundTasks()

    # -- the latest entries -----------------------------------------------------------------------------------------

    def merge(self, entries: Iterable[ConfigEntry]) -> None:
        """Keep what is newer than what is known, and the last deletion that either knows of."""
        names = set()
        for entry in entries:
            known = self.latest.get(entry.name)
            latest = entry if known is None else latest_of(known, entry)
            if latest is not known:
                self.latest[entry.name] = latest
                names.add(entry.name)
                (self._tombstones.add if latest.is_deleted else self._tombstones.discard)(entry.name)
        if names:
            self._generation += 1
            self._on_merge(names)

    def forget_tombstones(self) -> list[str]:
        """Drop those of queues that were deleted long ago, as the shards do; their names."""
        before_ms = self._clock.now_ms() - KEEP_TOMBSTONES_MS
        names = [name for name in self._tombstones if version_ms(self.latest[name].version) < before_ms]
        for name in names:
            self._tombstones.discard(name)
            del self.latest[name]
        return names

    def missed(self, name: str) -> list[str]:
        """The shards that are not known to have the latest entry of this name."""
        version = self.latest[name].version
        return [
            member.shard.shard_id or "?"
            for member in self.members.all
            if not member.is_healthy or self.version_at(member, name) < version
        ]

    def version_at(self, member: ShardHandle, name: str) -> str:
        """The version of this entry that the shard is known to have; "" where none is known."""
        return self._of(member).versions.get(name, "")

    def _of(self, member: ShardHandle) -> ShardRecords:
        return self._shards.setdefault((member.shard.shard_id, member.store_id), ShardRecords())

    # -- one shard ---------------------------------------------------------------------------------------------------

    async def read(self, member: ShardHandle, *, from_start: bool = False) -> None:
        """Merge the entries that came to the shard since the last time, or all that it has."""
        if from_start:
            self._shards.pop((member.shard.shard_id, member.store_id), None)
        held = self._of(member)
        while True:
            page = await member.shard.list_config(held.revision, PAGE)
            for entry in page.entries:
                held.versions[entry.name] = max(held.versions.get(entry.name, ""), entry.version)
            self.merge(page.entries)
            if not page.entries:
                return
            held.revision = max(held.revision, page.revision)

    async def push(self, member: ShardHandle) -> None:
        """Put on the shard the entries that it lacks, or has in an older version, and those that win meanwhile."""
        held = self._of(member)
        while held.pushed != self._generation:
            generation = self._generation
            behind = [each for each in self.latest.values() if held.versions.get(each.name, "") < each.version]
            for start in range(0, len(behind), PAGE):
                await self.put_on(member, behind[start : start + PAGE])
            held.pushed = generation

    async def put_on(self, member: ShardHandle, entries: Sequence[ConfigEntry]) -> list[bool]:
        """Offer these to one shard; which it took."""
        taken = await member.shard.put_config(entries, self._clock.now_ms())
        held = self._of(member)
        for entry, was_taken in zip(entries, taken, strict=True):
            if was_taken:
                held.versions[entry.name] = max(held.versions.get(entry.name, ""), entry.version)
        return taken

    # -- all shards --------------------------------------------------------------------------------------------------

    async def poll(self) -> None:
        """Read some healthy shards, and all of them where there was something new there; then push where something is
        missing. A shard is left out where the last time is still under way.
        """
        generation, some = self._generation, self._next_in_turn()
        await self._read_these(some)
        if generation != self._generation:  # else it would be put where it is already
            await self._read_these([member for member in self.members.healthy() if member not in some])
        await self.push_all(POLL_WAIT_S)

    def _next_in_turn(self) -> list[ShardHandle]:
        healthy = self.members.healthy()
        if len(healthy) <= READ_AT_ONCE:
            return healthy
        first = self._turn % len(healthy)
        self._turn = first + READ_AT_ONCE
        return [*healthy[first:], *healthy[:first]][:READ_AT_ONCE]

    async def _read_these(self, members: Iterable[ShardHandle]) -> None:
        for member in members:
            if member not in self._busy:
                self._begin(member, self.read)
        await self._wait(list(self._busy.values()), POLL_WAIT_S)

    async def read_all(self) -> bool:
        """Read anew on every healthy shard; waits for the slow ones only until one answered. Whether one did."""
        members = self.members.healthy()
        return len(await self.unread()) < len(members)

    async def unread(self) -> list[ShardHandle]:
        """As `read_all`; the shards that did not answer in that time."""
        members = self.members.healthy()
        reads = [self._tasks.start(_quietly(self.read, member)) for member in members]
        await self._wait_for_one(reads)
        return [member for member, read in zip(members, reads, strict=True) if not (read.done() and read.result())]

    async def push_all(self, wait_s: float = WAIT_S) -> None:
        """Put the latest on every healthy shard that is behind and not busy."""
        for member in self.members.healthy():
            if member not in self._busy and self._of(member).pushed != self._generation:
                self._begin(member, self.push)
        await self._wait(list(self._busy.values()), wait_s)

    def _begin(self, member: ShardHandle, work: Callable[[ShardHandle], Coroutine[Any, Any, None]]) -> None:
        self._busy[member] = self._tasks.start(_quietly(work, member))
        self._busy[member].add_done_callback(lambda _: self._busy.pop(member))

    async def put(self, entry: ConfigEntry) -> PutResult:
        """A new entry on every healthy shard; waits for the slow ones only until one took it. Merged if one did."""
        calls = [self._tasks.start(self._outcome(member, entry)) for member in self.members.healthy()]
        await self._wait_for_one(calls)
        outcomes = [call.result() for call in calls if call.done()]
        taken = sum(outcome is True for outcome in outcomes)
        if taken:
            self.merge([entry])
        errors = [outcome for outcome in outcomes if isinstance(outcome, PinLaterError)]
        return PutResult(taken, any(outcome is False for outcome in outcomes), errors)

    async def _outcome(self, member: ShardHandle, entry: ConfigEntry) -> bool | PinLaterError:
        try:
            (was_taken,) = await self.put_on(member, [entry])
        except PinLaterError as error:
            return error.with_traceback(None)
        return was_taken

    async def _wait(self, tasks: Sequence[asyncio.Task[Any]], wait_s: float) -> set[asyncio.Task[Any]]:
        """Wait for all of them, but not long; those that go on meanwhile."""
        if not tasks:
            return set()
        _, waiting = await asyncio.wait(tasks, timeout=wait_s)
        return waiting

    async def _wait_for_one(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        """Likewise, but until one of them has the answer True, or none is left."""
        waiting = await self._wait(tasks, WAIT_S)
        while waiting and not any(task.done() and task.result() is True for task in tasks):
            _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)

    async def close(self) -> None:
        """Leave off what is under way: each call that reached a store ends by itself."""
        await self._tasks.cancel()


def latest_of(known: ConfigEntry, other: ConfigEntry) -> ConfigEntry:
    """The one with the higher version; made anew where it does not know of a deletion that the other one does.

    So it is when a queue was deleted while somebody changed it: the queue is there then, but what it held before stays
    gone, also on a shard that was away. All who see both make the same entry of them.
    """
    newest, older = (other, known) if other.version > known.version else (known, other)
    if older.deleted_version <= newest.deleted_version:
        return newest
    version = f"{int(newest.version[:16]) + 1:016d}{newest.version[16:]}"
    return newest._replace(version=version, deleted_version=older.deleted_version)


async def _quietly(work: Callable[[ShardHandle], Coroutine[Any, Any, None]], member: ShardHandle) -> bool:
    """Whether it was done."""
    try:
        await work(member)
    except PinLaterError as error:
        _log.debug("config_entries_not_replicated", shard=member.shard.shard_id, error=error.message)
    except Exception:
        _log.exception("config_entries_not_replicated", shard=member.shard.shard_id)
    else:
        return True
    return False
