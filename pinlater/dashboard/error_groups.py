"""Errors as things: of which kinds the errors are that jobs failed with for good, how many of each, since when, and
how the last hour was.

They are found among the jobs that failed last, as many as can be looked at in a moment. A job that failed in several
ways is in the group of each, as a filter for that error finds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pinlater.dashboard.charts import spark_path
from pinlater.dashboard.failure_sample import error_lines
from pinlater.dashboard.job_search import JobSearch
from pinlater.dashboard.job_timeline import attempt_text
from pinlater.dashboard.page import Page
from pinlater.dashboard.snapshots import KEPT_S
from pinlater.job_filters.job_filter import FilterLine
from pinlater.model import JobInfo, QueueStatus
from pinlater.model.job_selection import JobPhase

MAX_JOBS = 1_000
WITHIN_S = 0.25
MOST_GROUPS = 8
KEPT_TIMES = 50
"""So many times as long as it took a look is kept."""

HOUR_MS, BARS = 3_600_000, 30
MAX_LINE_CHARS = 160


@dataclass(slots=True)
class ErrorGroup:
    """Jobs with errors of one kind. `line` is what the latest says, "" where that may not be seen; `hour`: how many
    failed in each part of the last hour.
    """

    name: str
    line: str = ""
    jobs: int = 0
    first_ms: int = 0
    last_ms: int = 0
    hour: list[int] = field(default_factory=lambda: [0] * BARS)

    @property
    def path(self) -> str:
        """The last hour as a line, on a ground of 80 by 22."""
        return spark_path(self.hour, 80, 22)


@dataclass(slots=True)
class ErrorGroups:
    """The largest first. `examined`: among so many jobs; `is_all`: there are no others."""

    groups: Sequence[ErrorGroup] = ()
    more: int = 0
    examined: int = 0
    is_all: bool = True
    took_s: float = 0.0


def grouped(jobs: Iterable[JobInfo], now_ms: int, sees_texts: Callable[[str], bool]) -> list[ErrorGroup]:
    """The largest first. `sees_texts`: of a queue."""
    groups: dict[str, ErrorGroup] = {}
    for job in jobs:
        at_ms = job.updated_at_ms
        for name, line in error_lines(job.custom_status).items():
            group = groups.setdefault(name, ErrorGroup(name, first_ms=at_ms))
            if at_ms >= group.last_ms:
                group.last_ms = at_ms
                shown = sees_texts(job.descriptor.partition(":")[0])
                group.line = attempt_text(line).removeprefix(name).lstrip(": ")[:MAX_LINE_CHARS] if shown else ""
            group.first_ms = min(group.first_ms, at_ms)
            group.jobs += 1
            if 0 <= now_ms - at_ms < HOUR_MS:
                group.hour[BARS - 1 - (now_ms - at_ms) * BARS // HOUR_MS] += 1
    return sorted(groups.values(), key=lambda group: (-group.jobs, group.name))


def of_failed(line: FilterLine) -> FilterLine:
    """The same filter, for jobs that failed with whatever error."""
    return line.with_values("error").with_values("state", JobPhase.FAILED.word)


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
