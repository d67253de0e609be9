"""Arguments that are marked secret: in the body for the worker, and in no error, status or display."""

from __future__ import annotations

import pytest

from pinlater import Job
from pinlater.job_body import SECRET_HEADER, describe_body
from pinlater_workers import App, Reschedule, Snooze, current, testing
from pinlater_workers.envelope import Envelope, read_envelope, write_envelope
from pinlater_workers.errors import ArgumentsInvalid, ConfigurationError
from tests.workers.attempts import QUEUE, attempt

APP = App(servers=["127.0.0.1:1"])


@APP.job(queue=QUEUE, secret=["password", "token"])
def login(user: str, password: str, *, token: int = 0, times: list[int] | None = None) -> None:
    if token == 1:
        raise Snooze(0)
    if token == 2:
        raise Reschedule(0, body=login.body(user, password=password))
    if token == 3:
        current().checkpoint(login.body(user, password, token=4))
    raise ValueError(f"{user} with {password}")


def shown(body: bytes) -> str:
    found = describe_body(body)
    assert found is not None
    return found.call_text()


def test_a_body_names_them_whichever_way_they_are_given() -> None:
    assert shown(login.body("ada", "hunter2", token=5)) == "login('ada', ***, token=***)"
    assert shown(login.body("ada", password="hunter2")) == "login('ada', password=***)"
    found = read_envelope(login.body("ada", "hunter2"))
    assert found is not None
    assert (found.args, found.headers) == (["ada", "hunter2"], {SECRET_HEADER: "1 password token"})


def test_they_stay_secret_through_every_new_body() -> None:
    with testing.in_memory(APP) as jobs:
        for token in (1, 2, 3):
            login.enqueue("ada", "hunter2", token=token)
        jobs.run_for(1)
    for run in jobs.runs:
        assert "***" in shown(run.body)
        assert "hunter2" not in shown(run.body)
        assert "hunter2" not in run.status


def test_neither_errors_about_arguments_nor_statuses_show_them() -> None:
    with pytest.raises(ArgumentsInvalid) as refused:
        login.enqueue("ada", 1234567)  # type: ignore[arg-type]
    assert str(refused.value) == "job 'login': password is ***; allowed: str"
    with pytest.raises(ArgumentsInvalid) as written:
        login.enqueue("ada", "\udcff-hunter2")
    assert "hunter2" not in str(written.value)
    status = attempt(login, "ada", "hunter2", remaining=1).status
    assert "ValueError: ada with *** (" in status
    body = write_envelope(Envelope("login", ["ada", 1234567]))
    assert "1234567" not in attempt(login, body=body, remaining=1).status


def test_the_log_has_no_traceback_that_could_show_them(caplog: pytest.LogCaptureFixture) -> None:
    attempt(login, "ada", "hunter2", remaining=1)
    attempt(login, "ada", "", remaining=1)
    secret, plain = (record for record in caplog.records if record.name == "pinlater_workers.jobs")
    assert "ValueError: ada with *** (" in secret.getMessage()
    assert (secret.exc_info, plain.exc_info is None) == (None, False)
    assert "hunter2" not in caplog.text


def test_others_are_shown() -> None:
    with pytest.raises(ArgumentsInvalid, match="user is 1234567: "):
        login.enqueue(1234567, "hunter2")  # type: ignore[arg-type]
    assert "headers" not in str(Job(APP.job(queue=QUEUE)(test_others_are_shown).body()).body)


def test_a_name_that_is_no_parameter_is_refused_unless_any_name_can_be_given() -> None:
    def plain(user: str, /, size: int) -> None: ...

    def open_(**fields: str) -> None: ...

    with pytest.raises(ConfigurationError, match=r"secret names 'pasword'; allowed: user, size"):
        APP.job(queue=QUEUE, secret=["pasword"])(plain)
    assert shown(APP.job(queue=QUEUE, name="one", secret=["user"])(plain).body("ada", 2)) == "one(***, 2)"
    assert (
        shown(APP.job(queue=QUEUE, name="two", secret=["pin"])(open_).body(pin="1", to="a")) == "two(pin=***, to='a')"
    )
