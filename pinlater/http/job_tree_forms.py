"""The forms of requests in the words of the Async Service: a job is a stage, a tree of jobs a flow, a job item an item.

Fields are in camel case there. A job's id is that of its tree, a colon, and its name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Annotated, ClassVar, NamedTuple

from msgspec import Meta

from pinlater.errors import RequestInvalid
from pinlater.http.encodings import refusal
from pinlater.http.flow_forms import (
    FLOW_ID,
    NAME,
    WEEK_MS,
    Backoff,
    FlowWord,
    ItemKey,
    ItemLimit,
    ItemWord,
    JsonValue,
    MaxFailures,
    OnFailureWord,
    TimeToLive,
    flow_dedupe_key,
)
from pinlater.http.forms import Form, Priority, Wait
from pinlater.http.model_map import request_of, requests_of
from pinlater.http.operator_forms import Cursor
from pinlater.model import MAX_TIME_MS
from pinlater.model.flow_words import NewFlow, NewItem, Stage

HEARTBEAT_MS = 20_000
"""How often an assignment is to be kept, where its request does not say."""

MISSED_HEARTBEATS = 3
"""So many may be missed, and then the assignment ends."""

_MAX_HEARTBEAT_MS = 8 * 3_600_000

JobName = Annotated[
    str, Meta(pattern=f"^({NAME})?$", description="1 to 200 letters, digits, ., _ and -; without one the taskName is.")
]
JobId = Annotated[
    str,
    Meta(
        pattern=f"^({FLOW_ID}(:{NAME})?)?$",
        description="A tree of jobs; or, with a colon and its name behind, a job of it.",
    ),
]


class TreeJobRef(NamedTuple):
    """A tree of jobs, or a job of it; `name` is "" for all of the tree."""

    tree: str
    name: str

    @classmethod
    def of(cls, job_id: str) -> TreeJobRef:
        """
        >>> TreeJobRef.of("f1d:pay"), TreeJobRef.of("f1d")
        (TreeJobRef(tree='f1d', name='pay'), TreeJobRef(tree='f1d', name=''))
        """
        tree, _, name = job_id.partition(":")
        return cls(tree, name)

    def id(self) -> str:
        return f"{self.tree}:{self.name}" if self.name else self.tree


class TreeForm(Form, rename="camel"):
    """A form with fields in camel case."""


class JobItemForm(TreeForm):
    """A job item. No second one of its `dedupeKey` comes into its job; items of one `serializeKey` are assigned one at
    a time, in order.
    """

    payload: JsonValue
    dedupe_key: ItemKey = ""
    serialize_key: ItemKey = ""


class TreeAppletForm(TreeForm):
    """The rule that makes the items of a job when an item of its parent has succeeded: `pass`, one of its payload and
    result; `map`, those that the JMESPath `expression` makes of these; `list`, those that the result is; `job`, those
    that the task `taskName` on `queue` returns.
    """

    kind: Annotated[str, Meta(pattern="^(pass|map|list|job)$")] = "pass"
    expression: str = ""
    task_name: str = ""
    queue: str = ""

    SOURCES: ClassVar = {"task_name": "job"}


class TreeCallbackForm(TreeForm):
    """The callback of a complete tree of jobs: a task on a queue, or a POST to a URL that the server allows."""

    queue: str = ""
    task_name: str = ""
    url: str = ""

    SOURCES: ClassVar = {"task_name": "job"}


class ChildJobForm(TreeForm):
    """A job of a tree, with the jobs below it. `taskName`: the task that workers know; without one the body of what
    they get is the payload itself. `sealed`: no items come after these. `manualSeal`: it is sealed by a request, and
    not when its parent is complete.
    """

    queue: str = ""
    name: JobName = ""
    task_name: str = ""
    max_failures_per_item: MaxFailures = 0
    backoff_ms: Backoff = 1_000
    max_backoff_ms: Backoff = 3_600_000
    final_stage: bool = False
    manual_seal: bool = False
    priority: Priority = 1
    applet: TreeAppletForm | None = None
    sealed: bool = False
    items: Annotated[list[JobItemForm], Meta(max_length=1_000)] = []
    children: Annotated[list[ChildJobForm], Meta(max_length=63)] = []

    SOURCES: ClassVar = {
        "task_name": "job",
        "max_failures_per_item": "max_failures",
        "final_stage": "is_final",
        "manual_seal": "keeps_open",
        "callback": "on_complete",
    }

    def named(self, field: str) -> str:
        """RequestInvalid: it has neither a name nor a task."""
        if not (self.name or self.task_name):
            raise refusal(f"{field}name", "a job needs a name or a taskName")
        if not self.queue:
            raise refusal(f"{field}queue", "it is missing")
        return self.name or self.task_name

    def stage(self, field: str, parent: str) -> Stage:
        return request_of(Stage, self, field, name=self.named(field), parent=parent)


class JobTreeForm(ChildJobForm):
    """A tree of jobs to create, by its first job. With `jobId`, items to add to a job that is there: then `items` and
    `sealed` are all that may stand beside it.
    """

    job_id: JobId = ""
    tree_name: JobName = ""
    dedupe_key: ItemKey = ""
    metadata: dict[str, str] = {}
    callback: TreeCallbackForm | None = None
    on_failure: OnFailureWord = "go_on"
    ttl_ms: TimeToLive = WEEK_MS

    def flow(self, idempotency_header: str | None) -> NewFlow:
        """RequestInvalid."""
        stages: list[Stage] = []
        items: dict[str, list[NewItem]] = {}
        sealed: list[str] = []
        for form, field, parent in _jobs(self):
            stage = form.stage(field, parent)
            stages.append(stage)
            if form.items:
                items.setdefault(stage.name, []).extend(requests_of(NewItem, form.items, f"{field}items"))
            if form.sealed:
                sealed.append(stage.name)
        return request_of(
            NewFlow,
            self,
            name=self.tree_name or stages[0].name,
            stages=stages,
            dedupe_key=flow_dedupe_key(self.dedupe_key, "dedupeKey", idempotency_header),
            items=items,
            sealed=sealed,
        )

    def added(self) -> list[NewItem]:
        """The items for the job that is there. RequestInvalid: something else is said of it."""
        defaults = dict(
            zip(self.__struct_fields__[-len(self.__struct_defaults__) :], self.__struct_defaults__, strict=True)
        )
        for name, shown in zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True):
            if name not in ("job_id", "items", "sealed") and getattr(self, name) != _plain(defaults[name]):
                raise refusal(shown, "with jobId, only items and sealed may be given: the job exists already")
        return requests_of(NewItem, self.items, "items")


def _plain(default: object) -> object:
    """msgspec has factories for what can be changed."""
    factory = getattr(default, "factory", None)
    return default if factory is None else factory()


def _jobs(root: ChildJobForm) -> Iterator[tuple[ChildJobForm, str, str]]:
    """Parents first; each with where it stands, and the name of its parent."""
    waiting = deque([(root, "", "")])
    while waiting:
        form, field, parent = waiting.popleft()
        yield form, field, parent
        waiting.extend((child, f"{field}children[{at}].", form.named(field)) for at, child in enumerate(form.children))


def job_of(job_id: str) -> TreeJobRef:
    """RequestInvalid: it names a tree."""
    ref = TreeJobRef.of(job_id)
    if not ref.name:
        raise RequestInvalid.of("jobId", job_id, "the id of a job: its tree, a colon and its name")
    return ref


class ResultForm(TreeForm):
    """The result of an item: any JSON value."""

    result: JsonValue


class FailureReasonForm(TreeForm):
    """The failure of an item. `permanent`: it is not tried again."""

    reason: Annotated[str, Meta(max_length=2_000)] = ""
    permanent: bool = False


# -- in addresses ------------------------------------------------------------------------------------------------------


class TreesQuery(TreeForm):
    name: Annotated[str, Meta(description="That of trees.")] = ""
    dedupe_key: str = ""
    state: FlowWord | None = None
    limit: ItemLimit = 100
    cursor: Cursor = ""


class TreeStatusQuery(TreeForm):
    wait_ms: Wait = 0
    include_results: Annotated[bool, Meta(description="Those of the items of final stages.")] = True
    limit: Annotated[int, Meta(ge=1, le=1_000, description="Of results.")] = 100
    cursor: Cursor = ""


class JobItemsQuery(TreeForm):
    job_id: Annotated[str, Meta(pattern=f"^{FLOW_ID}(:{NAME})?$", description="A tree of jobs, or a job of it.")]
    state: ItemWord | None = None
    dedupe_key: str = ""
    item_id: Annotated[int, Meta(ge=1, le=MAX_TIME_MS, description="That one item.")] | None = None
    include_payload: Annotated[bool, Meta(description="Payloads, results and reasons of failures too.")] = True
    limit: ItemLimit = 100
    cursor: Cursor = ""

    SOURCES: ClassVar = {"include_payload": "include_body"}


class AssignQuery(TreeForm):
    heartbeat_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=_MAX_HEARTBEAT_MS,
            description="How often the worker says that it lives; the assignment ends after three times as long.",
        ),
    ] = HEARTBEAT_MS
