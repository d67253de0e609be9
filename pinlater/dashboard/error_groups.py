"""The errors of jobs that failed for good, by kind: how many, since when, and the last hour. They are found among the
jobs that failed last, as many as can be looked at in a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from pinlater.dashboard.error_kinds import ErrorGroup, grouped, of_failed
from pinlater.dashboard.job_search import JobSearch
from pinlater.dashboard.page import Page
from pinlater.dashboard.snapshots import KEPT_S
from pinlater.job_filters.job_filter import FilterLine
from pinlater.model import QueueStatus
from pinlater.model.job_selection import JobPhase

MAX_JOBS = 1_000
WITHIN_S = 0.25
MOST_GROUPS = 8
KEPT_TIMES = 50
"""So many times as long as it took a look is kept."""


@dataclass(slots=True)
class ErrorGroups:
    """The largest first. `examined`: among so many jobs; `is_all`: there are no others."""

    groups: Sequence[ErrorGroup] = ()
    more: int = 0
    examined: int = 0
    is_all: bool = True
    took_s: float = 0.0


async def find_errors(page: Page, line: FilterLine, statuses: Sequence[QueueStatus]) -> ErrorGroups:
    """Of the jobs that a filter finds; nothing where it means none that failed."""
    if JobPhase.FAILED not in line.phases:
        return ErrorGroups()
    failed = of_failed(line)

    async def load() -> ErrorGroups:
        search = JobSearch(page.api, page.context, failed, statuses, page.now_ms, page.rights.sees_bodies, bodies=False)
        if not search.of_about:
            return ErrorGroups()
        found = await search.page("", MAX_JOBS, WITHIN_S)
        groups = await asyncio.to_thread(grouped, found.jobs, page.now_ms, page.rights.sees_bodies)
        more = max(0, len(groups) - MOST_GROUPS)
        return ErrorGroups(groups[:MOST_GROUPS], more, len(found.jobs), not found.cursor, found.took_s)

    return await page.snapshots.get(
        page.context, ("errors", failed.text()), load, lambda found: max(KEPT_S, KEPT_TIMES * found.took_s)
    )
