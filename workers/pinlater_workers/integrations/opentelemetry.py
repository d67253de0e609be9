"""OpenTelemetry: a span for each attempt, in the trace of the call that enqueued the job.

    app = App(middleware=[OpenTelemetry()])

It uses the public API alone; what is done with the spans is set up with OpenTelemetry's own SDK, in the app's module.
Attributes are those of the semantic conventions for messaging: https://opentelemetry.io/docs/specs/semconv/messaging/
"""

from __future__ import annotations

from collections.abc import MutableMapping
from contextvars import ContextVar
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider

from pinlater_workers.jobs.context import JobContext
from pinlater_workers.jobs.outcome import Action, Outcome
from pinlater_workers.middleware import Observer

_FAILED = frozenset({Action.RETRY, Action.FAIL})


class OpenTelemetry(Observer):
    """The span is the current one while the job runs: spans of its libraries, and jobs that it enqueues, come below it.

    An attempt that failed has the status ERROR and its exception; one that is put off or rescheduled has not.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        """`provider`: instead of the global one."""
        self._tracer = trace.get_tracer("pinlater_workers", tracer_provider=provider)
        self._opened: ContextVar[tuple[Span, Any] | None] = ContextVar("pinlater_opened_span", default=None)

    def enqueue(self, headers: MutableMapping[str, str], job_name: str) -> None:
        propagate.inject(headers)

    def before(self, context: JobContext) -> None:
        parent: Context = propagate.extract(context.headers, context=Context())
        span = self._tracer.start_span(
            context.job,
            parent,
            SpanKind.CONSUMER,
            {
                "messaging.system": "pinlater",
                "messaging.operation.type": "process",
                "messaging.destination.name": context.queue,
                "messaging.message.id": context.descriptor,
                "pinlater.job.type": context.job,
                "pinlater.job.attempt": context.attempt,
            },
        )
        self._opened.set((span, contexts.attach(trace.set_span_in_context(span, parent))))

    def after(self, context: JobContext, result: Any) -> None:
        self._close()

    def error(self, context: JobContext, exception: BaseException, outcome: Outcome) -> None:
        opened = self._opened.get()
        if opened is not None and outcome.action in _FAILED:
            opened[0].record_exception(exception)
            opened[0].set_status(Status(StatusCode.ERROR, outcome.error))
        self._close()

    def _close(self) -> None:
        """Once: where other middleware fails behind it, both `after` and `error` are called."""
        opened = self._opened.get()
        if opened is not None:
            self._opened.set(None)
            contexts.detach(opened[1])
            opened[0].end()
