"""The answers in the words of the Async Service; see job_tree_forms.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

from msgspec import UNSET, Raw, UnsetType

from pinlater.http.answers import AckWord, NextCursor
from pinlater.http.assignments import AssignmentRef
from pinlater.http.flow_answers import Sent
from pinlater.http.flow_forms import FlowWord, ItemWord, OnFailureWord
from pinlater.http.job_tree_forms import MISSED_HEARTBEATS, TreeAppletForm, TreeCallbackForm, TreeJobRef
from pinlater.http.model_map import Answer, answer_of
from pinlater.model.flow_words import Assignment, FlowItem, FlowsPage, FlowStatus, StageStatus

T = TypeVar("T", bound="TreeAnswer")


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


def job_id(item: FlowItem) -> str:
    """That of the job that an item is of."""
    return TreeJobRef(item.flow_id, item.stage).id()


def shown_applet(status: StageStatus) -> TreeAppletForm | None:
    """A job without a parent has none."""
    return answer_of(TreeAppletForm, status.stage.applet) if status.stage.parent else None


class ItemCountsAnswer(TreeAnswerPart):
    """The numbers of items. `queued`: those of the pending ones that are in the queue or with a worker."""

    total: int
    pending: int
    queued: int
    succeeded: int
    failed: int

    SOURCES: ClassVar = {"total": "items"}


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

    SOURCES: ClassVar = {
        "task_name": "job",
        "sealed": "is_sealed",
        "complete": "is_complete",
        "max_failures_per_item": "max_failures",
        "final_stage": "is_final",
        "applet": shown_applet,
    }


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

    SOURCES: ClassVar = {"tree_id": "id", "callback": "on_complete"}


class TreesAnswer(TreeAnswerPart):
    """A page of the trees that the caller may see, the newest first; it may be short, or empty, before the last one."""

    trees: list[TreeAnswer]
    next_cursor: NextCursor | None = None


class ItemResultAnswer(TreeAnswerPart):
    """The result of an item of a final stage."""

    item_id: int
    job_id: str
    result: Sent

    SOURCES: ClassVar = {
        "item_id": "number",
        "job_id": job_id,
        "result": lambda item: Raw(item.result or b"null"),
    }


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

    SOURCES: ClassVar = {"worker_id": "worker"}


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

    SOURCES: ClassVar = {"id": "number", "job_id": job_id}


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

    SOURCES: ClassVar = {"expires_at_ms": "claim_expires_at_ms"}


class AssignmentEndedAnswer(TreeAnswerPart):
    """The outcome of the attempt."""

    outcome: AckWord


class AssignmentKeptAnswer(TreeAnswerPart):
    """The assignment stands. `cancelled`: its worker is to stop; `cancelledBy` says who asked for that."""

    cancelled: bool
    cancelled_by: str | None = None


def created(tree_id: str, is_new: bool, names: Sequence[str]) -> JobCreatedAnswer:
    return JobCreatedAnswer(tree_id, is_new, {name: TreeJobRef(tree_id, name).id() for name in names})


def tree(kind: type[T], status: FlowStatus, name: str = "", **more: Any) -> T:
    """A tree; with a name, that job of it alone."""
    jobs = [
        answer_of(
            TreeJobAnswer,
            each,
            id=TreeJobRef(status.id, each.stage.name).id(),
            parent_id=TreeJobRef(status.id, each.stage.parent).id() if each.stage.parent else None,
            items=answer_of(ItemCountsAnswer, each),
        )
        for each in status.stages
        if name in ("", each.stage.name)
    ]
    return answer_of(kind, status, jobs=jobs, **more)


def trees(page: FlowsPage) -> TreesAnswer:
    return answer_of(TreesAnswer, page, trees=[tree(TreeAnswer, each) for each in page.flows])


def assignment(number: int, made: Assignment, heartbeat_ms: int) -> AssignmentAnswer:
    job = made.job
    assert job is not None
    return answer_of(
        AssignmentAnswer,
        made,
        assignment_id=AssignmentRef(job.descriptor, job.claim_descriptor).id(),
        item_id=number,
        heartbeat_ms=heartbeat_ms,
        timeout_ms=MISSED_HEARTBEATS * heartbeat_ms,
    )
