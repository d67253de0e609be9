"""The outcome of an attempt, and the exceptions by which a job chooses it.

    Retry        this attempt failed; the next one comes after so many seconds
    Fail         this attempt failed, and none follows
    Snooze       not now: again after so many seconds, no attempt spent, so many times at most
    Reschedule   done for now: again after so many seconds with all attempts, for jobs that repeat for ever

Times are seconds, texts as in "5m", or a timedelta. All of them can be pickled, as exceptions cross the processes of a
pool.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from pinlater.schedule import Delay, delay_seconds


class Action(IntEnum):
    """The call that reports an outcome to the server."""

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
    CANCEL = 6
    """An ack, permanent failure, of a job that was asked to stop: the server calls it cancelled."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an attempt. `status`, a line with its end or "", goes to the job's custom status: an ack appends
    it, a move puts it in front.

    `error` is the type of the exception for metrics and logs, "" for none. A success has none: there it is the type of
    what the function returned and nobody keeps, the first time in this process (`dropped`), so that processes of a pool
    can tell it to workers of any version. `result`: with a success, what is kept of it for those who ask.
    """

    action: Action
    delay_ms: int = 0
    status: str = ""
    body: bytes | None = None
    error: str = ""
    result: bytes | None = None

    @property
    def dropped(self) -> str:
        return self.error if self.action is Action.SUCCEED else ""


SUCCEEDED = Outcome(Action.SUCCEED)


class ControlFlow(Exception):
    """The root of what a job raises on purpose."""


class Retry(ControlFlow):
    """Raised by a job to fail this attempt. `after`: when the next one comes; None leaves that to the retry policy."""

    def __init__(self, message: str = "", *, after: Delay | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.after_s = None if after is None else delay_seconds(after)

    def __reduce__(self) -> tuple[object, ...]:
        return _retry, (self.message, self.after_s)


class Fail(ControlFlow):
    """Raised by a job to fail for good, whatever attempts are left."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message


class Snooze(ControlFlow):
    """Raised by a job to come again in `after` seconds. Spends no attempt; beyond the type's `max_snoozes` it fails."""

    def __init__(self, after: Delay, message: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.after_s = delay_seconds(after)

    def __reduce__(self) -> tuple[object, ...]:
        return Snooze, (self.after_s, self.message)


class Reschedule(ControlFlow):
    """Raised by a job that is done for now, to come again in `after` seconds with all attempts, and `body` if given."""

    def __init__(self, after: Delay, *, body: bytes | None = None, message: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.after_s = delay_seconds(after)
        self.body = body

    def __reduce__(self) -> tuple[object, ...]:
        return _reschedule, (self.after_s, self.body, self.message)


def _retry(message: str, after_s: float | None) -> Retry:
    return Retry(message, after=after_s)


def _reschedule(after_s: float, body: bytes | None, message: str) -> Reschedule:
    return Reschedule(after_s, body=body, message=message)
