"""Jobs, acks and what is asked of them: the structs of the interface <-> the model.

Arguments and results are each made on one side and read on the other: a client writes arguments and reads results, a
server reads arguments and writes results. Decoded structs have None where nothing was sent, and the interface's
defaults are filled in here. What is encoded is mostly the model itself, without a copy. Values are checked by the
service; here only what the model cannot even hold is refused (RequestInvalid).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pinlater.errors import RequestInvalid
from pinlater.model import (
    CONTINUATION_END,
    CONTINUATION_START,
    Ack,
    AckOutcome,
    Checkpoint,
    DequeuedFromQueues,
    DequeuedJob,
    DequeuedJobs,
    DequeueFromQueuesRequest,
    DequeueRequest,
    EnqueuedJobs,
    EnqueueOutcome,
    Job,
    JobFilter,
    JobInfo,
    JobState,
    KeyRef,
    QueueAcks,
    QueueShare,
    RequestContext,
    ScanPage,
    WorkerJob,
    WorkerReport,
    any_extended,
    parse_descriptor,
)
from pinlater.wire.convert_keyed import enum_from_wire, job_from_wire, job_to_wire, keys_to_wire, progress_from_wire
from pinlater.wire.dequeue_response import DequeueFromQueuesResponse, DequeueResponse
from pinlater.wire.faults import error_from_exception
from pinlater.wire.interface import SIGNATURES, filled, plain_struct, struct

_EnqueueRequest = struct("PinLaterEnqueueRequest")
_PlainEnqueueRequest = plain_struct("PinLaterEnqueueRequest")
_Job = struct("PinLaterJob")
_AckRequest = struct("PinLaterJobAckRequest")
_PlainAckRequest = plain_struct("PinLaterJobAckRequest")
_AckInfo = struct("PinLaterJobAckInfo")
_DequeueRequest = struct("PinLaterDequeueRequest")
_PlainDequeueRequest = plain_struct("PinLaterDequeueRequest")
_FromQueuesRequest = struct("DequeueFromQueuesRequest")
_CheckpointsRequest = struct("PinLaterCheckpointJobsRequest")
_CheckpointRequest = struct("PinLaterCheckpointJobRequest")
_LookupRequest = struct("PinLaterLookupJobRequest")
_CountRequest = struct("PinLaterGetJobCountRequest")
_ScanRequest = struct("PinLaterScanJobsRequest")
_RetryRequest = struct("PinLaterRetryFailedJobsRequest")
_DeleteRequest = struct("PinLaterDeleteJobsRequest")
_EnqueueResponse = struct("PinLaterEnqueueResponse")
_AckResponse = struct("AckJobsResponse")
_ScanResponse = struct("PinLaterScanJobsResponse")
_STATES = {int(state): state for state in JobState}
_ACK_OUTCOMES = {int(outcome): outcome for outcome in AckOutcome}
_NO_METADATA = struct("PinLaterDequeueMetadata")()


# -- a client writes arguments -----------------------------------------------------------------------------------------


def call_args(method: str, context: RequestContext, **arguments: Any) -> Any:
    """The arguments of one call, by the names of the interface: `request`, `name`, `password`."""
    args = SIGNATURES[method].args.cls()
    args.context = context
    vars(args).update(arguments)
    return args


def enqueue_to_wire(queue: str, jobs: Sequence[Job], has_extended: bool | None = None) -> Any:
    """`has_extended`: what `any_extended` says of the jobs, where the caller knows it."""
    if any_extended(jobs) if has_extended is None else has_extended:
        return filled(_EnqueueRequest, queue_name=queue, jobs=[job_to_wire(job) for job in jobs])
    return filled(_PlainEnqueueRequest, queue_name=queue, jobs=jobs)


def acks_to_wire(queue: str, succeeded: Sequence[Ack], failed: Sequence[Ack]) -> Any:
    for ack in succeeded:
        if ack.result is not None:
            return _acks_to_wire(_AckRequest, queue, succeeded, failed)
    return _acks_to_wire(_PlainAckRequest, queue, succeeded, failed)


def _acks_to_wire(request: type, queue: str, succeeded: Sequence[Ack], failed: Sequence[Ack]) -> Any:
    return filled(request, queue_name=queue, jobs_succeeded=succeeded or None, jobs_failed=failed or None)


def dequeue_to_wire(request: DequeueRequest) -> Any:
    acks = None
    if request.succeeded or request.failed:
        acks = acks_to_wire(request.ack_queue or request.queue, request.succeeded, request.failed)
    return filled(
        _DequeueRequest if type(acks) is _AckRequest else _PlainDequeueRequest,
        queue_name=request.queue,
        limit=request.limit,
        job_ack_request=acks,
        dry_run=request.dry_run,
        coverage=request.coverage,
        wait_ms=request.wait_ms or None,
        claim_timeout_ms=request.claim_timeout_ms,
        release_on_disconnect=request.release_on_disconnect or None,
        confirms_receipt=request.confirms_receipt or None,
        prefetch=request.prefetch or None,
        worker=request.worker,
    )


def dequeue_from_queues_to_wire(request: DequeueFromQueuesRequest) -> Any:
    acks = [_acks_to_wire(_AckRequest, each.queue, each.succeeded, each.failed) for each in request.acks]
    return filled(
        _FromQueuesRequest,
        queues=request.queues,
        limit=request.limit,
        acks=acks or None,
        wait_ms=request.wait_ms or None,
        claim_timeout_ms=request.claim_timeout_ms,
        release_on_disconnect=request.release_on_disconnect or None,
        confirms_receipt=request.confirms_receipt or None,
        worker=request.worker,
    )


def checkpoints_to_wire(queue: str, checkpoints: Sequence[Checkpoint], worker: WorkerReport | None = None) -> Any:
    requests = [_checkpoint(one) for one in checkpoints]
    return filled(_CheckpointsRequest, queue_name=queue, requests=requests, worker=worker)


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


def lookup_to_wire(
    descriptors: Sequence[str],
    include_body: bool,
    include_result: bool = False,
    wait_ms: int = 0,
    queue: str = "",
    keys: Sequence[KeyRef] = (),
) -> Any:
    return filled(
        _LookupRequest,
        job_descriptors=descriptors,
        include_body=include_body,
        include_result=include_result or None,
        wait_ms=wait_ms or None,
        queue_name=queue or None,
        keys=keys_to_wire(keys),
    )


def count_to_wire(filter: JobFilter, allow_partial: bool) -> Any:
    return filled(
        _CountRequest, **_filter_fields(filter), count_future_jobs=filter.future, allow_partial=allow_partial or None
    )


def scan_to_wire(filter: JobFilter, continuation: str, limit: int) -> Any:
    return filled(
        _ScanRequest, **_filter_fields(filter), scan_future_jobs=filter.future, continuation=continuation, limit=limit
    )


def delete_to_wire(filter: JobFilter, limit: int) -> Any:
    """Where the filter has no priority, the interface's default counts: 1."""
    return filled(_DeleteRequest, **_filter_fields(filter), limit=limit)


def _filter_fields(filter: JobFilter) -> dict[str, Any]:
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


# -- a server reads arguments ------------------------------------------------------------------------------------------


def context_from_wire(context: Any) -> RequestContext:
    return RequestContext(context.source, context.request_id or "")


def jobs_from_wire(jobs: list[Any]) -> list[Job]:
    """The jobs of an enqueue call, in order. All are of one class."""
    if jobs and type(jobs[0]) is _Job:
        return [job_from_wire(job) for job in jobs]
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
    """All are of one class."""
    if not acks:
        return []
    if type(acks[0]) is not _AckInfo:
        return [
            Ack(
                ack.descriptor,
                ack.append_status or "",
                ack.retry_delay_ms or 0,
                ack.claim_descriptor or "",
                ack.permanent or False,
            )
            for ack in acks
        ]
    return [
        Ack(
            ack.descriptor,
            ack.append_status or "",
            ack.retry_delay_ms or 0,
            ack.claim_descriptor or "",
            ack.permanent or False,
            ack.result,
        )
        for ack in acks
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
    return DequeueRequest(  # in the order of its fields: by name it takes twice as long
        request.queue_name,
        request.limit,
        () if acks is None else acks_from_wire(acks.jobs_succeeded),
        () if acks is None else acks_from_wire(acks.jobs_failed),
        "" if acks is None else acks.queue_name,
        request.dry_run or False,
        1.0 if request.coverage is None else request.coverage,
        request.wait_ms or 0,
        request.claim_timeout_ms,
        request.release_on_disconnect or False,
        request.confirms_receipt or False,
        request.prefetch or 0,
        None if request.worker is None else worker_from_wire(request.worker),
    )


def worker_from_wire(report: Any) -> WorkerReport:
    """As it came: its bounds are the business of whoever keeps it."""
    return WorkerReport(
        report.id,
        report.name,
        report.up_ms,
        report.host or "",
        report.pid or 0,
        report.queues or {},
        report.slots or 0,
        report.busy_slots or 0,
        report.stuck_slots or 0,
        [WorkerJob(job.job_descriptor, job.job_type or "", job.running_ms or 0) for job in report.running or ()],
        report.versions or {},
        report.is_stopping or False,
        report.has_stopped or False,
        report.silent_ms or 0,
    )


def dequeue_from_queues_from_wire(request: Any) -> DequeueFromQueuesRequest:
    return DequeueFromQueuesRequest(
        [
            QueueShare(each.queue, 1 if each.weight is None else each.weight, each.prefetch or 0)
            for each in request.queues
        ],
        request.limit,
        [
            QueueAcks(each.queue_name, acks_from_wire(each.jobs_succeeded), acks_from_wire(each.jobs_failed))
            for each in request.acks or ()
        ],
        request.wait_ms or 0,
        request.claim_timeout_ms,
        request.release_on_disconnect or False,
        request.confirms_receipt or False,
        None if request.worker is None else worker_from_wire(request.worker),
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


# -- a server writes results -------------------------------------------------------------------------------------------


def enqueued_to_wire(descriptors: list[str]) -> Any:
    response = _EnqueueResponse()
    response.job_descriptors = descriptors
    if type(descriptors) is EnqueuedJobs:
        response.outcomes = descriptors.outcomes or None
    return response


def dequeued_to_wire(jobs: Sequence[DequeuedJob], *, awaits_receipt: bool = False) -> DequeueResponse:
    if awaits_receipt or type(jobs) is DequeuedJobs:
        return DequeueResponse(jobs, riding_outcomes(jobs), awaits_receipt=awaits_receipt)
    return DequeueResponse(jobs)


def dequeued_from_queues_to_wire(
    dequeued: DequeuedFromQueues, *, awaits_receipt: bool = False
) -> DequeueFromQueuesResponse:
    return DequeueFromQueuesResponse(dequeued, awaits_receipt=awaits_receipt)


def emptied_to_wire(jobs: Sequence[DequeuedJob]) -> DequeueResponse:
    """The answer of a dequeue whose jobs were requeued: it still says what became of the acks."""
    if type(jobs) is DequeuedFromQueues:
        return DequeueFromQueuesResponse(jobs, with_jobs=False)
    return DequeueResponse((), riding_outcomes(jobs))


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


# -- a client reads results --------------------------------------------------------------------------------------------


def ack_outcomes_from_wire(outcomes: Sequence[int]) -> list[AckOutcome]:
    return [_ACK_OUTCOMES.get(number, AckOutcome.UNKNOWN) for number in outcomes]


def dequeued_from_wire(response: Any) -> DequeuedJobs:
    return DequeuedJobs(_dequeued_jobs(response), ack_outcomes_from_wire(response.ack_outcomes or ()))


def dequeued_from_queues_from_wire(response: Any) -> DequeuedFromQueues:
    return DequeuedFromQueues(
        _dequeued_jobs(response),
        {each.queue_name: error_from_exception(each) for each in response.queue_errors or ()},
        [ack_outcomes_from_wire(outcomes) for outcomes in response.ack_outcomes or ()],
    )


def _dequeued_jobs(response: Any) -> Iterator[DequeuedJob]:
    """In the order of the answer. What an older server does not say is 0 or ""; names hold priorities."""
    get = (response.job_metadata or {}).get
    return (
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


def job_info_from_wire(info: Any) -> JobInfo:
    """Everything the interface says of a job; `run_after_ms` and `updated_at_ms` fall back to the creation."""
    created = info.created_at_ms
    return JobInfo(
        descriptor=info.descriptor,
        state=enum_from_wire(JobState, info.state),
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
        result=info.result,
        dedupe_key=info.dedupe_key,
        serialize_key=info.serialize_key,
        cancelled=info.cancelled,
        progress=None if info.progress is None else progress_from_wire(info.progress),
        waits_for=info.waits_for,
        expires_at_ms=info.expires_at_ms,
        claim_timeout_ms=info.claim_timeout_ms,
        cancel_requested_by=info.cancel_requested_by,
        body_stored_at=info.body_stored_at,
        body_left_out=info.body_left_out,
        result_left_out=info.result_left_out,
    )


def lookup_from_wire(found: Mapping[str, Any]) -> dict[str, JobInfo]:
    return {descriptor: job_info_from_wire(info) for descriptor, info in found.items()}


def scan_page_from_wire(response: Any) -> ScanPage:
    return ScanPage(
        [job_info_from_wire(info) for info in response.scanned_jobs],
        CONTINUATION_END if response.continuation is None else response.continuation,
        response.missing_shards or [],
    )


def enqueued_from_wire(response: Any) -> list[str]:
    descriptors: list[str] = response.job_descriptors
    if response.outcomes is None:
        return descriptors
    return EnqueuedJobs(descriptors, [enum_from_wire(EnqueueOutcome, number) for number in response.outcomes])


def _priority(descriptor: str) -> int:
    ref = parse_descriptor(descriptor)
    return 1 if ref is None else ref.priority
