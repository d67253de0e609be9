"""Changes of a schedule that need no form of all its fields: pause, resume, run now, delete."""

from __future__ import annotations

from aiohttp import web

from pinlater.dashboard.page import Page, PageRoute
from pinlater.dashboard.schedule_detail import PATH, find_schedule, name_of
from pinlater.dashboard.schedule_list import PATH as SCHEDULES
from pinlater.dashboard.schedule_list import schedule_path
from pinlater.errors import RecordChanged, RequestInvalid
from pinlater.model import AccessAction, Schedule, ScheduleChange


def _begin(page: Page) -> str:
    """The name; where the change fails, its page says why."""
    name = name_of(page)
    page.back = schedule_path(page, Schedule(name=name, queue=page.query.get("queue", "")))
    return name


async def _set_paused(page: Page, paused: bool, done: str) -> web.Response:
    change = ScheduleChange(name=_begin(page), paused=paused)
    changed = await page.api.update_schedule(change, page.password, context=page.context)
    return page.redirect(page.back, f"Schedule {change.name} {done}", missed=changed.missed_shards)


async def pause(page: Page) -> web.Response:
    return await _set_paused(page, True, "is paused. Times that pass now are not made up for.")


async def resume(page: Page) -> web.Response:
    return await _set_paused(page, False, "fires again, at the times from now on.")


async def run(page: Page) -> web.Response:
    """Enqueue its job now; its times stay as they are."""
    view = await find_schedule(page, _begin(page), include_body=True)
    try:
        job = view.job()
    except ValueError as error:
        raise RequestInvalid(str(error)) from None
    queue = view.schedule.queue
    (descriptor,) = await page.api.enqueue(queue, [job], context=page.context)
    return page.redirect(page.back, f"Job {descriptor} is in queue {queue}. The next firing stays as it is.")


async def delete(page: Page) -> web.Response:
    name = _begin(page)
    if page.form.get("name", "").strip() != name:
        raise RequestInvalid(f"nothing was deleted: the name that was typed is not {name}")
    version = page.form.get("version") or None
    try:
        changed = await page.api.delete_schedule(name, page.password, only_if_version=version, context=page.context)
    except RecordChanged:
        message = f"Nothing was deleted: somebody has changed {name} meanwhile. This is how it is now."
        return page.redirect(page.back, message, is_bad=True)
    message = f"Schedule {name} was deleted. Jobs that it enqueued stay." if changed.version else f"{name} was gone."
    return page.redirect(SCHEDULES, message, missed=changed.missed_shards)


PAGES = (
    PageRoute("POST", f"{PATH}/pause", pause, AccessAction.OPERATE),
    PageRoute("POST", f"{PATH}/resume", resume, AccessAction.OPERATE),
    PageRoute("POST", f"{PATH}/run", run, None),  # the servers ask for the right to enqueue on its queue
    PageRoute("POST", f"{PATH}/delete", delete, AccessAction.OPERATE),
)
