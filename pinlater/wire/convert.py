"""Decoded arguments -> the model (a server reads calls), the model -> results (a server answers).

Decoded structs have None where nothing was sent; the interface's defaults are filled in here. Results are mostly the
objects of the model themselves, which the codec encodes as they are. Values are checked by the service; here only what
the model cannot even hold is refused (RequestInvalid).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pinlater.errors import RequestInvalid
from pinlater.model import (
    CONTINUATION_START,
    Ack,
    AckOutcome,
    CancelOutcome,
    Checkpoint,
    DequeuedJob,
    DequeuedJobs,
    DequeueRequest,
    Job,
    JobFilter,
    JobState,
    RequestContext,
    ScanPage,
)
from pinlater.wire.handed_out import HandedOut
from pinlater.wire.idl import struct

_EnqueueResponse = struct("PinLaterEnqueueResponse")
_AckResponse = struct("AckJobsResponse")
_ScanResponse = struct("PinLaterScanJobsResponse")
_CancelResponse = struct("CancelJobsResponse")
_STATES = {int(state): state for state in JobState}


def context_from_wire(context: Any) -> RequestContext:
    return RequestContext(context.source, context.request_id or "")


def jobs_from_wire(jobs: list[Any]) -> list[Job]:
    """The jobs of an enqueue call, in order."""
    return [
        Job(
            job.body,
            1 if job.priority is None else job.priority,
            job.run_after_ms,
            2 if job.attempts_allowed is None else job.attempts_allowed,
            job.custom_status or "",
        )
        for job in jobs
    ]


def acks_from_wire(acks: list[Any] | None) -> list[Ack]:
    return [
        Ack(
            ack.descriptor,
            ack.append_status or "",
            ack.retry_delay_ms or 0,
            ack.claim_descriptor or "",
            ack.permanent or False,
        )
        for ack in acks or ()
    ]


def checkpoints_from_wire(requests: list[Any]) -> list[Checkpoint]:
    """`newBodyBytes` counts before `newBody`, whose bytes are taken as they came."""
    return [
        Checkpoint(
            request.descriptor,
            request.new_text if request.new_body is None else request.new_body,
            request.move_to_pending or False,
            request.run_after_ms,
            request.attempts_allowed,
            request.prepend_status or "",
            request.claim_descriptor or "",
        )
        for request in requests
    ]


def dequeue_from_wire(request: Any) -> DequeueRequest:
    acks = request.job_ack_request
    return DequeueRequest(
        queue=request.queue_name,
        limit=request.limit,
        succeeded=() if acks is None else acks_from_wire(acks.jobs_succeeded),
        failed=() if acks is None else acks_from_wire(acks.jobs_failed),
        ack_queue="" if acks is None else acks.queue_name,
        dry_run=request.dry_run or False,
        coverage=1.0 if request.coverage is None else request.coverage,
        wait_ms=request.wait_ms or 0,
        claim_timeout_ms=request.claim_timeout_ms,
        release_on_disconnect=request.release_on_disconnect or False,
        confirms_receipt=request.confirms_receipt or False,
    )


def state_from_wire(number: int) -> JobState:
    state = _STATES.get(number)
    if state is None:
        raise RequestInvalid.of("jobState", number, "0 to 3")
    return state


def count_filter_from_wire(request: Any) -> JobFilter:
    return _filter(request, request.priority, request.count_future_jobs or False)


def scan_filter_from_wire(request: Any) -> JobFilter:
    return _filter(request, request.priority, request.scan_future_jobs or False)


def delete_filter_from_wire(request: Any) -> JobFilter:
    return _filter(request, 1 if request.priority is None else request.priority, False)


def _filter(request: Any, priority: int | None, future: bool) -> JobFilter:
    state = state_from_wire(request.job_state)
    return JobFilter(request.queue_name, state, priority, future, request.body_regex_to_match or "")


def continuation_from_wire(request: Any) -> str:
    return CONTINUATION_START if request.continuation is None else str(request.continuation)


def enqueued_to_wire(descriptors: list[str]) -> Any:
    response = _EnqueueResponse()
    response.job_descriptors = descriptors
    return response


def dequeued_to_wire(jobs: Sequence[DequeuedJob], *, awaits_receipt: bool = False) -> HandedOut:
    if awaits_receipt or type(jobs) is DequeuedJobs:
        return HandedOut(jobs, riding_outcomes(jobs), awaits_receipt=awaits_receipt)
    return HandedOut(jobs)


def emptied_to_wire(jobs: Sequence[DequeuedJob]) -> HandedOut:
    """The answer of a dequeue whose jobs were given back: it still says what became of the acks."""
    return HandedOut((), riding_outcomes(jobs))


def riding_outcomes(jobs: Sequence[DequeuedJob]) -> list[AckOutcome] | None:
    """What is told of the acks that rode on a dequeue; None: nothing."""
    return list(jobs.ack_outcomes) or None if type(jobs) is DequeuedJobs else None


def acked_to_wire(outcomes: Sequence[AckOutcome]) -> Any:
    response = _AckResponse()
    response.outcomes = list(outcomes)
    return response


def scan_page_to_wire(page: ScanPage) -> Any:
    response = _ScanResponse()
    response.scanned_jobs = page.jobs
    response.continuation = page.continuation
    response.missing_shards = page.missing_shards or None
    return response


def cancelled_to_wire(outcomes: Mapping[str, CancelOutcome]) -> Any:
    response = _CancelResponse()
    response.outcomes = dict(outcomes)
    return response
