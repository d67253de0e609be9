"""The statistics of a queue, page by page, and their sum."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pinlater.backends.base import LevelCounts, Shard, StatsPage, StatsPosition, StoredState
from pinlater.cluster.counts import plus

NO_JOBS = LevelCounts(0, 0, 0, 0, 0, None)
MOST_PAGES = 1_000


def jobs_of(page: StatsPage) -> int:
    return sum(sum(level[:5]) for level in page.levels.values())


async def all_pages(
    shard: Shard,
    queue: str,
    priorities: Sequence[int],
    now_ms: int,
    limit: int,
    states: Collection[StoredState] = tuple(StoredState),
) -> list[StatsPage]:
    """All pages, from the first to the last."""
    pages: list[StatsPage] = []
    after: StatsPosition | None = None
    while not pages or after is not None:
        pages.append(await shard.stats(queue, priorities, now_ms, after, limit, states))
        after = pages[-1].after
        assert len(pages) < MOST_PAGES
    return pages


async def whole_stats(
    shard: Shard,
    queue: str,
    priorities: Sequence[int],
    now_ms: int,
    limit: int,
    states: Collection[StoredState] = tuple(StoredState),
) -> dict[int, LevelCounts]:
    """The sum of all pages, by priority."""
    levels: dict[int, LevelCounts] = {}
    for page in await all_pages(shard, queue, priorities, now_ms, limit, states):
        for priority, level in page.levels.items():
            levels[priority] = plus(levels.get(priority, NO_JOBS), level)
    return levels
