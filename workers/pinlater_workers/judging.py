"""What becomes of an attempt that raised something. Never raises, whatever was raised and whatever a policy does.

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

import logging
import math
from random import Random

import msgspec

from pinlater.model import DequeuedJob
from pinlater_workers.envelope import read_envelope, write_envelope
from pinlater_workers.errors import BodyInvalid, ClaimLost, TimeLimitExceeded, TooManySnoozes
from pinlater_workers.failure_text import MAX_LINE_CHARS, describe, one_line, type_name
from pinlater_workers.job_settings import JobSettings
from pinlater_workers.raised import Fail, Reschedule, Retry, Snooze
from pinlater_workers.renewing import renewed
from pinlater_workers.retry import DEFAULT_RETRY, LONGEST_S
from pinlater_workers.running import Why, attempt_number
from pinlater_workers.verdict import Action, Verdict

RANDOM = Random()
_log = logging.getLogger(__name__)


def judge(
    settings: JobSettings,
    job: DequeuedJob,
    error: BaseException,
    rng: Random | None = RANDOM,
    body: bytes | None = None,
) -> Verdict:
    """`body`: what the newest checkpoint stored, where there was one. `rng` None: delays without jitter."""
    error = alone(error)
    try:
        return _judge(settings, job, error, rng, job.body if body is None else body)
    except BaseException as trouble:
        if isinstance(trouble, KeyboardInterrupt):
            raise
        _log.exception("The retry policy of a job failed; the default one decides")
        after_s = DEFAULT_RETRY.default.delay_s(1, error, rng)
        status = _status(job, f"{describe(error, 300)}; its retry policy failed: {describe(trouble, 150)}")
        return Verdict(Action.RETRY, delay_ms(after_s or 0.0), status, error=type_name(error))


def stopped(settings: JobSettings, job: DequeuedJob, why: Why, rng: Random | None = RANDOM) -> Verdict:
    """For a job that its pool has ended: what is to be said in its place."""
    if why is Why.TIME_LIMIT:
        return judge(settings, job, TimeLimitExceeded(f"it ran longer than {settings.time_limit_s:g} s"), rng)
    if why is Why.CLAIM_LOST:
        return judge(settings, job, ClaimLost("another worker has it, or its queue is gone"), rng)
    return Verdict(Action.GIVE_BACK)


def alone(error: BaseException) -> BaseException:
    """An exception group of one is judged as that one: what a task group makes of a job's exception."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def delay_ms(delay_s: float) -> int:
    """Never early: rounded up."""
    return math.ceil(min(delay_s, LONGEST_S) * 1000)


def _judge(settings: JobSettings, job: DequeuedJob, error: BaseException, rng: Random | None, body: bytes) -> Verdict:
    try:
        if isinstance(error, Snooze):
            return _snooze(settings, job, error, body)
        if isinstance(error, Reschedule):
            return _reschedule(settings, error, body)
    except (ValueError, TooManySnoozes) as wrong:
        error = wrong.with_traceback(error.__traceback__)
    final = isinstance(error, Fail | BodyInvalid | TooManySnoozes)
    after_s = None if final else _retry_s(settings, job, error, rng)
    status = _status(job, describe(error))
    if after_s is None:
        return Verdict(Action.FAIL, 0, status, error=type_name(error))
    return Verdict(Action.RETRY, delay_ms(after_s), status, error=type_name(error))


def _retry_s(settings: JobSettings, job: DequeuedJob, error: BaseException, rng: Random | None) -> float | None:
    """A job has the fewer of the attempts that it was enqueued with, which the server counts, and its type's."""
    attempt = attempt_number(job)
    if isinstance(error, Retry):
        if error.after_s is not None:
            return error.after_s if attempt < settings.attempts_allowed else None
        error = error.__cause__ or error
    retries = None if settings.attempts is None else settings.attempts - 1
    return settings.retry.delay_s(attempt, error, rng, retries)


def _snooze(settings: JobSettings, job: DequeuedJob, error: Snooze, body: bytes) -> Verdict:
    """TooManySnoozes."""
    envelope = None if settings.raw else read_envelope(body)
    if envelope is None:
        # nowhere to count: the attempts bound it
        return Verdict(Action.RETRY, delay_ms(error.after_s), _status(job, describe(error)), error=type_name(error))
    count = envelope.snoozes + 1
    if count > settings.max_snoozes:
        why = f": {error.message}" if error.message else ""
        raise TooManySnoozes(f"put off {envelope.snoozes} times{why}")
    stored = write_envelope(msgspec.structs.replace(envelope, snoozes=count))
    status = _line(f"snooze {count} of {settings.max_snoozes}", error.message)
    return Verdict(Action.SNOOZE, delay_ms(error.after_s), status, stored, type_name(error))


def _reschedule(settings: JobSettings, error: Reschedule, body: bytes) -> Verdict:
    """A round that begins anew: no snoozes, and no `body` where the stored one will do. ValueError: no such body."""
    stored = error.body
    old = None if settings.raw else read_envelope(body)
    if old is not None and (stored is not None or old.snoozes):
        stored = write_envelope(renewed(old, body if stored is None else stored, 0))
    status = _line("rescheduled", error.message) if error.message else ""
    return Verdict(Action.RESCHEDULE, delay_ms(error.after_s), status, stored, type_name(error))


def _status(job: DequeuedJob, text: str) -> str:
    allowed = max(job.attempts_allowed, job.attempts_remaining)
    return _line(f"attempt {attempt_number(job)} of {allowed}", text)


def _line(what: str, text: str) -> str:
    return one_line(f"{what}: {text}" if text else what, MAX_LINE_CHARS) + "\n"
