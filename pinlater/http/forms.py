"""The forms of requests about jobs, as JSON: strict ones, and the requests of the model that they stand for.

A field that is not known, or has a value that it cannot have, is refused by its name. Bounds that are settings of a
server or a queue are for the server to check.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, structs

from pinlater.extended_limits import MAX_REPLACE_WITHIN_MS
from pinlater.http.encodings import Encoding, refusal
from pinlater.http.model_map import request_of, requests_of
from pinlater.job_body import call_body
from pinlater.model import (
    MAX_GROUP_BYTES,
    MAX_KEY_BYTES,
    MAX_LOG_LINE_BYTES,
    MAX_LOG_LINES,
    MAX_PROGRESS_CHARS,
    MAX_QUEUES,
    MAX_SEND_ID_BYTES,
    MAX_STATUS_CHARS,
    MAX_TIME_MS,
    MAX_WEIGHT,
    Ack,
    DequeueFromQueuesRequest,
    DequeueRequest,
    ExtendedJob,
    Heartbeat,
    Job,
    QueueAcks,
    ReportingAck,
)

MAX_INT32 = 2**31 - 1
MAX_PRIORITY = 127
"""A byte of the wire holds no more."""

Time = Annotated[int, Meta(ge=0, le=MAX_TIME_MS, description="Milliseconds since 1970-01-01T00:00:00Z.")]
Duration = Annotated[int, Meta(ge=1, le=MAX_TIME_MS, description="Milliseconds.")]
Wait = Annotated[
    int, Meta(ge=0, le=MAX_INT32, description="Milliseconds to wait for an answer that says something; 0: none.")
]
Count = Annotated[int, Meta(ge=1, le=MAX_INT32)]
Priority = Annotated[int, Meta(ge=1, le=MAX_PRIORITY, description="1 is the highest.")]
Key = Annotated[str, Meta(max_length=MAX_KEY_BYTES)]
SendId = Annotated[
    str,
    Meta(
        max_length=MAX_SEND_ID_BYTES,
        description="Random, and the same on each resend: one whose answer was lost gets the first answer. It counts "
        "until ten minutes after the job's end.",
    ),
]
Pattern = Annotated[
    str, Meta(min_length=1, description="An RE2 pattern. An empty one would be found in all jobs: leave it out.")
]
Status = Annotated[str, Meta(description=f"A job's status keeps {MAX_STATUS_CHARS} characters.")]
StateWord = Literal["pending", "in_progress", "succeeded", "failed"]
ActionWord = Literal["retry", "delete", "cancel", "replay"]
OnDuplicateWord = Literal["keep", "replace", "reject"]
ReplaceRunningWord = Annotated[
    Literal["keep", "enqueue", "cancel"],
    Meta(description="With `on_duplicate` replace: what becomes of a job that runs."),
]
ReplaceWithin = Annotated[
    int,
    Meta(
        ge=1,
        le=MAX_REPLACE_WITHIN_MS,
        description="Milliseconds. With `on_duplicate` replace: the longest that a job is postponed, from its first "
        "enqueue on.",
    ),
]
Descriptor = Annotated[str, Meta(description="The name of a job, as an enqueue or a dequeue gave it.")]
ReleaseOnDisconnect = Annotated[
    bool,
    Meta(
        description="Bind the claims to the connection by which this request comes: they end a grace after it has"
        " closed. `bound` in the answer says whether that was done."
    ),
]
ClaimDescriptor = Annotated[str, Meta(description="The name of a claim, as the dequeue gave it.")]
Fraction = Annotated[float, Meta(description="Below 0 is 0, and above 1 is 1.")]
ProgressText = Annotated[str, Meta(description=f"Cut at {MAX_PROGRESS_CHARS} characters.")]
Value = Annotated[Raw, Meta(description="A string; with the encoding `json` any JSON value. It stands for bytes.")]
Wanted = Annotated[
    Encoding, Meta(description="How bodies and results are to come, where they can: else as text, else in base64.")
]


Tags = Annotated[
    list[str],
    Meta(max_length=10, description="1 to 64 bytes of UTF-8 each, none twice, and without control characters."),
]
Group = Annotated[
    str,
    Meta(max_length=MAX_GROUP_BYTES, description="Its group, such as a tenant: groups have fair shares of the queue."),
]

JobName = Annotated[str, Meta(description="A type of job of the worker framework; in the place of a body.")]
JobArguments = Annotated[list[Any] | dict[str, Any], Meta(description="Of `job`: in order, or by name.")]


class Form(Struct, forbid_unknown_fields=True):
    """What a request says."""


# -- producers ---------------------------------------------------------------------------------------------------------


class CalledForm(Form):
    """A body, or the type of job and the arguments that the worker framework is to call."""

    body: Value | UnsetType = UNSET
    job: JobName | None = None
    args: JobArguments | UnsetType = UNSET

    def body_of_call(self, at: str = "") -> bytes | None:
        """What the worker framework reads; None: no type of job is named. RequestInvalid."""
        if self.job is None:
            if self.args is not UNSET:
                raise refusal(f"{at}args", "they are those of a job: name it in `job`")
            return None
        if self.body is not UNSET:
            raise refusal(f"{at}body", "give the body, or `job` with `args`")
        try:
            return call_body(self.job, [] if isinstance(self.args, UnsetType) else self.args)
        except ValueError as error:
            raise refusal(f"{at}job", str(error)) from None


class JobForm(CalledForm):
    """A job to enqueue: its body, or the type of job and the arguments that the worker framework is to call."""

    body_encoding: Encoding = "text"
    priority: Priority = 1
    run_after_ms: Time | None = None
    attempts_allowed: Count = 2
    custom_status: Status = ""
    dedupe_key: Key = ""
    serialize_key: Key = ""
    claim_timeout_ms: Duration | None = None
    on_duplicate: OnDuplicateWord = "keep"
    dedupe_for_ms: Annotated[int, Meta(ge=-1, le=MAX_TIME_MS, description="-1: as long as the job is kept.")] = 0
    expires_at_ms: Time | None = None
    tags: Tags = []
    group: Group = ""
    replace_running: ReplaceRunningWord = "keep"
    replace_within_ms: ReplaceWithin | None = None
    send_id: SendId = ""

    def made(self, at: str = "") -> Job:
        """RequestInvalid."""
        kind = Job if _of_few_jobs(self) == _DEFAULTS else ExtendedJob
        body = self.body_of_call(at)
        if body is not None:
            return request_of(kind, self, at, body=body)
        if self.body is UNSET:
            raise refusal(f"{at}body", "it is missing; give it, or `job` with `args`")
        return request_of(kind, self, at)


_NAMES_OF_FEW = [field.name for field in fields(ExtendedJob)[len(fields(Job)) :]]
_FEW = [each for each in structs.fields(JobForm) if each.name in _NAMES_OF_FEW]
_DEFAULTS = tuple(each.default for each in _FEW)
_of_few_jobs = attrgetter(*(each.name for each in _FEW))


class JobsForm(Form):
    """Jobs to enqueue in one call."""

    jobs: list[JobForm]


# -- workers -----------------------------------------------------------------------------------------------------------


class LogLineForm(Form):
    """A line for the log of a job. Without a time it has that of the request."""

    text: Annotated[str, Meta(description=f"Cut at {MAX_LOG_LINE_BYTES} bytes.")]
    at_ms: Time = 0


LogLines = Annotated[list[LogLineForm], Meta(description=f"A job keeps the last {MAX_LOG_LINES}.")]


class ProgressForm(Form):
    """The last progress of a job. What is too large is cut by the server: no report makes it refuse an ack."""

    fraction: Fraction | None = None
    text: ProgressText = ""


class ClaimedJobForm(Struct):
    """A job as a dequeue answered it, with its result where it has one; what else it has does not count."""

    descriptor: Descriptor
    claim_descriptor: ClaimDescriptor
    result: Value | UnsetType = UNSET
    result_encoding: Encoding = "text"


Unread = Annotated[
    Raw | UnsetType, Meta(description="Not read: a claimed job may be given as the dequeue answered it.")
]


class ClaimEntryForm(Form, kw_only=True):
    """What is said of a claimed job, which may be given with all that the dequeue answered of it."""

    body: Unread = UNSET
    body_encoding: Unread = UNSET
    priority: Unread = UNSET
    attempts_allowed: Unread = UNSET
    attempts_remaining: Unread = UNSET
    run_after_ms: Unread = UNSET
    enqueued_at_ms: Unread = UNSET
    claim_expires_at_ms: Unread = UNSET
    group: Unread = UNSET


class SuccessForm(ClaimEntryForm):
    """A job that was done. Without the claim descriptor, whoever holds the claim has done it. `permanent`: where its
    result is too large, it has failed for good; else that attempt has.
    """

    descriptor: Descriptor
    claim_descriptor: ClaimDescriptor = ""
    append_status: Status = ""
    result: Value | UnsetType = UNSET
    result_encoding: Encoding = "text"
    permanent: bool = False
    progress: ProgressForm | None = None
    log_lines: LogLines = []


class FailureForm(ClaimEntryForm):
    """A job that failed. `permanent`: it is not tried again."""

    descriptor: Descriptor
    claim_descriptor: ClaimDescriptor = ""
    append_status: Status = ""
    retry_delay_ms: Annotated[int, Meta(ge=0, le=MAX_TIME_MS)] = 0
    permanent: bool = False
    progress: ProgressForm | None = None
    log_lines: LogLines = []


class AcksForm(Form):
    """Acks of jobs. `jobs`: those of the answer of a dequeue, as it came, which all succeeded."""

    succeeded: list[SuccessForm] = []
    failed: list[FailureForm] = []
    jobs: list[ClaimedJobForm] = []

    def acks(self, at: str = "") -> tuple[list[Ack], list[Ack]]:
        """The successes and the failures."""
        succeeded = _acks(self.succeeded, f"{at}succeeded") + requests_of(Ack, self.jobs, f"{at}jobs")
        return succeeded, _acks(self.failed, f"{at}failed")


def _acks(forms: Sequence[SuccessForm | FailureForm], at: str) -> list[Ack]:
    """Those that report something are ReportingAcks."""
    return [
        request_of(ReportingAck if form.progress or form.log_lines else Ack, form, f"{at}[{place}].")
        for place, form in enumerate(forms)
    ]


class WorkerJobForm(Form):
    """A job that a worker runs."""

    job_descriptor: Descriptor
    job_type: str = ""
    running_ms: Annotated[int, Meta(ge=0, le=MAX_TIME_MS)] = 0


class OutboxForm(Form):
    """The report of a relay on the outbox that it empties."""

    name: str
    waiting: Annotated[int, Meta(ge=0, le=MAX_TIME_MS)] = 0
    oldest_ms: Annotated[int, Meta(ge=0, le=MAX_TIME_MS)] = 0
    goal_ms: Annotated[int, Meta(ge=0, le=MAX_TIME_MS)] = 0
    problem: str = ""


class UnknownTypeForm(Form):
    """Jobs that a worker could not run."""

    queue: str
    job_type: str = ""
    jobs: Annotated[int, Meta(ge=0, le=MAX_TIME_MS)] = 0
    last_ms: Annotated[int, Meta(ge=0, le=MAX_TIME_MS)] = 0


class WorkerForm(Form):
    """A worker's report of itself, for the list of workers. `id` is of this run of its process, `up_ms` its age.
    `is_quiet`: whether it takes no more jobs for now, of one that does what a heartbeat's answer commands.
    `job_types`: the names of those that it can run. `outbox`: it is a relay, and takes no jobs. `unknown_types`: jobs
    that it met of late and could not run.
    """

    id: str
    name: str
    up_ms: Annotated[int, Meta(ge=0, le=MAX_TIME_MS)]
    host: str = ""
    pid: Annotated[int, Meta(ge=0, le=MAX_INT32)] = 0
    queues: dict[str, Annotated[int, Meta(ge=0, le=MAX_INT32)]] = {}
    slots: Annotated[int, Meta(ge=0, le=MAX_INT32)] = 0
    busy_slots: Annotated[int, Meta(ge=0, le=MAX_INT32)] = 0
    stuck_slots: Annotated[int, Meta(ge=0, le=MAX_INT32)] = 0
    running: list[WorkerJobForm] = []
    versions: dict[str, str] = {}
    is_stopping: bool = False
    has_stopped: bool = False
    silent_ms: Annotated[int, Meta(ge=0, le=MAX_TIME_MS)] = 0
    is_quiet: bool | None = None
    job_types: list[str] = []
    outbox: OutboxForm | None = None
    unknown_types: list[UnknownTypeForm] = []


class DequeueForm(Form):
    """Claim jobs. With `wait_ms` the answer comes when there are some, or after that time."""

    limit: Count = 1
    wait_ms: Wait = 0
    claim_timeout_ms: Duration | None = None
    encoding: Wanted = "text"
    acks: AcksForm | None = None
    dry_run: bool = False
    release_on_disconnect: ReleaseOnDisconnect = False
    worker: WorkerForm | None = None

    def request(self, queue: str) -> DequeueRequest:
        succeeded, failed = ([], []) if self.acks is None else self.acks.acks("acks.")
        return request_of(DequeueRequest, self, queue=queue, succeeded=succeeded, failed=failed)


class QueueShareForm(Form):
    """A queue to dequeue from; with weight 3 it gives three jobs where one with weight 1 gives one."""

    queue: str
    weight: Annotated[int, Meta(ge=1, le=MAX_WEIGHT)] = 1


class QueueAcksForm(AcksForm):
    """Acks of jobs of a queue."""

    queue: str = ""


class DequeueFromQueuesForm(Form):
    """Claim jobs of several queues."""

    queues: Annotated[list[QueueShareForm], Meta(min_length=1, max_length=MAX_QUEUES)]
    limit: Count = 1
    wait_ms: Wait = 0
    claim_timeout_ms: Duration | None = None
    encoding: Wanted = "text"
    acks: list[QueueAcksForm] = []
    release_on_disconnect: ReleaseOnDisconnect = False
    worker: WorkerForm | None = None

    def request(self) -> DequeueFromQueuesRequest:
        acks = [QueueAcks(each.queue, *each.acks(f"acks[{at}].")) for at, each in enumerate(self.acks)]
        return request_of(DequeueFromQueuesRequest, self, acks=acks)


class HeartbeatForm(ClaimEntryForm):
    """A heartbeat for one claim; `fraction` and `text` are the job's progress."""

    descriptor: Descriptor
    claim_descriptor: ClaimDescriptor
    fraction: Fraction | None = None
    text: ProgressText | None = None
    log_lines: LogLines = []


class HeartbeatsForm(Form):
    """Heartbeats. `jobs`: those of the answer of a dequeue, as it came."""

    heartbeats: list[HeartbeatForm] = []
    jobs: list[ClaimedJobForm] = []
    worker: WorkerForm | None = None

    def signs(self) -> list[Heartbeat]:
        return requests_of(Heartbeat, self.heartbeats, "heartbeats") + requests_of(Heartbeat, self.jobs, "jobs")


class CheckpointForm(Form):
    """A change of a job in progress, and a heartbeat. `move_to_pending` requeues it."""

    descriptor: Descriptor
    claim_descriptor: ClaimDescriptor = ""
    body: Value | UnsetType = UNSET
    body_encoding: Encoding = "text"
    move_to_pending: bool = False
    run_after_ms: Time | None = None
    attempts_allowed: Count | None = None
    prepend_status: Status = ""

    SOURCES: ClassVar = {"body": "new_body"}


class CheckpointsForm(Form):
    """Changes of jobs in progress."""

    checkpoints: list[CheckpointForm]
    worker: WorkerForm | None = None


# -- looking, and changing ---------------------------------------------------------------------------------------------


class KeyForm(Form):
    """A job by its keys."""

    dedupe_key: Key = ""
    serialize_key: Key = ""


class LookupForm(Form):
    """Jobs to read, by descriptor or by key; keys are of jobs of `queue`."""

    descriptors: list[Descriptor] = []
    queue: str | None = None
    keys: list[KeyForm] = []
    include_body: bool = False
    include_result: bool = False
    include_trail: Annotated[bool, Meta(description="The attempts of the jobs, and their log lines.")] = False
    wait_ms: Wait = 0
    encoding: Wanted = "text"


class CancelForm(Form):
    """Jobs to cancel. `running`: the workers of those in progress are asked to stop."""

    descriptors: list[Descriptor] = []
    keys: list[KeyForm] = []
    running: bool = False


class RescheduleForm(Form):
    """A change of one pending job, by its descriptor or its key; what is left out stays as it is."""

    descriptor: Descriptor = ""
    key: KeyForm | None = None
    run_after_ms: Time | None = None
    body: Value | UnsetType = UNSET
    body_encoding: Encoding = "text"
    attempts_allowed: Count | None = None
    only_if_updated_at_ms: Time | None = None


class ReschedulesForm(Form):
    """Changes of pending jobs. `audited`: an operator does it, and the audit has an entry that names the jobs."""

    jobs: list[RescheduleForm]
    audited: bool = False


class JobChangeForm(Form):
    """One slice of a change to all jobs that match; the next one takes the cursor that it answers with."""

    action: ActionWord
    state: StateWord | None = None
    priority: Priority | None = None
    created_before_ms: Time | None = None
    created_after_ms: Time | None = None
    body_regex: Pattern | None = None
    limit: Count = 1000
    dry_run: bool = False
    attempts: Count | None = None
    run_after_ms: Time | None = None
    cursor: str = ""
    encoding: Wanted = "text"


IDEMPOTENT_FOR_MS = 24 * 60 * 60 * 1000
"""How long after the end of its job an `Idempotency-Key` still counts, where the request does not say."""

_MAX_IDEMPOTENCY_KEY = 200


def idempotency_key(header: str) -> str:
    """The key that a header says. RequestInvalid.

    >>> idempotency_key("k-1"), idempotency_key('"k-1"')
    ('k-1', 'k-1')
    """
    key = header[1:-1] if len(header) > 1 and header[0] == header[-1] == '"' else header
    if not (1 <= len(key) <= _MAX_IDEMPOTENCY_KEY and key.isascii() and key.isprintable()):
        raise refusal("Idempotency-Key", f"allowed: 1 to {_MAX_IDEMPOTENCY_KEY} printable ASCII characters")
    return key


def with_idempotency_key(forms: list[JobForm], header: str, *, is_batch: bool) -> None:
    """The key of the header as the dedupe key of each job; of the jobs of a batch, with the place of each."""
    key = idempotency_key(header)
    for at, form in enumerate(forms):
        if form.dedupe_key:
            field = f"jobs[{at}].dedupe_key" if is_batch else "dedupe_key"
            raise refusal(field, "the header Idempotency-Key says it already: leave one of them out")
        form.dedupe_key = f"{key}/{at}" if is_batch else key
        form.dedupe_for_ms = form.dedupe_for_ms or IDEMPOTENT_FOR_MS
