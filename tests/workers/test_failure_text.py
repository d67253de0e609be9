"""The text that a failed attempt leaves in its job's status: when and where it ran, and where its own code stood."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from pinlater.job_body import SECRET_HEADER
from pinlater.model import MAX_STATUS_CHARS
from pinlater.model.status_text import append_at, append_status
from pinlater_workers import App
from pinlater_workers.envelope import Envelope, write_envelope
from pinlater_workers.execution.decision import decide
from pinlater_workers.execution.failure_text import MAX_TRACE_CHARS, line_chars, trace_text
from pinlater_workers.jobs.attempt_record import AttemptRecord
from pinlater_workers.jobs.retry import Constant, RetryRules
from pinlater_workers.jobs.settings import JobSettings
from tests.workers.attempts import QUEUE, attempt, claimed

SETTINGS = JobSettings(QUEUE, retry=RetryRules(Constant(30, retries=100)))
RECORD = AttemptRecord(1795392552000, 1.24, "web-1:4711")
ENDS = " [2026-11-23T00:09:12Z, 1.2s, web-1:4711]"
FACTS = r" \[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ, \d+ms, \S+:\d+\]\n"


def raised(function: Callable[[], object]) -> BaseException:
    try:
        function()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def deliver() -> None:
    json.loads("{")


def send() -> None:
    try:
        deliver()
    except ValueError as error:
        raise ConnectionError("mx1 refused") from error


def deep(left: int) -> None:
    if not left:
        raise ValueError("at the bottom")
    deep(left - 1)


def status(error: BaseException, *, allowed: int = 5, remaining: int = 5, body: bytes = b"") -> str:
    return decide(SETTINGS, claimed(body, allowed=allowed, remaining=remaining), error, None, record=RECORD).status


def test_a_line_says_which_attempt_what_was_raised_when_and_where() -> None:
    assert status(ValueError("no such size")) == f"attempt 1 of 5: ValueError: no such size{ENDS}\n"


def test_when_and_where_are_never_cut_and_the_lines_of_many_attempts_are_shorter() -> None:
    for allowed, most in ((1, 500), (4, 500), (11, 209), (1_000, 160)):
        assert line_chars(allowed) == most
        line = status(ValueError("x" * 1_000), allowed=allowed, remaining=max(2, allowed))
        assert line.endswith(f"...{ENDS}\n")
        assert most - 1 <= len(line) - 1 <= most


def test_the_records_of_a_job_with_the_default_attempts_fit_into_its_status() -> None:
    kept = ""
    for remaining in range(11, 0, -1):
        error = raised(send) if remaining > 1 else raised(lambda: deep(300))
        text = status(error, allowed=11, remaining=remaining)
        assert len(kept) + len(text) < MAX_STATUS_CHARS
        kept = append_status(kept, *append_at(text))
    assert [int(number) for number in re.findall(r"^attempt (\d+) of 11: ", kept, re.MULTILINE)] == list(range(1, 12))


def test_the_last_failure_has_a_traceback_of_the_jobs_own_code_and_the_others_have_none() -> None:
    error = raised(send)
    assert "\n " not in status(error)
    line, *trace = status(error, remaining=1).splitlines()
    at, where = send.__code__.co_firstlineno + 4, deliver.__code__.co_firstlineno + 1
    assert line.startswith(
        "attempt 5 of 5: ConnectionError: mx1 refused, from JSONDecodeError: Expecting property name "
    )
    assert line.endswith(f"(char 1) (test_failure_text.py:{at} in send){ENDS}")
    assert trace[0].endswith(", in raised")
    assert trace[2:4] == [
        f'  File "{__file__}", line {at}, in send',
        '    raise ConnectionError("mx1 refused") from error',
    ]
    assert trace[4].startswith("  caused by JSONDecodeError: Expecting property name")
    assert trace[7:9] == [f'  File "{__file__}", line {where}, in deliver', '    json.loads("{")']
    assert re.fullmatch(r"  \.\.\. \d frames of json, down to decoder\.py:\d+ in raw_decode", trace[9])


def test_of_a_long_traceback_the_innermost_frames_stay() -> None:
    for depth in (300, 5_000):
        text = trace_text(raised(lambda depth=depth: deep(depth)))  # type: ignore[misc]
        assert len(text) <= MAX_TRACE_CHARS
        assert len(text) > MAX_TRACE_CHARS - 300
        assert re.match(r"  \.\.\. \d+ outer frames\n  File ", text)
        assert text.endswith('    raise ValueError("at the bottom")\n' if depth == 300 else "    deep(left - 1)\n")


def test_what_was_being_handled_and_the_parts_of_a_group_are_named() -> None:
    def handles() -> None:
        try:
            raise KeyError("k")
        except KeyError:
            raise ValueError("v")  # noqa: B904

    assert "\n  while handling KeyError: 'k'\n" in trace_text(raised(handles))
    group = ExceptionGroup("tasks", [raised(deliver), raised(handles)])  # type: ignore[list-item]
    text = trace_text(group)
    assert "  1 of 2: JSONDecodeError: " in text
    assert "  2 of 2: ValueError: v\n" in text


def test_an_exception_without_a_traceback_has_none() -> None:
    assert trace_text(ValueError("x")) == ""


def test_no_line_of_a_traceback_is_forged() -> None:
    code = compile("raise ValueError", "/srv/\x1b[2J\nattempt 9 of 9.py", "exec")
    text = trace_text(raised(lambda: exec(code, {})))
    assert "\x1b" not in text
    assert all(line.startswith("  ") for line in text.splitlines())


def test_secret_arguments_stand_in_no_status() -> None:
    headers = {SECRET_HEADER: "1 token"}
    body = write_envelope(Envelope("login", ["ada", "hunter2"], {"token": {"key": "t0psecret"}, "to": "mx"}, headers))

    def fails() -> None:
        try:
            raise KeyError("t0psecret")
        except KeyError as error:
            raise ValueError("hunter2 of ada is wrong") from error

    text = status(raised(fails), remaining=1, body=body)
    assert "hunter2" not in text.replace('raise ValueError("hunter2 of ada is wrong")', "")
    assert "attempt 5 of 5: ValueError: *** of ada is wrong, from KeyError: '***' (" in text
    assert "  caused by KeyError: '***'\n" in text


def test_an_attempt_that_ran_says_when_and_on_which_worker() -> None:
    app = App(servers=["127.0.0.1:1"])

    @app.job(queue=QUEUE)
    def breaks() -> None:
        raise ValueError("x")

    assert re.fullmatch(
        rf"attempt 1 of 5: ValueError: x \(test_failure_text\.py:\d+ in breaks\){FACTS}", attempt(breaks).status
    )
    last = attempt(breaks, remaining=1).status
    assert re.match(rf"attempt 5 of 5: ValueError: x \(.* in breaks\){FACTS}  File ", last)
    assert last.endswith('in breaks\n    raise ValueError("x")\n')


@pytest.mark.parametrize("name", ["thread", "async"])
def test_frames_of_the_framework_that_made_the_call_are_left_out(name: str) -> None:
    app = App(servers=["127.0.0.1:1"])

    @app.job(queue=QUEUE)
    def plain() -> None:
        deliver()

    @app.job(queue=QUEUE)
    async def coroutine() -> None:
        deliver()

    text = attempt(plain if name == "thread" else coroutine, remaining=1).status
    assert "pinlater_workers" not in text
    assert text.count("  File ") == 2
