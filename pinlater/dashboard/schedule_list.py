"""All schedules, by name: when each fires in words, when it did last and will next; and those of one queue."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple
from zoneinfo import ZoneInfo

from aiohttp import web

from pinlater.api import Api
from pinlater.dashboard.formats import segment
from pinlater.dashboard.page import Page, PageRoute, PartFailed
from pinlater.durations import duration_text, spaced
from pinlater.model import (
    CONTINUATION_END,
    CONTINUATION_START,
    AccessAction,
    Misfire,
    Schedule,
    ScheduleView,
    queue_order,
)
from pinlater.schedule import utc_text, zone_moment
from pinlater.timetable import cron_warnings, cron_words
from pinlater.wire.schedule_methods import UPDATE_SCHEDULE

PATH = "/dashboard/schedules"
PAGE_SIZE = 50
LOOKED_AT = 500
"""At a time, where some are looked for among all."""

LOOKS_FOR_S = 0.5
"""So long; then the page shows what it found so far, and a way to go on."""

OF_QUEUE = 20
MOST_QUEUES = 50
SHOWS = {"": "all schedules", "on": "that fire", "paused": "paused", "in trouble": "in trouble"}
"""Words of a state, and how they are called where one chooses."""

_MISFIRES = {Misfire.SKIP: "left out", Misfire.RUN_ONCE: "one job for all of them", Misfire.RUN_ALL: "a job for each"}


class ScheduleRow(NamedTuple):
    """A schedule as pages show it. `times`: when it fires, in words; `code`: as it was said."""

    view: ScheduleView
    times: str
    code: str
    state: tuple[str, str]

    @classmethod
    def of(cls, view: ScheduleView) -> ScheduleRow:
        shown = view.schedule
        if shown.every_ms is not None:
            return cls(view, f"Every {spaced(duration_text(shown.every_ms))}", "", _state(view))
        return cls(view, cron_words(shown.cron) or shown.cron, shown.cron, _state(view))

    @property
    def schedule(self) -> Schedule:
        return self.view.schedule

    @property
    def warnings(self) -> list[str]:
        """What its expression has that can hardly be meant."""
        return cron_warnings(self.code)

    @property
    def misfire(self) -> str:
        """What becomes of times at which no server ran, in words."""
        text = _MISFIRES[self.schedule.misfire]
        return f"{text}, {self.schedule.max_catch_up} at most" if self.schedule.misfire is Misfire.RUN_ALL else text

    def is_shown(self, show: str) -> bool:
        """Whether it is one of SHOWS."""
        return show in ("", self.state[0])

    def local_text(self, at_ms: int) -> str:
        """A moment on the clock of the schedule's zone."""
        return zone_text(at_ms, self.schedule.timezone)


class SchedulesFound(NamedTuple):
    """`next`: the cursor of the next page, "" for none. `examined`: so many were looked at for these, where some are
    looked for and not all were.
    """

    rows: list[ScheduleRow]
    next: str
    examined: int = 0


class SomeQueues(NamedTuple):
    """The caller may see the schedules of single queues alone: of these."""

    queues: list[str]


def _state(view: ScheduleView) -> tuple[str, str]:
    """A word for how it is, and the kind of that."""
    if view.schedule.paused:
        return "paused", "held"
    return ("in trouble", "bad") if view.trouble else ("on", "good")


def zone_text(at_ms: int, timezone: str) -> str:
    """
    >>> zone_text(1_790_000_000_000, "Europe/Berlin")
    'Mon 2026-09-21 16:13:20 +0200'
    """
    form = "%a %Y-%m-%d %H:%M:%S %z"
    with suppress(ValueError, OSError, LookupError):  # this machine does not know the zone
        moment = zone_moment(at_ms, ZoneInfo(timezone))
        if moment is not None:
            return moment.strftime(form)
    return utc_text(at_ms, form)


def schedule_path(page: Page, schedule: Schedule) -> str:
    """The address of its page; who may see those of single queues alone has to name the queue."""
    path = f"{PATH}/{segment(schedule.name)}"
    return path if page.rights.may(AccessAction.READ) else f"{path}?queue={segment(schedule.queue)}"


async def schedule_list(page: Page) -> web.Response:
    query = {name: page.query.get(name, "").strip() for name in ("name", "queue", "made_by", "show")}
    if query["show"] not in SHOWS:
        query["show"] = ""
    found: SchedulesFound | SomeQueues | PartFailed
    if query["queue"] or page.rights.may(AccessAction.READ):
        found = await page.part(lambda: _found(page, query))
    else:
        found = await page.part(lambda: _queues(page))
    return page.render(
        "schedules.html",
        found=found,
        is_of_queues=isinstance(found, SomeQueues),
        query=query,
        shows=SHOWS,
        cursor=page.query.get("cursor", ""),
        may_set=page.rights.may_call(UPDATE_SCHEDULE),
        path=lambda row: schedule_path(page, row.schedule),
    )


async def _found(page: Page, query: Mapping[str, str]) -> SchedulesFound:
    """Those of a queue or a program the servers find; for all else they are looked through here."""
    name, show = query["name"].lower(), query["show"]
    limit = LOOKED_AT if name or show else PAGE_SIZE
    continuation = page.query.get("cursor") or CONTINUATION_START
    ends_s = time.monotonic() + LOOKS_FOR_S
    rows: list[ScheduleRow] = []
    examined = 0
    while True:
        shown = await page.load(
            Api.get_schedules,
            queue=query["queue"],
            made_by=query["made_by"],
            continuation=continuation,
            limit=limit,
        )
        continuation, examined = shown.continuation, examined + len(shown.schedules)
        every = map(ScheduleRow.of, shown.schedules)
        rows += [row for row in every if name in row.schedule.name.lower() and row.is_shown(show)]
        if len(rows) > PAGE_SIZE:
            rows = rows[:PAGE_SIZE]
            return SchedulesFound(rows, rows[-1].schedule.name)
        if continuation == CONTINUATION_END:
            return SchedulesFound(rows, "")
        if len(rows) == PAGE_SIZE or time.monotonic() > ends_s:
            return SchedulesFound(rows, continuation, examined if limit == LOOKED_AT else 0)


async def _queues(page: Page) -> SomeQueues:
    names = await page.load(Api.queue_names)
    return SomeQueues(sorted(names, key=queue_order)[:MOST_QUEUES])


async def schedules_of_queue(page: Page, queue: str) -> SchedulesFound | PartFailed:
    """The first of them; `next` says that there are more."""
    shown = await page.part(lambda: page.load(Api.get_schedules, queue=queue, limit=OF_QUEUE))
    if isinstance(shown, PartFailed):
        return shown
    is_last = shown.continuation == CONTINUATION_END
    return SchedulesFound([ScheduleRow.of(view) for view in shown.schedules], "" if is_last else shown.continuation)


PAGES = (PageRoute("GET", PATH, schedule_list),)
