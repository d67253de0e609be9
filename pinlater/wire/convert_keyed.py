"""Keys of jobs, and what else few jobs have; cancels, other times, heartbeats: structs of the interface <-> model.

As in convert.py, which takes the jobs and what is found of them from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pinlater.errors import ProtocolError, RequestInvalid
from pinlater.model import (
    Cancelled,
    CancelOutcome,
    ExtendedJob,
    Heartbeat,
    HeartbeatAnswer,
    HeartbeatOutcome,
    Job,
    JobProgress,
    KeyRef,
    OnDuplicate,
    RescheduleJob,
    RescheduleOutcome,
    WorkerReport,
)
from pinlater.wire.interface import filled, struct

_Job = struct("PinLaterJob")
_KeyRef = struct("KeyRef")
_CancelRequest = struct("CancelJobsRequest")
_RescheduleRequest = struct("RescheduleJobsRequest")
_RescheduleJob = struct("RescheduleJob")
_HeartbeatRequest = struct("HeartbeatJobsRequest")
_CancelResponse = struct("CancelJobsResponse")
_RescheduleResponse = struct("RescheduleJobsResponse")
_HeartbeatResponse = struct("HeartbeatJobsResponse")
_ON_DUPLICATE = {int(each): each for each in OnDuplicate}
ALSO_RUNNING = 1
"""Of the modes of a cancel; 0 is as where none is said."""


# -- a client writes arguments -----------------------------------------------------------------------------------------


def job_to_wire(job: Job) -> Any:
    """A job of a request in which some are extended. What is as the interface has it anyway is not sent: a request may
    have so many fields.
    """
    wire = filled(
        _Job,
        body=job.body,
        priority=None if job.priority == 1 else job.priority,
        run_after_ms=job.run_after_ms,
        attempts_allowed=None if job.attempts_allowed == 2 else job.attempts_allowed,
        custom_status=job.custom_status or None,
    )
    if isinstance(job, ExtendedJob):
        wire.dedupe_key = job.dedupe_key or None
        wire.serialize_key = job.serialize_key or None
        wire.claim_timeout_ms = job.claim_timeout_ms
        wire.on_duplicate = job.on_duplicate or None
        wire.dedupe_for_ms = job.dedupe_for_ms or None
        wire.send_id = job.send_id or None
        wire.expires_at_ms = job.expires_at_ms
    return wire


def keys_to_wire(keys: Sequence[KeyRef]) -> list[Any] | None:
    return [_key_to_wire(key) for key in keys] or None


def _key_to_wire(key: KeyRef) -> Any:
    return filled(_KeyRef, dedupe_key=key.dedupe_key or None, serialize_key=key.serialize_key or None)


def cancel_to_wire(queue: str, descriptors: Sequence[str], keys: Sequence[KeyRef] = (), running: bool = False) -> Any:
    return filled(
        _CancelRequest,
        queue_name=queue,
        job_descriptors=descriptors,
        keys=keys_to_wire(keys),
        mode=ALSO_RUNNING if running else None,
    )


def reschedule_to_wire(queue: str, changes: Sequence[RescheduleJob]) -> Any:
    jobs = [
        filled(
            _RescheduleJob,
            descriptor=each.descriptor or None,
            key=None if each.key is None else _key_to_wire(each.key),
            run_after_ms=each.run_after_ms,
            body=each.body,
            attempts_allowed=each.attempts_allowed,
            only_if_updated_at_ms=each.only_if_updated_at_ms,
        )
        for each in changes
    ]
    return filled(_RescheduleRequest, queue_name=queue, jobs=jobs)


def heartbeats_to_wire(queue: str, heartbeats: Sequence[Heartbeat], worker: WorkerReport | None = None) -> Any:
    return filled(_HeartbeatRequest, queue_name=queue, heartbeats=heartbeats, worker=worker)


# -- a server reads arguments ------------------------------------------------------------------------------------------


def job_from_wire(job: Any) -> Job:
    plain = (
        job.body,
        1 if job.priority is None else job.priority,
        job.run_after_ms,
        2 if job.attempts_allowed is None else job.attempts_allowed,
        job.custom_status or "",
    )
    if not (
        job.dedupe_key
        or job.serialize_key
        or job.send_id
        or job.claim_timeout_ms is not None
        or job.expires_at_ms is not None
        or job.on_duplicate
        or job.dedupe_for_ms
    ):
        return Job(*plain)
    on_duplicate = _ON_DUPLICATE.get(job.on_duplicate or 0)
    if on_duplicate is None:
        raise RequestInvalid.of("onDuplicate", job.on_duplicate, "0 to 2")
    return ExtendedJob(
        *plain,
        job.dedupe_key or "",
        job.serialize_key or "",
        job.claim_timeout_ms,
        on_duplicate,
        job.dedupe_for_ms or 0,
        job.expires_at_ms,
        job.send_id or "",
    )


def keys_from_wire(keys: list[Any] | None) -> Sequence[KeyRef]:
    return [_key_from_wire(key) for key in keys] if keys else ()


def _key_from_wire(key: Any) -> KeyRef:
    return KeyRef(key.dedupe_key or "", key.serialize_key or "")


def cancels_running(request: Any) -> bool:
    if request.mode not in (None, 0, ALSO_RUNNING):
        raise RequestInvalid.of("mode", request.mode, "0 or 1")
    return bool(request.mode == ALSO_RUNNING)


def reschedules_from_wire(jobs: list[Any]) -> list[RescheduleJob]:
    return [
        RescheduleJob(
            job.descriptor or "",
            None if job.key is None else _key_from_wire(job.key),
            job.run_after_ms,
            job.body,
            job.attempts_allowed,
            job.only_if_updated_at_ms,
        )
        for job in jobs
    ]


def heartbeats_from_wire(heartbeats: list[Any]) -> list[Heartbeat]:
    return [Heartbeat(each.descriptor, each.claim_descriptor, each.fraction, each.text) for each in heartbeats]


# -- a server writes results -------------------------------------------------------------------------------------------


def cancelled_to_wire(cancelled: Cancelled) -> Any:
    response = _CancelResponse()
    response.outcomes = dict(cancelled)
    response.key_outcomes = cancelled.by_key or None
    return response


def rescheduled_to_wire(outcomes: Sequence[RescheduleOutcome]) -> Any:
    return filled(_RescheduleResponse, outcomes=outcomes)


def heartbeat_answers_to_wire(heartbeats: Sequence[Heartbeat], answers: Sequence[HeartbeatAnswer]) -> Any:
    stops = {
        heartbeat.descriptor: answer.cancelled_by
        for heartbeat, answer in zip(heartbeats, answers, strict=True)
        if answer.outcome is HeartbeatOutcome.CANCEL
    }
    return filled(_HeartbeatResponse, outcomes=[answer.outcome for answer in answers], cancelled_by=stops or None)


# -- a client reads results --------------------------------------------------------------------------------------------


def cancelled_from_wire(response: Any) -> Cancelled:
    return Cancelled(
        {descriptor: enum_from_wire(CancelOutcome, number) for descriptor, number in response.outcomes.items()},
        [enum_from_wire(CancelOutcome, number) for number in response.key_outcomes or ()],
    )


def rescheduled_from_wire(response: Any) -> list[RescheduleOutcome]:
    return [enum_from_wire(RescheduleOutcome, number) for number in response.outcomes]


def heartbeat_answers_from_wire(heartbeats: Sequence[Heartbeat], response: Any) -> list[HeartbeatAnswer]:
    if len(response.outcomes) != len(heartbeats):
        raise ProtocolError(f"{len(response.outcomes)} answers came to {len(heartbeats)} heartbeats")
    stops = response.cancelled_by or {}
    answers = []
    for heartbeat, number in zip(heartbeats, response.outcomes, strict=True):
        outcome: HeartbeatOutcome = enum_from_wire(HeartbeatOutcome, number)
        by = stops.get(heartbeat.descriptor, "") if outcome is HeartbeatOutcome.CANCEL else ""
        answers.append(HeartbeatAnswer(outcome, by))
    return answers


def progress_from_wire(progress: Any) -> JobProgress:
    return JobProgress(progress.fraction, progress.text or "", progress.at_ms or 0)


def enum_from_wire(cls: Any, number: int) -> Any:
    try:
        return cls(number)
    except ValueError as error:
        raise ProtocolError(f"{number} is no {cls.__name__}") from error
