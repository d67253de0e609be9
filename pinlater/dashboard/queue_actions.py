"""Changes of a queue: pause, resume, drain, settings, and its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiohttp import web

from pinlater.dashboard.page import Page, PageRoute
from pinlater.dashboard.queue_detail import PATH, is_on
from pinlater.dashboard.queue_list import PATH as QUEUES
from pinlater.errors import RequestInvalid
from pinlater.model import AccessAction, Changed
from pinlater.setting_kinds import Duration

_LONGEST_MS = 3650 * 86_400_000
PAUSE_LENGTH = Duration(1_000, _LONGEST_MS)


def begin(page: Page) -> str:
    """The queue; where the change fails, its page says why."""
    name = page.queue
    page.back = f"{QUEUES}/{name}"
    return name


async def _set(page: Page, name: str, values: Mapping[str, str], unset: Sequence[str] = ()) -> Changed:
    return await page.api.update_queue(name, page.password, set=values, unset=unset, context=page.context)


async def _switch_off(page: Page, name: str, key: str) -> Changed:
    """Take a flag back; where it then comes from elsewhere (the file, all queues), set it to false here."""
    changed = await _set(page, name, {}, [key])
    (view,) = await page.api.get_queues([name], context=page.context)
    return await _set(page, name, {key: "false"}) if is_on(view, key) else changed


def done(page: Page, message: str, changed: Changed) -> web.Response:
    """Back to the queue."""
    return page.redirect(page.back, message, missed=changed.missed_shards)


def pause_values(page: Page) -> dict[str, str]:
    """The settings of a pause, as the form says it. RequestInvalid."""
    why, lasts = page.form.get("why", "").strip(), page.form.get("for", "").strip()
    values = {"paused": "true", "paused_why": why} if why else {"paused": "true"}
    if lasts:
        try:
            values["paused_until"] = str(page.now_ms + PAUSE_LENGTH.parse(lasts))
        except ValueError:
            raise RequestInvalid.of("the length of the pause", lasts, PAUSE_LENGTH.allowed) from None
    return values


async def pause(page: Page) -> web.Response:
    name = begin(page)
    changed = await _set(page, name, pause_values(page))
    lasts = page.form.get("for", "").strip()
    ends = f" for {lasts}" if lasts else ""
    return done(page, f"Queue {name} is paused{ends}: no job of it is handed out.", changed)


async def resume(page: Page) -> web.Response:
    name = begin(page)
    return done(page, f"Queue {name} hands out jobs again.", await _switch_off(page, name, "paused"))


async def drain(page: Page) -> web.Response:
    name = begin(page)
    changed = await _set(page, name, {"draining": "true"})
    return done(page, f"Queue {name} refuses new jobs; workers go on with those that are there.", changed)


async def undrain(page: Page) -> web.Response:
    name = begin(page)
    return done(page, f"Queue {name} takes new jobs again.", await _switch_off(page, name, "draining"))


async def change_setting(page: Page) -> web.Response:
    name = begin(page)
    key, value = page.form.get("key", ""), page.form.get("value", "").strip()
    if page.form.get("unset"):
        changed = await _set(page, name, {}, [key])
        return done(page, f"{key} of queue {name} comes from elsewhere again.", changed)
    return done(page, f"{key} of queue {name} is {value or 'nothing'} now.", await _set(page, name, {key: value}))


async def delete(page: Page) -> web.Response:
    name = begin(page)
    if page.form.get("name", "").strip() != name:
        raise RequestInvalid(f"nothing was deleted: the name that was typed is not {name}")
    await page.api.delete_queue(name, page.password, context=page.context)
    return page.redirect(QUEUES, f"Queue {name} was deleted, with all its jobs.")


PAGES = (
    PageRoute("POST", f"{PATH}/pause", pause, AccessAction.OPERATE),
    PageRoute("POST", f"{PATH}/resume", resume, AccessAction.OPERATE),
    PageRoute("POST", f"{PATH}/drain", drain, AccessAction.OPERATE),
    PageRoute("POST", f"{PATH}/undrain", undrain, AccessAction.OPERATE),
    PageRoute("POST", f"{PATH}/settings", change_setting, AccessAction.OPERATE),
    PageRoute("POST", f"{PATH}/delete", delete, AccessAction.ADMIN),
)
