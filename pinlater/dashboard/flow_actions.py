"""Changes of a flow: seal a stage, cancel, resume, delete, try items again."""

from __future__ import annotations

from urllib.parse import quote

from aiohttp import web

from pinlater.dashboard.flow_detail import MAX_DIGITS, PATH
from pinlater.dashboard.flow_list import PATH as FLOWS
from pinlater.dashboard.page import Page, PageRoute
from pinlater.errors import OutcomeUnknown, ServerUnreachable


def _begin(page: Page) -> str:
    """The id of the flow; where the change fails, its page says why."""
    flow_id = page.request.match_info["flow"]
    page.back = f"{FLOWS}/{quote(flow_id, safe='')}"
    return flow_id


async def seal(page: Page) -> web.Response:
    flow_id, stage = _begin(page), page.form.get("stage", "")
    await page.api.seal_stage(flow_id, stage, context=page.context)
    return page.redirect(page.back, f"Stage {stage} takes no more items." if stage else "No more items come.")


async def cancel(page: Page) -> web.Response:
    flow = await page.api.cancel_flow(_begin(page), context=page.context)
    if flow.completed_ms is not None:
        return page.redirect(page.back, f"Flow {flow.name} is over.")
    return page.redirect(page.back, f"Flow {flow.name} is being cancelled: it is over when nothing of it runs.")


async def resume(page: Page) -> web.Response:
    stage, expression = page.form.get("stage", ""), page.form.get("expression", "").strip()
    flow = await page.api.resume_flow(_begin(page), stage=stage, expression=expression, context=page.context)
    if flow.troubles:
        return page.redirect(page.back, f"It was tried again, and this is left: {flow.troubles[0]}", is_bad=True)
    return page.redirect(page.back, f"Flow {flow.name} {'goes on' if flow.completed_ms is None else 'is over'}.")


def _items(count: int) -> str:
    return f"{count:,} item{'' if count == 1 else 's'}"


async def retry(page: Page) -> web.Response:
    """All items that have failed, or the one of a number."""
    flow_id, number = _begin(page), page.form.get("number", "")
    named = [int(number)] if number.isascii() and number.isdecimal() and len(number) <= MAX_DIGITS else []
    if number:
        page.back += f"?number={quote(number, safe='')}#items"
    came = await page.api.retry_flow_items(
        flow_id,
        named or ([0] if number else []),
        failed=not number,
        and_follows=bool(page.form.get("and_follows")),
        context=page.context,
    )
    sentences = [f"{_items(came.retried)} {'is' if came.retried == 1 else 'are'} tried again"]
    if came.removed:
        sentences.append(f"{_items(came.removed)} that had followed {'is' if came.removed == 1 else 'are'} gone")
    sentences += [f"{_items(each.count)} not: {each.reason}" for each in came.refused]
    return page.redirect(page.back, "; ".join(sentences) + ".", is_bad=bool(came.refused))


async def delete(page: Page) -> web.Response:
    flow_id = _begin(page)
    try:
        await page.api.delete_flow(flow_id, context=page.context)
    except (OutcomeUnknown, ServerUnreachable) as error:
        message = f"Not all of the flow is gone yet: {error.message}. Delete it again, and it goes on from there."
        return page.redirect(page.back, message, is_bad=True)
    return page.redirect(FLOWS, f"Flow {flow_id} was deleted, with all its items.")


PAGES = (  # only the servers know the queues of a flow, and they ask for the rights on these
    PageRoute("POST", f"{PATH}/seal", seal, None),
    PageRoute("POST", f"{PATH}/cancel", cancel, None),
    PageRoute("POST", f"{PATH}/resume", resume, None),
    PageRoute("POST", f"{PATH}/retry", retry, None),
    PageRoute("POST", f"{PATH}/delete", delete, None),
)
