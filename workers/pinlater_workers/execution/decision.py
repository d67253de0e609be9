"""The outcome of an attempt that raised something, and its line in the log. Never raises, whatever a policy does.

| raised | becomes |
| --- | --- |
| Retry(after=...) | a failure; the next attempt comes then |
| Retry() | a failure; the policy for what it was raised from, else for Retry itself, says when |
| Fail | FAILED |
| Snooze | back to PENDING without spending an attempt, counted in the body; too often: FAILED |
| Reschedule | back to PENDING with all attempts, the count of snoozes at 0 |
| BodyInvalid | FAILED |
| anything else | a failure; the policy for it says when the next attempt comes; None: FAILED |
"""

from __future__ import annotations

import contextlib
import logging
import math
import sysconfig
from random import Random
from types import CodeType, FrameType, TracebackType

import msgspec

from pinlater.model import DequeuedJob
from pinlater.printable import printable
from pinlater_workers.envelope import next_body, read_envelope, write_envelope
from pinlater_workers.errors import BodyInvalid, ClaimLost, TimeLimitExceeded, TooManySnoozes
from pinlater_workers.jobs.context import JobContext, StopReason, attempt_number
from pinlater_workers.jobs.outcome import SUCCEEDED, Action, Fail, Outcome, Reschedule, Retry, Snooze
from pinlater_workers.jobs.retry import DEFAULT_RETRY, LONGEST_S
from pinlater_workers.jobs.settings import JobSettings

RANDOM = Random()
_log = logging.getLogger("pinlater_workers.execution")

_outcome_log = logging.getLogger("pinlater_workers.jobs")
_QUIET = {
    Action.SUCCEED: "succeeded",
    Action.SNOOZE: "is put off",
    Action.RESCHEDULE: "is done for now",
    Action.GIVE_BACK: "is requeued",
}
MAX_LINE_CHARS = 500
MAX_TEXT_CHARS = 450
"""Leaves room for what stands before it in its line."""
MAX_TYPE_CHARS = 100
_MAX_FRAMES = 10_000
_FRAMEWORK = ("pinlater", "pinlater_workers")
_LIBRARIES = ("/site-packages/", "/dist-packages/", sysconfig.get_path("stdlib") + "/")


def decide(
    settings: JobSettings,
    job: DequeuedJob,
    error: BaseException,
    rng: Random | None = RANDOM,
    body: bytes | None = None,
) -> Outcome:
    """`body`: what the newest checkpoint stored, where there was one. `rng` None: delays without jitter."""
    error = unwrap_group(error)
    try:
        return _decide(settings, job, error, rng, job.body if body is None else body)
    except BaseException as trouble:
        if isinstance(trouble, KeyboardInterrupt):
            raise
        _log.exception("The retry policy of a job failed; the default one decides")
        after_s = DEFAULT_RETRY.default.delay_s(1, error, rng)
        status = _status(job, f"{describe(error, 300)}; its retry policy failed: {describe(trouble, 150)}")
        return Outcome(Action.RETRY, delay_ms(after_s or 0.0), status, error=type_name(error))


def decide_stopped(settings: JobSettings, job: DequeuedJob, reason: StopReason, rng: Random | None = RANDOM) -> Outcome:
    """For a job that its pool has ended: what is to be said in its place."""
    if reason is StopReason.TIME_LIMIT:
        return decide(settings, job, TimeLimitExceeded(f"it ran longer than {settings.time_limit_s:g} s"), rng)
    if reason is StopReason.CLAIM_LOST:
        return decide(settings, job, ClaimLost("another worker has it, or its queue is gone"), rng)
    return Outcome(Action.GIVE_BACK)


def unwrap_group(error: BaseException) -> BaseException:
    """An exception group of one is judged as that one: what a task group makes of a job's exception."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def delay_ms(delay_s: float) -> int:
    """Never early: rounded up."""
    return math.ceil(min(delay_s, LONGEST_S) * 1000)


def _decide(settings: JobSettings, job: DequeuedJob, error: BaseException, rng: Random | None, body: bytes) -> Outcome:
    try:
        if isinstance(error, Snooze):
            return _snooze(settings, job, error, body)
        if isinstance(error, Reschedule):
            return _reschedule(settings, error, body)
    except (ValueError, TooManySnoozes) as wrong:
        error = wrong.with_traceback(error.__traceback__)
    final = isinstance(error, Fail | BodyInvalid | TooManySnoozes)
    after_s = None if final else _retry_s(settings, job, error, rng, body)
    status = _status(job, describe(error))
    if after_s is None:
        return Outcome(Action.FAIL, 0, status, error=type_name(error))
    return Outcome(Action.RETRY, delay_ms(after_s), status, error=type_name(error))


def _retry_s(
    settings: JobSettings, job: DequeuedJob, error: BaseException, rng: Random | None, body: bytes
) -> float | None:
    """A job has the fewer of the attempts that it was enqueued with, which the server counts, and its type's; but more
    than these where its body says so.
    """
    attempt = attempt_number(job)
    allowed = settings.attempts
    if job.attempts_allowed > settings.attempts_allowed and not settings.raw:
        envelope = read_envelope(body)
        allowed = envelope.attempts or allowed if envelope is not None else allowed
    if isinstance(error, Retry):
        if error.after_s is not None:
            return error.after_s if attempt < (allowed or settings.attempts_allowed) else None
        error = error.__cause__ or error
    return settings.retry.delay_s(attempt, error, rng, None if allowed is None else allowed - 1)


def _snooze(settings: JobSettings, job: DequeuedJob, error: Snooze, body: bytes) -> Outcome:
    """TooManySnoozes."""
    envelope = None if settings.raw else read_envelope(body)
    if envelope is None:
        # nowhere to count: the attempts bound it
        return Outcome(Action.RETRY, delay_ms(error.after_s), _status(job, describe(error)), error=type_name(error))
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


def _status(job: DequeuedJob, text: str) -> str:
    allowed = max(job.attempts_allowed, job.attempts_remaining)
    return _line(f"attempt {attempt_number(job)} of {allowed}", text)


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
    job, status = printable(context.job), printable(outcome.status.rstrip())
    if outcome.action in _QUIET:
        if _outcome_log.isEnabledFor(logging.DEBUG):
            more = f": {status}" if status else ""
            _outcome_log.debug("%s %s%s", job, _QUIET[outcome.action], more)
        return
    is_last = outcome.action is Action.FAIL or context.attempts_left == 0
    end = "no attempt follows" if is_last else f"again in {outcome.delay_ms / 1000:g} s"
    shown = error if is_last or _outcome_log.isEnabledFor(logging.DEBUG) else None
    _outcome_log.warning("%s failed, %s: %s", job, end, status, exc_info=shown)


def type_name(error: BaseException) -> str:
    return one_line(type(error).__qualname__, MAX_TYPE_CHARS)


def describe(error: BaseException, most: int = MAX_TEXT_CHARS) -> str:
    """Type, message and place, in `most` characters; one that was raised `from` another names that too."""
    text = _type_and_message(error)
    if error.__cause__ is not None:
        text = f"{text}, from {_type_and_message(error.__cause__)}"
    place = where(error)
    end = f" ({place})" if place else ""
    return one_line(text, most - len(end)) + end


def where(error: BaseException) -> str:
    """The innermost line of the job's own code, which is neither a library's nor the framework's; "" for none."""
    try:
        return _where(error.__traceback__)
    except Exception:
        return ""


def one_line(text: str, most: int) -> str:
    """Without line ends, control characters, and what is no character in UTF-8; cut to `most` characters."""
    text = " ".join(text[: 4 * most].split())
    if not text.isprintable():
        text = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return text if len(text) <= most else text[: max(0, most - 3)] + "..."


def _type_and_message(error: BaseException) -> str:
    try:
        message = one_line(str(error), MAX_LINE_CHARS)
    except BaseException as trouble:
        message = f"(its text cannot be had: {type(trouble).__name__})"
    return f"{type_name(error)}: {message}" if message else type_name(error)


def _where(trace: TracebackType | None) -> str:
    """Code is the job's own if it is of the function's package, or of no library."""
    own = ""
    package = None
    for _ in range(_MAX_FRAMES):
        if trace is None:
            break
        frame, code, line = trace.tb_frame, trace.tb_frame.f_code, trace.tb_lineno
        top = _package(frame)
        if top not in _FRAMEWORK:
            package = package or top
            if top == package or not _of_library(code):
                own = f"{code.co_filename.rpartition('/')[2]}:{line} in {code.co_name}"
        trace = trace.tb_next
    return one_line(own, 100)


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _of_library(code: CodeType) -> bool:
    return code.co_filename.startswith("<frozen ") or any(part in code.co_filename for part in _LIBRARIES)
