"""What the log says, for people and for machines, and what it knows of the job that logs."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from pinlater.model import Checkpoint, DequeuedJob
from pinlater_workers import App, Batch, testing
from pinlater_workers.execution.decision import log_outcome
from pinlater_workers.jobs.context import CURRENT, JobContext
from pinlater_workers.jobs.outcome import SUCCEEDED, Action, Outcome
from pinlater_workers.observability import logs
from pinlater_workers.tracing import new_trace, use_trace

log = logging.getLogger("shop.mail")


class Err:
    """What went to stderr so far."""

    def __init__(self, captured: pytest.CaptureFixture[str]) -> None:
        self._captured = captured
        self._text = ""

    def text(self) -> str:
        self._text += self._captured.readouterr().err
        return self._text

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text().splitlines()]


@pytest.fixture
def err(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Err]:
    """Logging and the environment are as before at the end."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in ("asyncio", "aiohttp.access")}
    monkeypatch.setattr(os, "environ", dict(os.environ))
    yield Err(capsys)
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)


class Nowhere:
    """Jobs of this page make no checkpoints."""

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        raise AssertionError(checkpoint)

    async def checkpoint_async(self, checkpoint: Checkpoint) -> None:
        raise AssertionError(checkpoint)


def context_of(attempts_remaining: int) -> JobContext:
    """That of a job with five attempts."""
    job = DequeuedJob("mail:s1:p1:7", b"", 1, 5, attempts_remaining, run_after_ms=0, enqueued_at_ms=0)
    return JobContext("send", "mail", job, Nowhere(), deadline_ms=0)


def test_json_lines_say_which_job_logs(err: Err) -> None:
    logs.configure("info", "json")
    log.info("before %s", "any job", extra={"tenant": 7})
    token = CURRENT.set(context_of(4))
    trace = new_trace()
    try:
        with use_trace(trace):
            log.warning("slow answer")
    finally:
        CURRENT.reset(token)
    before, slow = err.lines()
    assert before.pop("time").endswith("Z")
    assert before == {"level": "info", "logger": "shop.mail", "message": "before any job", "tenant": 7}
    slow.pop("time")
    assert slow == {
        "level": "warning",
        "logger": "shop.mail",
        "message": "slow answer",
        "job": "send",
        "descriptor": "mail:s1:p1:7",
        "attempt": 2,
        "trace_id": trace.trace_id,
    }


def test_what_a_batch_logs_names_it_and_in_a_block_the_job(err: Err) -> None:
    app = App(servers=["127.0.0.1:1"])

    @app.job(queue="mail", batch=3)
    def send(batch: Batch[int]) -> None:
        log.info("all")
        with batch[1]:
            log.info("one")

    logs.configure("info", "json")
    with testing.in_memory(app) as jobs:
        descriptors = send.enqueue_many([(1,), (2,)])
        jobs.run_all()
    whole, one = err.lines()
    assert (whole["job"], whole["batch"], "descriptor" in whole) == ("send", 2, False)
    assert (one["job"], one["descriptor"], one["attempt"]) == ("send", descriptors[1], 1)


def test_lines_for_people_end_with_what_is_known(err: Err) -> None:
    logs.configure("info", "human")
    log.debug("not this")
    log.info("sent", extra={"to": "ada"})
    try:
        raise ValueError("no")
    except ValueError:
        log.exception("failed")
    text = err.text()
    assert " info    shop.mail: sent  to=ada\n" in text
    assert " error   shop.mail: failed\n  Traceback (most recent call last):\n" in text
    assert "not this" not in text


EVIL = "a\n21:40:05 info    shop.mail: forged\x1b[2J\x9b\u202e\r"


@pytest.mark.parametrize("format", logs.FORMATS)
def test_no_text_of_a_job_forges_a_line_or_moves_a_cursor(err: Err, format: str) -> None:
    logs.configure("info", format)
    context = context_of(0)
    context.job = EVIL
    token = CURRENT.set(context)
    try:
        raise ValueError(EVIL)
    except ValueError as error:
        log_outcome(context, Outcome(Action.FAIL, EVIL), error)
        log.warning("%s", EVIL, extra={"to": EVIL, EVIL: 1})
    finally:
        CURRENT.reset(token)
    text = err.text()
    assert all(line.isprintable() for line in text.splitlines())
    assert not any(line.startswith("21:40:05 info    shop.mail: forged") for line in text.split("\n"))
    if format == "json":
        assert err.lines()[1]["message"] == EVIL
        assert err.lines()[1][EVIL] == 1


@pytest.mark.parametrize(
    ("level", "attempts_remaining", "action", "shows"),
    [
        ("info", 4, Action.RETRY, False),
        ("debug", 4, Action.RETRY, True),
        ("info", 1, Action.RETRY, True),
        ("info", 4, Action.FAIL, True),
    ],
)
def test_a_failure_is_one_line_with_a_traceback_when_no_attempt_follows(
    err: Err, level: str, attempts_remaining: int, action: Action, shows: bool
) -> None:
    logs.configure(level, "json")
    outcome = Outcome(action, 2_500, "attempt 2 of 5: OSError: full disk (mail.py:3 in send)\n", error="OSError")
    log_outcome(context_of(attempts_remaining), outcome, OSError("full disk"))
    (line,) = err.lines()
    assert line["level"] == "warning"
    assert "attempt 2 of 5: OSError: full disk" in line["message"]
    ends = "again in 2.5 s" if action is Action.RETRY and attempts_remaining > 1 else "no attempt follows"
    assert f"send failed, {ends}: " in line["message"]
    assert ("exception" in line) is shows


def test_a_success_is_said_at_debug_alone(err: Err) -> None:
    logs.configure("info", "json")
    log_outcome(context_of(5), SUCCEEDED)
    assert err.text() == ""
    logs.configure("debug", "json")
    log_outcome(context_of(5), SUCCEEDED)
    assert [line["message"] for line in err.lines()] == ["send succeeded"]


def test_a_process_that_is_started_logs_likewise(err: Err) -> None:
    logs.configure("warning", "json")
    code = (
        "import logging; from pinlater_workers.observability import logs; logs.configure_child(); "
        "logging.getLogger('a').info('not this'); logging.getLogger('a').warning('this')"
    )
    done = subprocess.run([sys.executable, "-c", code], env=os.environ, capture_output=True, text=True, check=True)
    assert json.loads(done.stderr)["message"] == "this"


def test_a_stream_that_a_job_has_closed_is_nobodys_error(err: Err, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    monkeypatch.setattr(sys, "stderr", closed)
    logs.configure("info", "human")
    closed.close()
    log.error("this is lost")


def test_logging_that_fails_changes_no_outcome(err: Err) -> None:
    logs.configure("debug", "json")

    def refuse(record: logging.LogRecord) -> bool:
        raise RuntimeError("a filter of the app")

    jobs = logging.getLogger("pinlater_workers.jobs")
    jobs.addFilter(refuse)
    try:
        log_outcome(context_of(5), SUCCEEDED)
    finally:
        jobs.removeFilter(refuse)
