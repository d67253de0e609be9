"""The model of flows: trees of stages, whose items stream through them, as callers send and get them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pinlater.model.job_rules import ClaimOutcome
from pinlater.model.jobs import DequeuedJob
from pinlater.model.word_enum import WordEnum


class FlowState(WordEnum):
    RUNNING = 0
    COMPLETE = 1
    CANCELLED = 2


class ItemState(WordEnum):
    PENDING = 0
    SUCCEEDED = 1
    FAILED = 2


class AppletKind(WordEnum):
    """What makes the items of a child stage out of an item of its parent that has succeeded.

    PASS: one, whose payload is `{"payload": ..., "result": ...}` of the parent. MAP: those that an expression of
    JMESPath makes of that. LIST: those that the result is. JOB: those that a job of the workers returns.
    """

    PASS = 0
    MAP = 1
    LIST = 2
    JOB = 3


class OnFailure(WordEnum):
    """What becomes of the rest when an item has failed."""

    GO_ON = 0
    STOP_STAGE = 1
    STOP_FLOW = 2


@dataclass(frozen=True, slots=True)
class Applet:
    """`expression`: of MAP. `job`, `queue`: of JOB, a type of job and where it runs."""

    kind: AppletKind = AppletKind.PASS
    expression: str = ""
    job: str = ""
    queue: str = ""


@dataclass(frozen=True, slots=True)
class Stage:
    """One kind of work. `job`: the type of job that workers know; `parent`: the name of the stage before, "" for one
    that begins the flow.

    An item may fail `max_failures` times and is tried again, `backoff_ms` later, twice as long each time up to
    `max_backoff_ms`. `is_final`: its results are those of the flow. `keeps_open`: it is sealed by hand, not when its
    parent is complete. `tags`: of the jobs of its items. `group`: the template of their groups, "" for none; see
    group_template.py.
    """

    name: str
    job: str
    queue: str
    parent: str = ""
    applet: Applet = field(default_factory=Applet)
    max_failures: int = 0
    backoff_ms: int = 1_000
    max_backoff_ms: int = 3_600_000
    is_final: bool = False
    keeps_open: bool = False
    priority: int = 1
    tags: tuple[str, ...] = ()
    group: str = ""


@dataclass(frozen=True, slots=True)
class NewItem:
    """An item to be added: its payload as JSON. No second one of its dedupe key comes into its stage."""

    payload: bytes
    dedupe_key: str = ""
    serialize_key: str = ""


@dataclass(frozen=True, slots=True)
class CompletionCallback:
    """The callback of a complete flow: a job of this type on a queue, or a POST to a URL."""

    queue: str = ""
    job: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True)
class NewFlow:
    """A flow to be made, whole: all its stages, in any order. While a flow with the same name and dedupe key is kept,
    no second one is made. After its end it is kept for `ttl_ms`.

    `items`: the first ones, by the names of their stages; `sealed`: the stages that are sealed behind these.
    """

    name: str
    stages: Sequence[Stage]
    dedupe_key: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    on_complete: CompletionCallback | None = None
    on_failure: OnFailure = OnFailure.GO_ON
    ttl_ms: int = 7 * 24 * 3_600_000
    items: Mapping[str, Sequence[NewItem]] = field(default_factory=dict)
    sealed: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class FlowCreated:
    """`is_new` False: a flow with its name and dedupe key was there already, and nothing has changed."""

    id: str
    is_new: bool


@dataclass(frozen=True, slots=True)
class ItemFailure:
    attempt: int
    at_ms: int
    worker: str
    reason: str


@dataclass(frozen=True, slots=True)
class FlowItem:
    """`number` names it in the whole database. `result`: None until it has succeeded. `job`: the descriptor of its job,
    "" while it waits in the database. `applet_error`: why its children could not be made, "" for no such trouble.
    """

    number: int
    flow_id: str
    stage: str
    state: ItemState
    payload: bytes
    result: bytes | None
    failures: Sequence[ItemFailure]
    dedupe_key: str
    serialize_key: str
    retry_at_ms: int | None
    added_ms: int
    ended_ms: int | None
    job: str = ""
    applet_error: str = ""


@dataclass(frozen=True, slots=True)
class FlowItemsPage:
    items: Sequence[FlowItem]
    continuation: str


@dataclass(frozen=True, slots=True)
class StageStatus:
    """A stage in numbers. `queued`: items that are in its queue or with a worker. `applet_errors`: items whose children
    could not be made.
    """

    stage: Stage
    items: int
    pending: int
    queued: int
    succeeded: int
    failed: int
    applet_errors: int
    is_sealed: bool

    @property
    def is_complete(self) -> bool:
        """No item is pending, and none will come."""
        return self.is_sealed and not self.pending and not self.applet_errors


@dataclass(frozen=True, slots=True)
class CallbackStatus:
    """The completion callback of a flow that is over. `done_ms`: when it was made, or given up; then `error` says why.
    `next_ms`: of the next try.
    """

    id: str
    tries: int
    error: str
    next_ms: int | None
    done_ms: int | None


@dataclass(frozen=True, slots=True)
class FlowStatus:
    """A flow in numbers. `troubles`: what keeps it from going on, each a sentence that says what to do.

    `ends`: how often it was over, and so the number of its latest end; a retry opens it again. `is_stuck`: none of its
    items is pending, and children that could not be made keep it open.
    """

    id: str
    name: str
    state: FlowState
    dedupe_key: str
    metadata: Mapping[str, str]
    stages: Sequence[StageStatus]
    created_ms: int
    completed_ms: int | None
    on_failure: OnFailure = OnFailure.GO_ON
    on_complete: CompletionCallback | None = None
    callback: CallbackStatus | None = None
    troubles: Sequence[str] = field(default_factory=list)
    ends: int = 0
    is_stuck: bool = False


@dataclass(frozen=True, slots=True)
class RefusedItems:
    """Items that were not retried, for one reason: how many, and the numbers of the first, where they are known."""

    reason: str
    count: int
    numbers: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class FlowRetry:
    """The answer to a retry of items: the flow as it is now, how many items are tried again, and how many that had
    followed from them were removed.
    """

    flow: FlowStatus
    retried: int
    removed: int
    refused: Sequence[RefusedItems] = ()


@dataclass(frozen=True, slots=True)
class FlowsPage:
    """Of flows, the newest first."""

    flows: Sequence[FlowStatus]
    continuation: str


@dataclass(frozen=True, slots=True)
class Assignment:
    """The answer to who asked for one item: CLAIMED, with its job, or what keeps it from that. It ends as any claim
    does, by an ack of the job with its claim.
    """

    outcome: ClaimOutcome
    job: DequeuedJob | None = None
    payload: bytes = b""
