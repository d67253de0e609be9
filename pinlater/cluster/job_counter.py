"""Counting of the queues of one shard, run after run, which leaves the store to others between its calls.

Of a queue with many jobs those that ended are counted apart, in runs of their own: they are many and change slowly,
while alarms and autoscalers stand on the others. Its live jobs have runs of their own too where they alone are many, so
that a huge queue does not make the figures of all others old. A queue that was empty is counted again when servers have
stored jobs in it, and now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Set
from typing import NamedTuple
from zlib import crc32

import structlog

from pinlater.backends.base import ENDED_STATES, LIVE_STATES, StatsPage, StatsPosition, StoredState
from pinlater.clock import Clock
from pinlater.cluster.counts import Levels, QueueCounts, ShardCounts, jobs_in, summed
from pinlater.errors import PinLaterError, QueueNotFound
from pinlater.shards.handle import ShardHandle

_log = structlog.get_logger("pinlater.cluster")
PAGE = 10_000
"""Entries of an index that one call reads. More jobs than these are many."""

ALL_STATES = tuple(StoredState)

BURST_S = 0.005
REST = 9
"""After so long the store is left alone for so many times as long."""

EMPTY_MS = 60_000
"""A queue that was empty is counted again after one to two times as long."""


class CountRequest(NamedTuple):
    """What is to be counted: all queues, how many jobs the servers have enqueued to each since they began, and the
    queues that jobs reach in other ways: as dead letters, as these go back, as items of flows."""

    queues: Set[str]
    enqueued: Mapping[str, int]
    watched: Set[str]


class _Empty(NamedTuple):
    enqueued: int
    until_ms: int


class _Interrupted(Exception):
    """Another process owns the shard now."""


class JobCounter:
    """What is known of one shard. `go_on` is asked before every call of the store.

    A run returns for how many seconds it kept the store busy, or None where it was cut short. `at_ms` is when the last
    whole run over the small queues began. Of `split` queues ended jobs are counted apart, of `large` ones, which are
    some of these, live jobs too.
    """

    def __init__(
        self, member: ShardHandle, priorities: Collection[int], clock: Clock, go_on: Callable[[], bool]
    ) -> None:
        self.at_ms: int | None = None
        self.split: set[str] = set()
        self.large: set[str] = set()
        self._member = member
        self._priorities = tuple(priorities)
        self._clock = clock
        self._go_on = go_on
        self._empty: dict[str, _Empty] = {}
        self._found: dict[str, QueueCounts] = {}
        """Of split queues the live jobs alone."""
        self._ended: dict[str, QueueCounts] = {}

    def counts(self) -> ShardCounts:
        """As of the last run of each kind."""
        found = dict(self._found)
        for queue, ended in self._ended.items():
            live = found[queue]
            found[queue] = QueueCounts(live.at_ms, summed((live.levels, ended.levels)), ended.at_ms)
        return ShardCounts(self.at_ms or 0, found)

    async def count_small(self, request: CountRequest) -> float | None:
        """All queues but the large ones; of split ones the live jobs."""
        now_ms = self._clock.now_ms()
        self._forget_others(request.queues)
        due = [queue for queue in sorted(request.queues - self.large) if self._is_due(queue, request)]
        took_s = await self._count(due, lambda queue, use: self._count_small(queue, request, use))
        if took_s is not None:
            self.at_ms = now_ms
        return took_s

    async def count_large(self, request: CountRequest) -> float | None:
        """The live jobs of the large ones."""
        return await self._count(sorted(self.large & request.queues), self._count_large)

    async def count_ended(self, request: CountRequest) -> float | None:
        """The jobs that ended, of the split ones."""
        return await self._count(sorted(self.split & request.queues), self._count_ended)

    def _forget_others(self, queues: Set[str]) -> None:
        self._empty = {queue: empty for queue, empty in self._empty.items() if queue in queues}
        self._found = {queue: found for queue, found in self._found.items() if queue in queues}
        self._ended = {queue: ended for queue, ended in self._ended.items() if queue in queues}
        self.split &= queues
        self.large &= queues

    def _is_due(self, queue: str, request: CountRequest) -> bool:
        empty = self._empty.get(queue)
        if empty is None or queue in request.watched or empty.enqueued != request.enqueued.get(queue, 0):
            return True
        return not 0 < empty.until_ms - self._clock.now_ms() <= 2 * EMPTY_MS

    async def _count(self, queues: Collection[str], count: Callable[[str, _Use], Awaitable[None]]) -> float | None:
        use = _Use()
        try:
            for queue in queues:
                await count(queue, use)
        except _Interrupted:
            return None
        except PinLaterError as error:
            _log.warning("count_interrupted", shard=self._member.shard.shard_id, error=error.message)
            return None
        return use.busy_s

    async def _count_small(self, queue: str, request: CountRequest, use: _Use) -> None:
        if queue not in self.split:
            found, is_whole = await self._pages(queue, ALL_STATES, use, PAGE)
            if is_whole:
                self._keep(queue, found, request)
                return
            self._split_up(queue, self._found.get(queue, found))
        found, is_whole = await self._pages(queue, LIVE_STATES, use, PAGE)
        if queue not in self.split:  # by a run over the ended jobs: they are few now, and were added
            return
        if is_whole:
            self._found[queue] = found
        else:
            self.large.add(queue)

    async def _count_large(self, queue: str, use: _Use) -> None:
        found, _ = await self._pages(queue, LIVE_STATES, use)
        if queue in self.large:
            self._found[queue] = found
            if jobs_in(found.levels) <= PAGE:
                self.large.discard(queue)

    async def _count_ended(self, queue: str, use: _Use) -> None:
        ended, _ = await self._pages(queue, ENDED_STATES, use)
        if queue not in self.split:
            return
        self._ended[queue] = ended
        live = self._found[queue]
        if queue not in self.large and jobs_in(live.levels) + jobs_in(ended.levels) <= PAGE:
            self.split.discard(queue)
            del self._ended[queue]
            self._found[queue] = QueueCounts(min(live.at_ms, ended.at_ms), summed((live.levels, ended.levels)))

    def _keep(self, queue: str, found: QueueCounts, request: CountRequest) -> None:
        """All jobs of a small queue."""
        if found.levels:
            self._found[queue] = found
            self._empty.pop(queue, None)
        else:
            self._found.pop(queue, None)
            until_ms = found.at_ms + EMPTY_MS + crc32(queue.encode()) % EMPTY_MS
            self._empty[queue] = _Empty(request.enqueued.get(queue, 0), until_ms)

    def _split_up(self, queue: str, found: QueueCounts) -> None:
        """`found` is what was known of it; or else it has at least so many jobs, until all were counted."""
        self.split.add(queue)
        self._empty.pop(queue, None)
        live, ended = (
            summed([{priority: level.only(states) for priority, level in found.levels.items()}])
            for states in (LIVE_STATES, ENDED_STATES)
        )
        self._found[queue] = QueueCounts(found.at_ms, live)
        self._ended[queue] = QueueCounts(found.at_ms, ended)

    async def _pages(
        self, queue: str, states: Collection[StoredState], use: _Use, most: int | None = None
    ) -> tuple[QueueCounts, bool]:
        """The jobs in these states, and whether these are all: with `most` it ends where there are so many."""
        now_ms = self._clock.now_ms()
        found: Levels = {}
        after = None
        while True:
            page = await self._page(queue, now_ms, after, states, use)
            found = summed((found, page.levels))
            after = page.after
            if after is None or (most is not None and jobs_in(found) >= most):
                return QueueCounts(now_ms, found), after is None

    async def _page(
        self, queue: str, now_ms: int, after: StatsPosition | None, states: Collection[StoredState], use: _Use
    ) -> StatsPage:
        if not self._go_on():
            raise _Interrupted
        begun_at = asyncio.get_running_loop().time()
        try:
            return await self._member.shard.stats(queue, self._priorities, now_ms, after, PAGE, states)
        except QueueNotFound:
            return StatsPage({}, None)
        finally:
            await use.rest(asyncio.get_running_loop().time() - begun_at)


class _Use:
    """How long the store was kept busy, and when it is to be left alone for a while."""

    def __init__(self) -> None:
        self.busy_s = 0.0
        self._unrested_s = 0.0

    async def rest(self, took_s: float) -> None:
        self.busy_s += took_s
        self._unrested_s += took_s
        if self._unrested_s >= BURST_S:
            pause_s, self._unrested_s = self._unrested_s * REST, 0.0
            await asyncio.sleep(pause_s)
