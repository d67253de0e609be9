"""The outcome of an attempt that raised something, and its line in the log. Never raises, whatever a policy does.

| raised | becomes |
| --- | --- |
| Retry(after=...) | a failure; the next attempt comes then |
| Retry() | a failure; the policy for what it was raised from, else for Retry itself, says when |
| Fail | FAILED |
| Snooze | back to PENDING without spending an attempt, counted in the body; too often: FAILED |
| Reschedule | back to PENDING with all attempts, the count of snoozes at 0 |
| BodyInvalid, ResultInvalid, and a Reschedule whose body no worker could read | FAILED |
| anything else | a failure; the policy for it says when the next attempt comes; None: FAILED |
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from types import TracebackType

import msgspec

from pinlater.job_body import ITEM_HEADER, secret_values
from pinlater.log_guard import GuardedLogger
from pinlater.model import DequeuedJob
from pinlater.printable import printable
from pinlater_workers.envelope import next_body, read_envelope, write_envelope
from pinlater_workers.errors import BodyInvalid, ClaimLost, JobStopped, ResultInvalid, TimeLimitExceeded, TooManySnoozes
from pinlater_workers.execution.failure_text import (
    MAX_LINE_CHARS,
    describe,
    line_chars,
    loggable,
    one_line,
    trace_text,
    type_name,
)
from pinlater_workers.jobs.attempt_record import AttemptRecord
from pinlater_workers.jobs.context import JobContext, StopReason, attempt_number
from pinlater_workers.jobs.outcome import SUCCEEDED, Action, Fail, Outcome, Reschedule, Retry, Snooze
from pinlater_workers.jobs.retry import DEFAULT_RETRY, LONGEST_S
from pinlater_workers.jobs.settings import JobSettings

RANDOM = Random()
_log = GuardedLogger("pinlater_workers.execution")

_outcome_log = GuardedLogger("pinlater_workers.jobs")
_QUIET = {
    Action.SUCCEED: "succeeded",
    Action.SNOOZE: "is put off",
    Action.RESCHEDULE: "is done for now",
    Action.GIVE_BACK: "is requeued",
}


def decide(
    settings: JobSettings,
    job: DequeuedJob,
    error: BaseException,
    rng: Random | None = RANDOM,
    body: bytes | None = None,
    record: AttemptRecord | None = None,
) -> Outcome:
    """`body`: what the newest checkpoint stored, where there was one. `rng` None: delays without jitter. `record`: when
    and where it ran, for the job's status.
    """
    error = unwrap_group(error)
    failure = Failure(job, error, record)
    try:
        return _decide(settings, job, error, rng, job.body if body is None else body, failure)
    except BaseException as fault:
        if isinstance(fault, KeyboardInterrupt):
            raise
        _log.error("The retry policy of a job failed; the default one decides", exc_info=loggable(fault))
        after_s = DEFAULT_RETRY.default.delay_s(1, error, rng)
        return failure.outcome(after_s or 0.0, f"its retry policy failed: {describe(fault, 150)}")


def decide_stopped(
    settings: JobSettings,
    job: DequeuedJob,
    reason: StopReason,
    rng: Random | None = RANDOM,
    record: AttemptRecord | None = None,
    trace: TracebackType | None = None,
    text: str = "",
) -> Outcome:
    """For a job that its pool has ended: what is to be said in its place. `trace`: where it stood, if that is known.
    `text`: of one that is cancelled, by whom.
    """
    if reason is StopReason.CANCELLED:
        return decide_cancelled(job, text or StopReason.CANCELLED.value, None, record)
    if reason is StopReason.TIME_LIMIT:
        error: Exception = TimeLimitExceeded(f"it ran longer than {settings.time_limit_s:g} s")
    elif reason is StopReason.CLAIM_LOST:
        error = ClaimLost("another worker has it, or its queue is gone")
    else:
        return Outcome(Action.GIVE_BACK)
    return decide(settings, job, error.with_traceback(trace), rng, record=record)


def decide_cancelled(
    job: DequeuedJob, text: str, error: BaseException | None = None, record: AttemptRecord | None = None
) -> Outcome:
    """For a job that was asked to stop, and has not succeeded: `text` says by whom. No attempt follows, whatever it
    raised.
    """
    failure = Failure(job, unwrap_group(error or JobStopped(text)), record)
    return replace(failure.outcome(None, text), action=Action.CANCEL, error="") if error else failure.cancelled(text)


def decide_refused(job: DequeuedJob, refusal: Exception) -> Outcome:
    """For a job whose outcome no server takes: FAILED, as another attempt would end likewise."""
    return Failure(job, refusal.with_traceback(None), None).outcome(None)


class Failure:
    """A failed attempt, on its way into the job's status: a line, and its traceback where no attempt follows."""

    def __init__(self, job: DequeuedJob, error: BaseException, record: AttemptRecord | None) -> None:
        self._job = job
        self._error = error
        self._record = record

    def by(self, error: BaseException) -> Failure:
        """The same attempt, failed by that."""
        return Failure(self._job, error, self._record)

    def outcome(self, after_s: float | None, note: str = "") -> Outcome:
        """`after_s` None: FAILED. `note` comes behind what was raised."""
        job, error = self._job, self._error
        is_last = after_s is None or job.attempts_remaining <= 1
        secrets = secret_values(job.body)
        status = self._line(note, secrets, is_last=is_last)
        if is_last:
            status += trace_text(error, secrets=secrets)
        action = Action.FAIL if after_s is None else Action.RETRY
        return Outcome(action, delay_ms(after_s or 0.0), status, error=type_name(error))

    def cancelled(self, text: str) -> Outcome:
        """The attempt raised nothing of its own."""
        begins, ends = self._frame()
        return Outcome(Action.CANCEL, status=f"{one_line(begins + text, MAX_LINE_CHARS)}{ends}\n")

    def _frame(self) -> tuple[str, str]:
        """Which attempt; when and where."""
        job = self._job
        allowed = max(job.attempts_allowed, job.attempts_remaining)
        ends = f" [{one_line(self._record.text(), 120)}]" if self._record is not None else ""
        return f"attempt {attempt_number(job)} of {allowed}: ", ends

    def _line(self, note: str, secrets: Sequence[str], *, is_last: bool) -> str:
        """What people look for first comes first; when and where comes last, and is never cut."""
        job = self._job
        allowed = max(job.attempts_allowed, job.attempts_remaining)
        begins, ends = self._frame()
        more = f"; {note}" if note else ""
        most = MAX_LINE_CHARS if is_last else line_chars(allowed)
        text = describe(self._error, max(1, most - len(begins) - len(ends) - len(more)), secrets)
        return f"{one_line(begins + text + more, MAX_LINE_CHARS)}{ends}\n"


def unwrap_group(error: BaseException) -> BaseException:
    """An exception group of one is judged as that one: what a task group makes of a job's exception."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def delay_ms(delay_s: float) -> int:
    """Never early: rounded up."""
    return math.ceil(min(delay_s, LONGEST_S) * 1000)


def _decide(
    settings: JobSettings,
    job: DequeuedJob,
    error: BaseException,
    rng: Random | None,
    body: bytes,
    failure: Failure,
) -> Outcome:
    final = isinstance(error, Fail | BodyInvalid | ResultInvalid)
    try:
        if isinstance(error, Snooze):
            return _snooze(settings, error, body, failure)
        if isinstance(error, Reschedule):
            return _reschedule(settings, error, body)
    except (ValueError, TooManySnoozes) as wrong:  # another attempt would do its work again, and end likewise
        error, final = wrong.with_traceback(error.__traceback__), True
        failure = failure.by(error)
    return failure.outcome(None if final else _retry_s(settings, job, error, rng, body))


def _retry_s(
    settings: JobSettings, job: DequeuedJob, error: BaseException, rng: Random | None, body: bytes
) -> float | None:
    """A job has the fewer of the attempts that it was enqueued with, which the server counts, and its type's; but more
    than these where its body says so.
    """
    envelope = None if settings.raw else read_envelope(body)
    if envelope is not None and ITEM_HEADER in envelope.headers:
        return 0.0  # the stage of its flow says whether there is another attempt, and when
    attempt = attempt_number(job)
    allowed = settings.attempts
    if job.attempts_allowed > settings.attempts_allowed and envelope is not None:
        allowed = envelope.attempts or allowed
    if isinstance(error, Retry):
        if error.after_s is not None:
            return error.after_s if attempt < (allowed or settings.attempts_allowed) else None
        error = error.__cause__ or error
    return settings.retry.delay_s(attempt, error, rng, None if allowed is None else allowed - 1)


def _snooze(settings: JobSettings, error: Snooze, body: bytes, failure: Failure) -> Outcome:
    """TooManySnoozes."""
    envelope = None if settings.raw else read_envelope(body)
    if envelope is None:
        return failure.outcome(error.after_s)  # nowhere to count: the attempts bound it
    count = envelope.snoozes + 1
    if count > settings.max_snoozes:
        reason = f": {error.message}" if error.message else ""
        raise TooManySnoozes(f"put off {envelope.snoozes} times{reason}")
    stored = write_envelope(msgspec.structs.replace(envelope, snoozes=count))
    status = _line(f"snooze {count} of {settings.max_snoozes}", error.message)
    return Outcome(Action.SNOOZE, delay_ms(error.after_s), status, stored, type_name(error))


def _reschedule(settings: JobSettings, error: Reschedule, body: bytes) -> Outcome:
    """A round that begins anew: no snoozes, and no `body` where the stored one will do. ValueError: no such body."""
    stored = error.body
    old = None if settings.raw else read_envelope(body)
    if old is not None and (stored is not None or old.snoozes):
        stored = write_envelope(next_body(old, body if stored is None else stored, 0))
    status = _line("rescheduled", error.message) if error.message else ""
    return Outcome(Action.RESCHEDULE, delay_ms(error.after_s), status, stored, type_name(error))


def _line(what: str, text: str) -> str:
    return one_line(f"{what}: {text}" if text else what, MAX_LINE_CHARS) + "\n"


def log_outcome(context: JobContext, outcome: Outcome, error: BaseException | None = None) -> None:
    """Called where the job ran, with its context set. `error` is what it raised. Raises nothing: a filter or a handler
    of the app that fails does not change what became of the attempt.
    """
    if outcome is SUCCEEDED and not _outcome_log.isEnabledFor(logging.DEBUG):
        return
    with contextlib.suppress(Exception):
        _log_outcome(context, outcome, error)


def _log_outcome(context: JobContext, outcome: Outcome, error: BaseException | None) -> None:
    # also for an app with handlers of its own, which know nothing of names that are made to move a cursor
    job, status = printable(context.job), printable(_headline(outcome.status))
    if outcome.action in _QUIET:
        if _outcome_log.isEnabledFor(logging.DEBUG):
            more = f": {status}" if status else ""
            _outcome_log.debug("%s %s%s", job, _QUIET[outcome.action], more)
        return
    if outcome.action is Action.CANCEL:
        _outcome_log.info("%s was cancelled: %s", job, status)
        return
    is_last = outcome.action is Action.FAIL or context.attempts_left == 0
    end = "no attempt follows" if is_last else f"again in {outcome.delay_ms / 1000:g} s"
    shown = error if is_last or _outcome_log.isEnabledFor(logging.DEBUG) else None
    if shown is not None and secret_values(context.body):
        shown = None  # it may say what is secret; the one in the status does not
    _outcome_log.warning("%s failed, %s: %s", job, end, status, exc_info=shown and loggable(shown))


def _headline(status: str) -> str:
    """The first line without when and where, which a log says by itself."""
    line = status.partition("\n")[0]
    text, bracket, _ = line.rpartition(" [")
    return text if bracket and line.endswith("]") else line
