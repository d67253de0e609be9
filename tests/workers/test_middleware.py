"""What runs around every job."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import pytest

from pinlater.model import JobState
from pinlater_workers import testing
from pinlater_workers.app import App
from pinlater_workers.errors import ArgumentsInvalid
from pinlater_workers.jobs.context import JobContext, current
from pinlater_workers.jobs.job_type import JobType
from pinlater_workers.jobs.outcome import Action, Fail, Outcome, Snooze
from pinlater_workers.middleware import Middleware
from tests.workers.attempts import attempt


class Told(Middleware):
    """Writes down what it is told, and raises where it is to."""

    def __init__(self, name: str, log: list[str], **errors: Exception) -> None:
        self.name = name
        self.log = log
        self.errors = errors

    def enqueue(self, headers: MutableMapping[str, str], job_name: str) -> None:
        headers[self.name] = job_name
        self._say("enqueue")

    def before(self, context: JobContext) -> None:
        assert current() is context
        self._say("before")

    def after(self, context: JobContext, result: Any) -> None:
        self._say("after", result)

    def error(self, context: JobContext, exception: BaseException, outcome: Outcome) -> None:
        self._say("error", type(exception).__name__, outcome.action.name)

    def _say(self, what: str, *more: object) -> None:
        self.log.append(" ".join(map(str, (self.name, what, *more))))
        if what in self.errors:
            raise self.errors[what]


def jobs_with(*middleware: Middleware) -> list[JobType]:
    """The same job as a function and as a coroutine function."""
    app = App(servers=["127.0.0.1:1"], middleware=middleware)

    @app.job(queue="tested", attempts=2)
    def plain(what: str = "") -> str:
        return _do(what)

    @app.job(queue="tested", attempts=2)
    async def coroutine(what: str = "") -> str:
        return _do(what)

    return [plain, coroutine]


def _do(what: str) -> str:
    if what == "snooze":
        raise Snooze(5)
    if what == "fail":
        raise Fail
    return "done"


KINDS = pytest.mark.parametrize("kind", [0, 1], ids=["plain", "coroutine"])


@KINDS
def test_the_first_is_the_outermost(kind: int) -> None:
    log: list[str] = []
    job = jobs_with(Told("a", log), Told("b", log))[kind]
    assert testing.run(job).state is JobState.SUCCEEDED
    assert log == ["a enqueue", "b enqueue", "a before", "b before", "b after done", "a after done"]


@KINDS
def test_it_is_told_of_errors_and_of_the_verdict_on_them(kind: int) -> None:
    log: list[str] = []
    job = jobs_with(Told("a", log), Told("b", log))[kind]
    attempt(job, "snooze")
    assert log == ["a before", "b before", "b error Snooze SNOOZE", "a error Snooze SNOOZE"]
    log.clear()
    attempt(job, "fail")
    assert log == ["a before", "b before", "b error Fail FAIL", "a error Fail FAIL"]


@KINDS
def test_what_it_adds_to_the_headers_travels_with_the_job(kind: int) -> None:
    job = jobs_with(Told("a", []))[kind]
    assert testing.run(job).headers == {"a": job.name}
    with pytest.raises(ZeroDivisionError):
        jobs_with(Told("a", [], enqueue=ZeroDivisionError()))[kind].enqueue()


@KINDS
def test_what_before_raises_fails_the_attempt(kind: int) -> None:
    log: list[str] = []
    job = jobs_with(Told("a", log), Told("b", log, before=LookupError("no session")), Told("c", log))[kind]
    outcome = attempt(job)
    assert (outcome.action, outcome.error) == (Action.RETRY, "LookupError")
    assert "no session" in outcome.status
    assert log == ["a before", "b before", "a error LookupError RETRY"]


@KINDS
def test_what_after_raises_fails_the_attempt(kind: int) -> None:
    log: list[str] = []
    outcome = attempt(jobs_with(Told("a", log), Told("b", log, after=LookupError("no commit")))[kind])
    assert (outcome.action, outcome.error) == (Action.RETRY, "LookupError")
    assert log[2:] == ["b after done", "b error LookupError RETRY", "a error LookupError RETRY"]


@KINDS
def test_what_error_raises_is_logged_and_changes_nothing(kind: int, caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []
    outcome = attempt(jobs_with(Told("a", log), Told("b", log, error=LookupError("oh")))[kind], "fail")
    assert (outcome.action, outcome.error) == (Action.FAIL, "Fail")
    assert log[-1] == "a error Fail FAIL"
    assert "Middleware Told failed" in caplog.text


@KINDS
def test_a_job_whose_arguments_do_not_fit_is_not_begun(kind: int) -> None:
    log: list[str] = []
    job = jobs_with(Told("a", log))[kind]
    outcome = attempt(job, body=b'PINLATER/1 application/json\n{"job": "x", "args": [1, 2, 3]}')
    assert (outcome.action, outcome.error) == (Action.RETRY, ArgumentsInvalid.__name__)
    assert log == []
