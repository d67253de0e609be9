"""Queues as rows of numbers, on the overview and in their list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pinlater.model import DEAD_LETTERS, LevelView, PauseView, QueueStatus, queue_order


@dataclass(slots=True)
class QueueRow:
    """A queue in numbers, over all its priorities. `limited`: the ready jobs whose groups are paused or at their
    limits. `oldest_ms`: since when the first of its ready jobs waits.
    """

    name: str
    ready: int = 0
    limited: int = 0
    scheduled: int = 0
    waiting: int = 0
    running: int = 0
    failed: int = 0
    cancelled: int = 0
    replayed: int = 0
    succeeded: int = 0
    oldest_ms: int | None = None
    rates: dict[str, float] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)
    pause: PauseView | None = None
    counted_at_ms: int = 0
    ended_counted_at_ms: int | None = None
    levels: list[LevelView] = field(default_factory=list)

    @classmethod
    def of(cls, queue: QueueStatus) -> QueueRow:
        row = cls(
            queue.name,
            rates=queue.rates,
            flags=queue.flags,
            pause=queue.pause,
            counted_at_ms=queue.counted_at_ms,
            ended_counted_at_ms=queue.ended_counted_at_ms,
            levels=queue.levels,
        )
        for level in queue.levels:
            row.ready += level.ready
            row.limited += level.ready_limited
            row.scheduled += level.scheduled
            row.waiting += level.waiting
            row.running += level.in_progress
            row.failed += level.failed
            row.cancelled += level.cancelled
            row.replayed += level.replayed
            row.succeeded += level.succeeded
            row.oldest_ms = _earlier(row.oldest_ms, level.oldest_ready_ms)
        return row

    @property
    def is_paused(self) -> bool:
        return self.pause is not None or "paused" in self.flags

    @property
    def has_dead_letters(self) -> bool:
        """Another queue names it for its dead letters."""
        return DEAD_LETTERS in self.flags

    @property
    def jobs(self) -> int:
        """In every state."""
        live = self.ready + self.scheduled + self.waiting + self.running
        return live + self.succeeded + self.failed + self.cancelled + self.replayed

    def rate(self, name: str) -> float:
        """A second: "enqueued", "dequeued", "succeeded", "failed" or "retried"."""
        return self.rates.get(name, 0.0)


def rows_of(queues: Iterable[QueueStatus]) -> list[QueueRow]:
    """By name."""
    return sorted(map(QueueRow.of, queues), key=lambda row: queue_order(row.name))


def sum_of(rows: Iterable[QueueRow]) -> QueueRow:
    """All of them together, as one row without a name. Dead letters wait for nobody: they are in neither `ready` nor
    `oldest_ms`.
    """
    total = QueueRow("")
    for row in rows:
        total.ready += 0 if row.has_dead_letters else row.ready
        total.scheduled += row.scheduled
        total.waiting += row.waiting
        total.running += row.running
        total.failed += row.failed
        total.oldest_ms = _earlier(total.oldest_ms, None if row.has_dead_letters else row.oldest_ms)
        for name, rate in row.rates.items():
            total.rates[name] = total.rates.get(name, 0.0) + rate
    return total


def worst_first(
    rows: Iterable[QueueRow], now_ms: int, alarms: Sequence[str], failed_in_hour: Mapping[str, int]
) -> list[QueueRow]:
    """Queues with alarms first, then those whose jobs failed in this hour, then those where failed jobs lie, then by
    waits, then by what moves. `alarms`: the queues of the alarms that stand, the worst first. Only classes of size
    count, each twice as large as the one before: rows that change places at each look are hard to read.
    """
    places = {queue: place for place, queue in reversed(list(enumerate(alarms)))}

    def badness(row: QueueRow) -> tuple[object, ...]:
        is_held = row.is_paused or row.has_dead_letters
        waits_ms = 0 if is_held or row.oldest_ms is None else max(0, now_ms - row.oldest_ms)
        moving = row.ready + row.waiting + row.running + 10 * (row.rate("enqueued") + row.rate("dequeued"))
        sizes = (failed_in_hour.get(row.name, 0), row.failed, waits_ms // 10_000, moving, row.scheduled + row.succeeded)
        return places.get(row.name, len(places)), *(-int(size).bit_length() for size in sizes), queue_order(row.name)

    return sorted(rows, key=badness)


def _earlier(one_ms: int | None, other_ms: int | None) -> int | None:
    return min((each for each in (one_ms, other_ms) if each is not None), default=None)
