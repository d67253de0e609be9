"""The groups of one queue as its page shows them: those that are paused, and those with the most ready jobs, first, or
by any of their numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from pinlater.dashboard.page import Page
from pinlater.errors import MethodUnknown
from pinlater.model import CONTINUATION_END, GroupView

MOST_READ, MOST_SHOWN = 1_000, 20
_LIMITS = ("concurrency", "rate")


class GroupRow(NamedTuple):
    """A group as the page shows it. `limited`: the ready jobs that its pause or limits hold back. `running`: None where
    it has no maximum. `share`: its part of the last minute's hand-outs; None: there were none. `concurrency`, `rate`:
    its limits, "" for none; `own`: those that are set for its name. `pause`: why and until when, as far as that is
    said; "" where it is not paused.
    """

    name: str
    ready: int
    limited: int
    running: int | None
    oldest_ms: int | None
    share: float | None
    weight: str
    weight_source: str
    concurrency: str
    rate: str
    own: dict[str, str]
    is_paused: bool
    pause: dict[str, str]


_SORTS: dict[str, Callable[[GroupRow], Any]] = {
    "": lambda row: (not row.is_paused, -row.ready, row.name),
    "name": lambda row: row.name,
    "ready": lambda row: -row.ready,
    "limited": lambda row: -row.limited,
    "running": lambda row: -(row.running or 0),
    "oldest": lambda row: math.inf if row.oldest_ms is None else row.oldest_ms,
    "share": lambda row: -(row.share or 0),
}


class GroupTable(NamedTuple):
    """The groups to show, from `begin` on, of `found` that were read; `is_all`: these are all. `sort`: by what."""

    rows: list[GroupRow]
    begin: int
    found: int
    is_all: bool
    sort: str = ""


async def groups_of_queue(page: Page, queue: str) -> GroupTable:
    """Of the first MOST_READ by name; none of a server that knows no groups."""
    try:
        found = await page.api.get_groups(queue, limit=MOST_READ, context=page.context)
    except MethodUnknown:
        return GroupTable([], 0, 0, True)
    sort, number = page.query.get("groups", ""), page.query.get("groups_page", "1")
    sort = sort if sort in _SORTS else ""
    rows = sorted(map(_row, found.groups), key=_SORTS[sort])
    wanted = int(number) if number.isascii() and number.isdecimal() and len(number) < 7 else 1
    begin = MOST_SHOWN * max(0, min(wanted, -(-len(rows) // MOST_SHOWN)) - 1)
    is_all = found.continuation == CONTINUATION_END
    return GroupTable(rows[begin : begin + MOST_SHOWN], begin, len(rows), is_all, sort)


def _row(view: GroupView) -> GroupRow:
    values = {name: each.value for name, each in view.settings.items()}
    pause = {key: values[f"paused_{key}"] for key in ("by", "why", "until")}
    if pause["until"] == "none":
        pause["until"] = ""
    weight = view.settings["weight"]
    own = {key: each.value for key, each in view.settings.items() if key in _LIMITS and each.source == "group"}
    concurrency, rate = (values.get(key, "none").removesuffix("none") for key in _LIMITS)
    return GroupRow(
        view.name,
        view.ready,
        view.limited or 0,
        view.running,
        view.oldest_run_after_ms,
        view.last_minute_share,
        weight.value,
        weight.source,
        concurrency,
        rate,
        {key: own.get(key, "") for key in _LIMITS},
        values["paused"] == "true",
        pause,
    )
