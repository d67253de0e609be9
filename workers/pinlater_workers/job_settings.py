"""What can be said of a type of job, in a decorator or in a file: one table, one meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pinlater_workers.retry import DEFAULT_RETRY, RetryRules

PoolName = Literal["thread", "process", "async"]
Encoding = Literal["json", "msgpack"]

DEFAULT_TIME_LIMIT_S = 3600.0
DEFAULT_MAX_SNOOZES = 100


@dataclass(frozen=True, slots=True)
class JobSettings:
    """`attempts` None: one more than the policy's retries. `pool` None: the worker's own choice.

    `time_limit_s`: how long one attempt may run. `raw`: the function takes the whole body as bytes, and runs whatever
    job of its queue has no envelope. `max_snoozes`: how often Snooze may be raised in the life of one job.
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
