"""One schedule: its fields, its next firings, the job of its last firing, and its body."""

from __future__ import annotations

from aiohttp import web

from pinlater.api import Api
from pinlater.dashboard.body_view import body_view
from pinlater.dashboard.job_detail import file_response
from pinlater.dashboard.page import Page, PageRoute
from pinlater.dashboard.schedule_list import PATH as SCHEDULES
from pinlater.dashboard.schedule_list import ScheduleRow
from pinlater.http.problems import NotThere
from pinlater.model import EVERY_QUEUE, AccessAction, JobInfo, KeyRef, ScheduleView
from pinlater.model.job_selection import phase_of
from pinlater.wire.methods import ENQUEUE
from pinlater.wire.schedule_methods import DELETE_SCHEDULE, UPDATE_SCHEDULE

PATH = f"{SCHEDULES}/{{name}}"
NEXT = 5


def name_of(page: Page) -> str:
    return page.request.match_info["name"]


def shows_body(page: Page) -> bool:
    return page.rights.sees_bodies(page.query.get("queue", "") or EVERY_QUEUE)


async def find_schedule(page: Page, name: str, *, include_body: bool) -> ScheduleView:
    """As the servers know it now. NotThere; Forbidden."""
    queue = page.query.get("queue", "")
    shown = await page.api.get_schedules(
        [name], queue=queue, include_body=include_body, next_limit=NEXT, context=page.context
    )
    if not shown.schedules:
        raise NotThere(f"there is no schedule {name[:100]!r}")
    return shown.schedules[0]


async def schedule_detail(page: Page) -> web.Response:
    name, include_body = name_of(page), shows_body(page)
    view = await page.snapshots.get(
        page.context,
        ("schedule", name, page.query.get("queue", ""), include_body),
        lambda: find_schedule(page, name, include_body=include_body),
    )
    job = await page.part(lambda: _last_job(page, view))
    rights, queue = page.rights, view.schedule.queue
    return page.render(
        "schedule.html",
        row=ScheduleRow.of(view),
        view=view,
        schedule=view.schedule,
        job=job,
        phase=phase_of(job, page.now_ms).word if isinstance(job, JobInfo) else "",
        body=body_view(view.schedule.body) if include_body else None,
        may_set=rights.may_call(UPDATE_SCHEDULE),
        may_delete=rights.may_call(DELETE_SCHEDULE),
        may_run=include_body and rights.may_call(ENQUEUE, queue),
    )


async def _last_job(page: Page, view: ScheduleView) -> JobInfo | None:
    """That of the last firing. None: it has not fired, the job is not kept any more, or the caller may not see it."""
    schedule, fired_ms = view.schedule, view.last_fired_ms
    if fired_ms is None or not page.rights.may(AccessAction.READ, schedule.queue):
        return None
    key = KeyRef(f"@schedule/{schedule.name}/{fired_ms}", schedule.serialize_key)
    found = await page.load(Api.lookup, (), queue=schedule.queue, keys=(key,))
    return next(iter(found.values()), None)


async def body_file(page: Page) -> web.Response:
    """The whole body, as a file."""
    if not shows_body(page):
        raise web.HTTPNotFound
    view = await find_schedule(page, name_of(page), include_body=True)
    return file_response(f"{view.schedule.name}.body", view.schedule.body)


PAGES = (PageRoute("GET", PATH, schedule_detail), PageRoute("GET", f"{PATH}/body", body_file))
