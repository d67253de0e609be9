"""Changes of a group of a queue: pause, resume, its weight and limits."""

from __future__ import annotations

from aiohttp import web

from pinlater.dashboard.page import Page, PageRoute
from pinlater.dashboard.queue_actions import begin, done, pause_values
from pinlater.dashboard.queue_detail import PATH
from pinlater.model import AccessAction


async def _change(page: Page, message: str, set: dict[str, str], unset: tuple[str, ...] = ()) -> web.Response:
    queue, group = begin(page), page.form.get("group", "")
    changed = await page.api.update_group(queue, group, page.password, set=set, unset=unset, context=page.context)
    return done(page, f"Group {group} {message}", changed)


async def pause(page: Page) -> web.Response:
    return await _change(page, "is paused: no job of it is handed out.", pause_values(page))


async def resume(page: Page) -> web.Response:
    return await _change(page, "gets its turns again.", {}, ("paused",))


async def set_group(page: Page) -> web.Response:
    texts = {name: page.form.get(name, "").strip() for name in ("weight", "concurrency", "rate") if name in page.form}
    unset = tuple(name for name, text in texts.items() if not text)
    return await _change(page, "has other settings now.", {name: text for name, text in texts.items() if text}, unset)


PAGES = (
    PageRoute("POST", f"{PATH}/groups/pause", pause, AccessAction.OPERATE),
    PageRoute("POST", f"{PATH}/groups/resume", resume, AccessAction.OPERATE),
    PageRoute("POST", f"{PATH}/groups/set", set_group, AccessAction.OPERATE),
)
