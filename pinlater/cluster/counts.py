"""Numbers of jobs per queue and shard: as they were counted, as a key-value entry carries them, and over all
shards."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import NamedTuple

import structlog

from pinlater.backends.base import LevelCounts
from pinlater.clock import Clock
from pinlater.errors import PinLaterError
from pinlater.model import BlockedChain, LevelView
from pinlater.shards.handle import ShardHandle
from pinlater.shards.shard_set import ShardSet

_log = structlog.get_logger("pinlater.cluster")


Levels = Mapping[int, LevelCounts]
"""The jobs of a queue by priority; a level without jobs may be missing."""


class QueueCounts(NamedTuple):
    """A queue on one shard, as of a time; its jobs that ended as of `ended_at_ms`, where that is not None."""

    at_ms: int
    levels: Levels
    ended_at_ms: int | None = None

    @property
    def oldest_ms(self) -> int:
        """When the oldest of these numbers was counted."""
        return self.at_ms if self.ended_at_ms is None else min(self.at_ms, self.ended_at_ms)


@dataclass(slots=True)
class ShardCounts:
    """All queues of a shard that have jobs there; the others had none at `at_ms`."""

    at_ms: int
    queues: dict[str, QueueCounts] = field(default_factory=dict)

    def of(self, queue: str) -> QueueCounts:
        return self.queues.get(queue) or QueueCounts(self.at_ms, {})

    def oldest_ms(self) -> tuple[int, int]:
        """When the oldest of the live jobs was counted, and the oldest of all."""
        queues = self.queues.values()
        live_ms = min([self.at_ms, *(each.at_ms for each in queues)])
        return live_ms, min([live_ms, *(each.oldest_ms for each in queues)])


def plus(one: LevelCounts, other: LevelCounts) -> LevelCounts:
    """Both together."""
    oldest = [each.oldest_ready_ms for each in (one, other) if each.oldest_ready_ms is not None]
    return LevelCounts(
        one.ready + other.ready,
        one.scheduled + other.scheduled,
        one.in_progress + other.in_progress,
        one.succeeded + other.succeeded,
        one.failed + other.failed,
        min(oldest, default=None),
        one.waiting + other.waiting,
        one.cancelled + other.cancelled,
        one.replayed + other.replayed,
    )


def summed(pages: Iterable[Levels]) -> dict[int, LevelCounts]:
    """The levels that have jobs, over pages or over shards."""
    found: dict[int, LevelCounts] = {}
    for levels in pages:
        for priority, counts in levels.items():
            found[priority] = plus(found[priority], counts) if priority in found else counts
    return {priority: found[priority] for priority in sorted(found) if found[priority].jobs}


def jobs_in(levels: Levels) -> int:
    """How many there are, in all states."""
    return sum(level.jobs for level in levels.values())


def views(levels: Levels) -> list[LevelView]:
    """For operators."""
    return [LevelView(priority, *counts) for priority, counts in sorted(levels.items())]


_OLDEST_FIELDS = 6
"""Of a level: servers of a version without extended jobs read these alone, and no others. What came later is written
as far as it counts jobs, so that a version knows each field that it may meet.
"""


def encode(counts: ShardCounts) -> bytes:
    """The body of a key-value entry. As older servers write it, where no job is in a state unknown to them."""
    queues = {
        queue: [each.at_ms, {priority: _encoded(level) for priority, level in each.levels.items()}]
        for queue, each in counts.queues.items()
    }
    return _packed([counts.at_ms, queues])


def _packed(plain: object) -> bytes:
    return zlib.compress(json.dumps(plain, separators=(",", ":")).encode(), 1)


def _encoded(level: LevelCounts) -> tuple[int | None, ...]:
    counted = [place for place, jobs in enumerate(level, 1) if place > _OLDEST_FIELDS and jobs]
    return level[: max(counted, default=_OLDEST_FIELDS)]


def encode_ended(counts: ShardCounts) -> bytes:
    """The body of the entry beside it: when jobs that ended were counted, where that was apart from the others."""
    return _packed({queue: each.ended_at_ms for queue, each in counts.queues.items() if each.ended_at_ms is not None})


def decode(body: bytes, ended: bytes = _packed({})) -> ShardCounts:
    """What `encode` and `encode_ended` made. ValueError."""
    try:
        at_ms, queues = json.loads(zlib.decompress(body))
        ended_ms = json.loads(zlib.decompress(ended))
        return ShardCounts(
            at_ms,
            {
                queue: QueueCounts(
                    each_ms,
                    {int(priority): LevelCounts(*level) for priority, level in levels.items()},
                    ended_ms.get(queue),
                )
                for queue, (each_ms, levels) in queues.items()
            },
        )
    except (zlib.error, TypeError, AttributeError) as error:
        raise ValueError("no counts") from error


def _encode_chains(chains: Sequence[BlockedChain]) -> bytes:
    return json.dumps([astuple(each) for each in chains], separators=(",", ":")).encode()


def _decode_chains(body: bytes) -> list[BlockedChain]:
    """ValueError."""
    try:
        return [BlockedChain(str(key), str(first), int(jobs), int(ms)) for key, first, jobs, ms in json.loads(body)]
    except TypeError as error:
        raise ValueError("no chains") from error


KIND, NAME, ENDED, CHAINS = "census", "counts", "ended", "chains"
"""Servers of a version without the last two pass over these entries."""

KEPT_MS = 86_400_000
"""Counts that nobody renews are better than none for a day: they say how old they are."""

REFRESH_MS = 1_000
WAIT_MS = 1_000
"""The caller does not wait longer for a shard that does not answer."""


class PublishedCounts:
    """The last known counts by shard id, read when they are asked for, at most once a second."""

    def __init__(self, members: ShardSet, clock: Clock) -> None:
        self._members = members
        self._clock = clock
        self._counts: dict[str, ShardCounts] = {}
        self._versions: dict[str, tuple[int, int]] = {}
        self._put_ended: dict[str, bytes] = {}
        self._chains: dict[str, Sequence[BlockedChain]] = {}
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._refreshed_at_ms: int | None = None

    def begin(self, shard_id: str) -> None:
        """This process counts the shard from now on, where others may have put what they counted."""
        self._put_ended.pop(shard_id, None)

    async def put(self, member: ShardHandle, counts: ShardCounts) -> None:
        """For everybody to see. Raises nothing."""
        now_ms = self._clock.now_ms()
        shard_id = member.shard.shard_id
        self._counts[shard_id] = counts
        ended = encode_ended(counts)
        try:
            if ended != self._put_ended.get(shard_id):
                await member.shard.kv_put(KIND, ENDED, ended, now_ms + KEPT_MS, now_ms)
                self._put_ended[shard_id] = ended
            await member.shard.kv_put(KIND, NAME, encode(counts), now_ms + KEPT_MS, now_ms)
        except PinLaterError as error:
            _log.warning("counts_not_published", shard=shard_id, error=error.message)

    async def put_blocked(self, member: ShardHandle, chains: Sequence[BlockedChain], kept_ms: int) -> None:
        """For everybody to see, for so long; none of them: at once no more."""
        now_ms = self._clock.now_ms()
        until_ms = now_ms + kept_ms if chains else now_ms
        await member.shard.kv_put(KIND, CHAINS, _encode_chains(chains), until_ms, now_ms)

    async def refresh(self) -> None:
        """Read what is new on the shards that are in. Raises nothing; a shard that does not answer stays as it was."""
        now_ms = self._clock.now_ms()
        if self._refreshed_at_ms is None or not 0 <= now_ms - self._refreshed_at_ms < REFRESH_MS:
            self._refreshed_at_ms = now_ms
            for member in self._members.healthy():
                self._begin_reading(member)
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=WAIT_MS / 1000)

    async def close(self) -> None:
        """Wait for no answer any more."""
        late = [*self._under_way.values()]
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    def _begin_reading(self, member: ShardHandle) -> None:
        shard_id = member.shard.shard_id
        if shard_id not in self._under_way:
            task = asyncio.get_running_loop().create_task(self._read(member))
            self._under_way[shard_id] = task
            task.add_done_callback(lambda _: self._under_way.pop(shard_id, None))

    async def _read(self, member: ShardHandle) -> None:
        shard_id = member.shard.shard_id
        try:
            entries = await member.shard.kv_list(KIND, self._clock.now_ms())
            chains, entry, ended = entries.get(CHAINS), entries.get(NAME), entries.get(ENDED)
            self._chains[shard_id] = () if chains is None else _decode_chains(chains.body)
            versions = (entry.version if entry else 0, ended.version if ended else 0)
            if entry is not None and versions != self._versions.get(shard_id):
                self._counts[shard_id] = decode(entry.body, ended.body) if ended else decode(entry.body)
                self._versions[shard_id] = versions
        except PinLaterError as error:
            _log.warning("counts_not_read", shard=shard_id, error=error.message)
        except ValueError:
            _log.warning("counts_not_understood", shard=shard_id)

    # -- over all shards ---------------------------------------------------------------------------------------------

    def queues(self) -> set[str]:
        """Those that have jobs somewhere."""
        return set().union(*(counts.queues for counts in self._known()))

    def of(self, queue: str) -> list[QueueCounts]:
        """The queue on each shard of which anything is known; out or not, as it was last counted."""
        return [counts.of(queue) for counts in self._known()]

    def on(self, shard_id: str) -> ShardCounts | None:
        """All queues of one shard, if anything is known of it."""
        return self._counts.get(shard_id)

    def blocked_on(self, shard_id: str) -> Sequence[BlockedChain]:
        """The serialize keys of a shard whose first job keeps too many others waiting, or for too long."""
        return self._chains.get(shard_id, ())

    def _known(self) -> Iterable[ShardCounts]:
        ids = {member.shard.shard_id for member in self._members.all}
        return [counts for shard_id, counts in self._counts.items() if shard_id in ids]
