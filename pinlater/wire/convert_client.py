"""The model -> arguments (a client calls), decoded results -> the model (a client reads answers).

Jobs, acks and contexts of the model are encoded as they are, without a copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pinlater.errors import ProtocolError
from pinlater.model import (
    CONTINUATION_END,
    Ack,
    AckOutcome,
    CancelOutcome,
    Checkpoint,
    DequeuedJob,
    DequeuedJobs,
    DequeueRequest,
    Job,
    JobFilter,
    JobInfo,
    JobState,
    RequestContext,
    ScanPage,
    parse_descriptor,
)
from pinlater.wire.idl import METHODS, struct

_EnqueueRequest = struct("PinLaterEnqueueRequest")
_AckRequest = struct("PinLaterJobAckRequest")
_DequeueRequest = struct("PinLaterDequeueRequest")
_CheckpointsRequest = struct("PinLaterCheckpointJobsRequest")
_CheckpointRequest = struct("PinLaterCheckpointJobRequest")
_LookupRequest = struct("PinLaterLookupJobRequest")
_CountRequest = struct("PinLaterGetJobCountRequest")
_ScanRequest = struct("PinLaterScanJobsRequest")
_RetryRequest = struct("PinLaterRetryFailedJobsRequest")
_DeleteRequest = struct("PinLaterDeleteJobsRequest")
_CancelRequest = struct("CancelJobsRequest")
_ACK_OUTCOMES = {int(outcome): outcome for outcome in AckOutcome}
_NO_METADATA = struct("PinLaterDequeueMetadata")()


def call_args(method: str, context: RequestContext, **arguments: Any) -> Any:
    """The arguments of one call, by the names of the interface: `request`, `name`, `password`."""
    args = METHODS[method].args.cls()
    args.context = context
    vars(args).update(arguments)
    return args


def filled(cls: type, **values: Any) -> Any:
    """A struct with these values; None, and what is not named, is not sent."""
    target = cls()
    vars(target).update(values)
    return target


def enqueue_to_wire(queue: str, jobs: Sequence[Job]) -> Any:
    return filled(_EnqueueRequest, queue_name=queue, jobs=jobs)


def acks_to_wire(queue: str, succeeded: Sequence[Ack], failed: Sequence[Ack]) -> Any:
    return filled(_AckRequest, queue_name=queue, jobs_succeeded=succeeded or None, jobs_failed=failed or None)


def dequeue_to_wire(request: DequeueRequest) -> Any:
    acks = None
    if request.succeeded or request.failed:
        acks = acks_to_wire(request.ack_queue or request.queue, request.succeeded, request.failed)
    return filled(
        _DequeueRequest,
        queue_name=request.queue,
        limit=request.limit,
        job_ack_request=acks,
        dry_run=request.dry_run,
        coverage=request.coverage,
        wait_ms=request.wait_ms or None,
        claim_timeout_ms=request.claim_timeout_ms,
        release_on_disconnect=request.release_on_disconnect or None,
        confirms_receipt=request.confirms_receipt or None,
    )


def checkpoints_to_wire(queue: str, checkpoints: Sequence[Checkpoint]) -> Any:
    return filled(_CheckpointsRequest, queue_name=queue, requests=[_checkpoint(one) for one in checkpoints])


def _checkpoint(checkpoint: Checkpoint) -> Any:
    """A body that is text goes as newBody, which every server understands; any other as newBodyBytes."""
    body = checkpoint.new_body
    text = body is not None and _is_text(body)
    return filled(
        _CheckpointRequest,
        descriptor=checkpoint.descriptor,
        new_text=body if text else None,
        new_body=None if text else body,
        move_to_pending=checkpoint.move_to_pending,
        run_after_ms=checkpoint.run_after_ms,
        attempts_allowed=checkpoint.attempts_allowed,
        prepend_status=checkpoint.prepend_status or None,
        claim_descriptor=checkpoint.claim_descriptor or None,
    )


def _is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def lookup_to_wire(descriptors: Sequence[str], include_body: bool) -> Any:
    return filled(_LookupRequest, job_descriptors=descriptors, include_body=include_body)


def count_to_wire(filter: JobFilter, allow_partial: bool) -> Any:
    return filled(
        _CountRequest, **_filter(filter), count_future_jobs=filter.future, allow_partial=allow_partial or None
    )


def scan_to_wire(filter: JobFilter, continuation: str, limit: int) -> Any:
    return filled(
        _ScanRequest, **_filter(filter), scan_future_jobs=filter.future, continuation=continuation, limit=limit
    )


def delete_to_wire(filter: JobFilter, limit: int) -> Any:
    """Where the filter has no priority, the interface's default counts: 1."""
    return filled(_DeleteRequest, **_filter(filter), limit=limit)


def _filter(filter: JobFilter) -> dict[str, Any]:
    return {
        "queue_name": filter.queue,
        "job_state": filter.state,
        "priority": filter.priority,
        "body_regex_to_match": filter.body_regex or None,
    }


def retry_to_wire(queue: str, priority: int, attempts: int, run_after_ms: int | None, limit: int) -> Any:
    return filled(
        _RetryRequest,
        queue_name=queue,
        priority=priority,
        attempts_to_allow=attempts,
        run_after_ms=run_after_ms,
        limit=limit,
    )


def cancel_to_wire(queue: str, descriptors: Sequence[str]) -> Any:
    return filled(_CancelRequest, queue_name=queue, job_descriptors=descriptors)


def ack_outcomes_from_wire(outcomes: Sequence[int]) -> list[AckOutcome]:
    return [_ACK_OUTCOMES.get(number, AckOutcome.UNKNOWN) for number in outcomes]


def dequeued_from_wire(response: Any) -> DequeuedJobs:
    """The jobs in the order of the answer. What an older server does not say is 0 or ""; names hold priorities."""
    get = (response.job_metadata or {}).get
    jobs = (
        DequeuedJob(
            descriptor,
            body,
            (more := get(descriptor, _NO_METADATA)).priority or _priority(descriptor),
            more.attempts_allowed or 0,
            more.attempts_remaining or 0,
            more.run_after_ms or 0,
            more.enqueued_at_ms or 0,
            more.claim_descriptor or "",
            more.claim_expires_at_ms or 0,
        )
        for descriptor, body in (response.jobs or {}).items()
    )
    return DequeuedJobs(jobs, ack_outcomes_from_wire(response.ack_outcomes or ()))


def job_info_from_wire(info: Any) -> JobInfo:
    """Everything the interface says of a job; `run_after_ms` and `updated_at_ms` fall back to the creation."""
    created = info.created_at_ms
    return JobInfo(
        descriptor=info.descriptor,
        state=_enum(JobState, info.state),
        priority=_priority(info.descriptor),
        attempts_allowed=info.attempts_allowed,
        attempts_remaining=info.attempts_remaining,
        custom_status=info.custom_status,
        created_at_ms=created,
        run_after_ms=created if info.run_after_ms is None else info.run_after_ms,
        updated_at_ms=created if info.updated_at_ms is None else info.updated_at_ms,
        claim_descriptor=info.claim_descriptor,
        claimed_at_ms=info.claimed_at_ms,
        claim_expires_at_ms=info.claim_expires_at_ms,
        finished_at_ms=info.finished_at_ms,
        crashes=info.crashes or 0,
        body=info.body,
        origin=info.origin,
        moved_to=info.moved_to,
    )


def lookup_from_wire(found: Mapping[str, Any]) -> dict[str, JobInfo]:
    return {descriptor: job_info_from_wire(info) for descriptor, info in found.items()}


def scan_page_from_wire(response: Any) -> ScanPage:
    return ScanPage(
        [job_info_from_wire(info) for info in response.scanned_jobs],
        CONTINUATION_END if response.continuation is None else response.continuation,
        response.missing_shards or [],
    )


def cancelled_from_wire(response: Any) -> dict[str, CancelOutcome]:
    return {descriptor: _enum(CancelOutcome, number) for descriptor, number in response.outcomes.items()}


def _enum(cls: Any, number: int) -> Any:
    try:
        return cls(number)
    except ValueError as error:
        raise ProtocolError(f"{number} is no {cls.__name__}") from error


def _priority(descriptor: str) -> int:
    ref = parse_descriptor(descriptor)
    return 1 if ref is None else ref.priority
