"""One flow: its stages as a tree that fills, its callback, and its items by stage and state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from aiohttp import web

from pinlater.api import Api
from pinlater.dashboard.body_view import BodyView, preview_of, value_view
from pinlater.dashboard.flow_list import PATH as FLOWS
from pinlater.dashboard.flow_tree import FlowTree
from pinlater.dashboard.job_detail import file_response
from pinlater.dashboard.page import Page, PageRoute
from pinlater.errors import FlowsUnavailable
from pinlater.model import CONTINUATION_END, CONTINUATION_START
from pinlater.model.flow_words import AppletKind, FlowItem, ItemState
from pinlater.wire.flow_methods import CANCEL_FLOW, DELETE_FLOW, RESUME_FLOW, RETRY_FLOW_ITEMS, SEAL_STAGE

PATH = f"{FLOWS}/{{flow}}"
PAGE_SIZE = 25
ITEM_STATES = {state.name.lower(): state for state in ItemState}
MAX_DIGITS = 18


class ItemFilter(NamedTuple):
    """Of which items a page shows some; "" for any."""

    stage: str
    state: str
    key: str
    number: str

    @classmethod
    def of(cls, page: Page) -> ItemFilter:
        return cls(*(page.query.get(name, "").strip() for name in cls._fields))

    @property
    def numbers(self) -> tuple[int, ...]:
        """Of none where it is no number: there is no item 0."""
        text = self.number
        is_number = text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS
        return (int(text) if is_number else 0,) if text else ()


class ItemRow(NamedTuple):
    """An item as the page shows it. `state`, in words, and its kind; `preview` is of its payload, `outcome` of its
    result, its last failure or its trouble. `payload` and `result` are None where the caller may not see them.
    """

    item: FlowItem
    state: tuple[str, str]
    payload: BodyView | None
    result: BodyView | None
    preview: str
    outcome: str


class ItemsFound(NamedTuple):
    """`next`: the cursor of the next page, "" for none."""

    rows: list[ItemRow]
    next: str


class FlowRights(NamedTuple):
    """What the caller may do with a flow: with all of its queues, but for `seals`, stages that it may seal."""

    cancel: bool
    resume: bool
    retry: bool
    delete: bool
    seals: Sequence[str]
    bodies: bool

    @classmethod
    def of(cls, page: Page, tree: FlowTree) -> FlowRights:
        rights, queues = page.rights, tree.queues
        cancel, resume, retry, delete = (
            all(rights.may_call(method, queue) for queue in queues)
            for method in (CANCEL_FLOW, RESUME_FLOW, RETRY_FLOW_ITEMS, DELETE_FLOW)
        )
        stages = [node.status.stage for node in tree.nodes if node.takes_items]
        seals = [stage.name for stage in stages if rights.may_call(SEAL_STAGE, stage.queue)]
        return cls(cancel, resume, retry, delete, seals, all(map(rights.sees_bodies, queues)))


async def flow_detail(page: Page) -> web.Response:
    flow_id = page.request.match_info["flow"]
    try:
        flow = await page.load(Api.get_flow, flow_id)  # FlowNotFound is the whole page
    except FlowsUnavailable as error:
        return page.render("flow.html", tree=page.failed(error), flow_id=flow_id)
    tree = FlowTree.of(flow)
    may, wanted = FlowRights.of(page, tree), ItemFilter.of(page)
    items = await page.part(lambda: _items(page, flow_id, wanted, may.bodies))
    return page.render(
        "flow.html",
        tree=tree,
        flow=flow,
        flow_id=flow_id,
        may=may,
        items=items,
        wanted=wanted,
        item_states=list(ITEM_STATES),
        cursor=page.query.get("cursor", ""),
        mendable=[each.stage for each in flow.stages if each.stage.applet.kind is AppletKind.MAP],
    )


async def _items(page: Page, flow_id: str, wanted: ItemFilter, shows_bodies: bool) -> ItemsFound:
    found = await page.load(
        Api.get_flow_items,
        flow_id,
        stage=wanted.stage,
        state=ITEM_STATES.get(wanted.state),
        dedupe_key=wanted.key,
        numbers=wanted.numbers,
        include_body=shows_bodies,
        continuation=page.query.get("cursor") or CONTINUATION_START,
        limit=PAGE_SIZE,
    )
    rows = [_row(item, shows_bodies, page.now_ms) for item in found.items]
    return ItemsFound(rows, "" if found.continuation == CONTINUATION_END else found.continuation)


def _row(item: FlowItem, shows_bodies: bool, now_ms: int) -> ItemRow:
    state = _state(item, now_ms)
    if not shows_bodies:
        return ItemRow(item, state, None, None, "", "")
    result = None if item.result is None else value_view(item.result)
    return ItemRow(item, state, value_view(item.payload), result, preview_of(item.payload), _outcome(item))


def _state(item: FlowItem, now_ms: int) -> tuple[str, str]:
    """A word for how it is, and the kind of that."""
    match item.state:
        case ItemState.SUCCEEDED:
            return ("stuck", "bad") if item.applet_error else ("succeeded", "good")
        case ItemState.FAILED:
            return "failed", "bad"
    if item.retry_at_ms is not None and item.retry_at_ms > now_ms:
        return "tried again soon", "held"
    return ("queued or running", "run") if item.job else ("waiting", "")


def _outcome(item: FlowItem) -> str:
    """What came of it so far, in a line."""
    if item.applet_error:
        return item.applet_error
    if item.state is ItemState.SUCCEEDED:
        return preview_of(item.result or b"")
    reason = item.failures[-1].reason if item.failures else ""
    return preview_of(reason.encode("utf-8", "replace"))


async def item_file(page: Page) -> web.Response:
    """The whole payload or result of an item, as a file."""
    match = page.request.match_info
    flow_id, number, what = match["flow"], match["item"], match["what"]
    found = await page.api.get_flow_items(flow_id, numbers=[int(number)], context=page.context)
    data = getattr(found.items[0], what) if found.items else None
    if data is None:
        raise web.HTTPNotFound
    return file_response(f"{flow_id}-{number}.{what}.json", data)


PAGES = (
    PageRoute("GET", PATH, flow_detail),
    PageRoute("GET", f"{PATH}/items/{{item:[0-9]{{1,18}}}}/{{what:payload|result}}", item_file),
)
