"""All flows, the newest first, with how far each is; and those that run through one queue."""

from __future__ import annotations

from typing import NamedTuple

from aiohttp import web

from pinlater.api import Api
from pinlater.dashboard.flow_tree import FlowTree
from pinlater.dashboard.page import Page, PageRoute, PartFailed
from pinlater.model import CONTINUATION_END, CONTINUATION_START
from pinlater.model.flow_words import FlowState

PATH = "/dashboard/flows"
PAGE_SIZE = 50
MOST_CALLS = 10
"""A page of flows that the caller may not see is empty, and the next one is looked at, so often."""

LOOKED_AT = 200
"""Of the flows that run, the newest, for those of one queue."""

STATES = {state.name.lower(): state for state in FlowState}


class FlowsFound(NamedTuple):
    """`next`: the cursor of the next page, "" for none."""

    trees: list[FlowTree]
    next: str


async def flow_list(page: Page) -> web.Response:
    query = {name: page.query.get(name, "").strip() for name in ("name", "state", "key")}
    found = await page.part(lambda: _found(page, query["name"], query["state"], query["key"]))
    return page.render("flows.html", found=found, query=query, states=list(STATES), cursor=page.query.get("cursor", ""))


async def _found(page: Page, name: str, state: str, key: str) -> FlowsFound:
    continuation = page.query.get("cursor") or CONTINUATION_START
    trees: list[FlowTree] = []
    for _ in range(MOST_CALLS):
        shown = await page.load(
            Api.get_flows,
            name=name,
            state=STATES.get(state),
            dedupe_key=key,
            continuation=continuation,
            limit=PAGE_SIZE,
        )
        trees += map(FlowTree.of, shown.flows)
        continuation = shown.continuation
        if trees or continuation == CONTINUATION_END:
            break
    return FlowsFound(trees, "" if continuation == CONTINUATION_END else continuation)


async def flows_of_queue(page: Page, queue: str, *, takes_items: bool) -> FlowsFound | PartFailed:
    """Those that run and have a stage on it, among the newest that run; `next` says that there are more of these. A
    queue that takes no items of flows has none, and nothing is asked.
    """
    if not takes_items:
        return FlowsFound([], "")
    shown = await page.part(lambda: page.load(Api.get_flows, state=FlowState.RUNNING, limit=LOOKED_AT))
    if isinstance(shown, PartFailed):
        return shown
    trees = [FlowTree.of(flow) for flow in shown.flows]
    is_last = shown.continuation == CONTINUATION_END
    return FlowsFound([tree for tree in trees if queue in tree.queues], "" if is_last else shown.continuation)


PAGES = (PageRoute("GET", PATH, flow_list),)
