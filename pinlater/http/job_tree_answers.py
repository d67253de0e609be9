"""The answers in the words of the Async Service; see job_tree_forms.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Raw, UnsetType

from pinlater.http.answers import AckWord, Answer, NextCursor, next_cursor
from pinlater.http.assignments import AssignmentRef
from pinlater.http.flow_answers import FLOW_WORDS, ITEM_WORDS, ON_FAILURE_WORDS, Sent, json_of
from pinlater.http.flow_forms import FlowWord, ItemWord, OnFailureWord
from pinlater.http.job_tree_forms import MISSED_HEARTBEATS, TreeAppletForm, TreeCallbackForm, TreeJobRef
from pinlater.model.flow_words import (
    AppletKind,
    Assignment,
    FlowItem,
    FlowItemsPage,
    FlowsPage,
    FlowStatus,
    StageStatus,
)


class TreeAnswerPart(Answer, rename="camel"):
    """An answer with fields in camel case."""


class JobCreatedAnswer(TreeAnswerPart):
    """A tree of jobs: the ids of its jobs by their names, as the request had them; `isNew` false: one of its name and
    dedupe key was there, and nothing has changed. Or the items that were added to a job.
    """

    tree_id: str
    is_new: bool | None = None
    jobs: dict[str, str] | None = None
    item_ids: list[int] | None = None


class ItemCountsAnswer(TreeAnswerPart):
    """How many items. `queued`: those of the pending ones that are in the queue or with a worker."""

    total: int
    pending: int
    queued: int
    succeeded: int
    failed: int


class TreeJobAnswer(TreeAnswerPart):
    """A job of a tree. `complete`: it is sealed, and no item of it is pending."""

    id: str
    name: str
    task_name: str
    queue: str
    sealed: bool
    complete: bool
    items: ItemCountsAnswer
    max_failures_per_item: int
    final_stage: bool = False
    parent_id: str | None = None
    applet: TreeAppletForm | None = None
    applet_errors: int = 0


class TreeAnswer(TreeAnswerPart):
    """A tree of jobs; parents stand before their children."""

    tree_id: str
    name: str
    state: FlowWord
    jobs: list[TreeJobAnswer]
    created_at_ms: int
    completed_at_ms: int | None = None
    dedupe_key: str | None = None
    metadata: dict[str, str] | None = None
    on_failure: OnFailureWord = "go_on"
    callback: TreeCallbackForm | None = None
    troubles: list[str] | None = None


class TreesAnswer(TreeAnswerPart):
    """A page of the trees that the caller may see, the newest first; it may be short, or empty, before the last one."""

    trees: list[TreeAnswer]
    next_cursor: NextCursor | None = None


class ItemResultAnswer(TreeAnswerPart):
    """The result of an item of a final stage."""

    item_id: int
    job_id: str
    result: Sent


class TreeStatusAnswer(TreeAnswer):
    """A tree of jobs, or one job of it, with a page of the results of its final stages."""

    results: list[ItemResultAnswer] = []
    next_cursor: NextCursor | None = None


class ItemFailureAnswer(TreeAnswerPart):
    """One failure of an item."""

    attempt: int
    at_ms: int
    worker_id: str
    reason: str


class JobItemAnswer(TreeAnswerPart):
    """A job item. `payload`, `result` and the reasons are there only where they were asked for."""

    id: int
    job_id: str
    state: ItemWord
    failures: list[ItemFailureAnswer]
    added_at_ms: int
    payload: Sent | UnsetType = UNSET
    result: Sent | UnsetType = UNSET
    dedupe_key: str | None = None
    serialize_key: str | None = None
    retry_at_ms: int | None = None
    ended_at_ms: int | None = None
    applet_error: str | None = None


class JobItemsAnswer(TreeAnswerPart):
    """A page of job items, in order."""

    items: list[JobItemAnswer]
    next_cursor: NextCursor | None = None


class AssignmentAnswer(TreeAnswerPart):
    """An assignment: one worker's exclusive hold on one item. Without a heartbeat for `timeoutMs`, three times
    `heartbeatMs`, it ends like a failure; at first that is at `expiresAtMs`.
    """

    assignment_id: str
    item_id: int
    payload: Sent
    heartbeat_ms: int
    timeout_ms: int
    expires_at_ms: int


class AssignmentEndedAnswer(TreeAnswerPart):
    """What became of the attempt."""

    outcome: AckWord


class AssignmentKeptAnswer(TreeAnswerPart):
    """The assignment stands. `cancelled`: its worker is to stop; `cancelledBy` says who asked for that."""

    cancelled: bool
    cancelled_by: str | None = None


_APPLET_WORDS = {kind: kind.name.lower() for kind in AppletKind}


def created(tree_id: str, is_new: bool, names: Sequence[str]) -> JobCreatedAnswer:
    return JobCreatedAnswer(tree_id, is_new, {name: TreeJobRef(tree_id, name).id() for name in names})


def _job(tree_id: str, status: StageStatus) -> TreeJobAnswer:
    stage = status.stage
    applet = stage.applet
    return TreeJobAnswer(
        TreeJobRef(tree_id, stage.name).id(),
        stage.name,
        stage.job,
        stage.queue,
        status.is_sealed,
        status.is_complete,
        ItemCountsAnswer(status.items, status.pending, status.queued, status.succeeded, status.failed),
        stage.max_failures,
        stage.is_final,
        TreeJobRef(tree_id, stage.parent).id() if stage.parent else None,
        TreeAppletForm(_APPLET_WORDS[applet.kind], applet.expression, applet.job, applet.queue)
        if stage.parent
        else None,
        status.applet_errors,
    )


def tree(status: FlowStatus) -> TreeAnswer:
    return TreeAnswer(**_of_tree(status))


def _of_tree(status: FlowStatus, name: str = "") -> dict[str, Any]:
    """The fields of a tree; with a name, of that job alone."""
    told = status.on_complete
    return {
        "tree_id": status.id,
        "name": status.name,
        "state": FLOW_WORDS[status.state],
        "jobs": [_job(status.id, each) for each in status.stages if name in ("", each.stage.name)],
        "created_at_ms": status.created_ms,
        "completed_at_ms": status.completed_ms,
        "dedupe_key": status.dedupe_key or None,
        "metadata": dict(status.metadata) or None,
        "on_failure": ON_FAILURE_WORDS[status.on_failure],
        "callback": None if told is None else TreeCallbackForm(told.queue, told.job, told.url),
        "troubles": list(status.troubles) or None,
    }


def trees(page: FlowsPage) -> TreesAnswer:
    return TreesAnswer([tree(each) for each in page.flows], next_cursor(page.continuation))


def tree_status(status: FlowStatus, name: str, results: Sequence[FlowItem], cursor: str | None) -> TreeStatusAnswer:
    return TreeStatusAnswer(
        **_of_tree(status, name),
        results=[
            ItemResultAnswer(each.number, TreeJobRef(each.flow_id, each.stage).id(), Raw(each.result or b"null"))
            for each in results
        ],
        next_cursor=cursor,
    )


def _item(found: FlowItem) -> JobItemAnswer:
    return JobItemAnswer(
        found.number,
        TreeJobRef(found.flow_id, found.stage).id(),
        ITEM_WORDS[found.state],
        [ItemFailureAnswer(each.attempt, each.at_ms, each.worker, each.reason) for each in found.failures],
        found.added_ms,
        json_of(found.payload),
        json_of(found.result),
        found.dedupe_key or None,
        found.serialize_key or None,
        found.retry_at_ms,
        found.ended_ms,
        found.applet_error or None,
    )


def job_items(page: FlowItemsPage) -> JobItemsAnswer:
    return JobItemsAnswer([_item(each) for each in page.items], next_cursor(page.continuation))


def assignment(number: int, made: Assignment, heartbeat_ms: int) -> AssignmentAnswer:
    job = made.job
    assert job is not None
    return AssignmentAnswer(
        AssignmentRef(job.descriptor, job.claim_descriptor).id(),
        number,
        Raw(made.payload),
        heartbeat_ms,
        MISSED_HEARTBEATS * heartbeat_ms,
        job.claim_expires_at_ms,
    )
