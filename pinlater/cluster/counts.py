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
from pinlater.stored_json import read_packed, read_stored

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
        one.ready_limited + other.ready_limited,
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

_FIELDS = LevelCounts._fields.index("ready_limited")
"""What a level is written with at most. `ready_limited` has an entry of its own: servers of the version before take a
level with more fields for no counts.
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
    counted = [place for place, jobs in enumerate(level[:_FIELDS], 1) if place > _OLDEST_FIELDS and jobs]
    return level[: max(counted, default=_OLDEST_FIELDS)]


def encode_ended(counts: ShardCounts) -> bytes:
    """The body of the entry beside it: when jobs that ended were counted, where that was apart from the others."""
    return _packed({queue: each.ended_at_ms for queue, each in counts.queues.items() if each.ended_at_ms is not None})


def encode_limited(counts: ShardCounts) -> bytes:
    """The body of another one: of queues where there are any, the ready jobs whose groups are held back, and when
    they were counted.
    """
    limited = {
        queue: {priority: level.ready_limited for priority, level in each.levels.items() if level.ready_limited}
        for queue, each in counts.queues.items()
    }
    return _packed({queue: [counts.of(queue).at_ms, jobs] for queue, jobs in limited.items() if jobs})


_NONE = _packed({})


def decode(body: bytes, ended: bytes = _NONE, limited: bytes = _NONE) -> ShardCounts:
    """What `encode`, `encode_ended` and `encode_limited` made. ValueError."""
    try:
        at_ms, queues = read_packed(body)
        ended_ms, held = (read_packed(each) for each in (ended, limited))
        return ShardCounts(
            at_ms,
            {
                queue: QueueCounts(each_ms, _levels(levels, each_ms, *held.get(queue, (0, {}))), ended_ms.get(queue))
                for queue, (each_ms, levels) in queues.items()
            },
        )
    except (TypeError, AttributeError) as error:
        raise ValueError("no counts") from error


def _levels(
    levels: Mapping[str, Sequence[int]], at_ms: int, limited_at_ms: int, limited: Mapping[str, int]
) -> dict[int, LevelCounts]:
    """What is limited does not count where a server of a version without it has counted the others since."""
    found = {}
    for priority, fields in levels.items():
        level = LevelCounts(*fields)
        held = limited.get(priority, 0) if limited_at_ms >= at_ms else 0
        found[int(priority)] = level._replace(ready_limited=min(level.ready, held))
    return found


def _encode_chains(chains: Sequence[BlockedChain]) -> bytes:
    return json.dumps([astuple(each) for each in chains], separators=(",", ":")).encode()


def _decode_chains(body: bytes) -> list[BlockedChain]:
    """ValueError."""
    try:
        return [BlockedChain(str(key), str(first), int(jobs), int(ms)) for key, first, jobs, ms in read_stored(body)]
    except TypeError as error:
        raise ValueError("no chains") from error


KIND, NAME, ENDED, CHAINS, LIMITED = "census", "counts", "ended", "chains", "limited"
"""Servers of a version without the last three pass over these entries."""

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
        self._versions: dict[str, list[int]] = {}
        self._put_beside: dict[str, dict[str, bytes]] = {}
        """By shard id, what stands beside the counts."""

        self._chains: dict[str, Sequence[BlockedChain]] = {}
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._refreshed_at_ms: int | None = None

    def begin(self, shard_id: str) -> None:
        """This process counts the shard from now on, where others may have put what they counted."""
        self._put_beside.pop(shard_id, None)

    async def put(self, member: ShardHandle, counts: ShardCounts) -> None:
        """For everybody to see. Raises nothing."""
        now_ms = self._clock.now_ms()
        shard_id = member.shard.shard_id
        self._counts[shard_id] = counts
        beside = self._put_beside.setdefault(shard_id, {})
        try:
            for name, body in ((ENDED, encode_ended(counts)), (LIMITED, encode_limited(counts))):
                # what an earlier owner wrote of limited jobs is older than the counts, and counts no more
                if body != beside.get(name, _NONE if name == LIMITED else None):
                    await member.shard.kv_put(KIND, name, body, now_ms + KEPT_MS, now_ms)
                    beside[name] = body
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
            chains, entry = entries.get(CHAINS), entries.get(NAME)
            beside = [entries.get(name) for name in (ENDED, LIMITED)]
            self._chains[shard_id] = () if chains is None else _decode_chains(chains.body)
            versions = [each.version if each else 0 for each in (entry, *beside)]
            if entry is not None and versions != self._versions.get(shard_id):
                self._counts[shard_id] = decode(entry.body, *(each.body if each else _NONE for each in beside))
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
