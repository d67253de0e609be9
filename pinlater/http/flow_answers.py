"""The answers about flows as JSON. Payloads and results are the JSON that was sent."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import UNSET, Meta, Raw, UnsetType

from pinlater.http.answers import NextCursor
from pinlater.http.flow_forms import AppletForm, CallbackForm, FlowWord, ItemWord, OnFailureWord
from pinlater.http.model_map import Answer, answer_of, has_fields_of
from pinlater.model.flow_words import ItemFailure, RefusedItems, Stage, StageStatus

Sent = Annotated[Raw, Meta(description="The JSON value, as it was sent.")]


class FlowCreatedAnswer(Answer):
    """A flow that was made. `is_new` false: one of its name and dedupe key was there, and nothing has changed."""

    id: str
    is_new: bool


def shown_applet(status: StageStatus) -> AppletForm | None:
    """A stage that begins a flow has none."""
    return answer_of(AppletForm, status.stage.applet) if status.stage.parent else None


@has_fields_of(Stage, StageStatus, without=("stage",))
class StageAnswer(Answer):
    """A stage, and how many items it has. `queued`: those of the pending ones that are in the queue or with a worker.
    `applet_errors`: items whose children could not be made. `is_complete`: no item is pending, and none will come.
    """

    is_complete: bool
    is_final: bool = False
    keeps_open: bool = False
    applet_errors: int = 0
    applet: AppletForm | None = None

    SOURCES: ClassVar = {"applet": shown_applet}


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
    about it. `ends`: how often it was over, and so the number of its latest end. `is_stuck`: none of its items is
    pending, and children that could not be made keep it open.
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
    ends: int = 0
    is_stuck: bool = False


@has_fields_of(RefusedItems)
class RefusedItemsAnswer(Answer):
    """Items that were not retried, for one reason. `numbers`: of the first ones, where they are known."""


class RetriedItemsAnswer(Answer):
    """The flow as it is now, how many items are tried again, how many that had followed from them were removed, and
    what was refused.
    """

    flow: FlowAnswer
    retried: int
    removed: int
    refused: list[RefusedItemsAnswer] = []


class FlowsAnswer(Answer):
    """A page of the flows that the caller may see, the newest first; it may be short, or empty, before the last one."""

    flows: list[FlowAnswer]
    next_cursor: NextCursor | None = None


@has_fields_of(ItemFailure)
class FailureAnswer(Answer):
    """One failure of an item."""


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
