"""How many jobs each queue has on a shard, as they were counted and as a note carries them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pinlater.backends.base import LevelCounts
from pinlater.model import LevelView

Levels = Mapping[int, LevelCounts]
"""The jobs of a queue by priority; a level without jobs may be missing."""


class QueueCounts(NamedTuple):
    """A queue on one shard, as of a time."""

    at_ms: int
    levels: Levels


@dataclass(slots=True)
class ShardCounts:
    """All queues of a shard that have jobs there; the others had none at `at_ms`."""

    at_ms: int
    queues: dict[str, QueueCounts] = field(default_factory=dict)

    def of(self, queue: str) -> QueueCounts:
        return self.queues.get(queue) or QueueCounts(self.at_ms, {})


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
    )


def summed(pages: Iterable[Levels]) -> dict[int, LevelCounts]:
    """The levels that have jobs, over pages or over shards."""
    found: dict[int, LevelCounts] = {}
    for levels in pages:
        for priority, counts in levels.items():
            found[priority] = plus(found[priority], counts) if priority in found else counts
    return {priority: found[priority] for priority in sorted(found) if any(found[priority][:5])}


def views(levels: Levels) -> list[LevelView]:
    """For operators."""
    return [LevelView(priority, *counts) for priority, counts in sorted(levels.items())]


def encode(counts: ShardCounts) -> bytes:
    """The body of a note."""
    queues = {queue: [at_ms, levels] for queue, (at_ms, levels) in counts.queues.items()}
    return zlib.compress(json.dumps([counts.at_ms, queues], separators=(",", ":")).encode(), 1)


def decode(body: bytes) -> ShardCounts:
    """What `encode` made. ValueError."""
    try:
        at_ms, queues = json.loads(zlib.decompress(body))
        return ShardCounts(
            at_ms,
            {
                queue: QueueCounts(each_ms, {int(priority): LevelCounts(*level) for priority, level in levels.items()})
                for queue, (each_ms, levels) in queues.items()
            },
        )
    except (zlib.error, TypeError, AttributeError) as error:
        raise ValueError("no counts") from error
