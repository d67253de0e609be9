"""The overview: alarms first, then the cluster in a few numbers, its queues, shards, servers and workers."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from aiohttp import web

from pinlater.dashboard.cluster_view import PATH as CLUSTER
from pinlater.dashboard.formats import number_text
from pinlater.dashboard.history_view import all_queues_view, sparklines
from pinlater.dashboard.page import Page, PageRoute, PartFailed
from pinlater.dashboard.queue_rows import QueueRow, busiest, sum_of
from pinlater.durations import span_text
from pinlater.model import ClusterStatus, WorkersPage

MOST_QUEUES = 15
"""On this page; the rest is on their own."""

WAITS_LONG_MS = 60_000
"""So long jobs may wait that no worker takes before that is an alarm."""


class Alarm(NamedTuple):
    """What an operator should look at. `is_bad`: it keeps jobs from being done; else it is worth knowing."""

    text: str
    path: str
    is_bad: bool = True


def alarms(status: ClusterStatus, rows: list[QueueRow], workers: WorkersPage | None) -> list[Alarm]:
    """The worst first."""
    texts = [f"Shard {each.id} is out: {each.trouble or each.state}" for each in status.shards if each.state != "in"]
    texts += [f"Shard {each.id} is full and takes no new jobs" for each in status.shards if each.is_full]
    texts += [
        f"Server {each.server}/{each.process} is not ready: {each.trouble}"
        for each in status.servers
        if not each.is_ready
    ]
    texts += [status.homes_trouble] if status.homes_trouble else []
    texts += [
        f"{chain.first} keeps {number_text(chain.waiting)} others of serialize key {chain.serialize_key!r} waiting"
        for shard in status.shards
        for chain in shard.blocked_chains
    ]
    found = [Alarm(text, CLUSTER) for text in texts]
    if workers is not None:
        found += _of_workers(status, rows, workers)
    paused = [row.name for row in rows if row.is_paused and row.ready]
    if paused:
        found.append(Alarm(f"{_some(paused)}: paused with jobs that wait", "/dashboard/queues?show=paused", False))
    exposed = sorted({each.exposed for each in status.servers if each.exposed})
    found += [Alarm(text, CLUSTER, False) for text in exposed]
    return sorted(found, key=lambda alarm: not alarm.is_bad)


def _of_workers(status: ClusterStatus, rows: list[QueueRow], workers: WorkersPage) -> list[Alarm]:
    path = "/dashboard/workers"
    silent = [each.name for each in workers.workers if each.silent_since_ms is not None]
    found = [Alarm(f"{_some(silent)}: silent, although its process is there", path)] if silent else []
    if workers.stuck_slots:
        found.append(Alarm(f"{number_text(workers.stuck_slots)} slots of workers are stuck", path))
    if workers.total > len(workers.workers):
        return found  # those that are not on the first page may take these jobs
    polled = {queue for worker in workers.workers for queue in worker.queues}
    alone = [
        row
        for row in rows
        if row.ready
        and not row.is_paused
        and row.name not in polled
        and not row.rate("dequeued")
        and row.oldest_ms is not None
        and status.now_ms - row.oldest_ms > WAITS_LONG_MS
    ]
    if alone:
        longest_ms = max(status.now_ms - (row.oldest_ms or status.now_ms) for row in alone)
        names = _some([row.name for row in alone])
        found.append(Alarm(f"{names}: no worker takes jobs, the oldest waits for {span_text(longest_ms)}", path))
    return found


def _some(names: list[str]) -> str:
    """
    >>> _some(["a", "b"]), _some(["a", "b", "c", "d", "e"])
    ('a, b', 'a, b, c and 2 more')
    """
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more:,} more" if more > 0 else "")


async def overview(page: Page) -> web.Response:
    found, workers, history = await asyncio.gather(
        page.part(page.snapshots.queue_rows(page.context)),
        page.part(page.snapshots.workers(page.context)),
        all_queues_view(page),
    )
    if isinstance(found, PartFailed):
        return page.render("overview.html", status=200, cluster=found, workers=workers, history=history)
    status, rows = found
    shown = busiest(rows, MOST_QUEUES)
    raised = alarms(status, rows, None if isinstance(workers, PartFailed) else workers)
    return page.render(
        "overview.html",
        cluster=status,
        workers=workers,
        alarms=raised,
        sums=sum_of(rows),
        history=history,
        rows=shown,
        lines=sparklines(page, [row.name for row in shown]),
        queues_total=len(rows),
    )


PAGES = (PageRoute("GET", "/dashboard", overview),)
