"""The workers: their queues, since when, how busy each is, and what it runs."""

from __future__ import annotations

import asyncio
from collections import Counter

from aiohttp import web

from pinlater.api import Api
from pinlater.dashboard.page import Page, PageRoute, PartFailed
from pinlater.errors import RequestInvalid
from pinlater.model import (
    CONTINUATION_END,
    CONTINUATION_START,
    EVERY_QUEUE,
    CommandOutcome,
    WorkerCommand,
    is_queue_name,
)
from pinlater.wire.operator_methods import COMMAND_WORKERS

PATH = "/dashboard/workers"
PAGE_SIZE = 50
DONE = {
    WorkerCommand.QUIET: "They take no more jobs, within 15 seconds",
    WorkerCommand.RESUME: "They take jobs again, within 15 seconds",
    WorkerCommand.STOP: "They end when their jobs have ended",
}
SHOWN_JOBS = 3
"""Of those that a worker runs; the others are behind a click."""


async def worker_table(page: Page) -> web.Response:
    queue, name = page.query.get("queue", "").strip(), page.query.get("name", "").strip()
    cursor = page.query.get("cursor") or CONTINUATION_START
    if queue and not is_queue_name(queue):
        raise web.HTTPNotFound
    found, alarms = await asyncio.gather(
        page.part(
            lambda: page.load(
                Api.get_workers, queue=queue, name=name, include_running=True, continuation=cursor, limit=PAGE_SIZE
            )
        ),
        page.alarms_here(),
    )
    is_last = isinstance(found, PartFailed) or found.continuation == CONTINUATION_END
    return page.render(
        "workers.html",
        workers=found,
        alarms=alarms,
        queue=queue,
        name=name,
        next="" if isinstance(found, PartFailed) or is_last else page.address(cursor=found.continuation),
        first="" if cursor == CONTINUATION_START else page.address(cursor=None),
        shown_jobs=SHOWN_JOBS,
        may_command=lambda worker: all(page.rights.may_call(COMMAND_WORKERS, queue) for queue in worker.queues),
        may_command_all=page.rights.may_call(COMMAND_WORKERS, EVERY_QUEUE),
    )


async def command_workers(page: Page) -> web.Response:
    """One of a row, or all of a host, of a name, or of the cluster."""
    form = page.form
    command = next((each for each in WorkerCommand if str(each) == form.get("command")), None)
    page.back = PATH
    if command is None:
        raise RequestInvalid.of("command", form.get("command", ""), ", ".join(map(str, WorkerCommand)))
    worker, host, name = (form.get(each, "") for each in ("worker", "host", "name"))
    given = await page.api.command_workers(
        command,
        [worker] if worker else (),
        host="" if worker else host,
        name="" if worker else name,
        all_workers=not (worker or host or name),
        context=page.context,
    )
    counts = Counter(each.outcome for each in given.workers)
    outcomes = ", ".join(f"{count:,} {str(outcome).replace('_', ' ')}" for outcome, count in sorted(counts.items()))
    is_bad = not counts or set(counts) != {CommandOutcome.TAKEN}
    return page.redirect(page.back, f"{DONE[command]}: {outcomes or 'no worker was meant'}.", is_bad=is_bad)


PAGES = (
    PageRoute("GET", PATH, worker_table),
    PageRoute("POST", f"{PATH}/commands", command_workers, None),  # the servers ask for the rights on each
)
