"""Jobs and their states, the requests and answers about them, and the texts that name a job, a claim and a version.

docs/where.md has the places to touch for a new field of a job. homes/job_mover.py needs none: it moves every field of
Job that DequeuedJob or JobInfo has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, NamedTuple

from pinlater.model.callers import Caller, holder_of
from pinlater.model.connection_ref import ConnectionRef
from pinlater.model.job_rules import (
    AckOutcome,
    CancelOutcome,
    ClaimOutcome,
    EnqueueOutcome,
    HeartbeatOutcome,
    OnDuplicate,
    ReplaceRunning,
)
from pinlater.model.trail import JobAttempt, JobProgress, LogLine
from pinlater.model.word_enum import WordEnum
from pinlater.model.workers import NumberedCommand, WorkerReport

MAX_TIME_MS = 2**53 - 1
"""The largest time: the largest integer that a double (Redis scores, Lua numbers) holds exactly."""

MAX_STATUS_CHARS = 5_000
"""A job's custom status is cut at so many characters, keeping the front (docs/semantics.md)."""

MAX_QUEUE_NAME_CHARS = 64
HIDDEN_JOB = "?"
"""Stands in `JobInfo.waits_for` for a job of a queue that the caller may not read."""

CONTINUATION_START = "0"
CONTINUATION_END = "-1"


class JobState(WordEnum):
    """The state of a job. The numbers are those of the wire contract and of the stores."""

    PENDING = 0
    IN_PROGRESS = 1
    SUCCEEDED = 2
    FAILED = 3


Shown = tuple[str | None, str | None, str | None, str | None, tuple[str, ...] | None]
"""What a caller shows with a call."""


@dataclass(slots=True)
class RequestContext:
    """The context of a call: its caller. `source` becomes the last part of the claim descriptors made for this caller.

    `connection` is the caller's, in a server, where a call may bind claims to it or needs the admin password.
    `take_room` keeps room there for so many bytes more of an answer; False: there is none.
    `token` proves who calls. A gateway says by `on_behalf_of` for whom it calls, with all `certificate_names` of that
    caller, and by `caller_address` from where; `gateway_token` proves it beside the token of its caller.
    `shares_connection`: callers share the connection, so that no claim is to be bound to it.
    `caller` is what a server has found out of that, where access is limited; `is_granted`: this call needs no admin
    password.
    """

    source: str
    request_id: str = ""
    connection: ConnectionRef | None = field(default=None, repr=False, compare=False)
    take_room: Callable[[int], bool] | None = field(default=None, repr=False, compare=False)
    token: str | None = field(default=None, repr=False)
    on_behalf_of: str | None = None
    caller_address: str | None = None
    gateway_token: str | None = field(default=None, repr=False)
    certificate_names: tuple[str, ...] | None = None
    shares_connection: bool | None = None
    caller: Caller | None = field(default=None, repr=False, compare=False)
    is_granted: bool = field(default=False, repr=False, compare=False)

    @property
    def binding_connection(self) -> ConnectionRef | None:
        """The connection to which the call may bind claims, None for none."""
        return None if self.shares_connection else self.connection

    @property
    def holder(self) -> str:
        """Whose share of what all callers have in common the call takes."""
        return holder_of(self.caller, None if self.connection is None else self.connection.peer)

    @property
    def shown(self) -> Shown:
        """What tells its caller from others, in the order of the fields."""
        return self.token, self.on_behalf_of, self.caller_address, self.gateway_token, self.certificate_names


@dataclass(slots=True)
class Job:
    """A job to enqueue. `priority` 1 is the highest; `run_after_ms` None means as soon as possible."""

    body: bytes
    priority: int = 1
    run_after_ms: int | None = None
    attempts_allowed: int = 2
    custom_status: str = ""


MAX_KEY_BYTES = 255
"""Of a dedupe key or a serialize key, as UTF-8."""

MAX_SEND_ID_BYTES = 64

MAX_TAGS = 10
"""The most on one job."""

MAX_TAG_BYTES, MAX_GROUP_BYTES = 64, 255
"""As UTF-8."""

CONTROL_CHAR = re.compile(r"[\0-\x1f\x7f-\x9f]")
"""Characters that no tag and no group has."""

WHILE_KEPT = -1
"""As `dedupe_for_ms`: as long as the job is kept."""


@dataclass(slots=True)
class ExtendedJob(Job):
    """A job to enqueue with keys, a group, an expiry, tags or a claim time-out of its own. See docs/semantics.md.
    `dedupe_key`, where not "": while a job of that name is PENDING or IN_PROGRESS in its queue, and for `dedupe_for_ms`
    after its end (WHILE_KEPT: as long as it is kept), no second one comes into being; `on_duplicate` says what happens
    instead. `serialize_key`, where not "": jobs of one key, in whichever queues, are handed out one at a time, in the
    order in which they were enqueued. `claim_timeout_ms`: that of its claims where the dequeue names none.
    `expires_at_ms`: not handed out from then on. `send_id`: the same on each resend, which gets the first answer.
    `tags`: texts by which jobs are found, in the order given. `group`, where not "": the groups of a queue have fair
    shares of its hand-outs (docs/fairness.md). `replace_running` and `replace_within_ms` are for REPLACE: what becomes
    of a job that runs; and how long after its first enqueue replacements may postpone a job.
    """

    dedupe_key: str = ""
    serialize_key: str = ""
    claim_timeout_ms: int | None = None
    on_duplicate: OnDuplicate = OnDuplicate.KEEP
    dedupe_for_ms: int = 0
    expires_at_ms: int | None = None
    send_id: str = ""
    tags: Sequence[str] = ()
    group: str = ""
    replace_running: ReplaceRunning = ReplaceRunning.KEEP
    replace_within_ms: int | None = None

    @property
    def is_keyed(self) -> bool:
        """Whether it lives where its keys say."""
        return bool(self.dedupe_key or self.serialize_key or self.send_id)


_PLAIN_KINDS = {Job}


def any_extended(jobs: Sequence[Job]) -> bool:
    """Whether one of them has what few jobs have. It is asked of all jobs, so by their kinds and not one by one."""
    kinds = set(map(type, jobs))
    return kinds != _PLAIN_KINDS and any(issubclass(kind, ExtendedJob) for kind in kinds)


class KeyRef(NamedTuple):
    """A reference to a job by its keys.

    With a dedupe key: the live job of that name in the queue, else the last one; with both, that of this serialize key.
    With a serialize key alone: the job that is now the first of that key, in whichever queue.
    """

    dedupe_key: str = ""
    serialize_key: str = ""


class EnqueuedJobs(list[str]):
    """The descriptors that an enqueue answers with. `outcomes`: one for each job; empty where all were stored,
    or the server does not say.
    """

    __slots__ = ("outcomes",)

    def __init__(self, descriptors: Iterable[str], outcomes: Sequence[EnqueueOutcome] = ()) -> None:
        super().__init__(descriptors)
        self.outcomes = outcomes


class Cancelled(dict[str, CancelOutcome]):
    """The outcomes of a cancel, by descriptor; `by_key`: of the jobs named by keys, in their order."""

    __slots__ = ("by_key",)

    def __init__(self, outcomes: Mapping[str, CancelOutcome], by_key: Sequence[CancelOutcome] = ()) -> None:
        super().__init__(outcomes)
        self.by_key = list(by_key)


@dataclass(slots=True)
class DequeuedJob:
    """A job as handed to a worker, with what it needs for fencing and for its metrics.

    `claim_descriptor` is "" and `claim_expires_at_ms` 0 for a dry run, which claims nothing.
    """

    descriptor: str
    body: bytes
    priority: int
    attempts_allowed: int
    attempts_remaining: int
    run_after_ms: int
    enqueued_at_ms: int
    claim_descriptor: str = ""
    claim_expires_at_ms: int = 0

    @property
    def group(self) -> str:
        """Known to servers alone, as stores hand it out (GroupedJob)."""
        return ""


class GroupedJob(DequeuedJob):
    """A job of a queue whose jobs have groups, as its store hands it out. `group` is no field, so no message has it; ""
    where the job has none, or came while groups are taken off.
    """

    __slots__ = ("group",)
    group: str


def give_groups(jobs: Iterable[DequeuedJob], groups: Iterable[str]) -> None:
    """Say what the group of each of these is; of others than GroupedJob it cannot be said."""
    for job, group in zip(jobs, groups, strict=True):
        if isinstance(job, GroupedJob):
            job.group = group


class ClaimAnswer(NamedTuple):
    """The outcome of one job that a claim named; `job` with CLAIMED alone."""

    outcome: ClaimOutcome
    job: DequeuedJob | None = None


class DequeuedJobs(list[DequeuedJob]):
    """The answer to a dequeue. `ack_outcomes`: the outcomes of the acks that rode on it, first the successes, then the
    failures, each in order; empty where every one had an effect, or the server does not say.
    """

    __slots__ = ("ack_outcomes",)

    def __init__(self, jobs: Iterable[DequeuedJob], ack_outcomes: Sequence[AckOutcome] = ()) -> None:
        super().__init__(jobs)
        self.ack_outcomes = ack_outcomes


@dataclass(slots=True)
class JobInfo:
    """Everything a store knows of one job; `body` only where it was asked for.

    `claim_descriptor` is that of the current claim, or of the last one for a job that ended; None for a pending one.
    `origin` is the job that this is a copy of (a dead letter, or one that was sent back), `moved_to` the copy of this;
    `replayed_to`, in its stead, what became of its dead letter: FAILED, and the failure is dealt with.

    What few jobs have is None where they do not: `result` (only where it was asked for, and is still kept), the keys,
    `cancelled` (True: FAILED because it was to stop), `progress`, `waits_for` (the first job of its serialize key,
    while it is not this one, HIDDEN_JOB where the caller may not read that one's queue; or the running job of its
    dedupe key), `expires_at_ms`, `claim_timeout_ms`, `cancel_requested_by`, `tags`, `group`, `successor` (the newer job
    that waits until this one, which runs, has ended: it has the same dedupe key). `dedupe_for_ms` is not on the wire.
    `body_stored_at` says in which tier the body lies, and why (BodyReference.text, .why); None: in its shard.
    `body_left_out` and `result_left_out` (True, or None): it was asked for, and the answer had no room for it.
    `attempts` and `log_lines` are its trail, only where that was asked for; the lines are None for callers who may not
    see its body.
    """

    descriptor: str
    state: JobState
    priority: int
    attempts_allowed: int
    attempts_remaining: int
    custom_status: str
    created_at_ms: int
    run_after_ms: int
    updated_at_ms: int
    claim_descriptor: str | None = None
    claimed_at_ms: int | None = None
    claim_expires_at_ms: int | None = None
    finished_at_ms: int | None = None
    crashes: int = 0
    body: bytes | None = None
    origin: str | None = None
    moved_to: str | None = None
    result: bytes | None = None
    dedupe_key: str | None = None
    serialize_key: str | None = None
    cancelled: bool | None = None
    progress: JobProgress | None = None
    waits_for: str | None = None
    expires_at_ms: int | None = None
    claim_timeout_ms: int | None = None
    cancel_requested_by: str | None = None
    dedupe_for_ms: int = 0
    body_stored_at: str | None = None
    body_left_out: bool | None = None
    result_left_out: bool | None = None
    replayed_to: str | None = None
    tags: list[str] | None = None
    attempts: Sequence[JobAttempt] | None = None
    log_lines: Sequence[LogLine] | None = None
    group: str | None = None
    successor: str | None = None

    def date_last_change(self) -> None:
        """Sets `updated_at_ms` no earlier than the job's end, or its claim before that: the clock of a later change may
        have been behind.
        """
        latest_ms = self.claimed_at_ms if self.finished_at_ms is None else self.finished_at_ms
        self.updated_at_ms = max(self.updated_at_ms, latest_ms or 0)


@dataclass(slots=True)
class Ack:
    """The outcome of one attempt, reported by a worker. The list it stands in tells success from failure.

    `claim_descriptor`, where not "", fences: only the holder of that claim can ack. `retry_delay_ms` and `permanent`
    (no retry, straight to FAILED) count for failures only, a success whose result is refused among them; `result` for
    successes only.
    """

    descriptor: str
    append_status: str = ""
    retry_delay_ms: int = 0
    claim_descriptor: str = ""
    permanent: bool = False
    result: bytes | None = None

    progress: ClassVar[JobProgress | None] = None
    log_lines: ClassVar[Sequence[LogLine] | None] = None
    """Those of ReportingAck, which other acks do not pay for."""


@dataclass(slots=True)
class ReportingAck(Ack):
    """An ack with the last report of its job: progress, and lines for its log. They count as by a heartbeat
    before the ack, and only with a `claim_descriptor`.
    """

    progress: JobProgress | None = None  # type: ignore[misc]
    log_lines: Sequence[LogLine] = ()  # type: ignore[misc]


class PlainAcks(list[Ack]):
    """Acks of which none reports anything: nobody has to look at their kinds."""

    __slots__ = ()


_REPORTING = {ReportingAck}


def any_reporting(acks: Sequence[Ack]) -> bool:
    """Whether one of them may report something. It is asked of all acks, so by their kinds and not one by one."""
    return type(acks) is not PlainAcks and not _REPORTING.isdisjoint(map(type, acks))


@dataclass(slots=True)
class Heartbeat:
    """A renewal of one claim, which changes nothing else. `fraction` None and `text` None leave the progress.
    `log_lines` are added to the job's log; their attempt is the one that runs.
    """

    descriptor: str
    claim_descriptor: str
    fraction: float | None = None
    text: str | None = None
    log_lines: Sequence[LogLine] = ()


class HeartbeatAnswer(NamedTuple):
    """The answer to a heartbeat: OK, LOST or CANCEL; `cancelled_by` is who requested the latter."""

    outcome: HeartbeatOutcome
    cancelled_by: str = ""


class HeartbeatAnswers(list[HeartbeatAnswer]):
    """One answer for each heartbeat, in order. `command`: an order to the worker whose report came with them."""

    command: NumberedCommand | None = None


@dataclass(slots=True)
class RescheduleJob:
    """A change of one PENDING job, by its descriptor or else by a key with a dedupe key; None leaves a field as it is.

    `only_if_updated_at_ms`: only where the job was last updated then.
    """

    descriptor: str = ""
    key: KeyRef | None = None
    run_after_ms: int | None = None
    body: bytes | None = None
    attempts_allowed: int | None = None
    only_if_updated_at_ms: int | None = None


@dataclass(slots=True)
class Checkpoint:
    """A heartbeat of one job in progress; None leaves a field as it is, except `run_after_ms`: None means now, and that
    of the dequeued job leaves it. A later time keeps the claim until then and its time-out.
    """

    descriptor: str
    new_body: bytes | None = None
    move_to_pending: bool = False
    run_after_ms: int | None = None
    attempts_allowed: int | None = None
    prepend_status: str = ""
    claim_descriptor: str = ""


@dataclass(slots=True)
class DequeueRequest:
    """A dequeue call. `wait_ms` > 0 makes it a long poll; `claim_timeout_ms` None takes the queue's own.

    `release_on_disconnect` binds the claims to the caller's connection; `confirms_receipt` says that the caller tells
    the server when it has the answer, before it begins a job: see docs/wire.md. `prefetch`: so many jobs more than the
    limit, where they are there at once and the queue has neither limits nor groups. `worker`: for the list of workers.
    """

    queue: str
    limit: int
    succeeded: Sequence[Ack] = ()
    failed: Sequence[Ack] = ()
    ack_queue: str = ""
    dry_run: bool = False
    coverage: float = 1.0
    wait_ms: int = 0
    claim_timeout_ms: int | None = None
    release_on_disconnect: bool = False
    confirms_receipt: bool = False
    prefetch: int = 0
    worker: WorkerReport | None = None


@dataclass(slots=True)
class JobFilter:
    """The jobs that an operator selects: one queue and state, a priority (None: all), now or later, a body pattern
    (RE2).
    """

    queue: str
    state: JobState
    priority: int | None = None
    future: bool = False
    body_regex: str = ""


@dataclass(slots=True)
class ScanPage:
    """One page of a scan, newest run_after first; `continuation` is CONTINUATION_END on the last one."""

    jobs: list[JobInfo]
    continuation: str = CONTINUATION_END
    missing_shards: list[str] = field(default_factory=list)


QUEUE_NAME_PATTERN = r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}"
QUEUE_NAME_ALLOWED = "1 to 64 letters, digits, _ and -, with no - in front"
_QUEUE_NAME = re.compile(QUEUE_NAME_PATTERN, re.ASCII)


def is_queue_name(name: str) -> bool:
    return len(name) <= MAX_QUEUE_NAME_CHARS and _has_name_chars(name)


@lru_cache(maxsize=1024)
def _has_name_chars(name: str) -> bool:
    """Every enqueue and dequeue asks, mostly of the same few; a long text is not kept."""
    return _QUEUE_NAME.fullmatch(name) is not None


_DIGITS = re.compile(r"([0-9]+)", re.ASCII)


@lru_cache(maxsize=10_000)
def queue_order(name: str) -> tuple[list[tuple[str, int]], str]:
    """By which names are sorted for people, who count.

    >>> sorted(["mq10", "mq2", "mail", "mq2b", "mq02"], key=queue_order)
    ['mail', 'mq02', 'mq2', 'mq2b', 'mq10']
    """
    parts = [*_DIGITS.split(name), "0"]
    return [(text, int(number)) for text, number in zip(parts[::2], parts[1::2], strict=True)], name


class JobRef(NamedTuple):
    """The parts of a job descriptor, `QUEUE:sSHARD:pPRIORITY:ID`."""

    queue: str
    shard: str
    priority: int
    id: int


_DESCRIPTOR = re.compile(
    rf"({QUEUE_NAME_PATTERN}):s([A-Za-z0-9]{{1,16}}):p([1-9][0-9]{{0,2}}):([1-9][0-9]{{15}})", re.ASCII
)


def parse_descriptor(text: str) -> JobRef | None:
    """The parts of a descriptor in its one canonical form, or None for any other text.

    >>> parse_descriptor("mail:s2:p1:1790000000000000")
    JobRef(queue='mail', shard='2', priority=1, id=1790000000000000)
    >>> parse_descriptor("mail:s2:p01:17") is None
    True
    """
    match = _DESCRIPTOR.fullmatch(text)
    if match is None:
        return None
    queue, shard, priority, job_id = match.groups()
    return JobRef(queue, shard, int(priority), int(job_id))


_ANY_DESCRIPTOR = re.compile(r"[\w-]+:s[^:\ufffd]+:p[0-9]{1,3}:[0-9]{1,19}", re.ASCII)
"""Of any server of this interface: ids of the classic one are shorter than ours, and none has more digits than 64 bits.
U+FFFD stands for what was not UTF-8.
"""


def is_descriptor(text: str) -> bool:
    """Whether any server of this interface can have made it, the classic one too. What is none never named a job.

    >>> is_descriptor("mail:s2:p1:1790000000000000"), is_descriptor("mail:s1d1:p1:17"), is_descriptor("mail")
    (True, True, False)
    """
    return _ANY_DESCRIPTOR.fullmatch(text) is not None


def descriptor_prefix(queue: str, shard: str, priority: int) -> str:
    """What stands before the id in the descriptors of one queue, shard and priority; stores append the 16 digits."""
    return f"{queue}:s{shard}:p{priority}:"


CLAIM_PARTS_BEFORE_SOURCE = 4
"""A claim descriptor is `SERVER:PROCESS:START:COUNTER:SOURCE`; the first four never contain a colon, the source may."""


def claim_source(claim_descriptor: str) -> str:
    """The `source` of the caller that a claim was made for: all that follows the fourth colon. "" for a text that no
    server made: an ack may name any, or none.

    >>> claim_source("web-1:4711:1790000000000:42:worker:7"), claim_source(""), claim_source("worker:7")
    ('worker:7', '', '')
    """
    parts = claim_descriptor.split(":", CLAIM_PARTS_BEFORE_SOURCE)
    return parts[CLAIM_PARTS_BEFORE_SOURCE] if len(parts) > CLAIM_PARTS_BEFORE_SOURCE else ""
