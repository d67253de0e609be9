"""Sentry: jobs that fail become issues, and attempts become transactions of their producer's trace.

sentry_sdk.init(dsn=...)
app = App(middleware=[Sentry()])
"""

from __future__ import annotations

from collections.abc import MutableMapping
from contextlib import ExitStack
from contextvars import ContextVar
from typing import Any

import sentry_sdk

from pinlater_workers.jobs.context import JobContext
from pinlater_workers.jobs.outcome import Action, Outcome
from pinlater_workers.middleware import Observer


class Sentry(Observer):
    """An error is sent when no attempt follows; with `retries` after every attempt that failed. Never for a job that is
    put off or rescheduled.

    Each attempt has a scope of its own, with the job's type, queue, attempt and descriptor. Arguments are not sent,
    since they may hold what is nobody's business.
    """

    def __init__(self, *, retries: bool = False) -> None:
        self._retries = retries
        self._opened: ContextVar[tuple[ExitStack, Any] | None] = ContextVar("pinlater_sentry", default=None)

    def enqueue(self, headers: MutableMapping[str, str], job_name: str) -> None:
        for name, value in (("sentry-trace", sentry_sdk.get_traceparent()), ("baggage", sentry_sdk.get_baggage())):
            if value:
                headers[name] = value

    def before(self, context: JobContext) -> None:
        with ExitStack() as stack:
            scope = stack.enter_context(sentry_sdk.isolation_scope())
            scope.clear_breadcrumbs()
            scope.set_transaction_name(context.job, source="task")
            scope.set_tag("pinlater.job", context.job)
            scope.set_tag("pinlater.queue", context.queue)
            fields = {"descriptor": context.descriptor, "attempt": context.attempt}
            scope.set_context("pinlater", fields | {"attempts_left": context.attempts_left})
            begun = sentry_sdk.continue_trace(
                dict(context.headers), op="queue.process", name=context.job, source="task", origin="auto.queue.pinlater"
            )
            transaction = stack.enter_context(sentry_sdk.start_transaction(begun))
            self._opened.set((stack.pop_all(), transaction))

    def after(self, context: JobContext, result: Any) -> None:
        self._close("ok")

    def error(self, context: JobContext, exception: BaseException, outcome: Outcome) -> None:
        failed = outcome.action is Action.FAIL or outcome.action is Action.RETRY
        is_last = outcome.action is Action.FAIL or context.attempts_left == 0
        if failed and (is_last or self._retries):
            sentry_sdk.capture_exception(exception)
        self._close("internal_error" if failed else "ok")

    def _close(self, status: str) -> None:
        """Once: where other middleware fails behind it, both `after` and `error` are called."""
        opened = self._opened.get()
        if opened is not None:
            self._opened.set(None)
            opened[1].set_status(status)
            opened[0].close()
