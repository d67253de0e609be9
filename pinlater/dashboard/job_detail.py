"""One job: its time-line, body, result, status, worker, what it waits for, and its actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import web

from pinlater.dashboard.body_view import BodyView, body_view, value_view
from pinlater.dashboard.formats import segment
from pinlater.dashboard.job_list import PATH as JOBS
from pinlater.dashboard.job_rows import JobRow, job_row
from pinlater.dashboard.job_timeline import add_changes, timeline
from pinlater.dashboard.page import Page, PageRoute
from pinlater.dashboard.part_failed import PartFailed
from pinlater.errors import PinLaterError
from pinlater.job_body import FLOW_HEADER, ITEM_HEADER
from pinlater.model import (
    AccessAction,
    AttemptOutcome,
    AuditEntry,
    JobInfo,
    JobState,
    is_descriptor,
    is_queue_name,
)
from pinlater.model.job_holds import JobHold
from pinlater.wire.found_job_methods import CHANGE_FOUND_JOBS
from pinlater.wire.methods import CANCEL, ENQUEUE, RESCHEDULE
from pinlater.wire.operator_methods import GET_AUDIT

PATH = f"{JOBS}/{{descriptor}}"
MOST_ENTRIES, CHANGES_KEPT_S = 500, 10.0
"""Of the audit so many entries are looked at, the latest, and for so long taken for the latest."""

_SCHEDULE_KEY = "@schedule/"
"""With this begins the dedupe key of a job that a schedule has enqueued."""

_ITEM_KEY = "@flow/"
"""And of one that carries an item of a flow: whether that is tried again is said on the page of the flow."""


@dataclass(frozen=True, slots=True)
class JobRights:
    """What the caller may do with a job that is as it is now."""

    retry: bool
    cancel: bool
    stop: bool
    delete: bool
    replay: bool
    reschedule: bool
    copy: bool

    @property
    def any(self) -> bool:
        return any((self.retry, self.cancel, self.stop, self.delete, self.replay, self.reschedule, self.copy))


def job_rights(page: Page, info: JobInfo) -> JobRights:
    queue = info.descriptor.partition(":")[0]
    may = page.rights.may_call
    changes = may(CHANGE_FOUND_JOBS, queue)
    is_pending = info.state is JobState.PENDING
    is_failed = info.state is JobState.FAILED and info.replayed_to is None
    return JobRights(
        retry=changes and is_failed and not (info.dedupe_key or "").startswith(_ITEM_KEY),
        cancel=may(CANCEL, queue) and is_pending,
        stop=may(CANCEL, queue) and info.state is JobState.IN_PROGRESS and info.cancel_requested_by is None,
        delete=changes and not is_pending and info.state is not JobState.IN_PROGRESS,
        replay=changes and info.origin is not None and (is_pending or is_failed),
        reschedule=may(RESCHEDULE, queue) and is_pending,
        copy=may(ENQUEUE, queue) and page.rights.sees_bodies(queue),
    )


def descriptor_of(page: Page) -> str:
    """That of the path. HTTPNotFound: it can be none."""
    text = page.request.match_info["descriptor"]
    if not is_descriptor(text) or not is_queue_name(text.partition(":")[0]):
        raise web.HTTPNotFound
    return text


async def find_job(page: Page, descriptor: str, *, with_body: bool) -> JobInfo:
    """HTTPNotFound: it is not there, or no more."""
    shows = with_body and page.rights.sees_bodies(descriptor.partition(":")[0])
    found = await page.api.lookup(
        [descriptor], include_body=shows, include_result=shows, include_trail=True, context=page.context
    )
    info = found.get(descriptor)
    if info is None:
        raise web.HTTPNotFound
    if info.result_left_out:  # the body left no room for it
        found = await page.api.lookup([descriptor], include_result=True, context=page.context)
        info.result = None if descriptor not in found else found[descriptor].result
    return info


async def _hold(page: Page, info: JobInfo, descriptor: str) -> JobHold | None:
    """What holds a job back; None: nothing does, or nobody can say it now."""
    if info.state is not JobState.PENDING:
        return None
    try:
        holds = await page.api.explain_jobs([descriptor], context=page.context)
    except PinLaterError:
        return None
    return holds[0] if holds else None


async def job_detail(page: Page) -> web.Response:
    descriptor = descriptor_of(page)
    info = await find_job(page, descriptor, with_body=True)
    queue = descriptor.partition(":")[0]
    sees_bodies = page.rights.sees_bodies(queue)
    row: JobRow = job_row(info, page.now_ms, sees_bodies=sees_bodies)
    body: BodyView | None = body_view(info.body) if info.body is not None else None
    hold = await _hold(page, info, descriptor)
    headers = body.call.headers if body is not None and body.call is not None else {}
    steps = timeline(info, page.now_ms, hold.text if hold is not None else "", sees_texts=sees_bodies)
    add_changes(steps, info, await _latest_changes(page, info))
    return page.render(
        "job.html",
        info=info,
        row=row,
        path=f"{JOBS}/{segment(descriptor)}",
        sees_bodies=sees_bodies,
        body=body,
        result=value_view(info.result) if info.result is not None else None,
        timeline=steps,
        hold=hold,
        can=job_rights(page, info),
        shard=descriptor.split(":")[1][1:],
        schedule=_schedule_of(info),
        flow=headers.get(FLOW_HEADER, ""),
        item=headers.get(ITEM_HEADER, ""),
        edited=body_text(info.body) if body is not None and body.is_editable and info.body is not None else None,
        is_found_by_key=info.dedupe_key is not None,
    )


async def _latest_changes(page: Page, info: JobInfo) -> Sequence[AuditEntry]:
    """The last entries of the audit, for those who may read it, where an operator may have retried the job, as an
    attempt of it has not succeeded, rescheduled it, as it was changed before its first attempt, or asked it to stop.
    All open pages of a caller share them for a while.
    """
    has_failed = any(each.outcome not in (None, AttemptOutcome.SUCCEEDED) for each in info.attempts or ())
    if not (has_failed or _may_be_rescheduled(info) or info.cancel_requested_by) or not page.rights.may_call(GET_AUDIT):
        return ()

    async def load() -> list[AuditEntry]:
        return await page.api.audit(limit=MOST_ENTRIES, context=page.context)

    found = await page.part(lambda: page.snapshots.get(page.context, "changes of jobs", load, lambda _: CHANGES_KEPT_S))
    return () if isinstance(found, PartFailed) else found


def _may_be_rescheduled(info: JobInfo) -> bool:
    """A job that waits was changed since its enqueue; one that ran had been due at another time than that."""
    if info.state is JobState.PENDING:
        return info.updated_at_ms != info.created_at_ms
    return any(each.eligible_at_ms not in (None, info.created_at_ms) for each in (info.attempts or ())[:1])


def body_text(body: bytes) -> str | None:
    """As a form edits it; None: it is no text."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _schedule_of(info: JobInfo) -> str:
    """The name of the schedule that has enqueued a job; "" for none."""
    key = info.dedupe_key or ""
    return key.removeprefix(_SCHEDULE_KEY).partition("/")[0] if key.startswith(_SCHEDULE_KEY) else ""


async def body_file(page: Page) -> web.Response:
    """The whole body, as a file."""
    return await _file(page, "body")


async def result_file(page: Page) -> web.Response:
    """The whole result, as a file."""
    return await _file(page, "result")


async def _file(page: Page, what: str) -> web.Response:
    descriptor = descriptor_of(page)
    if not page.rights.sees_bodies(descriptor.partition(":")[0]):
        raise web.HTTPNotFound
    info = await find_job(page, descriptor, with_body=True)
    data: bytes | None = getattr(info, what)
    if data is None:
        raise web.HTTPNotFound
    return file_response(f"{descriptor.replace(':', '-')}.{what}", data)


def file_response(name: str, data: bytes) -> web.Response:
    """Bytes of somebody else, to be saved: no browser shows them as a page of this site."""
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Cache-Control": "no-store",
    }
    return web.Response(body=data, content_type="application/octet-stream", headers=headers)


PAGES = (
    PageRoute("GET", PATH, job_detail, AccessAction.READ),
    PageRoute("GET", f"{PATH}/body", body_file, AccessAction.READ),
    PageRoute("GET", f"{PATH}/result", result_file, AccessAction.READ),
)
