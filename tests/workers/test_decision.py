"""What becomes of an attempt that raised something."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater.model import DequeuedJob
from pinlater_workers.envelope import Envelope, read_envelope, write_envelope
from pinlater_workers.errors import ArgumentsInvalid, BodyInvalid, ProcessDied, WorkerError
from pinlater_workers.execution.decision import decide, decide_stopped
from pinlater_workers.execution.failure_text import MAX_LINE_CHARS, MAX_TRACE_CHARS
from pinlater_workers.jobs.context import StopReason
from pinlater_workers.jobs.outcome import Action, Fail, Outcome, Reschedule, Retry, Snooze
from pinlater_workers.jobs.retry import Constant, Default, Function, Never, RetryRules
from pinlater_workers.jobs.settings import JobSettings
from tests.workers.attempts import claimed

RULES = RetryRules(Constant(30, retries=3), {KeyError: Never(), ConnectionError: Constant(5, retries=8)})
SETTINGS = JobSettings("tested", retry=RULES)


def on_attempt(number: int, body: bytes = b"", *, allowed: int = 9) -> DequeuedJob:
    return claimed(body, allowed=allowed, remaining=allowed - number + 1)


def outcome(error: BaseException, number: int = 1, body: bytes = b"", settings: JobSettings = SETTINGS) -> Outcome:
    return decide(settings, on_attempt(number, body), error, None)


def envelope(snoozes: int = 0) -> Envelope:
    return Envelope("job", [1], {"b": 2}, {"traceparent": "t"}, snoozes)


# -- retries -----------------------------------------------------------------------------------------------------------


def test_an_exception_is_a_failure_and_the_policy_says_when_to_try_again() -> None:
    found = outcome(ValueError("no such size"))
    assert (found.action, found.delay_ms, found.error) == (Action.RETRY, 30_000, "ValueError")
    assert found.status == "attempt 1 of 9: ValueError: no such size\n"


@pytest.mark.parametrize("after", [300, "5m", "300", timedelta(minutes=5)])
def test_what_a_job_raises_takes_seconds_a_text_or_a_timedelta(after: float | str | timedelta) -> None:
    raised = (Retry(after=after), Snooze(after), Reschedule(after))
    assert [error.after_s for error in raised] == [300, 300, 300]
    assert [pickle.loads(pickle.dumps(error)).after_s for error in raised] == [300, 300, 300]
    for kind in (lambda: Retry(after="soon"), lambda: Snooze("soon"), lambda: Reschedule("soon")):
        with pytest.raises(ValueError, match=r"a delay of 'soon'; allowed: 0 seconds or more, a text as in 30s, 10m"):
            kind()


def test_the_policy_for_the_type_of_exception_counts() -> None:
    assert outcome(ConnectionRefusedError()).delay_ms == 5_000
    assert outcome(KeyError()).action is Action.FAIL


def test_without_a_delay_from_the_policy_it_fails() -> None:
    assert outcome(ValueError(), 3).action is Action.RETRY
    assert outcome(ValueError(), 4).action is Action.FAIL
    assert outcome(ConnectionError(), 8).action is Action.RETRY


def test_attempts_that_the_body_says_count_instead_of_those_of_the_type() -> None:
    settings = JobSettings("tested", attempts=3, retry=RULES)
    body = write_envelope(Envelope("job", attempts=6))
    for error in (ValueError(), Retry(after=1)):
        assert outcome(error, 3, settings=settings).action is Action.FAIL
        assert outcome(error, 5, body, settings).action is Action.RETRY
        assert outcome(error, 6, body, settings).action is Action.FAIL
    assert outcome(KeyError(), 1, body, settings).action is Action.FAIL, "the policy for a type of exception stays"
    assert outcome(ValueError(), 5, b"no envelope", settings).action is Action.FAIL


def test_attempts_of_the_type_count_instead_of_the_retries_of_its_policy() -> None:
    settings = JobSettings("tested", attempts=6, retry=RULES)
    assert outcome(ValueError(), 5, settings=settings).action is Action.RETRY
    assert outcome(ValueError(), 6, settings=settings).action is Action.FAIL


def test_a_job_that_an_operator_gave_more_attempts_is_at_its_first() -> None:
    found = decide(SETTINGS, claimed(allowed=2, remaining=7), ValueError(), None)
    assert (found.action, found.status) == (Action.RETRY, "attempt 1 of 7: ValueError\n")


def test_delays_are_rounded_up_to_whole_milliseconds() -> None:
    settings = JobSettings("tested", retry=RetryRules(Constant(0.0012)))
    assert outcome(ValueError(), settings=settings).delay_ms == 2


def test_arguments_that_do_not_fit_are_tried_again_and_bodies_that_cannot_be_read_are_not() -> None:
    assert outcome(ArgumentsInvalid("size is missing")).action is Action.RETRY
    assert outcome(BodyInvalid("cut off")).action is Action.FAIL
    assert outcome(ProcessDied("killed by signal 9")).action is Action.RETRY


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), MemoryError(), asyncio.CancelledError()])
def test_exceptions_that_would_end_a_process_are_failures_like_others(error: BaseException) -> None:
    assert outcome(error).action is Action.RETRY


def test_an_exception_group_of_one_counts_as_that_one() -> None:
    assert outcome(ExceptionGroup("tasks", [ExceptionGroup("more", [KeyError("k")])])).action is Action.FAIL
    assert outcome(BaseExceptionGroup("tasks", [Fail("never")])).error == "Fail"
    found = outcome(ExceptionGroup("tasks", [KeyError(), ValueError()]))
    assert (found.action, found.error) == (Action.RETRY, "ExceptionGroup")


# -- signals -----------------------------------------------------------------------------------------------------------


def test_retry_after_is_exact() -> None:
    found = outcome(Retry("busy", after=timedelta(seconds=1.5)))
    assert (found.action, found.delay_ms) == (Action.RETRY, 1_500)
    assert found.status == "attempt 1 of 9: Retry: busy\n"


def test_retry_after_spends_attempts_of_the_type() -> None:
    settings = JobSettings("tested", attempts=3)
    assert outcome(Retry(after=1), 2, settings=settings).action is Action.RETRY
    assert outcome(Retry(after=1), 3, settings=settings).action is Action.FAIL


def test_retry_leaves_the_delay_to_the_policy_for_what_it_was_raised_from() -> None:
    assert outcome(Retry()).delay_ms == 30_000
    with pytest.raises(Retry) as raised:
        raise Retry("later") from ConnectionError("refused")
    found = outcome(raised.value)
    assert found.delay_ms == 5_000
    assert found.status.startswith("attempt 1 of 9: Retry: later, from ConnectionError: refused (test_decision.py:")


def test_fail_is_final() -> None:
    found = outcome(Fail("no such user"))
    assert (found.action, found.status) == (Action.FAIL, "attempt 1 of 9: Fail: no such user\n")


def test_a_snooze_is_counted_in_the_body_and_changes_nothing_else_of_it() -> None:
    found = outcome(Snooze(60, "not open yet"), 2, write_envelope(envelope(4)))
    assert (found.action, found.delay_ms, found.status) == (Action.SNOOZE, 60_000, "snooze 5 of 100: not open yet\n")
    assert found.body == write_envelope(envelope(5))


def test_too_many_snoozes_fail() -> None:
    settings = JobSettings("tested", max_snoozes=2)
    assert outcome(Snooze(1), body=write_envelope(envelope(1)), settings=settings).action is Action.SNOOZE
    found = outcome(Snooze(1, "closed"), body=write_envelope(envelope(2)), settings=settings)
    assert (found.action, found.error) == (Action.FAIL, "TooManySnoozes")
    assert found.status == "attempt 1 of 9: TooManySnoozes: put off 2 times: closed\n"


def test_a_raw_job_spends_an_attempt_on_a_snooze() -> None:
    raw = JobSettings("tested", raw=True)
    for body in (b"\xff\x00", write_envelope(envelope()), b"PINLATER/1 application/json\n{"):
        found = outcome(Snooze(60), body=body, settings=raw)
        assert (found.action, found.delay_ms, found.body) == (Action.RETRY, 60_000, None)


def test_a_snooze_counts_on_in_what_a_checkpoint_stored() -> None:
    job = on_attempt(1, write_envelope(envelope(1)))
    stored = Envelope("job", [2], {}, {"traceparent": "t"}, 1)
    found = decide(SETTINGS, job, Snooze(1), None, write_envelope(stored))
    assert found.body == write_envelope(Envelope("job", [2], {}, {"traceparent": "t"}, 2))


def test_reschedule_needs_no_body_and_no_status() -> None:
    found = outcome(Reschedule(timedelta(hours=1)), body=write_envelope(envelope()))
    assert found == Outcome(Action.RESCHEDULE, 3_600_000, error="Reschedule")


def test_reschedule_begins_anew_with_no_snoozes() -> None:
    found = outcome(Reschedule(1, message="round 2"), body=write_envelope(envelope(7)))
    assert (found.body, found.status) == (write_envelope(envelope(0)), "rescheduled: round 2\n")


def test_reschedule_with_a_body_keeps_the_headers() -> None:
    body = write_envelope(Envelope("job", [2], encoding="msgpack"))
    found = outcome(Reschedule(1, body=body), body=write_envelope(envelope(7)))
    assert found.body is not None
    assert read_envelope(found.body) == Envelope("job", [2], {}, {"traceparent": "t"}, 0, "msgpack")
    raw = JobSettings("tested", raw=True)
    assert outcome(Reschedule(1, body=b"\x01"), body=b"\x00", settings=raw).body == b"\x01"


@pytest.mark.parametrize("body", [b"", b"no envelope", b"PINLATER/1 application/json\n{"])
def test_reschedule_with_a_body_that_no_worker_could_run_is_a_failure(body: bytes) -> None:
    found = outcome(Reschedule(1, body=body), body=write_envelope(envelope()))
    assert (found.action, found.error, found.body) == (Action.FAIL, "ValueError", None)
    assert "a new body for job job" in found.status


def test_delays_beyond_all_bounds_fit_into_a_time() -> None:
    for error in (Retry(after=1e300), Snooze(1e300), Reschedule(1e300)):
        assert 0 < outcome(error, body=write_envelope(envelope())).delay_ms < 2**52


# -- what the pool ended -----------------------------------------------------------------------------------------------


def test_what_the_pool_has_stopped() -> None:
    job = on_attempt(2)
    late = decide_stopped(SETTINGS, job, StopReason.TIME_LIMIT, None)
    assert (late.action, late.delay_ms) == (Action.RETRY, 30_000)
    assert late.status == "attempt 2 of 9: TimeLimitExceeded: it ran longer than 3600 s\n"
    assert decide_stopped(SETTINGS, job, StopReason.CLAIM_LOST).error == "ClaimLost"
    assert decide_stopped(SETTINGS, job, StopReason.STOPPING) == Outcome(Action.GIVE_BACK)


# -- a policy that fails -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", [ZeroDivisionError("oh"), SystemExit(1), asyncio.CancelledError()])
def test_a_policy_that_fails_leaves_it_to_the_default_one(trouble: BaseException) -> None:
    def answer(_attempt: int, _error: BaseException) -> float:
        raise trouble

    found = outcome(ValueError("x"), settings=JobSettings("tested", retry=RetryRules(Function(answer))))
    assert (found.action, found.delay_ms) == (Action.RETRY, 10_000)
    assert found.status.startswith("attempt 1 of 9: ValueError: x; its retry policy failed: ")
    assert f"{type(trouble).__name__}" in found.status


def test_a_policy_that_answers_with_nonsense_leaves_it_to_the_default_one() -> None:
    settings = JobSettings("tested", retry=RetryRules(Function(lambda *_: -5.0)))
    assert outcome(ValueError(), settings=settings).delay_ms == 10_000


def test_ctrl_c_passes() -> None:
    def answer(_attempt: int, _error: BaseException) -> float:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        outcome(ValueError(), settings=JobSettings("tested", retry=RetryRules(Function(answer))))


# -- the status line ---------------------------------------------------------------------------------------------------


def shrink(size: int) -> None:
    raise ValueError(f"no such size: {size}")


def test_the_place_is_the_innermost_line_of_the_jobs_own_code() -> None:
    with pytest.raises(ValueError, match="no such size") as raised:
        shrink(3)
    line = shrink.__code__.co_firstlineno + 1
    assert outcome(raised.value).status == (
        f"attempt 1 of 9: ValueError: no such size: 3 (test_decision.py:{line} in shrink)\n"
    )


def test_lines_of_libraries_and_of_the_framework_are_no_places() -> None:
    with pytest.raises(FileNotFoundError) as raised:
        Path("/no/such/file").read_text()
    assert " in test_lines_of_libraries" in outcome(raised.value).status
    with pytest.raises(ValueError, match="allowed") as refused:
        Retry(after=-1)
    assert " in test_lines_of_libraries" in outcome(refused.value).status


class Nasty(Exception):
    """Its text is whatever a test says."""

    def __init__(self, text: object) -> None:
        self.text = text

    def __str__(self) -> str:
        if isinstance(self.text, BaseException):
            raise self.text
        return self.text


@pytest.mark.parametrize("text", [None, 3, b"bytes", RecursionError(), SystemExit(2), Nasty(Nasty(1))])
def test_an_exception_whose_text_cannot_be_had(text: object) -> None:
    found = outcome(Nasty(text))
    assert found.action is Action.RETRY
    assert found.status.startswith("attempt 1 of 9: Nasty: (its text cannot be had: ")


def test_a_status_is_one_short_line() -> None:
    found = outcome(ValueError("one\n\ttwo\x00three \ud800 " + "x" * 100_000))
    assert found.status.startswith("attempt 1 of 9: ValueError: one two\ufffdthree \ufffd xxx")
    assert found.status.endswith("...\n")


@given(st.text(st.characters(codec=None), max_size=600), st.integers(1, 10**9), st.booleans())
def test_any_text_makes_a_bounded_line_that_can_be_sent(text: str, number: int, caused: bool) -> None:
    kind = type("E" * 300, (Exception,), {})
    error = kind(text)
    if caused:
        error.__cause__ = ValueError(text)
    with contextlib.suppress(kind):
        raise error
    for each in (error, Retry(text), Fail(text), Snooze(1, text), Reschedule(1, message=text), WorkerError(text)):
        found = decide(SETTINGS, claimed(write_envelope(envelope()), allowed=number), each, None)
        line, *trace = found.status.splitlines() or [""]
        assert len(line) <= MAX_LINE_CHARS
        assert len(found.error) <= 100
        found.status.encode()
        assert found.status.count("\n") == len(found.status.splitlines())
        assert all(each.startswith("  ") for each in trace)
        assert len(found.status) <= MAX_LINE_CHARS + MAX_TRACE_CHARS + 1


def test_the_default_policy_has_jitter() -> None:
    settings = JobSettings("tested", retry=RetryRules(Default()))
    delays = {decide(settings, on_attempt(5), ValueError()).delay_ms for _ in range(20)}
    assert len(delays) > 1
    assert all(45_000 <= delay <= 55_000 for delay in delays)
