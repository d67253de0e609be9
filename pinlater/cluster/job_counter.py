"""Counting of the queues of one shard, run after run, which leaves the store to others between its calls.

Large queues, whose counting takes many pages, have runs of their own, so that a huge one does not make the figures of
all others old. A queue that was empty is counted again when servers have stored jobs in it, and now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Set
from typing import NamedTuple
from zlib import crc32

import structlog

from pinlater.backends.base import StatsPage, StatsPosition
from pinlater.clock import Clock
from pinlater.cluster.counts import Levels, QueueCounts, ShardCounts, summed
from pinlater.errors import PinLaterError, QueueNotFound
from pinlater.shards.handle import ShardHandle

_log = structlog.get_logger("pinlater.cluster")
PAGE = 10_000
"""Entries of an index that one call reads."""

LARGE_PAGES = 10
"""A queue of more pages is a large one."""

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
    whole run over the small queues began.
    """

    def __init__(
        self, member: ShardHandle, priorities: Collection[int], clock: Clock, go_on: Callable[[], bool]
    ) -> None:
        self.at_ms: int | None = None
        self.large: set[str] = set()
        self._member = member
        self._priorities = tuple(priorities)
        self._clock = clock
        self._go_on = go_on
        self._empty: dict[str, _Empty] = {}
        self._found: dict[str, QueueCounts] = {}

    def counts(self) -> ShardCounts:
        """As of the last run of each kind."""
        return ShardCounts(self.at_ms or 0, dict(self._found))

    async def count_small(self, request: CountRequest) -> float | None:
        """All queues but the large ones."""
        now_ms = self._clock.now_ms()
        self._forget_others(request.queues)
        took_s = await self._count(
            [queue for queue in sorted(request.queues - self.large) if self._is_due(queue, request)],
            request,
            LARGE_PAGES,
        )
        if took_s is not None:
            self.at_ms = now_ms
        return took_s

    async def count_large(self, request: CountRequest) -> float | None:
        """The large ones."""
        return await self._count(sorted(self.large & request.queues), request, None)

    def _forget_others(self, queues: Set[str]) -> None:
        self._empty = {queue: empty for queue, empty in self._empty.items() if queue in queues}
        self._found = {queue: found for queue, found in self._found.items() if queue in queues}
        self.large &= queues

    def _is_due(self, queue: str, request: CountRequest) -> bool:
        empty = self._empty.get(queue)
        if empty is None or queue in request.watched or empty.enqueued != request.enqueued.get(queue, 0):
            return True
        return not 0 < empty.until_ms - self._clock.now_ms() <= 2 * EMPTY_MS

    async def _count(self, queues: Collection[str], request: CountRequest, max_pages: int | None) -> float | None:
        use = _Use()
        try:
            for queue in queues:
                await self._count_queue(queue, request, max_pages, use)
        except _Interrupted:
            return None
        except PinLaterError as error:
            _log.warning("count_interrupted", shard=self._member.shard.shard_id, error=error.message)
            return None
        return use.busy_s

    async def _count_queue(self, queue: str, request: CountRequest, max_pages: int | None, use: _Use) -> None:
        now_ms = self._clock.now_ms()
        pages: list[Levels] = []
        after = None
        while True:
            page = await self._page(queue, now_ms, after, use)
            pages.append(page.levels)
            after = page.after
            if after is None or len(pages) == max_pages:
                break
        found = summed(pages)
        if after is not None:
            self.large.add(queue)
            self._found.setdefault(queue, QueueCounts(now_ms, found))  # at least so many, until all were counted
            return
        if len(pages) <= LARGE_PAGES:
            self.large.discard(queue)
        if found:
            self._found[queue] = QueueCounts(now_ms, found)
            self._empty.pop(queue, None)
        else:
            self._found.pop(queue, None)
            until_ms = now_ms + EMPTY_MS + crc32(queue.encode()) % EMPTY_MS
            self._empty[queue] = _Empty(request.enqueued.get(queue, 0), until_ms)

    async def _page(self, queue: str, now_ms: int, after: StatsPosition | None, use: _Use) -> StatsPage:
        if not self._go_on():
            raise _Interrupted
        begun_at = asyncio.get_running_loop().time()
        try:
            return await self._member.shard.stats(queue, self._priorities, now_ms, after, PAGE)
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
