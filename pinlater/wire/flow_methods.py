"""The calls about flows, part of the table in methods.py.

Only the service knows the queues of a flow: what stands here lets in who has the right on some queue, and the service
asks for it on those of the flow.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pinlater.api import Api
from pinlater.model import AccessAction, ClaimOutcome, DequeuedJob
from pinlater.model.flow_words import Assignment, NewFlow, NewItem
from pinlater.wire.interface import LAYOUTS, filled, struct
from pinlater.wire.method import Idempotency, Method, any_queue, queue_of_item, queue_of_stage, queues_of_flow
from pinlater.wire.struct_map import BY_HAND, WRITTEN_BY_HAND, number_reader, reader

_ENQUEUE, _READ, _OPERATE = (AccessAction.ENQUEUE,), (AccessAction.READ,), (AccessAction.OPERATE,)
_STAGE_ITEMS = struct("NewStageItems")
_ASSIGNED = struct("AssignItemResponse")
_OUTCOMES = number_reader(ClaimOutcome, "outcome")


def _items_of_stages(request: Any) -> dict[str, list[NewItem]]:
    read = reader(NewItem, LAYOUTS.of("NewFlowItem"), of_request=True)
    items: dict[str, list[NewItem]] = {}
    for each in request.items or ():
        items.setdefault(each.stage, []).extend(map(read, each.items))
    return items


def _items_to_wire(items: Mapping[str, Sequence[NewItem]]) -> list[Any]:
    return [filled(_STAGE_ITEMS, stage=stage, items=some) for stage, some in items.items()]


BY_HAND[NewFlow, "items"] = _items_of_stages
WRITTEN_BY_HAND[NewFlow, "items"] = _items_to_wire


def _queues_of_create(args: Any) -> Collection[str]:
    return {stage.queue for stage in args.request.stages}


def _add_idempotency(flow_id: str, stage: str, items: Sequence[NewItem], seal: bool = False) -> Idempotency:
    return Idempotency.REPEAT if all(each.dedupe_key for each in items) and not seal else Idempotency.ONCE


def _assignment_to_wire(assignment: Assignment) -> Any:
    job = assignment.job
    if job is None:
        return filled(_ASSIGNED, outcome=assignment.outcome)
    return filled(
        _ASSIGNED,
        outcome=assignment.outcome,
        descriptor=job.descriptor,
        claim_descriptor=job.claim_descriptor,
        payload=assignment.payload,
        expires_at_ms=job.claim_expires_at_ms,
    )


def _assignment_from_wire(response: Any) -> Assignment:
    outcome = _OUTCOMES[response.outcome]
    if outcome is not ClaimOutcome.CLAIMED:
        return Assignment(outcome)
    payload = response.payload or b""
    claim, expires_ms = response.claim_descriptor or "", response.expires_at_ms or 0
    job = DequeuedJob(response.descriptor or "", payload, 0, 0, 0, 0, 0, claim, expires_ms)
    return Assignment(outcome, job, payload)


CREATE_FLOW = Method(
    "createFlow",
    Api.create_flow,
    Idempotency.ONCE,
    _ENQUEUE,
    _queues_of_create,
    idempotency_of=lambda flow: Idempotency.REPEAT if flow.dedupe_key else Idempotency.ONCE,
)
ADD_FLOW_ITEMS = Method(
    "addFlowItems",
    Api.add_flow_items,
    Idempotency.ONCE,
    _ENQUEUE,
    queue_of_stage,
    idempotency_of=_add_idempotency,
)
SEAL_STAGE = Method("sealStage", Api.seal_stage, Idempotency.REPEAT, _ENQUEUE, queue_of_stage)
GET_FLOW = Method(
    "getFlow",
    Api.get_flow,
    Idempotency.READ,
    _READ,
    queues_of_flow,
    idempotency_of=lambda flow_id, wait_ms=0: Idempotency.SCAN if wait_ms else Idempotency.READ,
)
GET_FLOWS = Method("getFlows", Api.get_flows, Idempotency.READ, _READ, any_queue)
GET_FLOW_ITEMS = Method(
    "getFlowItems",
    Api.get_flow_items,
    Idempotency.READ,
    _READ,
    queues_of_flow,
    shows_bodies=lambda args: args.request.include_body is not False,
)
CANCEL_FLOW = Method(
    "cancelFlow",
    Api.cancel_flow,
    Idempotency.REPEAT,
    (AccessAction.ENQUEUE, AccessAction.OPERATE),
    queues_of_flow,
)
DELETE_FLOW = Method("deleteFlow", Api.delete_flow, Idempotency.ONCE, _OPERATE, queues_of_flow)
RESUME_FLOW = Method("resumeFlow", Api.resume_flow, Idempotency.REPEAT, _OPERATE, queues_of_flow)
RETRY_FLOW_ITEMS = Method(
    "retryFlowItems",
    Api.retry_flow_items,
    Idempotency.REPEAT,
    _OPERATE,
    queues_of_flow,
    idempotency_of=lambda flow_id, numbers=(), stage="", failed=False, and_follows=False: (
        Idempotency.ONCE if and_follows else Idempotency.REPEAT
    ),
)
ASSIGN_ITEM = Method(
    "assignItem",
    Api.assign_item,
    Idempotency.ONCE,
    (AccessAction.CONSUME,),
    queue_of_item,
    answer_by_hand=_assignment_to_wire,
    result_by_hand=_assignment_from_wire,
)
