"""The calls about flows, part of the table in methods.py.

Only the service knows the queues of a flow: what stands here lets in who has the right on some queue, and the service
asks for it on those of the flow.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from typing import Any

from pinlater.api import Api
from pinlater.model import AccessAction, RequestContext
from pinlater.wire import convert
from pinlater.wire import convert_flows as flows
from pinlater.wire.method import Idempotency, Method, any_queue, queue_of_item, queue_of_stage, queues_of_flow

_ENQUEUE, _READ, _OPERATE = (AccessAction.ENQUEUE,), (AccessAction.READ,), (AccessAction.OPERATE,)


def _queues_of_create(args: Any) -> Collection[str]:
    return {stage.queue for stage in args.request.stages}


CREATE_FLOW = Method(
    "createFlow",
    "create_flow",
    Idempotency.ONCE,
    _ENQUEUE,
    _queues_of_create,
    lambda api, args, context: api.create_flow(flows.flow_from_wire(args.request), context=context),
    request=flows.create_to_wire,
    result=flows.created_from_wire,
    idempotency_of=lambda flow: Idempotency.REPEAT if flow.dedupe_key else Idempotency.ONCE,
)


def _add_items(api: Api, args: Any, context: RequestContext) -> Awaitable[Any]:
    request = args.request
    items = flows.items_from_wire(request.items)
    return api.add_flow_items(request.flow_id, request.stage, items, seal=request.seal or False, context=context)


ADD_FLOW_ITEMS: Method[list[int]] = Method(
    "addFlowItems",
    "add_flow_items",
    Idempotency.ONCE,
    _ENQUEUE,
    queue_of_stage,
    _add_items,
    flows.added_to_wire,
    flows.add_to_wire,
    result=lambda response: list(response.numbers),
    idempotency_of=lambda flow_id, stage, items, seal: (
        Idempotency.REPEAT if all(each.dedupe_key for each in items) and not seal else Idempotency.ONCE
    ),
)

SEAL_STAGE: Method[None] = Method(
    "sealStage",
    "seal_stage",
    Idempotency.REPEAT,
    _ENQUEUE,
    queue_of_stage,
    lambda api, args, context: api.seal_stage(args.request.flow_id, args.request.stage or "", context=context),
    request=flows.seal_to_wire,
)

GET_FLOW = Method(
    "getFlow",
    "get_flow",
    Idempotency.READ,
    _READ,
    queues_of_flow,
    lambda api, args, context: api.get_flow(args.request.flow_id, wait_ms=args.request.wait_ms or 0, context=context),
    request=flows.get_to_wire,
    result=flows.status_from_wire,
    idempotency_of=lambda flow_id, wait_ms: Idempotency.SCAN if wait_ms else Idempotency.READ,
)


def _get_flows(api: Api, args: Any, context: RequestContext) -> Awaitable[Any]:
    request = args.request
    return api.get_flows(
        name=request.name or "",
        dedupe_key=request.dedupe_key or "",
        state=flows.flow_state_from_wire(request.state),
        continuation=convert.continuation_from_wire(request),
        limit=100 if request.limit is None else request.limit,
        context=context,
    )


GET_FLOWS = Method(
    "getFlows",
    "get_flows",
    Idempotency.READ,
    _READ,
    any_queue,
    _get_flows,
    request=flows.page_to_wire,
    result=flows.flows_from_wire,
)


def _get_items(api: Api, args: Any, context: RequestContext) -> Awaitable[Any]:
    request = args.request
    return api.get_flow_items(
        request.flow_id,
        stage=request.stage or "",
        state=flows.item_state_from_wire(request.state),
        dedupe_key=request.dedupe_key or "",
        numbers=request.numbers or (),
        include_body=request.include_body is not False,
        continuation=convert.continuation_from_wire(request),
        limit=100 if request.limit is None else request.limit,
        context=context,
    )


GET_FLOW_ITEMS = Method(
    "getFlowItems",
    "get_flow_items",
    Idempotency.READ,
    _READ,
    queues_of_flow,
    _get_items,
    request=flows.items_to_wire,
    result=flows.items_page_from_wire,
    shows_bodies=lambda args: args.request.include_body is not False,
)

CANCEL_FLOW = Method(
    "cancelFlow",
    "cancel_flow",
    Idempotency.REPEAT,
    (AccessAction.ENQUEUE, AccessAction.OPERATE),
    queues_of_flow,
    lambda api, args, context: api.cancel_flow(args.request.flow_id, context=context),
    request=flows.id_to_wire,
    result=flows.status_from_wire,
)

DELETE_FLOW: Method[None] = Method(
    "deleteFlow",
    "delete_flow",
    Idempotency.ONCE,
    _OPERATE,
    queues_of_flow,
    lambda api, args, context: api.delete_flow(args.request.flow_id, context=context),
    request=flows.id_to_wire,
)


def _resume(api: Api, args: Any, context: RequestContext) -> Awaitable[Any]:
    request = args.request
    return api.resume_flow(
        request.flow_id, stage=request.stage or "", expression=request.expression or "", context=context
    )


RESUME_FLOW = Method(
    "resumeFlow",
    "resume_flow",
    Idempotency.REPEAT,
    _OPERATE,
    queues_of_flow,
    _resume,
    request=flows.resume_to_wire,
    result=flows.status_from_wire,
)

ASSIGN_ITEM = Method(
    "assignItem",
    "assign_item",
    Idempotency.ONCE,
    (AccessAction.CONSUME,),
    queue_of_item,
    lambda api, args, context: api.assign_item(
        args.request.number, claim_timeout_ms=args.request.claim_timeout_ms, context=context
    ),
    flows.assignment_to_wire,
    flows.assign_to_wire,
    result=flows.assignment_from_wire,
)
