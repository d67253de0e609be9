"""Middleware around every job: tracing, log fields, database sessions, and whatever else a team does for all jobs.

Given to the app, in order: `before` goes first to last, `after` and `error` last to first. All of them run where the
job runs, in its thread or on its event loop, and `pinlater_workers.jobs.context.current()` is the job's.

Of a batch they are called for each job, each in context variables of its own, which the function does not see; what is
to hold once and for all of them, as a transaction does, is `around_batch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from typing import Any

from pinlater.log_guard import GuardedLogger
from pinlater_workers.jobs.batch import Batch
from pinlater_workers.jobs.context import JobContext
from pinlater_workers.jobs.outcome import Outcome

_log = GuardedLogger("pinlater_workers.middleware")
_HOOKS = ("enqueue", "before", "after", "error")


class Middleware:
    """The base class of middleware, which does nothing. Override what you need."""

    def enqueue(self, headers: MutableMapping[str, str], job_name: str) -> None:
        """Called in the producer. What it puts into `headers` travels with the job; its errors go to the caller."""

    def before(self, context: JobContext) -> None:
        """Called before the job. What it raises fails the attempt, as if the job had raised it."""

    def after(self, context: JobContext, result: Any) -> None:
        """Called when the job has returned. What it raises fails the attempt: a commit can stand here."""

    def error(self, context: JobContext, exception: BaseException, outcome: Outcome) -> None:
        """Called when the attempt has not succeeded, with its `outcome`. What it raises is only logged.

        Snooze and Reschedule come here too. Called where `before` was called and did not raise.
        """

    def around_batch(self, batch: Batch[Any]) -> AbstractContextManager[object]:
        """Return a context that is entered before the function of a batch and left after it, in its context variables.

        What it raises fails the jobs of the batch that have no outcome of their own.
        """
        return nullcontext()


class Observer(Middleware):
    """Middleware that only watches, as tracing and counting do. What its methods raise is logged, and changes nothing:
    no attempt fails by it, and no call of a producer.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if Observer not in cls.__bases__:  # whoever goes on from one may do more than watch
            return
        for name in {*_HOOKS, "around_batch"} & vars(cls).keys():
            setattr(cls, name, (_reported if name in _HOOKS else _around_reported)(vars(cls)[name]))


def _reported(hook: Callable[..., None]) -> Callable[..., None]:
    @wraps(hook)
    def reported(self: Observer, *args: Any) -> None:
        try:
            hook(self, *args)
        except Exception:
            _log.exception("%s.%s failed; nothing else does", type(self).__qualname__, hook.__name__)

    return reported


def _around_reported(
    around: Callable[[Observer, Batch[Any]], AbstractContextManager[object]],
) -> Callable[[Observer, Batch[Any]], AbstractContextManager[object]]:
    @wraps(around)
    @contextmanager
    def reported(self: Observer, batch: Batch[Any]) -> Iterator[None]:
        entered: list[AbstractContextManager[object]] = []

        def enter() -> None:
            manager = around(self, batch)
            manager.__enter__()
            entered.append(manager)

        def leave(error: BaseException | None) -> None:
            for manager in entered:
                manager.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)

        def watched(step: Callable[..., None], *args: Any) -> None:
            try:
                step(*args)
            except Exception:
                _log.exception("%s.around_batch failed; nothing else does", type(self).__qualname__)

        watched(enter)
        try:
            yield
        except BaseException as error:
            watched(leave, error)
            raise
        watched(leave, None)

    return reported
