"""The workers: who polls what, since when, how busy each is, and what it runs."""

from __future__ import annotations

from aiohttp import web

from pinlater.api import Api
from pinlater.dashboard.page import Page, PageRoute, PartFailed
from pinlater.model import CONTINUATION_END, CONTINUATION_START, is_queue_name

PATH = "/dashboard/workers"
PAGE_SIZE = 50
SHOWN_JOBS = 3
"""Of those that a worker runs; the others are behind a click."""


async def worker_table(page: Page) -> web.Response:
    queue, name = page.query.get("queue", "").strip(), page.query.get("name", "").strip()
    cursor = page.query.get("cursor") or CONTINUATION_START
    if queue and not is_queue_name(queue):
        raise web.HTTPNotFound
    load = page.load(
        Api.get_workers, queue=queue, name=name, include_running=True, continuation=cursor, limit=PAGE_SIZE
    )
    found = await page.part(load)
    is_last = isinstance(found, PartFailed) or found.continuation == CONTINUATION_END
    return page.render(
        "workers.html",
        workers=found,
        queue=queue,
        name=name,
        next="" if isinstance(found, PartFailed) or is_last else page.address(cursor=found.continuation),
        first="" if cursor == CONTINUATION_START else page.address(cursor=None),
        shown_jobs=SHOWN_JOBS,
    )


PAGES = (PageRoute("GET", PATH, worker_table),)
