"""The overview: alarms first, then the cluster in a few numbers, its queues, shards, servers and workers."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from pinlater.dashboard.history_view import all_queues_view, sparklines
from pinlater.dashboard.page import Page, PageRoute, PartFailed
from pinlater.dashboard.queue_rows import sum_of, worst_first
from pinlater.model.alarm_views import OLD_MS, AlarmsPage

MOST_QUEUES = 15
"""On this page; the rest is on their own."""


async def overview(page: Page) -> web.Response:
    found, workers, alarms, history = await asyncio.gather(
        page.part(lambda: page.snapshots.queue_rows(page.context)),
        page.part(lambda: page.snapshots.workers(page.context)),
        page.part(lambda: page.snapshots.alarms(page.context)),
        all_queues_view(page),
    )
    if isinstance(found, PartFailed):
        return page.render(
            "overview.html", status=200, cluster=found, workers=workers, history=history, **_of_alarms(alarms)
        )
    status, rows = found
    standing = [] if isinstance(alarms, PartFailed) else [each.queue for each in alarms.alarms if not each.is_muted]
    shown = worst_first(rows, status.now_ms, standing, page.history.failed_in_hour())[:MOST_QUEUES]
    return page.render(
        "overview.html",
        cluster=status,
        workers=workers,
        **_of_alarms(alarms),
        sums=sum_of(rows),
        history=history,
        rows=shown,
        lines=sparklines(page, [row.name for row in shown]),
        queues_total=len(rows),
    )


def _of_alarms(page: AlarmsPage | PartFailed) -> dict[str, Any]:
    """`judged`: whose judgement it is; `alarms`: those that stand and are not muted."""
    alarms = [] if isinstance(page, PartFailed) else [each for each in page.alarms if not each.is_muted]
    is_old = (
        not isinstance(page, PartFailed) and page.judged_at_ms is not None and page.now_ms - page.judged_at_ms > OLD_MS
    )
    marks = {} if isinstance(page, PartFailed) else page.by_queue()
    return {"judged": page, "alarms": alarms, "marks": marks, "is_judgement_old": is_old}


PAGES = (PageRoute("GET", "/dashboard", overview),)
