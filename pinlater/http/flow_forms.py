"""The forms of requests about flows, as JSON. Payloads and results are JSON values, where those of jobs are bytes."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Raw

from pinlater.http.encodings import refusal
from pinlater.http.forms import Duration, Form, Group, Priority, Tags, Wait, idempotency_key
from pinlater.http.model_map import request_of
from pinlater.http.operator_forms import Cursor
from pinlater.model import MAX_TIME_MS
from pinlater.model.flow_words import NewFlow

NAME = "[A-Za-z0-9._-]{1,200}"
FLOW_ID = "[A-Za-z0-9]{1,64}"
WEEK_MS = 7 * 24 * 3_600_000

StageName = Annotated[str, Meta(pattern=f"^{NAME}$", description="1 to 200 letters, digits, ., _ and -.")]
AnyStage = Annotated[str, Meta(pattern=f"^({NAME})?$", description='The name of a stage; "": of all.')]
JsonValue = Annotated[Raw, Meta(description="Any JSON value.")]
ItemKey = Annotated[str, Meta(max_length=200)]
Backoff = Annotated[int, Meta(ge=0, le=MAX_TIME_MS, description="Milliseconds.")]
MaxFailures = Annotated[int, Meta(ge=0, le=99, description="So often an item may fail, and is tried again.")]
TimeToLive = Annotated[int, Meta(ge=0, le=MAX_TIME_MS, description="So many milliseconds it is kept after its end.")]
ItemNumber = Annotated[int, Meta(ge=1, le=MAX_TIME_MS)]
ItemLimit = Annotated[int, Meta(ge=1, le=1_000)]
FlowWord = Literal["running", "complete", "cancelled"]
ItemWord = Literal["pending", "succeeded", "failed"]
AppletWord = Literal["pass", "map", "list", "job"]
OnFailureWord = Literal["go_on", "stop_stage", "stop_flow"]


class AppletForm(Form):
    """The applet that makes the items of a stage out of an item of its parent that has succeeded. `pass`: one, whose
    payload is `{"payload": …, "result": …}` of the parent. `map`: those that `expression`, in JMESPath, makes of that.
    `list`: those that the result is. `job`: those that a job of this type returns, on this queue.
    """

    kind: AppletWord = "pass"
    expression: str = ""
    job: str = ""
    queue: str = ""


class StageForm(Form):
    """One kind of work. `job`: the type of job that workers know; "": the body of its jobs is the payload itself.
    `parent`: the stage before; "": it begins the flow. `keeps_open`: it is sealed by a request, and not when its parent
    is complete. `group`: makes the groups of the jobs of its items, by fields of their payloads, as in `{tenant}`.
    """

    name: StageName
    queue: str
    job: str = ""
    parent: str = ""
    applet: AppletForm | None = None
    max_failures: MaxFailures = 0
    backoff_ms: Backoff = 1_000
    max_backoff_ms: Backoff = 3_600_000
    is_final: bool = False
    keeps_open: bool = False
    priority: Priority = 1
    tags: Tags = []
    group: Group = ""


class ItemForm(Form):
    """An item. No second one of its `dedupe_key` comes into its stage; items of one `serialize_key` run one at a time,
    in order.
    """

    payload: JsonValue
    dedupe_key: ItemKey = ""
    serialize_key: ItemKey = ""


class CallbackForm(Form):
    """The callback of a flow that is over: a job of this type on a queue, or a POST to a URL that the server allows."""

    queue: str = ""
    job: str = ""
    url: str = ""


class FlowForm(Form):
    """A flow, whole. `items`: the first ones, by the names of their stages; `sealed`: the stages that are sealed behind
    these.
    """

    name: StageName
    stages: Annotated[list[StageForm], Meta(min_length=1, max_length=64)]
    dedupe_key: ItemKey = ""
    metadata: dict[str, str] = {}
    on_complete: CallbackForm | None = None
    on_failure: OnFailureWord = "go_on"
    ttl_ms: TimeToLive = WEEK_MS
    items: dict[str, list[ItemForm]] = {}
    sealed: list[str] = []

    def flow(self, idempotency_header: str | None) -> NewFlow:
        key = flow_dedupe_key(self.dedupe_key, "dedupe_key", idempotency_header)
        return request_of(NewFlow, self, dedupe_key=key)


def flow_dedupe_key(key: str, field: str, idempotency_header: str | None) -> str:
    """That of the header where there is one. RequestInvalid: both are there."""
    if idempotency_header is None:
        return key
    if key:
        raise refusal(field, "the header Idempotency-Key says it already: leave one of them out")
    return idempotency_key(idempotency_header)


class AddItemsForm(Form):
    """Items to add to a stage, all or none. `seal`: no more come after them."""

    stage: StageName
    items: Annotated[list[ItemForm], Meta(max_length=1_000)] = []
    seal: bool = False


class SealForm(Form):
    """Seal a stage, or with "" those without a parent: no more items come."""

    stage: AnyStage = ""


class ResumeForm(Form):
    """Try again what a flow failed at: children that could not be made, of one stage or all, by another expression
    where one is given, and a callback that was given up.
    """

    stage: AnyStage = ""
    expression: str = ""


class RetryItemsForm(Form):
    """Try items again that have ended: those of `numbers`; or, with `failed`, all that have failed, of one stage where
    it is named. `and_follows`: what had followed from them is removed first, and stages that were stopped go on.
    """

    numbers: Annotated[list[ItemNumber], Meta(max_length=1_000)] = []
    stage: AnyStage = ""
    failed: bool = False
    and_follows: bool = False


class AssignForm(Form):
    """Claim one item. `claim_timeout_ms`: how long the claim lasts without a heartbeat; else the queue's time."""

    claim_timeout_ms: Duration | None = None


# -- in addresses ------------------------------------------------------------------------------------------------------


class FlowsQuery(Form):
    name: str = ""
    dedupe_key: str = ""
    state: FlowWord | None = None
    limit: ItemLimit = 100
    cursor: Cursor = ""


class FlowQuery(Form):
    wait_ms: Wait = 0


class ItemsQuery(Form):
    stage: AnyStage = ""
    state: ItemWord | None = None
    dedupe_key: str = ""
    number: Annotated[int, Meta(ge=1, le=MAX_TIME_MS, description="That one item.")] | None = None
    include_body: Annotated[bool, Meta(description="Payloads, results and reasons of failures too.")] = True
    limit: ItemLimit = 100
    cursor: Cursor = ""
