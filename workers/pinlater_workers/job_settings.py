"""What can be said of a type of job, in a decorator or in a file: one table, one meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from pinlater.model import is_queue_name
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.retry import DEFAULT_RETRY, RetryRules
from pinlater_workers.retry_options import retry_policies, retry_policy
from pinlater_workers.settings_table import DAY_S, Key, duration, flag, integer, read_table, text, word

PoolName = Literal["thread", "process", "async"]
Encoding = Literal["json", "msgpack"]

POOLS: tuple[PoolName, ...] = ("thread", "process", "async")
ENCODINGS: tuple[Encoding, ...] = ("json", "msgpack")

QUEUE_NAME = "1 to 64 letters, digits and _"

DEFAULT_TIME_LIMIT_S = 3600.0
DEFAULT_MAX_SNOOZES = 100


@dataclass(frozen=True, slots=True)
class JobSettings:
    """`attempts` None: one more than the policy's retries. `pool` None: the worker's own choice.

    `time_limit_s`: how long one attempt may run. `raw`: the function takes the whole body as bytes, and runs whatever
    job of its queue has no envelope. `max_snoozes`: how often Snooze may be raised before a Reschedule, retries
    counted in.
    """

    queue: str
    attempts: int | None = None
    retry: RetryRules = DEFAULT_RETRY
    time_limit_s: float = DEFAULT_TIME_LIMIT_S
    priority: int = 1
    pool: PoolName | None = None
    encoding: Encoding = "json"
    max_snoozes: int = DEFAULT_MAX_SNOOZES
    raw: bool = False

    @property
    def attempts_allowed(self) -> int:
        return self.retry.retries + 1 if self.attempts is None else self.attempts


KEYS: dict[str, Key] = {
    "queue": text("queue", f"the name of a queue: {QUEUE_NAME}", is_queue_name),
    "attempts": integer("attempts", 1),
    "retry": Key(
        "retry", retry_policy, "a policy, as in 'exponential first=1s factor=2 cap=1h' (docs/workers-retries.md)"
    ),
    "retry_on": Key("retry_on", retry_policies, "a table of exception types, each with a policy"),
    "time_limit": duration("time_limit_s", 0.001, 365 * DAY_S),
    "priority": integer("priority", 1, 127),
    "pool": word("pool", POOLS),
    "encoding": word("encoding", ENCODINGS),
    "max_snoozes": integer("max_snoozes", 0),
    "raw": flag("raw"),
    "function": text("function", "MODULE:NAME"),
}


def job_settings(options: Mapping[str, object], where: str, base: JobSettings | None = None) -> JobSettings:
    """The settings that these keys say, on top of others where there are some. ConfigurationError."""
    fields = read_table(KEYS, options, where)
    fields.pop("function", None)
    fields.update(_retry(fields, DEFAULT_RETRY if base is None else base.retry))
    if base is not None:
        return replace(base, **fields)
    if "queue" not in fields:
        raise ConfigurationError(f"{where}: queue is missing; allowed: {KEYS['queue'].allowed}")
    return JobSettings(**fields)


def _retry(fields: dict[str, Any], base: RetryRules) -> dict[str, RetryRules]:
    """`retry` and `retry_on` are one field; where one is not said, the base has it."""
    default, on = fields.pop("retry", None), fields.pop("retry_on", None)
    if isinstance(default, RetryRules):
        base, default = default, None
    return {"retry": RetryRules(default or base.default, base.on if on is None else on)}
