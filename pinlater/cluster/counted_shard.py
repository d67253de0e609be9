"""One shard that this process counts: when it is due again, and who is told of the figures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from pinlater.clock import Clock
from pinlater.cluster.counting import Asked, Counting
from pinlater.cluster.gauges import Gauges
from pinlater.cluster.published import Published
from pinlater.shards.handle import ShardHandle

_log = structlog.get_logger("pinlater.cluster")
SHARE, SHARE_OF_SMALL = 0.01, 0.008
"""Counting takes so much of the time at most: all queues together, and those that are not large. What the small ones
leave of it, the large ones may take."""


class _Turn:
    """One of the two ways to count, and when it is due again."""

    def __init__(self, count: Callable[[Asked], Coroutine[Any, Any, float | None]]) -> None:
        self.count = count
        self.task: asyncio.Task[None] | None = None
        self.begun_ms: int | None = None
        self.wait_ms = 0
        self.used = 0.0
        """The share of the time that it took the last time."""

    def is_running(self) -> bool:
        return self.task is not None and not self.task.done()

    def is_due(self, now_ms: int) -> bool:
        return not self.is_running() and (self.begun_ms is None or not 0 <= now_ms - self.begun_ms < self.wait_ms)


class CountedShard:
    """From when the shard becomes ours until it is lost."""

    def __init__(
        self,
        member: ShardHandle,
        counting: Counting,
        gauges: Gauges,
        published: Published,
        clock: Clock,
        interval_ms: int,
    ) -> None:
        self.member = member
        self._counting = counting
        self._gauges = gauges
        self._published = published
        self._clock = clock
        self._interval_ms = interval_ms
        self._small = _Turn(counting.count_small)
        self._large = _Turn(counting.count_large)

    def is_due(self) -> bool:
        """Whether there is something to begin; keeps the age of the figures up to date."""
        now_ms = self._clock.now_ms()
        if self._counting.at_ms is not None:
            self._gauges.show_age(now_ms - self._counting.at_ms)
        return any(turn.is_due(now_ms) for turn in self._turns())

    def begin(self, asked: Asked) -> None:
        """Begin what is due."""
        now_ms = self._clock.now_ms()
        for turn in self._turns():
            if turn.is_due(now_ms):
                turn.begun_ms = now_ms
                turn.task = asyncio.get_running_loop().create_task(self._run(turn, asked))

    def _turns(self) -> tuple[_Turn, ...]:
        return (self._small, self._large) if self._counting.large else (self._small,)

    def running(self) -> list[asyncio.Task[None]]:
        return [turn.task for turn in (self._small, self._large) if turn.task is not None and turn.is_running()]

    def lose(self) -> None:
        """Somebody else counts it now."""
        for task in self.running():
            task.cancel()
        self._gauges.clear()

    def _share(self, turn: _Turn) -> float:
        return SHARE_OF_SMALL if turn is self._small else SHARE - self._small.used

    async def _run(self, turn: _Turn, asked: Asked) -> None:
        turn.wait_ms = self._interval_ms
        try:
            took_s = await turn.count(asked)
            if took_s is None:
                return
            turn.wait_ms = max(self._interval_ms, int(took_s * 1000 / self._share(turn)))
            turn.used = took_s * 1000 / turn.wait_ms
            counts = self._counting.counts()
            self._gauges.show(counts, asked.queues)
            self._gauges.show_age(self._clock.now_ms() - counts.at_ms)
            await self._published.put(self.member, counts)
        except Exception:
            _log.exception("count_failed", shard=self.member.shard.shard_id)
