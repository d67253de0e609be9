"""The conversions that are no copy between structs and the model: jobs, acks, dequeues, checkpoints, heartbeats.

All else follows from the fields of both (struct_map.py). These are what many messages are made of, and measured, or
what older servers and clients have another form of. Decoded structs have None where nothing was sent, and the
interface's defaults are filled in here. What is encoded is mostly the model itself, without a copy. Values are checked
by the service; here only what the model cannot even hold is refused (RequestInvalid).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pinlater.api import Api
from pinlater.errors import ProtocolError
from pinlater.model import (
    Ack,
    AckOutcome,
    Cancelled,
    CancelOutcome,
    Checkpoint,
    DequeuedFromQueues,
    DequeuedJob,
    DequeuedJobs,
    DequeueRequest,
    EnqueuedJobs,
    EnqueueOutcome,
    ExtendedJob,
    Heartbeat,
    HeartbeatAnswer,
    HeartbeatAnswers,
    HeartbeatOutcome,
    Job,
    JobInfo,
    NumberedCommand,
    OnDuplicate,
    PlainAcks,
    QueueAcks,
    ReplaceRunning,
    ReportingAck,
    RequestContext,
    WorkerCommand,
    WorkerReport,
    any_extended,
    any_reporting,
    parse_descriptor,
)
from pinlater.wire.dequeue_response import DequeueFromQueuesResponse, DequeueResponse
from pinlater.wire.faults import error_from_exception
from pinlater.wire.interface import LAYOUTS, SIGNATURES, filled, keyed_struct, plain_struct, struct
from pinlater.wire.struct_map import BY_HAND, list_reader, number_reader, reader

_EnqueueRequest = struct("PinLaterEnqueueRequest")
_PlainEnqueueRequest = plain_struct("PinLaterEnqueueRequest")
_Job = struct("PinLaterJob")
_PlainJob = plain_struct("PinLaterJob")
_KeyedJob = keyed_struct("PinLaterJob")
_AckInfo = struct("PinLaterJobAckInfo")
_AckRequest = struct("PinLaterJobAckRequest")
_PlainAckRequest = plain_struct("PinLaterJobAckRequest")
_DequeueRequest = struct("PinLaterDequeueRequest")
_PlainDequeueRequest = plain_struct("PinLaterDequeueRequest")
_CheckpointsRequest = struct("PinLaterCheckpointJobsRequest")
_CheckpointRequest = struct("PinLaterCheckpointJobRequest")
_EnqueueResponse = struct("PinLaterEnqueueResponse")
_CancelResponse = struct("CancelJobsResponse")
_HeartbeatResponse = struct("HeartbeatJobsResponse")
_NO_METADATA = struct("PinLaterDequeueMetadata")()
_ON_DUPLICATE = number_reader(OnDuplicate, "onDuplicate", of_request=True)
_REPLACE_RUNNING = number_reader(ReplaceRunning, "replaceRunning", of_request=True)
_ACK_OUTCOMES = number_reader(AckOutcome, "outcomes")
_ENQUEUE_OUTCOMES = number_reader(EnqueueOutcome, "outcomes")
_CANCEL_OUTCOMES = number_reader(CancelOutcome, "outcomes")
_HEARTBEAT_OUTCOMES = number_reader(HeartbeatOutcome, "outcomes")
_WORKER_COMMANDS = number_reader(WorkerCommand, "command")


def _priority(descriptor: str) -> int:
    ref = parse_descriptor(descriptor)
    return 1 if ref is None else ref.priority


BY_HAND[JobInfo, "priority"] = lambda info: _priority(info.descriptor)
BY_HAND[QueueAcks, "succeeded"] = lambda sent: acks_from_wire(sent.succeeded or ())
BY_HAND[QueueAcks, "failed"] = lambda sent: acks_from_wire(sent.failed or ())
BY_HAND[Checkpoint, "new_body"] = lambda sent: sent.new_text if sent.new_body is None else sent.new_body
"""`newBodyBytes` counts before `newBody`, whose bytes are taken as they came."""

_read_worker = reader(WorkerReport, LAYOUTS.of("WorkerReport"), of_request=True)
_read_heartbeats = list_reader(Heartbeat, LAYOUTS.of("JobHeartbeat"), of_request=True)
_ACK = LAYOUTS.of("PinLaterJobAckInfo")
_read_acks = list_reader(Ack, _ACK, of_request=True, others=("progress", "log_lines"))
_read_reporting_acks = list_reader(ReportingAck, _ACK, of_request=True)
_read_acks_without_results = list_reader(Ack, _ACK, of_request=True, others=("progress", "log_lines"), unsent="result")

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
        return filled(_EnqueueRequest, queue=queue, jobs=[job_to_wire(job) for job in jobs])
    return filled(_PlainEnqueueRequest, queue=queue, jobs=jobs)


def acks_to_wire(queue: str, succeeded: Sequence[Ack], failed: Sequence[Ack]) -> Any:
    for ack in succeeded:
        if ack.result is not None:
            return _acks_to_wire(_AckRequest, queue, succeeded, failed)
    if any_reporting(succeeded) or any_reporting(failed):
        return _acks_to_wire(_AckRequest, queue, succeeded, failed)
    return _acks_to_wire(_PlainAckRequest, queue, succeeded, failed)


def _acks_to_wire(request: type, queue: str, succeeded: Sequence[Ack], failed: Sequence[Ack]) -> Any:
    return filled(request, queue=queue, succeeded=succeeded or None, failed=failed or None)


def dequeue_to_wire(request: DequeueRequest) -> Any:
    acks = None
    if request.succeeded or request.failed:
        acks = acks_to_wire(request.ack_queue or request.queue, request.succeeded, request.failed)
    return filled(
        _DequeueRequest if type(acks) is _AckRequest else _PlainDequeueRequest,
        queue=request.queue,
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


def checkpoints_to_wire(queue: str, checkpoints: Sequence[Checkpoint], worker: WorkerReport | None = None) -> Any:
    sent = [_checkpoint(one) for one in checkpoints]
    return filled(_CheckpointsRequest, queue=queue, checkpoints=sent, worker=worker)


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


def job_to_wire(job: Job) -> Any:
    """A job of a request in which some are extended. What is as the interface has it anyway is not sent: a request may
    have so many fields.
    """
    wire = _Job()
    wire.body = job.body
    if job.priority != 1:
        wire.priority = job.priority
    if job.run_after_ms is not None:
        wire.run_after_ms = job.run_after_ms
    if job.attempts_allowed != 2:
        wire.attempts_allowed = job.attempts_allowed
    if job.custom_status:
        wire.custom_status = job.custom_status
    if isinstance(job, ExtendedJob):
        if job.dedupe_key:
            wire.dedupe_key = job.dedupe_key
        if job.serialize_key:
            wire.serialize_key = job.serialize_key
        if job.claim_timeout_ms is not None:
            wire.claim_timeout_ms = job.claim_timeout_ms
        if job.on_duplicate:
            wire.on_duplicate = job.on_duplicate
        if job.dedupe_for_ms:
            wire.dedupe_for_ms = job.dedupe_for_ms
        if job.send_id:
            wire.send_id = job.send_id
        if job.expires_at_ms is not None:
            wire.expires_at_ms = job.expires_at_ms
        if job.replace_running:
            wire.replace_running = job.replace_running
        if job.replace_within_ms is not None:
            wire.replace_within_ms = job.replace_within_ms
        if job.tags:
            wire.tags = list(job.tags)
        if job.group:
            wire.group = job.group
    return wire


# -- a server reads arguments ------------------------------------------------------------------------------------------


def acks_from_wire(acks: Sequence[Any]) -> list[Ack]:
    """The acks of a call, in order. All are of one class: most calls have neither results nor reports, and are read in
    less time.
    """
    if not acks or type(acks[0]) is not _AckInfo:
        return PlainAcks(_read_acks_without_results(acks))
    read: list[Ack] = _read_acks(acks)
    for place, sent in enumerate(acks):
        if sent.progress is not None or sent.log_lines:
            (read[place],) = _read_reporting_acks([sent])
    return read


def jobs_from_wire(jobs: list[Any]) -> list[Job]:
    """The jobs of an enqueue call, in order. All are of one class."""
    if jobs and (kind := type(jobs[0])) is not _PlainJob:
        return [_keyed_job(job) for job in jobs] if kind is _KeyedJob else [job_from_wire(job) for job in jobs]
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


def job_from_wire(job: Any) -> Job:
    """A job, from the form with all fields."""
    running, within_ms = job.replace_running, job.replace_within_ms
    if job.group or running or within_ms is not None:
        return _keyed_job(job, (job.group or "", _REPLACE_RUNNING[running or 0], within_ms))
    return _keyed_job(job)


def _keyed_job(job: Any, more: tuple[str, ReplaceRunning, int | None] | None = None) -> Job:
    """`more`: the last fields of ExtendedJob, which this form does not have."""
    plain = (
        job.body,
        1 if job.priority is None else job.priority,
        job.run_after_ms,
        2 if job.attempts_allowed is None else job.attempts_allowed,
        job.custom_status or "",
    )
    if not (
        more
        or job.dedupe_key
        or job.serialize_key
        or job.send_id
        or job.claim_timeout_ms is not None
        or job.expires_at_ms is not None
        or job.on_duplicate
        or job.dedupe_for_ms
        or job.tags
    ):
        return Job(*plain)
    return ExtendedJob(
        *plain,
        job.dedupe_key or "",
        job.serialize_key or "",
        job.claim_timeout_ms,
        _ON_DUPLICATE[job.on_duplicate or 0],
        job.dedupe_for_ms or 0,
        job.expires_at_ms,
        job.send_id or "",
        job.tags or (),
        *(more or ()),
    )


def dequeue_from_wire(request: Any) -> DequeueRequest:
    acks = request.job_ack_request
    return DequeueRequest(  # in the order of its fields: by name it takes twice as long
        request.queue,
        request.limit,
        () if acks is None else acks_from_wire(acks.succeeded or ()),
        () if acks is None else acks_from_wire(acks.failed or ()),
        "" if acks is None else acks.queue,
        request.dry_run or False,
        1.0 if request.coverage is None else request.coverage,
        request.wait_ms or 0,
        request.claim_timeout_ms,
        request.release_on_disconnect or False,
        request.confirms_receipt or False,
        request.prefetch or 0,
        None if request.worker is None else _read_worker(request.worker),
    )


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


def cancelled_to_wire(cancelled: Cancelled) -> Any:
    response = _CancelResponse()
    response.outcomes = dict(cancelled)
    response.by_key = cancelled.by_key or None
    return response


async def serve_heartbeat(api: Api, args: Any, context: RequestContext) -> Any:
    """The call of an Api, and its answers as they are encoded, which are told apart by the heartbeats."""
    request = args.request
    heartbeats = _read_heartbeats(request.heartbeats)
    worker = None if request.worker is None else _read_worker(request.worker)
    return heartbeat_answers_to_wire(
        heartbeats, await api.heartbeat(request.queue, heartbeats, worker=worker, context=context)
    )


def heartbeat_answers_to_wire(heartbeats: Sequence[Heartbeat], answers: Sequence[HeartbeatAnswer]) -> Any:
    stops = {
        heartbeat.descriptor: answer.cancelled_by
        for heartbeat, answer in zip(heartbeats, answers, strict=True)
        if answer.outcome is HeartbeatOutcome.CANCEL
    }
    outcomes = [answer.outcome for answer in answers]
    sent = answers.command if isinstance(answers, HeartbeatAnswers) else None
    if sent is None:
        return filled(_HeartbeatResponse, outcomes=outcomes, cancelled_by=stops or None)
    return filled(
        _HeartbeatResponse,
        outcomes=outcomes,
        cancelled_by=stops or None,
        command=sent.command,
        command_number=sent.number,
    )


# -- a client reads results --------------------------------------------------------------------------------------------


def ack_outcomes_from_wire(outcomes: Sequence[int]) -> list[AckOutcome]:
    return [_ACK_OUTCOMES[number] for number in outcomes]


def dequeued_from_wire(response: Any) -> DequeuedJobs:
    return DequeuedJobs(_dequeued_jobs(response), ack_outcomes_from_wire(response.ack_outcomes or ()))


def dequeued_from_queues_from_wire(response: Any) -> DequeuedFromQueues:
    return DequeuedFromQueues(
        _dequeued_jobs(response),
        {each.queue: error_from_exception(each) for each in response.queue_errors or ()},
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


def enqueued_from_wire(response: Any) -> list[str]:
    descriptors: list[str] = response.job_descriptors
    if response.outcomes is None:
        return descriptors
    return EnqueuedJobs(descriptors, [_ENQUEUE_OUTCOMES[number] for number in response.outcomes])


def cancelled_from_wire(response: Any) -> Cancelled:
    return Cancelled(
        {descriptor: _CANCEL_OUTCOMES[number] for descriptor, number in response.outcomes.items()},
        [_CANCEL_OUTCOMES[number] for number in response.by_key or ()],
    )


def heartbeat_answers_from_wire(heartbeats: Sequence[Heartbeat], response: Any) -> HeartbeatAnswers:
    if len(response.outcomes) != len(heartbeats):
        raise ProtocolError(f"{len(response.outcomes)} answers came to {len(heartbeats)} heartbeats")
    stops = response.cancelled_by or {}
    answers = HeartbeatAnswers()
    if response.command is not None:
        answers.command = NumberedCommand(_WORKER_COMMANDS[response.command], response.command_number or 0)
    for heartbeat, number in zip(heartbeats, response.outcomes, strict=True):
        outcome = _HEARTBEAT_OUTCOMES[number]
        by = stops.get(heartbeat.descriptor, "") if outcome is HeartbeatOutcome.CANCEL else ""
        answers.append(HeartbeatAnswer(outcome, by))
    return answers
