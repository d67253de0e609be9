"""The options of `App.job` and `App.raw_job` that mean the same for every function: one line each, in one place.

Their values are checked by JOB_KEYS of pinlater_workers.jobs.settings, which a file's tables [jobs.NAME] are too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import wraps
from typing import Any, Literal, TypedDict, TypeVar, cast

from pinlater_workers.envelope import Encoding
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.jobs.elsewhere import unknown_options
from pinlater_workers.jobs.keys import KeyOption
from pinlater_workers.jobs.settings import PoolName, RetryOption

Duration = float | str | timedelta
MethodT = TypeVar("MethodT", bound=Callable[..., Any])


class RawJobOptions(TypedDict, total=False):
    """Those of `App.raw_job`."""

    name: str | None
    attempts: int | None
    retry: RetryOption | None
    retry_on: Mapping[type[BaseException], RetryOption] | None
    time_limit: Duration
    priority: int
    pool: PoolName | None
    unique: KeyOption | None
    unique_for: Duration | Literal["kept"]
    on_duplicate: Literal["keep", "replace", "reject"]
    replace_running: Literal["keep", "enqueue", "cancel"]
    replace_within: Duration | None
    serialize: KeyOption | None
    expires: Duration | None
    claim_timeout: Duration | None
    tags: Sequence[str]
    group: KeyOption | None


class JobOptions(RawJobOptions, total=False):
    """Those of `App.job`."""

    encoding: Encoding
    max_snoozes: int
    secret: Sequence[str]
    keep_result: bool
    cron: str | None
    timezone: str
    every: Duration | None
    misfire: Literal["skip", "run_once", "run_all"]
    jitter: Duration


def says_queue(options: type) -> Callable[[MethodT], MethodT]:
    """ConfigurationError where the decorator stands without parentheses, or options are given by position or are none
    of these.
    """
    known = ("queue", *options.__annotations__, "batch", "wait")

    def checking(method: MethodT) -> MethodT:
        @wraps(method)
        def checked(self: Any, *args: object, **given: Any) -> Any:
            if args or "queue" not in given:
                right = f"@app.{method.__name__}(queue=...)"
                raise ConfigurationError(f"a job wants its queue, by name; write {right} above the function")
            unknown = unknown_options(given, known)
            if unknown:
                raise ConfigurationError(f"@app.{method.__name__}(...): {unknown}")
            return method(self, **given)

        return cast(MethodT, checked)

    return checking
