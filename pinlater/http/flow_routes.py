"""The routes about flows."""

from __future__ import annotations

from pinlater.http import flow_answers as answers
from pinlater.http import flow_forms as forms
from pinlater.http.assignments import assign
from pinlater.http.model_map import answer_of, requests_of
from pinlater.http.route import IDEMPOTENCY_HEADER, Incoming, Route
from pinlater.model import CONTINUATION_START
from pinlater.model.flow_words import NewItem
from pinlater.wire import flow_methods as methods

FLOWS = "Flows"


async def _create(incoming: Incoming) -> answers.FlowCreatedAnswer:
    form: forms.FlowForm = incoming.form
    new = form.flow(incoming.headers.get(IDEMPOTENCY_HEADER))
    created = await incoming.api.create_flow(new, context=incoming.context)
    return answer_of(answers.FlowCreatedAnswer, created)


async def _get_flows(incoming: Incoming) -> answers.FlowsAnswer:
    query: forms.FlowsQuery = incoming.query
    page = await incoming.api.get_flows(
        name=query.name,
        dedupe_key=query.dedupe_key,
        state=forms.flow_state_of(query.state),
        continuation=query.cursor or CONTINUATION_START,
        limit=query.limit,
        context=incoming.context,
    )
    return answer_of(answers.FlowsAnswer, page)


async def _get_flow(incoming: Incoming) -> answers.FlowAnswer:
    query: forms.FlowQuery = incoming.query
    with incoming.waiting(query.wait_ms):
        found = await incoming.api.get_flow(incoming.path["flow"], wait_ms=query.wait_ms, context=incoming.context)
    return answer_of(answers.FlowAnswer, found)


async def _get_items(incoming: Incoming) -> answers.ItemsAnswer:
    query: forms.ItemsQuery = incoming.query
    page = await incoming.api.get_flow_items(
        incoming.path["flow"],
        stage=query.stage,
        state=forms.item_state_of(query.state),
        dedupe_key=query.dedupe_key,
        numbers=query.numbers(),
        include_body=query.include_body,
        continuation=query.cursor or CONTINUATION_START,
        limit=query.limit,
        context=incoming.context,
    )
    return answer_of(answers.ItemsAnswer, page)


async def _add_items(incoming: Incoming) -> answers.ItemsAddedAnswer:
    form: forms.AddItemsForm = incoming.form
    items = requests_of(NewItem, form.items, "items")
    numbers = await incoming.api.add_flow_items(
        incoming.path["flow"], form.stage, items, seal=form.seal, context=incoming.context
    )
    return answers.ItemsAddedAnswer(numbers)


async def _seal(incoming: Incoming) -> None:
    form: forms.SealForm = incoming.form
    await incoming.api.seal_stage(incoming.path["flow"], form.stage, context=incoming.context)


async def _cancel(incoming: Incoming) -> answers.FlowAnswer:
    return answer_of(
        answers.FlowAnswer, await incoming.api.cancel_flow(incoming.path["flow"], context=incoming.context)
    )


async def _delete(incoming: Incoming) -> None:
    await incoming.api.delete_flow(incoming.path["flow"], context=incoming.context)


async def _resume(incoming: Incoming) -> answers.FlowAnswer:
    form: forms.ResumeForm = incoming.form
    found = await incoming.api.resume_flow(
        incoming.path["flow"], stage=form.stage, expression=form.expression, context=incoming.context
    )
    return answer_of(answers.FlowAnswer, found)


async def _assign(incoming: Incoming) -> answers.AssignedAnswer:
    form: forms.AssignForm = incoming.form
    assignment = await assign(incoming, form.claim_timeout_ms)
    return answer_of(answers.AssignedAnswer, assignment, number=int(incoming.path["item"]))


FLOW_ROUTES = (
    Route(
        name="create_flow",
        verb="POST",
        path="/v1/flows",
        tag=FLOWS,
        summary="Make a flow, whole, with its first items",
        method=methods.CREATE_FLOW,
        call=_create,
        form=forms.FlowForm,
        answer=answers.FlowCreatedAnswer,
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
    ),
    Route(
        name="get_flows",
        verb="GET",
        path="/v1/flows",
        tag=FLOWS,
        summary="A page of the flows that the caller may see, the newest first",
        method=methods.GET_FLOWS,
        call=_get_flows,
        query=forms.FlowsQuery,
        answer=answers.FlowsAnswer,
    ),
    Route(
        name="get_flow",
        verb="GET",
        path="/v1/flows/{flow}",
        tag=FLOWS,
        summary="A flow in numbers, or wait until it is over",
        method=methods.GET_FLOW,
        call=_get_flow,
        query=forms.FlowQuery,
        answer=answers.FlowAnswer,
    ),
    Route(
        name="delete_flow",
        verb="DELETE",
        path="/v1/flows/{flow}",
        tag=FLOWS,
        summary="Remove a flow and all its items; one that runs is cancelled first",
        method=methods.DELETE_FLOW,
        call=_delete,
    ),
    Route(
        name="get_flow_items",
        verb="GET",
        path="/v1/flows/{flow}/items",
        tag=FLOWS,
        summary="A page of the items of a flow",
        method=methods.GET_FLOW_ITEMS,
        call=_get_items,
        query=forms.ItemsQuery,
        answer=answers.ItemsAnswer,
    ),
    Route(
        name="add_flow_items",
        verb="POST",
        path="/v1/flows/{flow}/items",
        tag=FLOWS,
        summary="Add items to a stage, all or none, and with `seal` no more after them",
        method=methods.ADD_FLOW_ITEMS,
        call=_add_items,
        form=forms.AddItemsForm,
        answer=answers.ItemsAddedAnswer,
        status=201,
        example={
            "stage": "calculate",
            "items": [{"payload": {"user": 3}, "dedupe_key": "user-3"}, {"payload": {"user": 4}}],
            "seal": True,
        },
        answer_example={"numbers": [3, 4]},
    ),
    Route(
        name="seal_flow",
        verb="POST",
        path="/v1/flows/{flow}/seal",
        tag=FLOWS,
        summary="Let no more items come into a stage, or into those without a parent",
        method=methods.SEAL_STAGE,
        call=_seal,
        form=forms.SealForm,
        example={"stage": "calculate"},
    ),
    Route(
        name="cancel_flow",
        verb="POST",
        path="/v1/flows/{flow}/cancel",
        tag=FLOWS,
        summary="End a flow: items that have not ended fail, and workers are asked to stop",
        method=methods.CANCEL_FLOW,
        call=_cancel,
        answer=answers.FlowAnswer,
    ),
    Route(
        name="resume_flow",
        verb="POST",
        path="/v1/flows/{flow}/resume",
        tag=FLOWS,
        summary="Try again what a flow is stuck with",
        method=methods.RESUME_FLOW,
        call=_resume,
        form=forms.ResumeForm,
        answer=answers.FlowAnswer,
        example={"stage": "pay", "expression": "{user: payload.user, amount: result.total}"},
    ),
    Route(
        name="assign_flow_item",
        verb="POST",
        path="/v1/flow-items/{item}/assign",
        tag=FLOWS,
        summary="Claim one item, if a dequeue could",
        method=methods.ASSIGN_ITEM,
        call=_assign,
        form=forms.AssignForm,
        answer=answers.AssignedAnswer,
        example={"claim_timeout_ms": 60_000},
        answer_example={
            "number": 3,
            "descriptor": "calculate:s1:p1:1790000000000000",
            "claim_descriptor": "web-1:4711:1790000000000:42-3f9c2a51b0774c0e9a7d0b1f6c5e8d24:ada",
            "claim_expires_at_ms": 1_790_000_060_000,
            "payload": {"user": 3},
        },
    ),
)
