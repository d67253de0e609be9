"""Records go round: what every shard has of them is read, the highest version of each name wins, and the winners are
put on the shards that are behind. A shard that does not answer holds nobody up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import structlog

from pinlater.backends.base import ConfigEntry
from pinlater.clock import Clock
from pinlater.errors import PinLaterError
from pinlater.model import version_ms
from pinlater.shards.handle import ShardHandle
from pinlater.shards.shard_set import ShardSet

R = TypeVar("R")
_log = structlog.get_logger("pinlater.queues")

PAGE = 1_000
"""Records of one call."""

PATIENCE_S = 0.5
"""How long a change waits for slow shards where others have answered."""

POLL_PATIENCE_S = 0.3
"""How long a poll does; what comes later counts when it comes."""

KEEP_MARKS_MS = 30 * 86_400_000
"""How long the mark of a deleted queue is kept."""


class Held:
    """What a shard has: up to which revision that is known, and the version of each name."""

    __slots__ = ("pushed", "revision", "versions")

    def __init__(self) -> None:
        self.revision = 0
        self.versions: dict[str, str] = {}
        self.pushed = -1
        """The generation of winners that it has all of."""


class Put(NamedTuple):
    """What became of a record that was put on all healthy shards. `was_beaten`: some shard has a newer one."""

    took: int
    was_beaten: bool
    errors: list[PinLaterError]


class Exchange:
    """The winners, and what each shard has of them. `on_news` is told the names whose winner is another one."""

    def __init__(self, members: ShardSet, clock: Clock, on_news: Callable[[set[str]], None]) -> None:
        self.members = members
        self.winners: dict[str, ConfigEntry] = {}
        self._clock = clock
        self._on_news = on_news
        self._held: dict[tuple[str, str | None], Held] = {}
        self._generation = 0
        self._marks: set[str] = set()
        """The winners that are marks of deleted queues."""
        self._busy: dict[ShardHandle, asyncio.Task[bool]] = {}
        """Shards that are being read or told by us, other than for a change."""
        self._tasks: set[asyncio.Task[Any]] = set()

    # -- the winners -------------------------------------------------------------------------------------------------

    def merge(self, records: Iterable[ConfigEntry]) -> None:
        """Keep what is newer than what is known, and the last deletion that either knows of."""
        news = set()
        for record in records:
            known = self.winners.get(record.name)
            winner = record if known is None else later(known, record)
            if winner is not known:
                self.winners[record.name] = winner
                news.add(record.name)
                (self._marks.add if winner.is_deleted else self._marks.discard)(record.name)
        if news:
            self._generation += 1
            self._on_news(news)

    def forget_marks(self) -> None:
        """Marks of queues that were deleted long ago: the shards forget them too."""
        before_ms = self._clock.now_ms() - KEEP_MARKS_MS
        for name in [name for name in self._marks if version_ms(self.winners[name].version) < before_ms]:
            self._marks.discard(name)
            del self.winners[name]

    def missed(self, name: str) -> list[str]:
        """The shards that are not known to have the winner of this name."""
        version = self.winners[name].version
        return [
            member.shard.shard_id or "?"
            for member in self.members.all
            if not member.is_healthy or self._of(member).versions.get(name, "") < version
        ]

    def _of(self, member: ShardHandle) -> Held:
        return self._held.setdefault((member.shard.shard_id, member.store_id), Held())

    # -- one shard ---------------------------------------------------------------------------------------------------

    async def read(self, member: ShardHandle, *, all_of_it: bool = False) -> None:
        """What came to the shard since the last time, or all it has."""
        if all_of_it:
            self._held.pop((member.shard.shard_id, member.store_id), None)
        held = self._of(member)
        while True:
            page = await member.shard.list_config(held.revision, PAGE)
            for record in page.entries:
                held.versions[record.name] = max(held.versions.get(record.name, ""), record.version)
            self.merge(page.entries)
            if not page.entries:
                return
            held.revision = max(held.revision, page.revision)

    async def push(self, member: ShardHandle) -> None:
        """What the shard does not have yet, or has older; what wins meanwhile, too."""
        held = self._of(member)
        while held.pushed != self._generation:
            generation = self._generation
            behind = [each for each in self.winners.values() if held.versions.get(each.name, "") < each.version]
            for start in range(0, len(behind), PAGE):
                await self._put_on(member, behind[start : start + PAGE])
            held.pushed = generation

    async def _put_on(self, member: ShardHandle, records: Sequence[ConfigEntry]) -> list[bool]:
        taken = await member.shard.put_config(records, self._clock.now_ms())
        held = self._of(member)
        for record, was_taken in zip(records, taken, strict=True):
            if was_taken:
                held.versions[record.name] = max(held.versions.get(record.name, ""), record.version)
        return taken

    # -- all shards --------------------------------------------------------------------------------------------------

    async def poll(self) -> None:
        """Read, then push, on every healthy shard where the last time is not still under way."""
        for member in self.members.healthy():
            if member not in self._busy:
                self._begin(member, self.read)
        await self._patiently(list(self._busy.values()), POLL_PATIENCE_S)
        await self.push_all(POLL_PATIENCE_S)
        self.forget_marks()

    async def ask(self) -> bool:
        """Read anew on every healthy shard; waits for the slow ones only until one answered. Whether one did."""
        reads = [self._spawn(_quietly(self.read, member)) for member in self.members.healthy()]
        await self._patiently_for_one(reads)
        return any(read.done() and read.result() for read in reads)

    async def push_all(self, patience_s: float = PATIENCE_S) -> None:
        """Put the winners on every healthy shard that is behind and not busy."""
        for member in self.members.healthy():
            if member not in self._busy and self._of(member).pushed != self._generation:
                self._begin(member, self.push)
        await self._patiently(list(self._busy.values()), patience_s)

    def _begin(self, member: ShardHandle, work: Callable[[ShardHandle], Coroutine[Any, Any, None]]) -> None:
        self._busy[member] = self._spawn(_quietly(work, member))
        self._busy[member].add_done_callback(lambda _: self._busy.pop(member))

    async def put(self, record: ConfigEntry) -> Put:
        """A new record on every healthy shard; waits for the slow ones only until one took it. Merged if one did."""
        calls = [self._spawn(self._outcome(member, record)) for member in self.members.healthy()]
        await self._patiently_for_one(calls)
        outcomes = [call.result() for call in calls if call.done()]
        took = sum(outcome is True for outcome in outcomes)
        if took:
            self.merge([record])
        errors = [outcome for outcome in outcomes if isinstance(outcome, PinLaterError)]
        return Put(took, any(outcome is False for outcome in outcomes), errors)

    async def _outcome(self, member: ShardHandle, record: ConfigEntry) -> bool | PinLaterError:
        try:
            (was_taken,) = await self._put_on(member, [record])
        except PinLaterError as error:
            return error.with_traceback(None)
        return was_taken

    async def _patiently(self, tasks: Sequence[asyncio.Task[Any]], patience_s: float) -> set[asyncio.Task[Any]]:
        """Wait for all of them, but not long; those that go on meanwhile."""
        if not tasks:
            return set()
        _, waiting = await asyncio.wait(tasks, timeout=patience_s)
        return waiting

    async def _patiently_for_one(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        """Likewise, but until one of them has the answer True, or none is left."""
        waiting = await self._patiently(tasks, PATIENCE_S)
        while waiting and not any(task.done() and task.result() is True for task in tasks):
            _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)

    def _spawn(self, work: Coroutine[Any, Any, R]) -> asyncio.Task[R]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Leave off what is under way: each call that reached a store ends by itself."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def later(known: ConfigEntry, other: ConfigEntry) -> ConfigEntry:
    """The one with the higher version; made anew where it does not know of a deletion that the other one does.

    So it is when a queue was deleted while somebody changed it: the queue is there then, but what it held before stays
    gone, also on a shard that was away. All who see both make the same record of them.
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
        _log.debug("records_not_exchanged", shard=member.shard.shard_id, error=error.message)
    except Exception:
        _log.exception("records_not_exchanged", shard=member.shard.shard_id)
    else:
        return True
    return False
