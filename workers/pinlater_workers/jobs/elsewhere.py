"""Names of Celery, RQ, dramatiq and taskiq for what is called otherwise here: errors say what to write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import wraps
from typing import Any, TypeVar, cast

MethodT = TypeVar("MethodT", bound=Callable[..., Any])

CALLS = {
    "delay": "enqueue(...)",
    "apply_async": "enqueue(...), or options(delay=..., priority=...).enqueue(...)",
    "send": "enqueue(...)",
    "send_with_options": "options(delay=..., priority=...).enqueue(...)",
    "kiq": "enqueue_async(...), or enqueue(...)",
}
"""Methods of a job."""

_ACKED = "nothing: a job is acked when it has ended, and runs again when its worker dies"
_POLICY = 'retry="exponential first=1s factor=2 cap=1h", or another policy'
_OPTIONS = {
    "acks_late": _ACKED,
    "actor_name": "name=",
    "at_front": "priority=1",
    "autoretry_for": "retry_on={OSError: ...}",
    "bind": "nothing, and call pinlater_workers.current() in the job",
    "countdown": 'delay="5m"',
    "default_retry_delay": _POLICY,
    "eta": "run_after=, an aware datetime",
    "expires": "expires=, which counts from when the job is due",
    "ignore_result": "nothing, or keep_result=True for the other way round",
    "job_timeout": 'time_limit="10m"',
    "max_backoff": _POLICY,
    "max_retries": "attempts=, which counts the first attempt too",
    "min_backoff": _POLICY,
    "queue_name": "queue=",
    "rate_limit": "nothing, and `pinlater queue set-rate QUEUE 10/s`, which counts for all workers together",
    "reject_on_worker_lost": _ACKED,
    "retry_backoff": _POLICY,
    "retry_jitter": _POLICY,
    "routing_key": "queue=",
    "soft_time_limit": "time_limit=, and ask context.cancelled in the job",
    "task_name": "name=",
    "task_time_limit": 'time_limit="10m"',
    "timeout": 'time_limit="10m"',
    "ttl": "the queue's time to live: docs/queues.md",
}


def unknown_options(given: Iterable[str], known: Collection[str]) -> str:
    """For an error: which of these options are none of the known ones, and what to write in their place; "": all are
    known.
    """
    unknown = [_instead(name) for name in given if name not in known]
    return f"it does not take {'; nor '.join(unknown)}; allowed: {', '.join(known)}" if unknown else ""


def _instead(name: str) -> str:
    return f"{name}=, for which write {_OPTIONS[name]}" if name in _OPTIONS else f"{name}="


def says_unknown_options(options: type) -> Callable[[MethodT], MethodT]:
    """For a method that takes the options of a TypedDict: TypeError as above, in place of Python's own."""
    known = tuple(options.__annotations__)

    def checking(method: MethodT) -> MethodT:
        @wraps(method)
        def checked(self: Any, *args: Any, **given: Any) -> Any:
            unknown = unknown_options(given, known)
            if unknown:
                raise TypeError(f"{method.__name__}(...): {unknown}")
            return method(self, *args, **given)

        return cast(MethodT, checked)

    return checking
