"""The list of queues: two thousand of them too, by name or by any number, and a form that makes one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiohttp import web

from pinlater.dashboard.history_view import sparklines
from pinlater.dashboard.page import Page, PageRoute, PartFailed
from pinlater.dashboard.queue_rows import QueueRow
from pinlater.model import queue_order

PATH = "/dashboard/queues"
PAGE_SIZE = 100
_SORTS: dict[str, Callable[[QueueRow], Any]] = {
    "name": lambda row: queue_order(row.name),
    "ready": lambda row: -row.ready,
    "scheduled": lambda row: -row.scheduled,
    "running": lambda row: -row.running,
    "failed": lambda row: -row.failed,
    "oldest": lambda row: float("inf") if row.oldest_ms is None else row.oldest_ms,
    "enqueued": lambda row: -row.rate("enqueued"),
    "done": lambda row: -row.rate("succeeded"),
}
"""By number the largest comes first, which `order=turned` turns around."""

_SHOWS: dict[str, tuple[str, Callable[[QueueRow], bool]]] = {
    "": ("all queues", lambda row: True),
    "busy": ("with jobs that wait or run", lambda row: bool(row.ready or row.running or row.waiting)),
    "failed": ("with failed jobs", lambda row: row.failed > 0),
    "paused": ("paused or draining", lambda row: row.is_paused or "draining" in row.flags),
    "empty": ("without jobs", lambda row: not row.jobs),
}


async def queue_list(page: Page) -> web.Response:
    found, alarms = await asyncio.gather(
        page.part(lambda: page.snapshots.queue_rows(page.context)),
        page.part(lambda: page.snapshots.alarms(page.context)),
    )
    if isinstance(found, PartFailed):
        return page.render("queues.html", cluster=found)
    status, every = found
    name, show, sort = page.query.get("name", "").strip(), page.query.get("show", ""), page.query.get("sort", "")
    show, sort = show if show in _SHOWS else "", sort if sort in _SORTS else "name"
    is_turned = page.query.get("order") == "turned"
    is_shown = _SHOWS[show][1]
    rows = [row for row in every if name.lower() in row.name.lower() and is_shown(row)]
    if sort != "name" or is_turned:
        rows.sort(key=_SORTS[sort], reverse=is_turned)
    text = page.query.get("page", "1")
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 7 else 1
    pages = max(1, -(-len(rows) // PAGE_SIZE))
    number = min(max(1, number), pages)
    begin = (number - 1) * PAGE_SIZE
    shown = rows[begin : begin + PAGE_SIZE]
    return page.render(
        "queues.html",
        cluster=status,
        rows=shown,
        marks={} if isinstance(alarms, PartFailed) else alarms.by_queue(),
        lines=sparklines(page, [row.name for row in shown]),
        begin=begin,
        found=len(rows),
        total=len(every),
        name=name,
        show=show,
        shows=[(each, text) for each, (text, _) in _SHOWS.items()],
        sort=sort,
        is_turned=is_turned,
        number=number,
        pages=pages,
    )


async def create_queue(page: Page) -> web.Response:
    page.back = PATH
    name = page.form.get("name", "").strip()
    await page.api.create_queue(name, context=page.context)
    return page.redirect(f"{PATH}/{name}", f"Queue {name} is there.")


PAGES = (
    PageRoute("GET", PATH, queue_list),
    PageRoute("POST", PATH, create_queue, None),
)
