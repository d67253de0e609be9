"""The answers about jobs as JSON, made of what the calls return. What an answer lacks is null, or not there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from pinlater.http.encodings import Encoding, to_json
from pinlater.http.forms import StateWord
from pinlater.model import (
    CONTINUATION_END,
    AckOutcome,
    Cancelled,
    DequeuedFromQueues,
    DequeuedJob,
    DequeuedJobs,
    EnqueuedJobs,
    HeartbeatAnswer,
    JobInfo,
    JobsChanged,
    RescheduleOutcome,
    ScanPage,
)
from pinlater.model.job_selection import FoundJobs

EnqueueWord = Literal["stored", "kept", "replaced"]
AckWord = Literal["ignored", "succeeded", "retried", "failed", "unknown", "cancelled"]
HeartbeatWord = Literal["ok", "lost", "cancel", "unreachable"]
CancelWord = Literal["cancelled", "in_progress", "ended", "not_found", "requested"]
RescheduleWord = Literal["rescheduled", "in_progress", "ended", "not_found", "changed"]
BodyValue = Annotated[Raw, Meta(description="A string; with the encoding `json` any JSON value.")]
NextCursor = Annotated[str, Meta(description="That of the next page; there is none after the last one.")]
MissingShards = Annotated[list[str], Meta(description="Shards that could not be asked.")]


class Answer(Struct, omit_defaults=True):
    """What is answered."""


def next_cursor(continuation: str) -> str | None:
    return None if continuation == CONTINUATION_END else continuation


# -- producers ---------------------------------------------------------------------------------------------------------


class EnqueuedAnswer(Answer):
    """A job that was enqueued. `kept`: its dedupe key is taken, and the descriptor is that of the job that stands."""

    descriptor: str
    outcome: EnqueueWord


class EnqueuedJobsAnswer(Answer):
    """Jobs that were enqueued, in order."""

    jobs: list[EnqueuedAnswer]


_ENQUEUED: tuple[EnqueueWord, ...] = ("stored", "kept", "replaced")


def enqueued(descriptors: Sequence[str]) -> list[EnqueuedAnswer]:
    if isinstance(descriptors, EnqueuedJobs) and descriptors.outcomes:
        return [
            EnqueuedAnswer(each, _ENQUEUED[outcome])
            for each, outcome in zip(descriptors, descriptors.outcomes, strict=True)
        ]
    return [EnqueuedAnswer(each, "stored") for each in descriptors]


# -- workers -----------------------------------------------------------------------------------------------------------


class DequeuedJobAnswer(Answer):
    """A job that was claimed. Without a sign of life it is handed out again at `claim_expires_at_ms`."""

    descriptor: str
    claim_descriptor: str
    body: BodyValue
    body_encoding: Encoding
    priority: int
    attempts_allowed: int
    attempts_remaining: int
    run_after_ms: int
    enqueued_at_ms: int
    claim_expires_at_ms: int


class QueueErrorAnswer(Answer):
    """Why a queue could not be looked at."""

    reason: str
    detail: str
    retryable: bool
    retry_after_ms: int | None = None


class DequeuedAnswer(Answer):
    """Claimed jobs. `ack_outcomes`: of the acks that came with the request, first the successes, then the failures;
    not there where all had an effect.
    """

    jobs: list[DequeuedJobAnswer]
    ack_outcomes: list[AckWord] | None = None


class DequeuedFromQueuesAnswer(Answer):
    """Claimed jobs; a descriptor begins with the queue. `ack_outcomes`: as of a queue, for each entry of `acks`."""

    jobs: list[DequeuedJobAnswer]
    queue_errors: dict[str, QueueErrorAnswer] | None = None
    ack_outcomes: list[list[AckWord]] | None = None


class AckedAnswer(Answer):
    """What became of each ack: first the successes, then `jobs`, then the failures. `ignored`: the job was not in
    progress under this claim.
    """

    outcomes: list[AckWord]


class HeartbeatOutcomeAnswer(Answer):
    """`lost`: the job may run elsewhere. `cancel`: it is to stop, and `cancelled_by` says who asked for that."""

    outcome: HeartbeatWord
    cancelled_by: str | None = None


class HeartbeatsAnswer(Answer):
    """What became of each sign of life, in order: first `heartbeats`, then `jobs`."""

    answers: list[HeartbeatOutcomeAnswer]


_ACK_WORDS: dict[int, AckWord] = {
    0: "ignored",
    1: "succeeded",
    2: "retried",
    3: "failed",
    4: "unknown",
    5: "cancelled",
}
_HEARTBEAT_WORDS: dict[int, HeartbeatWord] = {0: "ok", 1: "lost", 2: "cancel", 3: "unreachable"}


def _dequeued_jobs(jobs: Iterable[DequeuedJob], encoding: Encoding) -> list[DequeuedJobAnswer]:
    return [
        DequeuedJobAnswer(
            job.descriptor,
            job.claim_descriptor,
            *to_json(job.body, encoding),
            job.priority,
            job.attempts_allowed,
            job.attempts_remaining,
            job.run_after_ms,
            job.enqueued_at_ms,
            job.claim_expires_at_ms,
        )
        for job in jobs
    ]


def dequeued(jobs: Sequence[DequeuedJob], encoding: Encoding) -> DequeuedAnswer:
    outcomes = jobs.ack_outcomes if isinstance(jobs, DequeuedJobs) else ()
    return DequeuedAnswer(_dequeued_jobs(jobs, encoding), acked(outcomes) if outcomes else None)


def dequeued_from_queues(jobs: DequeuedFromQueues, encoding: Encoding) -> DequeuedFromQueuesAnswer:
    errors = {
        queue: QueueErrorAnswer(error.reason, error.message, error.retryable, error.retry_after_ms)
        for queue, error in jobs.queue_errors.items()
    }
    outcomes = [acked(each) for each in jobs.ack_outcomes]
    return DequeuedFromQueuesAnswer(_dequeued_jobs(jobs, encoding), errors or None, outcomes or None)


def acked(outcomes: Sequence[AckOutcome]) -> list[AckWord]:
    return [_ACK_WORDS[each] for each in outcomes]


def heartbeats_answered(answers: Sequence[HeartbeatAnswer]) -> HeartbeatsAnswer:
    return HeartbeatsAnswer(
        [HeartbeatOutcomeAnswer(_HEARTBEAT_WORDS[each.outcome], each.cancelled_by or None) for each in answers]
    )


# -- looking -----------------------------------------------------------------------------------------------------------


class ProgressAnswer(Answer):
    """How far a job is, as its worker said."""

    fraction: float | None
    text: str
    at_ms: int


class JobAnswer(Answer):
    """All that is known of a job. `body` and `result` are there only where they were asked for.

    `body_left_out`, `result_left_out`: it was asked for, and the answer had no room for it: ask again for fewer jobs.
    """

    descriptor: str
    state: StateWord
    priority: int
    attempts_allowed: int
    attempts_remaining: int
    crashes: int
    custom_status: str
    created_at_ms: int
    run_after_ms: int
    updated_at_ms: int
    claim_descriptor: str | None = None
    claimed_at_ms: int | None = None
    claim_expires_at_ms: int | None = None
    finished_at_ms: int | None = None
    body: BodyValue | UnsetType = UNSET
    body_encoding: Encoding | None = None
    result: BodyValue | UnsetType = UNSET
    result_encoding: Encoding | None = None
    origin: str | None = None
    moved_to: str | None = None
    dedupe_key: str | None = None
    serialize_key: str | None = None
    cancelled: bool | None = None
    progress: ProgressAnswer | None = None
    waits_for: str | None = None
    expires_at_ms: int | None = None
    claim_timeout_ms: int | None = None
    cancel_requested_by: str | None = None
    body_stored_at: str | None = None
    body_left_out: bool | None = None
    result_left_out: bool | None = None


class JobsAnswer(Answer):
    """The jobs that are there, of those that were named."""

    jobs: list[JobAnswer]


class JobPageAnswer(Answer):
    """A page of jobs, the newest `run_after_ms` first."""

    jobs: list[JobAnswer]
    next_cursor: NextCursor | None = None
    missing_shards: MissingShards | None = None


class FoundJobsAnswer(Answer):
    """Jobs that a search found: those whose time has come, the newest `run_after_ms` first, then scheduled ones.

    `looked_at`: how many jobs this call looked at.
    """

    jobs: list[JobAnswer]
    looked_at: int
    next_cursor: NextCursor | None = None
    missing_shards: MissingShards | None = None


class CountAnswer(Answer):
    count: int


class CancelledAnswer(Answer):
    """What became of each job, by descriptor; `key_outcomes`: of those named by keys, in order."""

    outcomes: dict[str, CancelWord]
    key_outcomes: list[CancelWord]


class RescheduledAnswer(Answer):
    """What became of each job, in order."""

    outcomes: list[RescheduleWord]


class JobsChangedAnswer(Answer):
    """What one slice did: `changed` jobs, or those that match where it was a dry run, and up to ten of them.

    `refusals`: by descriptor, why a job was left alone that would have been a second live job of its dedupe key.
    `asked_to_stop`: jobs in progress whose workers were asked to stop, which are not among those changed.
    """

    changed: int
    looked_at: int
    samples: list[JobAnswer]
    next_cursor: NextCursor | None = None
    missing_shards: MissingShards | None = None
    refusals: dict[str, str] | None = None
    asked_to_stop: int = 0


_STATE_WORDS: tuple[StateWord, ...] = ("pending", "in_progress", "succeeded", "failed")
_CANCEL_WORDS: tuple[CancelWord, ...] = ("cancelled", "in_progress", "ended", "not_found", "requested")
_RESCHEDULE_WORDS: tuple[RescheduleWord, ...] = ("rescheduled", "in_progress", "ended", "not_found", "changed")
_AS_IT_IS = tuple(
    name
    for name in JobAnswer.__struct_fields__
    if name not in ("state", "body", "body_encoding", "result", "result_encoding", "progress")
)


def job_answer(info: JobInfo, encoding: Encoding = "text") -> JobAnswer:
    fields = {name: getattr(info, name) for name in _AS_IT_IS}
    answer = JobAnswer(state=_STATE_WORDS[info.state], **fields)
    if info.progress is not None:
        answer.progress = ProgressAnswer(*info.progress)
    if info.body is not None:
        answer.body, answer.body_encoding = to_json(info.body, encoding)
    if info.result is not None:
        answer.result, answer.result_encoding = to_json(info.result, encoding)
    return answer


def job_page(page: ScanPage) -> JobPageAnswer:
    jobs = [job_answer(info) for info in page.jobs]
    return JobPageAnswer(jobs, next_cursor(page.continuation), page.missing_shards or None)


def found_jobs(found: FoundJobs, encoding: Encoding) -> FoundJobsAnswer:
    jobs = [job_answer(info, encoding) for info in found.jobs]
    return FoundJobsAnswer(jobs, found.looked_at, next_cursor(found.continuation), found.missing_shards or None)


def cancelled(outcomes: Cancelled) -> CancelledAnswer:
    return CancelledAnswer(
        {descriptor: _CANCEL_WORDS[each] for descriptor, each in outcomes.items()},
        [_CANCEL_WORDS[each] for each in outcomes.by_key],
    )


def rescheduled(outcomes: Sequence[RescheduleOutcome]) -> RescheduledAnswer:
    return RescheduledAnswer([_RESCHEDULE_WORDS[each] for each in outcomes])


def jobs_changed(changed: JobsChanged, encoding: Encoding) -> JobsChangedAnswer:
    return JobsChangedAnswer(
        changed.changed,
        changed.looked_at,
        [job_answer(info, encoding) for info in changed.samples],
        next_cursor(changed.continuation),
        changed.missing_shards or None,
        changed.refusals or None,
        changed.asked_to_stop,
    )
