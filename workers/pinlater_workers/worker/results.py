"""What became of an attempt, in the words of the server's interface."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.model import Ack, Checkpoint
from pinlater_workers.running import Running
from pinlater_workers.verdict import Action, Verdict

Result = tuple[Running, Verdict]

ACKS = frozenset({Action.SUCCEED, Action.RETRY, Action.FAIL})
"""The server is told by an ack; else by a move back to PENDING, which is a checkpoint to it."""


def acks(results: Sequence[Result]) -> tuple[list[Ack], list[Ack]]:
    """The successes and the failures, each fenced by its claim."""
    succeeded: list[Ack] = []
    failed: list[Ack] = []
    for running, verdict in results:
        job = running.job
        if verdict.action is Action.SUCCEED:
            succeeded.append(Ack(job.descriptor, verdict.status, 0, job.claim_descriptor))
        else:
            permanent = verdict.action is Action.FAIL
            failed.append(Ack(job.descriptor, verdict.status, verdict.delay_ms, job.claim_descriptor, permanent))
    return succeeded, failed


def in_order(results: Sequence[Result]) -> list[Running]:
    """As `acks` names them in a call: the successes, then the failures."""
    succeeded = [running for running, verdict in results if verdict.action is Action.SUCCEED]
    return succeeded + [running for running, verdict in results if verdict.action is not Action.SUCCEED]


def moves(results: Sequence[Result], now_ms: int) -> list[Checkpoint]:
    return [_move(running, verdict, now_ms) for running, verdict in results]


def _move(running: Running, verdict: Verdict, now_ms: int) -> Checkpoint:
    """What is given back without a delay keeps its place in the queue; RESCHEDULE brings all attempts back."""
    job = running.job
    run_after_ms: int | None = now_ms + verdict.delay_ms
    if verdict.action is Action.GIVE_BACK and not verdict.delay_ms:
        run_after_ms = job.run_after_ms or None
    return Checkpoint(
        job.descriptor,
        new_body=verdict.body,
        move_to_pending=True,
        run_after_ms=run_after_ms,
        attempts_allowed=job.attempts_allowed if verdict.action is Action.RESCHEDULE else None,
        prepend_status=verdict.status,
        claim_descriptor=job.claim_descriptor,
    )
