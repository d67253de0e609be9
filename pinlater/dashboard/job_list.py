"""The list of jobs: a filter in one line, counts by state and queue beside it, and what can be done with the jobs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from aiohttp import web

from pinlater.dashboard.charts import spark_path
from pinlater.dashboard.error_groups import ErrorGroups, find_errors
from pinlater.dashboard.error_kinds import ErrorGroup, of_failed
from pinlater.dashboard.filter_completion import complete
from pinlater.dashboard.job_rows import JobRow, job_row
from pinlater.dashboard.job_search import JobSearch, SearchedPage
from pinlater.dashboard.page import Page, PageRoute, PartFailed
from pinlater.errors import PinLaterError, RequestInvalid
from pinlater.job_filters.bulk_order import ACTIONS, BulkAction
from pinlater.job_filters.filter_fields import FIELDS, STATE_GROUPS
from pinlater.job_filters.filter_parser import FilterError, parse_filter, pieces
from pinlater.job_filters.job_filter import FilterLine, quoted
from pinlater.model import AccessAction, JobAction, QueueStatus, queue_order
from pinlater.model.job_selection import JobPhase
from pinlater.wire.found_job_methods import CHANGE_FOUND_JOBS

PATH = "/dashboard/jobs"
PAGE_SIZE = 50
MAX_QUEUES = 12
"""Beside the list."""

TAGGED_JOBS, TAGS_WITHIN_S = 200, 0.2
"""Among so many jobs those tags are that are offered, and so long they are looked for."""

WORD = re.compile(r"[\w:.@/+-]+")
"""A value that needs no quotes in a line."""

LIVE_WITHIN_S = 0.1
"""A search that takes longer is not done again every two seconds."""


class Facet(NamedTuple):
    """A value that a click puts into the filter, or takes out of it; `filter` is the line then."""

    name: str
    amount: int
    is_on: bool
    filter: str


async def queue_statuses(page: Page, *, fresh: bool = False) -> list[QueueStatus] | PartFailed:
    """All queues that the caller may read, as they were last counted. `fresh`: the servers are asked now."""
    status = await page.part(lambda: page.snapshots.cluster(page.context, fresh=fresh))
    return status if isinstance(status, PartFailed) else status.queues


async def job_list(page: Page) -> web.Response:
    text, cursor = page.query.get("filter", ""), page.query.get("cursor", "")
    statuses = await queue_statuses(page)
    counted: Sequence[QueueStatus] = [] if isinstance(statuses, PartFailed) else statuses
    wrong: FilterError | None = None
    line = FilterLine()
    try:
        line = parse_filter(text)
    except FilterError as error:
        wrong = error
    search = JobSearch(page.api, page.context, line, counted, page.now_ms, page.rights.sees_bodies)
    found: SearchedPage | PartFailed | None = None
    if wrong is None:
        key = ("jobs", text, cursor)
        try:
            found = await page.snapshots.get(page.context, key, lambda: search.page(cursor, PAGE_SIZE))
        except RequestInvalid as error:  # a pattern that is none, which the servers know
            wrong = FilterError(error.message, 0, len(text))
        except PinLaterError as error:
            found = page.failed(error)
    errors = await page.part(lambda: find_errors(page, line, counted)) if wrong is None else ErrorGroups()
    rows: list[JobRow] = []
    if isinstance(found, SearchedPage):
        rows = [
            job_row(info, page.now_ms, sees_bodies=page.rights.sees_bodies(info.descriptor.partition(":")[0]))
            for info in found.jobs
        ]
    queues = sorted(search.by_queue, key=lambda name: (-search.by_queue[name], queue_order(name)))
    return page.render(
        "jobs.html",
        text=text,
        line=line,
        wrong=wrong,
        statuses=statuses,
        has_queues=bool(counted),
        found=found,
        rows=rows,
        is_first=not cursor,
        states=_states(line, search),
        queues=[_queue(line, name, search.by_queue[name]) for name in queues[:MAX_QUEUES]],
        errors=errors,
        error_facets=[] if isinstance(errors, PartFailed) else [_error(line, group) for group in errors.groups],
        may_retry=may_change(page, queues),
        more_queues=max(0, len(queues) - MAX_QUEUES),
        shows_queue=len(queues) != 1,
        of_about=search.of_about,
        is_counted=line.is_counted,
        actions=_actions(line, search, rows) if may_change(page, queues) else [],
        is_live=isinstance(found, SearchedPage) and found.took_s < LIVE_WITHIN_S,
    )


def _actions(line: FilterLine, search: JobSearch, rows: Sequence[JobRow]) -> list[BulkAction]:
    """What can be done to the jobs of a page, or to all that were found, in the states that these are in."""
    there = {row.phase for row in rows} | {phase for phase in line.phases if search.counts[phase]}
    has_letters = any(row.info.origin is not None for row in rows)
    return [
        each
        for each in ACTIONS.values()
        if not there.isdisjoint(each.takes) and (each.action is not JobAction.REPLAY or has_letters)
    ]


def may_change(page: Page, queues: Sequence[str]) -> bool:
    """On one of these queues at least."""
    return any(page.rights.may_call(CHANGE_FOUND_JOBS, name) for name in queues)


def _states(line: FilterLine, search: JobSearch) -> list[Facet]:
    """A click on the one state that is asked for shows all again."""
    wanted = {word for term in line.of("state") for word in term.values}
    facets = []
    for phase in JobPhase:
        word = phase.word
        is_on = wanted == {word}
        filter = line.with_values("state", *([] if is_on else [word])).text()
        facets.append(Facet(word, search.counts[phase], is_on, filter))
    return facets


def _queue(line: FilterLine, name: str, amount: int) -> Facet:
    is_on = [term.values for term in line.of("queue")] == [(name,)]
    return Facet(name, amount, is_on, line.with_values("queue", *([] if is_on else [name])).text())


class ErrorFacet(NamedTuple):
    """`filter` is the line after a click on the error; `jobs`: the line of its jobs alone; `spark`: the last hour as a
    line, on a ground of 80 by 22.
    """

    group: ErrorGroup
    is_on: bool
    filter: str
    jobs: str
    spark: str


def _error(line: FilterLine, group: ErrorGroup) -> ErrorFacet:
    is_on = [term.values for term in line.of("error")] == [(group.name,)]
    jobs = of_failed(line).with_values("error", group.name)
    shown = (line.with_values("error") if is_on else jobs).text()
    return ErrorFacet(group, is_on, shown, jobs.text(), spark_path(group.hour, 80, 22))


async def completions(page: Page) -> web.Response:
    """What can come next in a line, for the script of the list."""
    text, cursor = page.query.get("filter", ""), page.query.get("at", "")
    statuses = await queue_statuses(page)
    known: dict[str, dict[str, str]] = {"priority": {"1": "the highest"}}
    for status in [] if isinstance(statuses, PartFailed) else sorted(statuses, key=lambda each: queue_order(each.name)):
        jobs = sum(level.ready + level.scheduled + level.in_progress + level.waiting for level in status.levels)
        known.setdefault("queue", {})[status.name] = f"{jobs:,} to do" if jobs else ""
        for level in status.levels:
            known["priority"].setdefault(str(level.priority), "")
    around = " ".join(piece.raw for piece in pieces(text) if piece.field.lower() != "error")
    with suppress(FilterError):
        if "error" in text:
            errors = await page.part(
                lambda: find_errors(page, parse_filter(around), [] if isinstance(statuses, PartFailed) else statuses)
            )
            groups = [] if isinstance(errors, PartFailed) else errors.groups
            known["error"] = {group.name: f"{group.jobs:,} failed" for group in groups}
    with suppress(FilterError):
        if "tag" in text:
            around = " ".join(piece.raw for piece in pieces(text) if piece.field.lower() != "tag")
            counted = [] if isinstance(statuses, PartFailed) else statuses
            known["tag"] = await _tags(page, parse_filter(around), counted)
    at = int(cursor) if cursor.isascii() and cursor.isdecimal() and len(cursor) < 6 else len(text)
    found = complete(text, at, known)
    options = [{"text": option.text, "note": option.note} for option in found.options]
    return web.json_response({"start": found.start, "end": found.end, "options": options})


async def _tags(page: Page, line: FilterLine, statuses: Sequence[QueueStatus]) -> dict[str, str]:
    """As they stand in a line, of the newest jobs that it finds, the most frequent first."""

    async def load() -> SearchedPage:
        search = JobSearch(page.api, page.context, line, statuses, page.now_ms, page.rights.sees_bodies, bodies=False)
        return await search.page("", TAGGED_JOBS, TAGS_WITHIN_S)

    found = await page.part(lambda: page.snapshots.get(page.context, ("tags", line.text()), load))
    jobs = [] if isinstance(found, PartFailed) else found.jobs
    tags = Counter(tag for job in jobs for tag in job.tags or ())
    return {
        tag if WORD.fullmatch(tag) else quoted(tag): f"{amount:,} of the newest {len(jobs):,}"
        for tag, amount in tags.most_common()
    }


async def filter_help(page: Page) -> web.Response:
    """The fields of the language, with examples."""
    return page.render("filter_help.html", fields=FIELDS, groups=STATE_GROUPS)


PAGES = (
    PageRoute("GET", PATH, job_list, AccessAction.READ),
    PageRoute("GET", f"{PATH}/completions", completions, AccessAction.READ),
    PageRoute("GET", f"{PATH}/filters", filter_help, AccessAction.READ),
)
