"""What becomes of an attempt when it has ended. Made where the job ran, so that policies see the very exception."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Action(IntEnum):
    """What the server is told."""

    SUCCEED = 0
    """An ack, success."""
    RETRY = 1
    """An ack, failure: one attempt is spent; the job comes again after `delay_ms`, or without attempts is FAILED."""
    FAIL = 2
    """An ack, permanent failure."""
    SNOOZE = 3
    """Back to PENDING for `delay_ms`, no attempt spent, with `body`, whose envelope counts the snoozes."""
    RESCHEDULE = 4
    """Back to PENDING for `delay_ms`, with all attempts, and with `body` where it is not None."""
    GIVE_BACK = 5
    """Back to PENDING after `delay_ms` as it is, no attempt spent: the worker does not know its type, or stops."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`status`, a line with its end or "", goes to the job's custom status: an ack appends it, a move puts it in front.

    `error` is the type of the exception for metrics and logs, "" for none.
    """

    action: Action
    delay_ms: int = 0
    status: str = ""
    body: bytes | None = None
    error: str = ""


SUCCEEDED = Verdict(Action.SUCCEED)
