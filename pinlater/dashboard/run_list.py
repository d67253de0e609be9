"""The pages of bulk runs: the question before one begins, all runs, and one with its progress."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Hashable, Sequence
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from pinlater.dashboard.bulk_runs import BulkRun, Tried, try_run
from pinlater.dashboard.job_list import PATH as JOBS
from pinlater.dashboard.job_list import queue_statuses
from pinlater.dashboard.page import Page, PageRoute, PartFailed
from pinlater.errors import Forbidden, RequestInvalid
from pinlater.job_filters.bulk_order import ACTIONS, RunOrder
from pinlater.job_filters.filter_parser import FilterError, parse_filter
from pinlater.job_filters.job_filter import FilterLine
from pinlater.job_filters.meant_queues import MeantQueues
from pinlater.model import AccessAction, JobAction, is_descriptor, queue_order
from pinlater.wire.found_job_methods import CHANGE_FOUND_JOBS

PATH = "/dashboard/runs"
NEW = f"{PATH}/new"
TRY_WITHIN_S = 0.8
MAX_NAMED = 200
"""Jobs that are selected one by one; a page lists 50."""

MAX_NOTE = 400
MAX_PACKED_BYTES = 200_000


def _read(values: Any) -> tuple[RunOrder, str]:
    """What a form asks for, and the text of its filter. RequestInvalid."""
    text = values.get("filter", "")
    try:
        line = parse_filter(text)
    except FilterError as error:
        raise RequestInvalid(error.message) from None
    action = ACTIONS.get(values.get("action", ""))
    if action is None:
        raise RequestInvalid.of("action", values.get("action", ""), ", ".join(ACTIONS))
    descriptors: tuple[str, ...] = ()
    if values.get("which", "all") == "selected":
        named = [*values.getall("job", []), *_unpacked(values.get("jobs", ""))]
        descriptors = tuple(dict.fromkeys(each for each in named if is_descriptor(each)))
        if not descriptors:
            raise RequestInvalid("no job was selected: tick some, or choose all that the filter finds")
        if len(descriptors) > MAX_NAMED:
            raise RequestInvalid.of("the number of selected jobs", len(descriptors), f"at most {MAX_NAMED}")
    attempts = values.get("attempts", "").strip()
    if attempts and not (attempts.isascii() and attempts.isdecimal() and 1 <= int(attempts[:10]) < 2**31):
        raise RequestInvalid.of("attempts", attempts, "a whole number, 1 or more; empty: as many as before")
    gives = action.action in (JobAction.RETRY, JobAction.REPLAY)
    stops_running = action.action is JobAction.CANCEL and bool(values.get("running"))
    note = " ".join(values.get("note", "").split())[:MAX_NOTE]
    given = int(attempts) if attempts and gives else None
    return RunOrder(action, line, descriptors, given, None, stops_running, note), text


async def _queues(page: Page, order: RunOrder) -> tuple[dict[str, Sequence[int]], int, list[str]]:
    """The queues that a run goes through, with the priorities of their jobs; how many jobs these have of the states
    that it means; and the queues that the caller may not change.
    """
    statuses = await queue_statuses(page, fresh=True)
    if isinstance(statuses, PartFailed):
        raise RequestInvalid(f"{statuses.message} {statuses.hint}")
    meant = MeantQueues(FilterLine() if order.descriptors else order.line, statuses, order.phases())
    names = sorted(meant.by_queue, key=queue_order)
    if order.descriptors:
        names = list(dict.fromkeys(each.partition(":")[0] for each in order.descriptors))
    queues: dict[str, Sequence[int]] = {}
    forbidden: list[str] = []
    of_about = 0
    for name in names:
        hides = order.line.reads_texts and not order.descriptors and not page.rights.sees_bodies(name)
        if not page.rights.may_call(CHANGE_FOUND_JOBS, name) or hides:
            forbidden.append(name)
            continue
        queues[name] = meant.priorities_of(name)
        of_about += meant.by_queue.get(name, 0)
    return queues, len(order.descriptors) or of_about, forbidden


def _back(text: str) -> str:
    """The list of jobs with that filter."""
    return f"{JOBS}?{urlencode({'filter': text})}" if text else JOBS


def _packed(descriptors: Sequence[str]) -> str:
    """For an address: they differ in few digits."""
    packed = zlib.compress("\n".join(descriptors).encode(), 9)
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


def _unpacked(text: str) -> list[str]:
    """None of them where the text is none of ours."""
    try:
        packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return zlib.decompressobj().decompress(packed, MAX_PACKED_BYTES).decode().split("\n")
    except (ValueError, zlib.error):
        return []


def _question(values: Any) -> tuple[RunOrder, str, str]:
    """What is to be done, the text of its filter, and the address of the question. RequestInvalid."""
    order, text = _read(values)
    why_not = order.why_not()
    if why_not:
        raise RequestInvalid(why_not)
    which = {"which": "selected", "jobs": _packed(order.descriptors)} if order.descriptors else {"which": "all"}
    return order, text, f"{NEW}?{urlencode({'action': order.action.word, 'filter': text, **which})}"


async def ask_first(page: Page) -> web.Response:
    """The question has an address of its own, so that a browser can go back to it from the run."""
    page.back = _back(page.form.get("filter", ""))
    return page.redirect(_question(page.form)[2])


async def new_run(page: Page) -> web.Response:
    """The question: what would be touched, and what it gets."""
    values = page.request.query
    page.back = _back(values.get("filter", ""))
    order, text, _ = _question(values)
    queues, of_about, forbidden = await _queues(page, order)
    is_counted = order.line.is_counted and not order.descriptors and order.action.action is not JobAction.REPLAY
    if is_counted:
        tried = Tried(of_about, 0, of_about, True, {})
    else:
        tried = await try_run(page.api, page.context, order, queues, of_about, page.now_ms, TRY_WITHIN_S)
    return page.render(
        "run_new.html",
        order=order,
        action=order.action,
        text=text,
        packed=_packed(order.descriptors),
        path=PATH,
        queues=list(queues),
        forbidden=forbidden,
        tried=tried,
        is_counted=is_counted,
        back=page.back,
        gives_attempts=order.action.action in (JobAction.RETRY, JobAction.REPLAY),
        may_stop=order.action.action is JobAction.CANCEL,
    )


async def start_run(page: Page) -> web.Response:
    question = {name: page.form.get(name, "") for name in ("action", "filter", "which", "jobs")}
    page.back = f"{NEW}?{urlencode(question)}"
    order, _, _ = _question(page.form)
    queues, of_about, forbidden = await _queues(page, order)
    if not queues:
        if forbidden:
            raise Forbidden(f"you may not change jobs of {', '.join(forbidden[:5])}")
        return page.redirect(_back(question["filter"]), "No job is like that any more: nothing was begun.", is_bad=True)
    run = BulkRun(order, owner_of(page), page.counts_as, page.who, page.context, queues, of_about)
    page.runs.start(run)
    return page.redirect(f"{PATH}/{run.id}")


def owner_of(page: Page) -> Hashable:
    """Who a run belongs to: the caller as the servers know it."""
    return page.context.shown, page.who


def _may_see(page: Page, run: BulkRun) -> bool:
    return run.owner == owner_of(page) or page.rights.may(AccessAction.ADMIN)


def _found(page: Page) -> BulkRun:
    """The run of the path. HTTPNotFound: it is not there, or not for this caller."""
    run = page.runs.find(page.request.match_info["run"])
    if run is None or not _may_see(page, run):
        raise web.HTTPNotFound
    return run


async def run_list(page: Page) -> web.Response:
    runs = [run for run in page.runs.all() if _may_see(page, run)]
    return page.render("runs.html", runs=runs, may_see_audit=page.rights.may(AccessAction.OPERATE))


async def run_detail(page: Page) -> web.Response:
    run = _found(page)
    line = run.order.line
    return page.render("run.html", run=run, action=run.order.action, back=_back(line.text()), line=line.text())


async def stop_run(page: Page) -> web.Response:
    run = _found(page)
    page.runs.stop(run)
    return page.redirect(f"{PATH}/{run.id}")


PAGES = (
    PageRoute("GET", PATH, run_list, None),
    PageRoute("GET", NEW, new_run, None),
    PageRoute("POST", NEW, ask_first, None),
    PageRoute("POST", PATH, start_run, None),
    PageRoute("GET", f"{PATH}/{{run}}", run_detail, None),
    PageRoute("POST", f"{PATH}/{{run}}/stop", stop_run, None),
)
