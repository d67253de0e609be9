"""The answers about flows as JSON. Payloads and results are the JSON that was sent."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Raw, UnsetType

from pinlater.http.answers import Answer, NextCursor, next_cursor
from pinlater.http.flow_forms import AppletForm, AppletWord, CallbackForm, FlowWord, ItemWord, OnFailureWord
from pinlater.model.flow_words import (
    Applet,
    Assignment,
    FlowItem,
    FlowItemsPage,
    FlowsPage,
    FlowStatus,
    StageStatus,
)

Sent = Annotated[Raw, Meta(description="The JSON value, as it was sent.")]


class FlowCreatedAnswer(Answer):
    """A flow that was made. `is_new` false: one of its name and dedupe key was there, and nothing has changed."""

    id: str
    is_new: bool


class StageAnswer(Answer):
    """A stage, and how many items it has. `queued`: those of the pending ones that are in the queue or with a worker.
    `applet_errors`: items whose children could not be made. `is_complete`: no item is pending, and none will come.
    """

    name: str
    queue: str
    job: str
    parent: str
    items: int
    pending: int
    queued: int
    succeeded: int
    failed: int
    is_sealed: bool
    is_complete: bool
    max_failures: int
    backoff_ms: int
    max_backoff_ms: int
    priority: int
    is_final: bool = False
    keeps_open: bool = False
    applet_errors: int = 0
    applet: AppletForm | None = None


class CallbackAnswer(Answer):
    """The completion callback of a flow that is over. `done_at_ms`: when it was made, or given up; then `error` says
    why. `next_at_ms`: of the next try.
    """

    id: str
    tries: int
    error: str | None = None
    next_at_ms: int | None = None
    done_at_ms: int | None = None


class FlowAnswer(Answer):
    """A flow in numbers; parents stand before their children. `troubles`: what keeps it from going on, and what to do
    about it.
    """

    id: str
    name: str
    state: FlowWord
    stages: list[StageAnswer]
    created_at_ms: int
    completed_at_ms: int | None = None
    dedupe_key: str | None = None
    metadata: dict[str, str] | None = None
    on_failure: OnFailureWord = "go_on"
    on_complete: CallbackForm | None = None
    callback: CallbackAnswer | None = None
    troubles: list[str] | None = None


class FlowsAnswer(Answer):
    """A page of the flows that the caller may see, the newest first; it may be short, or empty, before the last one."""

    flows: list[FlowAnswer]
    next_cursor: NextCursor | None = None


class FailureAnswer(Answer):
    """One failure of an item."""

    attempt: int
    at_ms: int
    worker: str
    reason: str


class ItemAnswer(Answer):
    """An item. `payload`, `result` and the reasons are there only where they were asked for; `job`: the descriptor of
    its job, not there while it waits in the database.
    """

    number: int
    stage: str
    state: ItemWord
    failures: list[FailureAnswer]
    added_at_ms: int
    payload: Sent | UnsetType = UNSET
    result: Sent | UnsetType = UNSET
    dedupe_key: str | None = None
    serialize_key: str | None = None
    retry_at_ms: int | None = None
    ended_at_ms: int | None = None
    job: str | None = None
    applet_error: str | None = None


class ItemsAnswer(Answer):
    """A page of the items of a flow, by number; one of long items ends at about 4 MiB, before `limit`."""

    items: list[ItemAnswer]
    next_cursor: NextCursor | None = None


class ItemsAddedAnswer(Answer):
    """The numbers of items, in order; that of the one that is there, for a dedupe key that is taken."""

    numbers: list[int]


class AssignedAnswer(Answer):
    """An item that was claimed. It ends by an ack of its job with this claim."""

    number: int
    descriptor: str
    claim_descriptor: str
    claim_expires_at_ms: int
    payload: Sent


FLOW_WORDS: tuple[FlowWord, ...] = ("running", "complete", "cancelled")
ITEM_WORDS: tuple[ItemWord, ...] = ("pending", "succeeded", "failed")
ON_FAILURE_WORDS: tuple[OnFailureWord, ...] = ("go_on", "stop_stage", "stop_flow")
_APPLET_WORDS: tuple[AppletWord, ...] = ("pass", "map", "list", "job")
_OF_STAGE = ("name", "queue", "job", "parent", "max_failures", "backoff_ms", "max_backoff_ms", "priority", "is_final")
_OF_STATUS = ("items", "pending", "queued", "succeeded", "failed", "is_sealed", "is_complete", "applet_errors")


def json_of(stored: bytes | None) -> Raw | UnsetType:
    """What was not asked for is empty, and JSON never is."""
    return Raw(stored) if stored else UNSET


def applet(made_by: Applet) -> AppletForm:
    return AppletForm(_APPLET_WORDS[made_by.kind], made_by.expression, made_by.job, made_by.queue)


def callback(status: FlowStatus) -> CallbackForm | None:
    told = status.on_complete
    return None if told is None else CallbackForm(told.queue, told.job, told.url)


def callback_status(status: FlowStatus) -> CallbackAnswer | None:
    made = status.callback
    if made is None:
        return None
    return CallbackAnswer(made.id, made.tries, made.error or None, made.next_ms, made.done_ms)


def _stage(status: StageStatus) -> StageAnswer:
    stage = status.stage
    return StageAnswer(
        **{name: getattr(stage, name) for name in _OF_STAGE},
        **{name: getattr(status, name) for name in _OF_STATUS},
        keeps_open=stage.keeps_open,
        applet=applet(stage.applet) if stage.parent else None,
    )


def flow(status: FlowStatus) -> FlowAnswer:
    return FlowAnswer(
        status.id,
        status.name,
        FLOW_WORDS[status.state],
        [_stage(each) for each in status.stages],
        status.created_ms,
        status.completed_ms,
        status.dedupe_key or None,
        dict(status.metadata) or None,
        ON_FAILURE_WORDS[status.on_failure],
        callback(status),
        callback_status(status),
        list(status.troubles) or None,
    )


def flows(page: FlowsPage) -> FlowsAnswer:
    return FlowsAnswer([flow(each) for each in page.flows], next_cursor(page.continuation))


def _item(found: FlowItem) -> ItemAnswer:
    return ItemAnswer(
        found.number,
        found.stage,
        ITEM_WORDS[found.state],
        [FailureAnswer(each.attempt, each.at_ms, each.worker, each.reason) for each in found.failures],
        found.added_ms,
        json_of(found.payload),
        json_of(found.result),
        found.dedupe_key or None,
        found.serialize_key or None,
        found.retry_at_ms,
        found.ended_ms,
        found.job or None,
        found.applet_error or None,
    )


def items(page: FlowItemsPage) -> ItemsAnswer:
    return ItemsAnswer([_item(each) for each in page.items], next_cursor(page.continuation))


def assigned(number: int, assignment: Assignment) -> AssignedAnswer:
    job = assignment.job
    assert job is not None
    return AssignedAnswer(
        number, job.descriptor, job.claim_descriptor, job.claim_expires_at_ms, Raw(assignment.payload)
    )
