"""Other products' middleware, with their own packages: spans of OpenTelemetry, events of Sentry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sentry_sdk
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from pinlater.model import JobState
from pinlater_workers import App, Fail, Snooze, testing
from pinlater_workers.integrations.opentelemetry import OpenTelemetry
from pinlater_workers.integrations.sentry import Sentry
from pinlater_workers.jobs.context import JobContext
from pinlater_workers.middleware import Middleware

KINDS = pytest.mark.parametrize("kind", ["plain", "coroutine"])


class BrokenAfter(Middleware):
    """Fails when the job has returned."""

    def after(self, context: JobContext, result: Any) -> None:
        raise ValueError("no commit")


def app_with(*middleware: Middleware) -> App:
    app = App(servers=["127.0.0.1:1"], middleware=middleware)

    @app.job(queue="q", attempts=3, retry=[0, 0])
    def plain(what: str = "") -> None:
        _do(what)

    @app.job(queue="q", attempts=3, retry=[0, 0])
    async def coroutine(what: str = "") -> None:
        _do(what)

    return app


def _do(what: str) -> None:
    if what == "snooze" and _is_first():
        raise Snooze(0)
    if what == "fail":
        raise Fail("never again")
    if what == "error":
        raise ValueError("not today")


_seen: list[None] = []


def _is_first() -> bool:
    _seen.append(None)
    return len(_seen) == 1


# -- OpenTelemetry ---------------------------------------------------------------------------------------------------


def traced(kind: str, what: str = "", *more: Middleware) -> tuple[list[ReadableSpan], TracerProvider]:
    """The spans of a job that is enqueued within a span `request`."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    app = app_with(OpenTelemetry(provider), *more)
    with provider.get_tracer("test").start_as_current_span("request"), testing.in_memory(app) as jobs:
        app.job_types[kind].enqueue(what)
        jobs.run_all()
    return list(exporter.get_finished_spans()), provider


@KINDS
def test_an_attempt_is_a_span_below_the_call_that_enqueued_it(kind: str) -> None:
    (span, request), _ = traced(kind)
    assert (span.name, span.kind) == (kind, SpanKind.CONSUMER)
    assert span.parent is not None
    assert request.context is not None
    assert span.context is not None
    assert (span.parent.span_id, span.context.trace_id) == (request.context.span_id, request.context.trace_id)
    assert span.attributes is not None
    assert span.attributes["messaging.destination.name"] == "q"
    assert span.attributes["pinlater.job.attempt"] == 1
    assert span.status.status_code is StatusCode.UNSET


@KINDS
def test_each_failed_attempt_is_an_error_with_its_exception(kind: str) -> None:
    (*attempts, _), _ = traced(kind, "error")
    assert [each.status.status_code for each in attempts] == [StatusCode.ERROR] * 3
    assert [each.events[0].name for each in attempts] == ["exception"] * 3


def test_what_is_put_off_is_no_error() -> None:
    _seen.clear()
    (*attempts, _), _ = traced("plain", "snooze")
    assert [each.status.status_code for each in attempts] == [StatusCode.UNSET] * 2


def test_a_span_ends_once_where_middleware_fails_behind_it() -> None:
    (*attempts, _), _ = traced("plain", "", BrokenAfter())
    assert [each.status.status_code for each in attempts] == [StatusCode.ERROR] * 3


# -- Sentry ----------------------------------------------------------------------------------------------------------


class Kept(Transport):
    """Keeps what would be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.items: list[dict[str, Any]] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        self.items += [item.payload.json for item in envelope.items if item.payload.json is not None]


@pytest.fixture
def sentry() -> Iterator[Kept]:
    kept = Kept()
    sentry_sdk.init("http://public@127.0.0.1:1/1", transport=kept, traces_sample_rate=1.0, default_integrations=False)
    yield kept
    sentry_sdk.get_client().close()
    sentry_sdk.init()


def sent(kept: Kept, kind: str) -> list[dict[str, Any]]:
    """The events of a type; the type of an error is None."""
    return [each for each in kept.items if each.get("type") == kind or (kind == "error" and "exception" in each)]


@KINDS
def test_a_failed_job_is_an_issue_once_without_its_arguments(sentry: Kept, kind: str) -> None:
    app = app_with(Sentry())
    run = testing.run(app.job_types[kind], "error")
    (event,) = sent(sentry, "error")
    assert run.state is JobState.FAILED
    assert event["exception"]["values"][-1]["type"] == "ValueError"
    assert event["tags"] == {"pinlater.job": kind, "pinlater.queue": "q"}
    assert (event["contexts"]["pinlater"]["attempt"], event["transaction"]) == (3, kind)


def test_every_failed_attempt_where_that_is_asked_for(sentry: Kept) -> None:
    testing.run(app_with(Sentry(retries=True)).job_types["plain"], "error")
    assert [each["contexts"]["pinlater"]["attempt"] for each in sent(sentry, "error")] == [1, 2, 3]


def test_a_job_that_gives_up_is_an_issue_and_one_that_is_put_off_is_none(sentry: Kept) -> None:
    _seen.clear()
    app = app_with(Sentry(retries=True))
    testing.run(app.job_types["plain"], "snooze")
    assert sent(sentry, "error") == []
    testing.run(app.job_types["plain"], "fail")
    assert len(sent(sentry, "error")) == 1


def test_an_attempt_is_a_transaction_of_its_producers_trace(sentry: Kept) -> None:
    app = app_with(Sentry())
    with sentry_sdk.start_transaction(name="request") as request, testing.in_memory(app) as jobs:
        app.job_types["plain"].enqueue()
        jobs.run_all()
    (attempt,) = [each for each in sent(sentry, "transaction") if each["transaction"] == "plain"]
    assert attempt["contexts"]["trace"]["trace_id"] == request.trace_id
    assert attempt["contexts"]["trace"]["status"] == "ok"
