"""Flows: the structs of the interface <-> the model. What a server answers is mostly the model itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from pinlater.errors import RequestInvalid
from pinlater.model import CONTINUATION_END, ClaimOutcome, DequeuedJob
from pinlater.model.flow_words import (
    Applet,
    AppletKind,
    Assignment,
    CallbackStatus,
    CompletionCallback,
    FlowCreated,
    FlowItem,
    FlowItemsPage,
    FlowsPage,
    FlowState,
    FlowStatus,
    ItemFailure,
    ItemState,
    NewFlow,
    NewItem,
    OnFailure,
    Stage,
    StageStatus,
)
from pinlater.wire.convert_keyed import enum_from_wire
from pinlater.wire.interface import filled, struct

E = TypeVar("E")
T = TypeVar("T")

_CreateRequest = struct("CreateFlowRequest")
_StageItems = struct("NewStageItems")
_AddRequest = struct("AddFlowItemsRequest")
_AddResponse = struct("AddFlowItemsResponse")
_SealRequest = struct("SealStageRequest")
_IdRequest = struct("FlowIdRequest")
_GetRequest = struct("GetFlowRequest")
_PageRequest = struct("GetFlowsRequest")
_ItemsRequest = struct("GetFlowItemsRequest")
_ResumeRequest = struct("ResumeFlowRequest")
_AssignRequest = struct("AssignItemRequest")
_AssignResponse = struct("AssignItemResponse")


def _said(cls: type[T], sent: Any, **others: Any) -> T:
    """An object of the model, with its own defaults for what was not sent."""
    told = {name: getattr(sent, name, None) for name in cls.__dataclass_fields__ if name not in others}  # type: ignore[attr-defined]
    return cls(**{name: value for name, value in told.items() if value is not None}, **others)


def _asked(cls: type[E], field: str, number: int | None, default: E | None) -> Any:
    """RequestInvalid."""
    if number is None:
        return default
    try:
        return cls(number)  # type: ignore[call-arg]
    except ValueError:
        allowed = ", ".join(f"{each.name} {int(each)}" for each in cls)  # type: ignore[attr-defined]
        raise RequestInvalid.of(field, number, allowed) from None


# -- a server reads and answers ----------------------------------------------------------------------------------------


def flow_from_wire(request: Any) -> NewFlow:
    """RequestInvalid."""
    items: dict[str, list[NewItem]] = {}
    for each in request.items or ():
        items.setdefault(each.stage, []).extend(items_from_wire(each.items))
    return _said(
        NewFlow,
        request,
        stages=[_stage_from_wire(each) for each in request.stages],
        on_complete=None if request.on_complete is None else _said(CompletionCallback, request.on_complete),
        on_failure=_asked(OnFailure, "onFailure", request.on_failure, OnFailure.GO_ON),
        items=items,
    )


def _stage_from_wire(sent: Any) -> Stage:
    applet = sent.applet
    if applet is None:
        return _said(Stage, sent, job=sent.job or "", applet=Applet())
    kind = _asked(AppletKind, "kind", applet.kind, AppletKind.PASS)
    return _said(Stage, sent, job=sent.job or "", applet=_said(Applet, applet, kind=kind))


def items_from_wire(items: Sequence[Any]) -> list[NewItem]:
    return [_said(NewItem, each) for each in items]


def flow_state_from_wire(number: int | None) -> FlowState | None:
    found: FlowState | None = _asked(FlowState, "state", number, None)
    return found


def item_state_from_wire(number: int | None) -> ItemState | None:
    found: ItemState | None = _asked(ItemState, "state", number, None)
    return found


def added_to_wire(numbers: Sequence[int]) -> Any:
    return filled(_AddResponse, numbers=list(numbers))


def assignment_to_wire(assignment: Assignment) -> Any:
    job = assignment.job
    if job is None:
        return filled(_AssignResponse, outcome=assignment.outcome)
    return filled(
        _AssignResponse,
        outcome=assignment.outcome,
        job_descriptor=job.descriptor,
        claim_descriptor=job.claim_descriptor,
        payload=assignment.payload,
        expires_at_ms=job.claim_expires_at_ms,
    )


# -- a client calls ----------------------------------------------------------------------------------------------------


def create_to_wire(flow: NewFlow) -> Any:
    return filled(
        _CreateRequest,
        name=flow.name,
        stages=list(flow.stages),
        dedupe_key=flow.dedupe_key or None,
        metadata=dict(flow.metadata) or None,
        on_complete=flow.on_complete,
        on_failure=flow.on_failure,
        ttl_ms=flow.ttl_ms,
        items=[filled(_StageItems, stage=stage, items=list(items)) for stage, items in flow.items.items()] or None,
        sealed=list(flow.sealed) or None,
    )


def add_to_wire(flow_id: str, stage: str, items: Sequence[NewItem], seal: bool) -> Any:
    return filled(_AddRequest, flow_id=flow_id, stage=stage, items=list(items), seal=seal or None)


def seal_to_wire(flow_id: str, stage: str) -> Any:
    return filled(_SealRequest, flow_id=flow_id, stage=stage or None)


def id_to_wire(flow_id: str) -> Any:
    return filled(_IdRequest, flow_id=flow_id)


def get_to_wire(flow_id: str, wait_ms: int) -> Any:
    return filled(_GetRequest, flow_id=flow_id, wait_ms=wait_ms or None)


def page_to_wire(name: str, dedupe_key: str, state: FlowState | None, continuation: str, limit: int) -> Any:
    return filled(
        _PageRequest,
        name=name or None,
        dedupe_key=dedupe_key or None,
        state=state,
        continuation=continuation,
        limit=limit,
    )


def items_to_wire(
    flow_id: str,
    stage: str,
    state: ItemState | None,
    dedupe_key: str,
    numbers: Sequence[int],
    include_body: bool,
    continuation: str,
    limit: int,
) -> Any:
    return filled(
        _ItemsRequest,
        flow_id=flow_id,
        stage=stage or None,
        state=state,
        dedupe_key=dedupe_key or None,
        numbers=list(numbers) or None,
        include_body=include_body,
        continuation=continuation,
        limit=limit,
    )


def resume_to_wire(flow_id: str, stage: str, expression: str) -> Any:
    return filled(_ResumeRequest, flow_id=flow_id, stage=stage or None, expression=expression or None)


def assign_to_wire(number: int, claim_timeout_ms: int | None) -> Any:
    return filled(_AssignRequest, number=number, claim_timeout_ms=claim_timeout_ms)


# -- a client reads ----------------------------------------------------------------------------------------------------


def created_from_wire(response: Any) -> FlowCreated:
    return FlowCreated(response.id, response.is_new)


def status_from_wire(status: Any) -> FlowStatus:
    return FlowStatus(
        status.id,
        status.name,
        enum_from_wire(FlowState, status.state),
        status.dedupe_key or "",
        status.metadata or {},
        [_stage_status(each) for each in status.stages],
        status.created_ms,
        status.completed_ms,
        enum_from_wire(OnFailure, status.on_failure or 0),
        None if status.on_complete is None else _said(CompletionCallback, status.on_complete),
        None if status.callback is None else _callback(status.callback),
        status.troubles or [],
    )


def _stage_status(sent: Any) -> StageStatus:
    return _said(StageStatus, sent, stage=_stage_from_wire(sent.stage))


def _callback(sent: Any) -> CallbackStatus:
    return CallbackStatus(sent.id, sent.tries, sent.error or "", sent.next_ms, sent.done_ms)


def flows_from_wire(response: Any) -> FlowsPage:
    return FlowsPage([status_from_wire(each) for each in response.flows], _continuation(response))


def items_page_from_wire(response: Any) -> FlowItemsPage:
    return FlowItemsPage([_item(each) for each in response.items], _continuation(response))


def _item(sent: Any) -> FlowItem:
    return FlowItem(
        sent.number,
        sent.flow_id,
        sent.stage,
        enum_from_wire(ItemState, sent.state),
        sent.payload,
        sent.result,
        [ItemFailure(each.attempt, each.at_ms, each.worker, each.reason) for each in sent.failures],
        sent.dedupe_key or "",
        sent.serialize_key or "",
        sent.retry_at_ms,
        sent.added_ms,
        sent.ended_ms,
        sent.job or "",
        sent.applet_error or "",
    )


def _continuation(response: Any) -> str:
    return CONTINUATION_END if response.continuation is None else str(response.continuation)


def assignment_from_wire(response: Any) -> Assignment:
    outcome = enum_from_wire(ClaimOutcome, response.outcome)
    if outcome is not ClaimOutcome.CLAIMED:
        return Assignment(outcome)
    payload = response.payload or b""
    claim, expires_ms = response.claim_descriptor or "", response.expires_at_ms or 0
    return Assignment(
        outcome, DequeuedJob(response.job_descriptor or "", payload, 0, 0, 0, 0, 0, claim, expires_ms), payload
    )
