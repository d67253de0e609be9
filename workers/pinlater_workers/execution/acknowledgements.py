"""The outcome of an attempt, as the server's interface has it.

It is an ack (success, failure, permanent failure), or a requeue, which is a checkpoint that moves the job back to
PENDING.
"""

from __future__ import annotations

from pinlater.model import Ack, Checkpoint, DequeuedJob, JobProgress, ReportingAck
from pinlater_workers.jobs.outcome import Action, Outcome
from pinlater_workers.jobs.progress_report import ProgressReport

ACKS = frozenset({Action.SUCCEED, Action.RETRY, Action.FAIL, Action.CANCEL})
"""The server is told by an ack; else by a requeue, which is a checkpoint to it."""


def ack_of(job: DequeuedJob, outcome: Outcome, report: ProgressReport | None = None) -> Ack:
    """Fenced by its claim. `report`: what the job said last."""
    ack = _ack_of(job, outcome)
    if report is None:
        return ack
    progress = None if report.text is None else JobProgress(report.fraction, report.text)
    fields = (ack.append_status, ack.retry_delay_ms, ack.claim_descriptor, ack.permanent, ack.result)
    return ReportingAck(ack.descriptor, *fields, progress, report.log_lines)


def _ack_of(job: DequeuedJob, outcome: Outcome) -> Ack:
    if outcome.action is not Action.SUCCEED:
        permanent = outcome.action in (Action.FAIL, Action.CANCEL)
        return Ack(job.descriptor, outcome.status, outcome.delay_ms, job.claim_descriptor, permanent)
    ack = Ack(job.descriptor, outcome.status, 0, job.claim_descriptor)
    if outcome.result is not None:
        ack.result = outcome.result
        ack.permanent = True  # a server that finds it too large makes a failure of it, which no retry mends
    return ack


def requeue_of(job: DequeuedJob, outcome: Outcome, now_ms: int) -> Checkpoint:
    """What is requeued without a delay keeps its place in the queue; RESCHEDULE brings all attempts back."""
    run_after_ms: int | None = now_ms + outcome.delay_ms
    if outcome.action is Action.GIVE_BACK and not outcome.delay_ms:
        run_after_ms = job.run_after_ms or None
    return Checkpoint(
        job.descriptor,
        new_body=outcome.body,
        move_to_pending=True,
        run_after_ms=run_after_ms,
        attempts_allowed=job.attempts_allowed if outcome.action is Action.RESCHEDULE else None,
        prepend_status=outcome.status,
        claim_descriptor=job.claim_descriptor,
    )
