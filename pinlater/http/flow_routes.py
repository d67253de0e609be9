"""The routes about flows."""

from __future__ import annotations

from pinlater.api import Api
from pinlater.http import flow_answers as answers
from pinlater.http import flow_forms as forms
from pinlater.http.assignments import assign
from pinlater.http.model_map import answer_of
from pinlater.http.route import IDEMPOTENCY_HEADER, Incoming, RouteTable
from pinlater.wire import flow_methods as methods

FLOWS = "Flows"
FLOW_ROUTES = RouteTable()


@FLOW_ROUTES.add(
    FLOWS,
    "POST /v1/flows",
    methods.CREATE_FLOW,
    status=201,
    has_idempotency_key=True,
    example={
        "name": "payroll",
        "stages": [
            {"name": "calculate", "queue": "calculate", "max_failures": 3},
            {
                "name": "pay",
                "queue": "pay",
                "parent": "calculate",
                "applet": {"kind": "map", "expression": "{user: payload.user, amount: result.amount}"},
                "is_final": True,
            },
        ],
        "dedupe_key": "2026-11",
        "items": {"calculate": [{"payload": {"user": 1}}, {"payload": {"user": 2}}]},
        "sealed": ["calculate"],
    },
    answer_example={"id": "f11dcb3925cb3e2974d4084543", "is_new": True},
)
async def _create_flow(incoming: Incoming, form: forms.FlowForm) -> answers.FlowCreatedAnswer:
    """Make a flow, whole, with its first items."""
    new = form.flow(incoming.headers.get(IDEMPOTENCY_HEADER))
    created = await incoming.api.create_flow(new, context=incoming.context)
    return answer_of(answers.FlowCreatedAnswer, created)


@FLOW_ROUTES.add(FLOWS, "GET /v1/flows", methods.GET_FLOWS)
async def _get_flows(incoming: Incoming, query: forms.FlowsQuery) -> answers.FlowsAnswer:
    """A page of the flows that the caller may see, the newest first."""
    return answer_of(answers.FlowsAnswer, await incoming.call(Api.get_flows, query))


@FLOW_ROUTES.add(FLOWS, "GET /v1/flows/{flow}", methods.GET_FLOW)
async def _get_flow(incoming: Incoming, query: forms.FlowQuery) -> answers.FlowAnswer:
    """A flow in numbers, or wait until it is over."""
    with incoming.waiting(query.wait_ms):
        found = await incoming.call(Api.get_flow, query, incoming.path["flow"])
    return answer_of(answers.FlowAnswer, found)


@FLOW_ROUTES.add(FLOWS, "DELETE /v1/flows/{flow}", methods.DELETE_FLOW)
async def _delete_flow(incoming: Incoming) -> None:
    """Remove a flow and all its items; one that runs is cancelled first."""
    await incoming.api.delete_flow(incoming.path["flow"], context=incoming.context)


@FLOW_ROUTES.add(FLOWS, "GET /v1/flows/{flow}/items", methods.GET_FLOW_ITEMS)
async def _get_flow_items(incoming: Incoming, query: forms.ItemsQuery) -> answers.ItemsAnswer:
    """A page of the items of a flow."""
    numbers = () if query.number is None else (query.number,)
    page = await incoming.call(Api.get_flow_items, query, incoming.path["flow"], numbers=numbers)
    return answer_of(answers.ItemsAnswer, page)


@FLOW_ROUTES.add(
    FLOWS,
    "POST /v1/flows/{flow}/items",
    methods.ADD_FLOW_ITEMS,
    status=201,
    example={
        "stage": "calculate",
        "items": [{"payload": {"user": 3}, "dedupe_key": "user-3"}, {"payload": {"user": 4}}],
        "seal": True,
    },
    answer_example={"numbers": [3, 4]},
)
async def _add_flow_items(incoming: Incoming, form: forms.AddItemsForm) -> answers.ItemsAddedAnswer:
    """Add items to a stage, all or none, and with `seal` no more after them."""
    return answers.ItemsAddedAnswer(await incoming.call(Api.add_flow_items, form, incoming.path["flow"]))


@FLOW_ROUTES.add(FLOWS, "POST /v1/flows/{flow}/seal", methods.SEAL_STAGE, example={"stage": "calculate"})
async def _seal_flow(incoming: Incoming, form: forms.SealForm) -> None:
    """Let no more items come into a stage, or into those without a parent."""
    await incoming.call(Api.seal_stage, form, incoming.path["flow"])


@FLOW_ROUTES.add(FLOWS, "POST /v1/flows/{flow}/cancel", methods.CANCEL_FLOW)
async def _cancel_flow(incoming: Incoming) -> answers.FlowAnswer:
    """End a flow: items that have not ended fail, and workers are asked to stop."""
    return answer_of(
        answers.FlowAnswer, await incoming.api.cancel_flow(incoming.path["flow"], context=incoming.context)
    )


@FLOW_ROUTES.add(
    FLOWS,
    "POST /v1/flows/{flow}/resume",
    methods.RESUME_FLOW,
    example={"stage": "pay", "expression": "{user: payload.user, amount: result.total}"},
)
async def _resume_flow(incoming: Incoming, form: forms.ResumeForm) -> answers.FlowAnswer:
    """Try again what a flow failed at."""
    return answer_of(answers.FlowAnswer, await incoming.call(Api.resume_flow, form, incoming.path["flow"]))


@FLOW_ROUTES.add(
    FLOWS,
    "POST /v1/flows/{flow}/retry",
    methods.RETRY_FLOW_ITEMS,
    example={"failed": True, "stage": "pay"},
)
async def _retry_flow_items(incoming: Incoming, form: forms.RetryItemsForm) -> answers.RetriedItemsAnswer:
    """Try items again that have ended; a flow that is over opens again."""
    found = await incoming.call(Api.retry_flow_items, form, incoming.path["flow"])
    return answer_of(answers.RetriedItemsAnswer, found)


@FLOW_ROUTES.add(
    FLOWS,
    "POST /v1/flow-items/{item}/assign",
    methods.ASSIGN_ITEM,
    example={"claim_timeout_ms": 60_000},
    answer_example={
        "number": 3,
        "descriptor": "calculate:s1:p1:1790000000000000",
        "claim_descriptor": "web-1:4711:1790000000000:42-3f9c2a51b0774c0e9a7d0b1f6c5e8d24:ada",
        "claim_expires_at_ms": 1_790_000_060_000,
        "payload": {"user": 3},
    },
)
async def _assign_flow_item(incoming: Incoming, form: forms.AssignForm) -> answers.AssignedAnswer:
    """Claim one item, if a dequeue could."""
    assignment = await assign(incoming, form.claim_timeout_ms)
    return answer_of(answers.AssignedAnswer, assignment, number=int(incoming.path["item"]))
