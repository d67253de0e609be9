"""Logs, metrics, traces and listeners that fail: what they report on goes on as if they had not been there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest
import sentry_sdk
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider

from pinlater import Client, Job, errors
from pinlater.log_guard import GuardedLogger, guard_loop
from pinlater.model import JobState
from pinlater_workers import App, Batch, Fail, JobContext, Middleware, Observer, StopReason, testing
from pinlater_workers.integrations.opentelemetry import OpenTelemetry
from pinlater_workers.integrations.sentry import Sentry
from pinlater_workers.observability.statsd import worker_statsd
from tests.server.running import running
from tests.stores.process import free_port
from tests.workers.attempts import claimed, context_of
from tests.workers.command import working

DOWN = "the log backend is down"
REPORT = f"a log handler failed: RuntimeError: {DOWN}"

CODE = f"""
import asyncio, logging
from pinlater_workers import App

class Down(logging.Handler):
    def emit(self, record):
        raise RuntimeError("{DOWN}")

logging.getLogger().handlers.insert(0, Down())
app = App()

@app.job(queue="noisy", retry=[0])
async def noisy():
    asyncio.get_running_loop().call_soon(lambda: 1 / 0)
    await asyncio.sleep(0)

@app.job(queue="noisy")
def done(path):
    open(path, "w").close()
"""


def test_a_worker_whose_log_handler_fails_waits_for_its_server_and_runs_jobs(tmp_path: Path) -> None:
    """It says that no server answers, that a queue was made, what goes wrong in its loop, and how it ends."""
    (tmp_path / "shop.py").write_text(CODE)
    port, sign = free_port(), tmp_path / "done"
    arguments = ("--app", "shop:app", "--server", f"127.0.0.1:{port}", "--create-queues", "--pool", "async")
    beside = ("--statsd", "no-such-host.invalid:8125", "--http", "127.0.0.1:0")
    with working(tmp_path, *arguments, *beside) as worker:
        worker.wait_for("no jobs come, and the worker keeps trying")
        worker.wait_for(REPORT)
        (tmp_path / "server").mkdir()
        with (
            running(tmp_path / "server", port=port) as server,
            Client(f"127.0.0.1:{server.port}", timeout=60) as client,
        ):
            worker.wait_for("queue noisy was not there: created")
            for job, args in (("noisy", "[]"), ("done", f'["{sign}"]')):
                body = f'PINLATER/1 application/json\n{{"job": "{job}", "args": {args}}}'
                ended = client.wait(client.enqueue("noisy", Job(body.encode())), timeout=60)
                assert ended.state is JobState.SUCCEEDED
            worker.wait_for("ZeroDivisionError")
            worker.send(signal.SIGTERM)
            assert worker.ended() == 0
    assert sign.exists()


class Handler(logging.Handler):
    """Raises what it is given."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def emit(self, record: logging.LogRecord) -> None:
        raise self.error


@contextlib.contextmanager
def handled(name: str, handler: logging.Handler) -> Iterator[None]:
    logger = logging.getLogger(name)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@pytest.mark.parametrize("error", [RuntimeError(DOWN), SystemExit(DOWN), RecursionError(DOWN)])
def test_a_line_that_a_handler_loses_is_on_standard_error(error: BaseException, capsys: Any) -> None:
    log = GuardedLogger("tested.guard")
    with handled("tested.guard", Handler(error)):
        log.warning("%d jobs\nwait", 3)
        log.warning("%d jobs", "a wrong argument")
    assert [line.partition("  (")[0] for line in capsys.readouterr().err.splitlines()] == [
        "warning tested.guard: 3 jobs\\nwait",
        "warning tested.guard: %d jobs",
    ]


def test_filters_and_factories_of_records_fail_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    log = GuardedLogger("tested.guard")

    def fail(*_: object, **__: object) -> Any:
        raise RuntimeError(DOWN)

    log.logger.addFilter(fail)
    log.error("one")
    log.logger.removeFilter(fail)
    factory = logging.getLogRecordFactory()
    logging.setLogRecordFactory(fail)
    try:
        log.error("two")
    finally:
        logging.setLogRecordFactory(factory)
    assert capsys.readouterr().err.count(REPORT) == 2


def test_a_record_names_the_line_that_logged_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        GuardedLogger("tested.guard").info("here")
    assert caplog.records[0].funcName == "test_a_record_names_the_line_that_logged_it"


def test_a_loop_goes_on_where_what_goes_wrong_in_it_cannot_be_logged(capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> str:
        guard_loop(asyncio.get_running_loop())
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(0)
        return "over"

    with handled("asyncio", Handler(RuntimeError(DOWN))):
        assert asyncio.run(main()) == "over"
    assert REPORT in capsys.readouterr().err


def test_a_client_says_that_no_server_answers_to_nobody_and_goes_on_trying() -> None:
    with Client(f"127.0.0.1:{free_port()}") as client, handled("pinlater.client", Handler(RuntimeError(DOWN))):
        failed = None
        try:
            client.queue_names(timeout=1.5)
        except Exception as error:
            failed = error
    assert isinstance(failed, errors.ServerUnreachable)


def test_statsd_by_a_name_that_is_none_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    export = worker_statsd(f"{'a' * 70}:8125", "jobs")
    export.send({("slots",): [1.0]})
    export.send({("slots",): [1.0]})
    assert len(caplog.messages) == 1


def test_a_listener_that_fails_keeps_the_stop_from_nobody(caplog: pytest.LogCaptureFixture) -> None:
    context, heard = context_of(claimed()), list[str]()

    def fail() -> None:
        raise RuntimeError("listener")

    context.on_stop(fail)
    context.on_stop(lambda: heard.append("second"))
    context.request_stop(StopReason.STOPPING)
    assert (heard, context.cancelled) == (["second"], True)
    assert "failed" in caplog.text


# -- middleware that only watches ------------------------------------------------------------------------------------


def app_with(*middleware: Middleware) -> App:
    app = App(servers=["127.0.0.1:1"], middleware=middleware)

    @app.job(queue="q", attempts=1)
    def plain() -> None:
        pass

    @app.job(queue="q", attempts=1)
    async def coroutine() -> None:
        pass

    @app.job(queue="q", attempts=1, batch=10)
    def batch(each: Batch[int]) -> None:
        pass

    return app


class Blind(Observer):
    """Fails in all that it does."""

    def enqueue(self, headers: MutableMapping[str, str], job_name: str) -> None:
        raise RuntimeError("enqueue")

    def before(self, context: JobContext) -> None:
        raise RuntimeError("before")

    def after(self, context: JobContext, result: Any) -> None:
        raise RuntimeError("after")

    def error(self, context: JobContext, exception: BaseException, outcome: Any) -> None:
        raise RuntimeError("error")

    @contextlib.contextmanager
    def around_batch(self, batch: Batch[Any]) -> Iterator[None]:
        try:
            yield
        finally:
            raise RuntimeError("around_batch")


class Closed(Blind, Observer):
    def around_batch(self, batch: Batch[Any]) -> Any:
        raise RuntimeError("around_batch")


class FailingSpans(SpanProcessor):
    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        raise RuntimeError("on_start")

    def on_end(self, span: ReadableSpan) -> None:
        raise RuntimeError("on_end")


class FailingEnd(FailingSpans):
    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        pass


def spans(processor: SpanProcessor) -> Middleware:
    provider = TracerProvider()
    provider.add_span_processor(processor)
    return OpenTelemetry(provider)


@pytest.fixture
def broken_sentry() -> Iterator[None]:
    def fail(*_: object) -> Any:
        raise RuntimeError("sampler")

    sentry_sdk.init(dsn="http://key@127.0.0.1:1/1", traces_sampler=fail, default_integrations=False, debug=True)
    yield
    sentry_sdk.init()


@pytest.mark.usefixtures("broken_sentry")
@pytest.mark.parametrize("kind", ["plain", "coroutine", "batch"])
@pytest.mark.parametrize(
    "make",
    [Blind, Closed, lambda: spans(FailingSpans()), lambda: spans(FailingEnd()), Sentry],
    ids=["all", "closed", "opentelemetry", "opentelemetry-end", "sentry"],
)
def test_an_observer_that_fails_fails_no_job_and_no_caller(kind: str, make: Callable[[], Middleware]) -> None:
    app = app_with(make())
    with testing.in_memory(app) as jobs:
        app.job_types[kind].enqueue(*([1] if kind == "batch" else []))
        jobs.run_all()
        assert [run.state for run in jobs.of(app.job_types[kind])] == [JobState.SUCCEEDED]


class Vetoing(Sentry):
    def before(self, context: JobContext) -> None:
        raise Fail("not on Sundays")


def test_middleware_made_from_an_observer_may_veto() -> None:
    app = app_with(Vetoing())
    with testing.in_memory(app) as jobs:
        app.job_types["plain"].enqueue()
        jobs.run_all()
        (job,) = jobs.of(app.job_types["plain"])
    assert job.state is JobState.FAILED
    assert "not on Sundays" in job.status


def test_what_observers_raise_is_logged_and_what_a_job_raises_stays(caplog: pytest.LogCaptureFixture) -> None:
    app = App(servers=["127.0.0.1:1"], middleware=[Blind()])

    @app.job(queue="q", attempts=1, batch=10)
    def failing(each: Batch[int]) -> None:
        raise LookupError("the job's own")

    with testing.in_memory(app) as jobs:
        failing.enqueue(1)
        jobs.run_all()
        (job,) = jobs.of(failing)
    assert job.state is JobState.FAILED
    assert "LookupError: the job's own" in job.status
    for hook in ("enqueue", "before", "error", "around_batch"):
        assert f"Blind.{hook} failed" in caplog.text
