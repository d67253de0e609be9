"""The answers about jobs as JSON, made of what the calls return. What an answer lacks is null, or not there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta

from pinlater.http.encodings import Encoding
from pinlater.http.model_map import Answer, answers_of, has_fields_of, words_of
from pinlater.model import (
    Cancelled,
    DequeuedFromQueues,
    DequeuedJob,
    DequeuedJobs,
    EnqueuedJobs,
    EnqueueOutcome,
    JobAttempt,
    JobInfo,
    JobProgress,
    LogLine,
)
from pinlater.model.job_holds import JobHold

EnqueueWord = Literal["stored", "kept", "replaced"]
AckWord = Literal["ignored", "succeeded", "retried", "failed", "unknown", "cancelled"]
HeartbeatWord = Literal["ok", "lost", "cancel", "unreachable"]
CancelWord = Literal["cancelled", "in_progress", "ended", "not_found", "requested"]
RescheduleWord = Literal["rescheduled", "in_progress", "ended", "not_found", "changed"]
Bound = Annotated[
    bool | None,
    Meta(description="Whether the claims are bound to the connection of the request; not there where it did not ask."),
]
NextCursor = Annotated[str, Meta(description="That of the next page; there is none after the last one.")]
MissingShards = Annotated[list[str], Meta(description="Shards that could not be asked.")]


# -- producers ---------------------------------------------------------------------------------------------------------


class EnqueuedAnswer(Answer):
    """A job that was enqueued. `kept`: its dedupe key is taken, and the descriptor is that of the job that stands."""

    descriptor: str
    outcome: EnqueueWord


class EnqueuedJobsAnswer(Answer):
    """Jobs that were enqueued, in order."""

    jobs: list[EnqueuedAnswer]


def enqueued(descriptors: Sequence[str]) -> list[EnqueuedAnswer]:
    outcomes = descriptors.outcomes if isinstance(descriptors, EnqueuedJobs) else ()
    known = words_of(outcomes or [EnqueueOutcome.STORED] * len(descriptors))
    return list(map(EnqueuedAnswer, descriptors, known))


# -- workers -----------------------------------------------------------------------------------------------------------


@has_fields_of(DequeuedJob)
class DequeuedJobAnswer(Answer):
    """A job that was claimed. Without a heartbeat it is handed out again at `claim_expires_at_ms`."""


class QueueErrorAnswer(Answer):
    """The error of a queue that could not be read."""

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
    bound: Bound = None


class DequeuedFromQueuesAnswer(Answer):
    """Claimed jobs; a descriptor begins with the queue. `ack_outcomes`: as of a queue, for each entry of `acks`."""

    jobs: list[DequeuedJobAnswer]
    queue_errors: dict[str, QueueErrorAnswer] | None = None
    ack_outcomes: list[list[AckWord]] | None = None
    bound: Bound = None


class AckedAnswer(Answer):
    """The outcome of each ack: first the successes, then `jobs`, then the failures. `ignored`: the job was not in
    progress under this claim.
    """

    outcomes: list[AckWord]


class HeartbeatOutcomeAnswer(Answer):
    """`lost`: the job may run elsewhere. `cancel`: it is to stop, and `cancelled_by` says who asked for that."""

    outcome: HeartbeatWord
    cancelled_by: str | None = None


class HeartbeatsAnswer(Answer):
    """The outcome of each heartbeat, in order: first `heartbeats`, then `jobs`. `command`: an order to the worker
    whose report came along; it carries out each `command_number` once, and none that is less than the last one.
    """

    answers: list[HeartbeatOutcomeAnswer]
    command: Literal["quiet", "resume", "stop"] | None = None
    command_number: int | None = None


def dequeued(jobs: Sequence[DequeuedJob], encoding: Encoding, bound: bool | None) -> DequeuedAnswer:
    outcomes = jobs.ack_outcomes if isinstance(jobs, DequeuedJobs) else ()
    return DequeuedAnswer(answers_of(DequeuedJobAnswer, jobs, encoding), words_of(outcomes) or None, bound)


def dequeued_from_queues(jobs: DequeuedFromQueues, encoding: Encoding, bound: bool | None) -> DequeuedFromQueuesAnswer:
    errors = {
        queue: QueueErrorAnswer(error.reason, error.message, error.retryable, error.retry_after_ms)
        for queue, error in jobs.queue_errors.items()
    }
    outcomes = list(map(words_of, jobs.ack_outcomes))
    return DequeuedFromQueuesAnswer(
        answers_of(DequeuedJobAnswer, jobs, encoding), errors or None, outcomes or None, bound
    )


# -- looking -----------------------------------------------------------------------------------------------------------


@has_fields_of(JobProgress)
class ProgressAnswer(Answer):
    """The progress of a job, as its worker reported it."""

    fraction: float | None


@has_fields_of(JobAttempt)
class AttemptAnswer(Answer):
    """One of the last attempts of a job. Without an end and an outcome it runs."""


@has_fields_of(LogLine)
class LogLineAnswer(Answer):
    """A line that the worker of a job logged, in the attempt of that number."""


@has_fields_of(JobInfo, without=("dedupe_for_ms",))
class JobAnswer(Answer):
    """All that is known of a job. `body` and `result` are there only where they were asked for.

    `body_left_out`, `result_left_out`: it was asked for, and the answer had no room for it: ask again for fewer jobs.
    """

    progress: ProgressAnswer | None = None
    attempts: list[AttemptAnswer] | None = None
    log_lines: list[LogLineAnswer] | None = None


class JobsAnswer(Answer):
    """The jobs that are there, of those that were named."""

    jobs: list[JobAnswer]


@has_fields_of(JobHold)
class JobHoldAnswer(Answer):
    """A reason why a job does not run: `text` is a sentence for people; `until_ms`: when that ends, as far as it is
    known; `behind`: the job that is to end first; `jobs_before`: about how many of its queue run before it.
    """


class ExplainedAnswer(Answer):
    """The reasons that hold a job back; none where it is not pending."""

    hold: JobHoldAnswer | None = None


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
    """The outcome of each job, by descriptor; `key_outcomes`: of those named by keys, in order."""

    outcomes: dict[str, CancelWord]
    key_outcomes: list[CancelWord]


class RescheduledAnswer(Answer):
    """The outcome of each job, in order."""

    outcomes: list[RescheduleWord]


class JobsChangedAnswer(Answer):
    """The outcome of one slice: `changed` jobs, or those that match where it was a dry run, and up to ten of them.

    `refusals`: by descriptor, why a job was left alone: it would have been a second live job of its dedupe key,
    or its dead letter runs, has succeeded or lies elsewhere.
    `asked_to_stop`: jobs in progress whose workers were asked to stop, which are not among those changed.
    """

    changed: int
    looked_at: int
    samples: list[JobAnswer]
    next_cursor: NextCursor | None = None
    missing_shards: MissingShards | None = None
    refusals: dict[str, str] | None = None
    asked_to_stop: int = 0


def cancelled(outcomes: Cancelled) -> CancelledAnswer:
    return CancelledAnswer(dict(zip(outcomes, words_of(outcomes.values()), strict=True)), words_of(outcomes.by_key))
