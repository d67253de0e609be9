"""Dead letters as pages count them: those that came from one queue, and those in a dead-letter queue by where they came
from.

No store counts letters by their origin: jobs are looked at for WITHIN_MS at most, and the pages say where there are
more. A count is kept for longer than others of a page where it took many jobs.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from pinlater.dashboard.page import Page
from pinlater.dashboard.snapshots import KEPT_S
from pinlater.job_filters.bulk_order import ACTIONS
from pinlater.model import CONTINUATION_END, JobsChanged
from pinlater.model.job_selection import FoundJobs, FoundJobsChange, JobSelection

WITHIN_MS = 250
MOST_KEPT_S = 10.0
KEPT_JOBS = 100
"""So many looked at are kept as other snapshots, more of them for longer in proportion."""

MOST_COUNTED = 10_000
LOOKED_AT = 500
"""Letters that come to the page with all that is known of them; others are only counted."""

_REPLAY = ACTIONS["replay"]


def _kept_s(found: JobsChanged | FoundJobs) -> float:
    return min(MOST_KEPT_S, KEPT_S * max(1.0, found.looked_at / KEPT_JOBS))


class LettersFrom(NamedTuple):
    """How many letters of one queue were found; `is_all`: there are no others."""

    letters: int
    is_all: bool


async def letters_from(page: Page, letter_queue: str, queue: str) -> LettersFrom:
    """Those that came from `queue` and can be replayed."""
    selection = JobSelection(letter_queue, _REPLAY.takes, origin_queue=queue)
    change = FoundJobsChange(selection, _REPLAY.action, MOST_COUNTED, dry_run=True, max_ms=WITHIN_MS)

    async def load() -> JobsChanged:
        return await page.api.change_found_jobs(change, context=page.context)

    found = await page.snapshots.get(page.context, ("letters_from", letter_queue, queue), load, _kept_s)
    return LettersFrom(found.changed, found.continuation == CONTINUATION_END and not found.missing_shards)


class LettersIn(NamedTuple):
    """How many letters of each queue were found, the most first; `is_all`: there are no others."""

    by_queue: list[tuple[str, int]]
    is_all: bool


async def letters_in(page: Page, letter_queue: str) -> LettersIn:
    """Those that can be replayed."""
    selection = JobSelection(letter_queue, _REPLAY.takes)

    async def load() -> FoundJobs:
        found = await page.api.search_jobs(selection, limit=LOOKED_AT, max_ms=WITHIN_MS, context=page.context)
        for job in found.jobs:
            job.custom_status = ""  # they are large, and kept for a while
        return found

    found = await page.snapshots.get(page.context, ("letters_in", letter_queue), load, _kept_s)
    origins = Counter(job.origin.partition(":")[0] for job in found.jobs if job.origin)
    is_all = found.continuation == CONTINUATION_END and not found.missing_shards
    return LettersIn(sorted(origins.items(), key=lambda each: (-each[1], each[0])), is_all)
