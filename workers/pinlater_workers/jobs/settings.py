"""The settings of a type of job, from a decorator or a file: one table, one meaning."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pinlater.durations import parse_duration
from pinlater.model import (
    CONTROL_CHAR,
    MAX_TAG_BYTES,
    MAX_TAGS,
    MIN_INTERVAL_MS,
    QUEUE_NAME_ALLOWED,
    WHILE_KEPT,
    Misfire,
    OnDuplicate,
    ReplaceRunning,
    is_queue_name,
)
from pinlater.schedule import Delay
from pinlater.setting_kinds import Choice, Flag, Text
from pinlater.timetable import CRON_ALLOWED, ZONE_ALLOWED, CronTimetable, TimetableInvalid, checked_zone
from pinlater_workers.envelope import ENCODINGS, Encoding
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.imports import import_object
from pinlater_workers.jobs.keys import KeyOption, key_option
from pinlater_workers.jobs.retry import DEFAULT_RETRY, Delays, Function, Policy, RetryRules
from pinlater_workers.jobs.retry_text import parse_policy
from pinlater_workers.settings_table import DAY_S, Key, duration, integer, key, member, read_table

PoolName = Literal["thread", "process", "async"]

POOLS: tuple[PoolName, ...] = ("thread", "process", "async")

QUEUE_NAME = QUEUE_NAME_ALLOWED

DEFAULT_TIME_LIMIT_S = 3600.0
DEFAULT_MAX_SNOOZES = 100
DEFAULT_BATCH_WAIT_S = 0.2
MAX_BATCH = 10_000
LONGEST_BATCH_WAIT_S = 600.0

KEPT = float(WHILE_KEPT)
LONGEST_WINDOW_S = 3650 * DAY_S
LONGEST_CLAIM_S = 7 * DAY_S

RetryOption = Policy | RetryRules | str | Sequence[Delay] | Callable[[int, BaseException], Delay | None]


@dataclass(frozen=True, slots=True)
class JobSettings:
    """The settings of a type of job. `attempts` None: one more than the policy's retries. `pool` None: the worker's own
    choice.

    `time_limit_s`: how long one attempt may run. `raw`: the function takes the whole body as bytes, and runs whatever
    job of its queue has no envelope. `max_snoozes`: how often Snooze may be raised before a Reschedule, retries
    counted in. `secret`: the parameters whose values no display shows. `batch`: so many jobs at most for one call of
    the function; None: it takes one job. `batch_wait_s`: how long the first of a batch waits for others.
    `unique`, `serialize`: what makes the keys of a job, None: none. `unique_for_s`: how long after its end no second
    job of the key comes into being; KEPT: as long as it is kept. `replace_running`, `replace_within_s`: for REPLACE,
    what becomes of a job that runs, and how long one may be postponed since its first enqueue. `expires_s`: counts from
    when it is due. `tags`: of each job, for those who look for it. `group`: what makes the group of a job, None: none.
    `cron` in `timezone`, or `every_s`: its schedule, which `pinlater-worker schedules --apply` brings to the cluster.
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
    secret: tuple[str, ...] = ()
    batch: int | None = None
    batch_wait_s: float = DEFAULT_BATCH_WAIT_S
    unique: KeyOption | None = None
    unique_for_s: float = 0.0
    on_duplicate: OnDuplicate = OnDuplicate.KEEP
    replace_running: ReplaceRunning = ReplaceRunning.KEEP
    replace_within_s: float | None = None
    serialize: KeyOption | None = None
    expires_s: float | None = None
    claim_timeout_s: float | None = None
    keep_result: bool = False
    tags: tuple[str, ...] = ()
    group: KeyOption | None = None
    cron: str = ""
    timezone: str = "UTC"
    every_s: float | None = None
    misfire: Misfire = Misfire.RUN_ONCE
    jitter_s: float = 0.0

    @property
    def attempts_allowed(self) -> int:
        return self.retry.retries + 1 if self.attempts is None else self.attempts


def retry_policy(value: object) -> Policy | RetryRules:
    """A policy, rules, a text, a list of durations, or a function of (attempt, error). ValueError or TypeError."""
    if isinstance(value, Policy | RetryRules):
        return value
    if isinstance(value, str):
        return parse_policy(value)
    if isinstance(value, Sequence):
        return Delays(tuple(parse_duration(delay) for delay in value))
    if callable(value) and not isinstance(value, type):
        return Function(value)
    raise TypeError


def retry_policies(value: object) -> dict[type[BaseException], Policy]:
    """Types of exception, in a file by their names, and a policy for each. ValueError or TypeError."""
    if not isinstance(value, Mapping):
        raise TypeError
    found = {}
    for name, rule in value.items():
        policy = retry_policy(rule)
        if isinstance(policy, RetryRules):
            raise TypeError(f"{name} has rules; a policy is wanted")
        found[_exception(name)] = policy
    return found


def cron_expression(value: object) -> str:
    """ValueError."""
    if not isinstance(value, str):
        raise TypeError
    try:
        CronTimetable(value)
    except TimetableInvalid as error:
        raise ValueError(error.why) from None
    return value


def time_zone(value: object) -> str:
    """ValueError."""
    if not isinstance(value, str):
        raise TypeError
    try:
        return checked_zone(value)
    except TimetableInvalid as error:
        raise ValueError(error.why) from None


def _names(value: object) -> tuple[str, ...]:
    """A list of names. TypeError: a text too, which would be one name for each letter."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(each, str) for each in value):
        raise TypeError
    return tuple(value)


TAGS_ALLOWED = (
    f'a list of up to {MAX_TAGS} texts of 1 to {MAX_TAG_BYTES} bytes, as in ["tenant:7"], none twice, and without '
    "control characters"
)


def tag_names(value: object) -> tuple[str, ...]:
    """TypeError or ValueError: what cannot be tags."""
    tags = _names(value)
    if len(tags) > MAX_TAGS or len(set(tags)) < len(tags):
        raise ValueError
    if not all(1 <= len(tag.encode()) <= MAX_TAG_BYTES and not CONTROL_CHAR.search(tag) for tag in tags):
        raise ValueError
    return tags


def _exception(name: object) -> type[BaseException]:
    kind = name
    if isinstance(name, str):
        kind = import_object(name, "retry_on") if ":" in name else getattr(builtins, name, None)
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        raise TypeError(f"{name!r} is no type of exception")
    return kind


KEY_OPTION = 'a template over the arguments, as in "{user_id}", or a function of them'

JOB_KEYS: dict[str, Key] = {
    "queue": key("queue", Text(is_queue_name, f"the name of a queue: {QUEUE_NAME}")),
    "attempts": integer("attempts", 1),
    "retry": Key(
        "retry", retry_policy, "a policy, as in 'exponential first=1s factor=2 cap=1h' (docs/workers-retries.md)"
    ),
    "retry_on": Key("retry_on", retry_policies, "a table of exception types, each with a policy"),
    "time_limit": duration("time_limit_s", 0.001, 365 * DAY_S),
    "priority": integer("priority", 1, 127),
    "pool": key("pool", Choice(*POOLS)),
    "encoding": key("encoding", Choice(*ENCODINGS)),
    "max_snoozes": integer("max_snoozes", 0),
    "raw": key("raw", Flag()),
    "secret": Key("secret", _names, 'a list of names of parameters, as in ["password"]'),
    "batch": integer("batch", 1, MAX_BATCH),
    "wait": duration("batch_wait_s", 0.0, LONGEST_BATCH_WAIT_S),
    "unique": Key("unique", key_option, KEY_OPTION),
    "unique_for": duration("unique_for_s", 0.0, LONGEST_WINDOW_S, kept=KEPT),
    "on_duplicate": member("on_duplicate", OnDuplicate),
    "replace_running": member("replace_running", ReplaceRunning),
    "replace_within": duration("replace_within_s", 0.001, LONGEST_WINDOW_S),
    "serialize": Key("serialize", key_option, KEY_OPTION),
    "expires": duration("expires_s", 0.001, LONGEST_WINDOW_S),
    "claim_timeout": duration("claim_timeout_s", 0.001, LONGEST_CLAIM_S),
    "keep_result": key("keep_result", Flag()),
    "tags": Key("tags", tag_names, TAGS_ALLOWED),
    "group": Key("group", key_option, KEY_OPTION),
    "cron": Key("cron", cron_expression, CRON_ALLOWED),
    "timezone": Key("timezone", time_zone, ZONE_ALLOWED),
    "every": duration("every_s", MIN_INTERVAL_MS / 1000, LONGEST_WINDOW_S),
    "misfire": member("misfire", Misfire),
    "jitter": duration("jitter_s", 0.0, DAY_S),
    "function": key("function", Text(allowed="MODULE:NAME")),
}


REPLACE_RULES = ("replace_running", "replace_within")
"""The options that say how on_duplicate="replace" replaces."""


def refuse_without_unique(options: Mapping[str, object], where: str) -> None:
    """ConfigurationError: options that mean nothing to a job without `unique`."""
    for name in ("unique_for", "on_duplicate", *REPLACE_RULES):
        if name in options:
            raise ConfigurationError(f"{where}: {name} goes with unique; set unique too, or leave it out")


def refuse_without_replace(options: Mapping[str, object], on_duplicate: OnDuplicate, where: str) -> None:
    """ConfigurationError: options that mean nothing to a job that does not replace."""
    for name in REPLACE_RULES:
        if name in options and on_duplicate is not OnDuplicate.REPLACE:
            text = f'{name} goes with on_duplicate="replace"; set on_duplicate too, or leave it out'
            raise ConfigurationError(f"{where}: {text}")


def job_settings(options: Mapping[str, object], where: str, base: JobSettings | None = None) -> JobSettings:
    """The settings that these keys say, on top of others where there are some. ConfigurationError."""
    fields = read_table(JOB_KEYS, options, where)
    fields.pop("function", None)
    fields.update(_retry(fields, DEFAULT_RETRY if base is None else base.retry))
    if "batch_wait_s" in fields and "batch" not in fields and (base is None or base.batch is None):
        raise ConfigurationError(f"{where}: wait is how long jobs wait for their batch; set batch too, or leave it out")
    if not fields.get("unique", None if base is None else base.unique):
        refuse_without_unique(options, where)
    on_duplicate = OnDuplicate.KEEP if base is None else base.on_duplicate
    refuse_without_replace(options, fields.get("on_duplicate", on_duplicate), where)
    _check_schedule(fields, where, base)
    if base is not None:
        return replace(base, **fields)
    if "queue" not in fields:
        raise ConfigurationError(f"{where}: queue is missing; allowed: {JOB_KEYS['queue'].allowed}")
    return JobSettings(**fields)


def _check_schedule(fields: dict[str, Any], where: str, base: JobSettings | None) -> None:
    """`cron` and `every` take each other's place. ConfigurationError: both, or what goes with them without them."""
    if fields.get("cron") and fields.get("every_s") is not None:
        raise ConfigurationError(f"{where}: it has both cron and every; allowed: one of them")
    if fields.get("cron"):
        fields["every_s"] = None
    elif fields.get("every_s") is not None:
        fields["cron"] = ""
    elif base is None or not (base.cron or base.every_s is not None):
        for name in ("timezone", "misfire", "jitter_s"):
            if name in fields:
                option = name.removesuffix("_s")
                raise ConfigurationError(f"{where}: {option} goes with cron or every; set one of them, or leave it out")


def _retry(fields: dict[str, Any], base: RetryRules) -> dict[str, RetryRules]:
    """`retry` and `retry_on` are one field; where one is not said, the base has it."""
    default, on = fields.pop("retry", None), fields.pop("retry_on", None)
    if isinstance(default, RetryRules):
        base, default = default, None
    return {"retry": RetryRules(default or base.default, base.on if on is None else on)}
