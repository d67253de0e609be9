"""The groups of one queue as its page shows them: those that are paused, and those with the most ready jobs, first."""

from __future__ import annotations

from typing import NamedTuple

from pinlater.dashboard.page import Page
from pinlater.errors import MethodUnknown
from pinlater.model import CONTINUATION_END, GroupView

MOST_READ, MOST_SHOWN = 1_000, 20
_LIMITS = ("concurrency", "rate")


class GroupRow(NamedTuple):
    """A group as the page shows it. `running`: None where it has no maximum. `concurrency`, `rate`: its limits, "" for
    none; `own`: those that are set for its name. `pause`: why and until when, as far as that is said; "" where it is
    not paused.
    """

    name: str
    ready: int
    running: int | None
    oldest_ms: int | None
    weight: str
    weight_source: str
    concurrency: str
    rate: str
    own: dict[str, str]
    is_paused: bool
    pause: dict[str, str]


class GroupTable(NamedTuple):
    """The groups to show. `more`: how many of those that were read are left out; `is_all`: all were read."""

    rows: list[GroupRow]
    more: int
    is_all: bool


async def groups_of_queue(page: Page, queue: str) -> GroupTable:
    """Of the first MOST_READ by name; none of a server that knows no groups."""
    try:
        found = await page.api.get_groups(queue, limit=MOST_READ, context=page.context)
    except MethodUnknown:
        return GroupTable([], 0, True)
    rows = sorted(map(_row, found.groups), key=lambda row: (not row.is_paused, -row.ready, row.name))
    return GroupTable(rows[:MOST_SHOWN], len(rows) - len(rows[:MOST_SHOWN]), found.continuation == CONTINUATION_END)


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
        view.running,
        view.oldest_run_after_ms,
        weight.value,
        weight.source,
        concurrency,
        rate,
        {key: own.get(key, "") for key in _LIMITS},
        values["paused"] == "true",
        pause,
    )
