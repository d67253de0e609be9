"""The settings of a queue, one table, which `pinlater queue set`, the file, the entries and the docs read.

A field `claim_timeout_ms` is the key `claim_timeout`: units in the names of the code are units in the values that
people write (`5m`, `100/s`, `1MiB`, `none`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from pinlater.config.body_rules import QueueBodies
from pinlater.config.settings import BY_NAME as SERVER_SETTINGS
from pinlater.durations import DAY_MS
from pinlater.model import MAX_WEIGHT, QUEUE_NAME_PATTERN
from pinlater.near_names import meant_name
from pinlater.queues.breaker_rule import BreakerRule, FailureShare
from pinlater.setting_kinds import Duration, Flag, Integer, Kind, OrNone, Rate, Size, Text

BREAKER = "@breaker"
"""By whom a queue is paused whose circuit breaker is open."""

_UNITS = ("_ms", "_bytes")
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class QueueSetting:
    """One row of the table. `by_server`: written by the server beside another one, never by its own key."""

    field: str
    kind: Kind
    help: str
    by_server: bool = False

    @property
    def name(self) -> str:
        """The key, as people write it."""
        text = self.field
        for unit in _UNITS:
            text = text.removesuffix(unit)
        return text

    def text(self, value: object) -> str:
        """A value as people write it; `kind.parse` reads it back."""
        literal = self.kind.toml(value)
        return str(json.loads(literal)) if literal.startswith('"') else literal


def _row(kind: Kind, default: Any, text: str, *, by_server: bool = False) -> Any:
    return field(default=default, metadata={"kind": kind, "help": text, "by_server": by_server})


def _as_of_server(name: str, text: str) -> Any:
    """A row with the default and the values of the server's own setting, which counts where nothing is set."""
    return _row(SERVER_SETTINGS[name].kind, SERVER_SETTINGS[name].default, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseSettings:
    """The pause of a queue, or of a group of one."""

    paused: bool = _row(Flag(), False, "No job is handed out; everything else goes on.")
    paused_by: str = _row(Text(r"(?s:.*)"), "", "The operator who paused it.", by_server=True)
    paused_at_ms: int | None = _row(OrNone(Integer(0, 2**53 - 1)), None, "Since when.", by_server=True)
    paused_why: str = _row(Text(r"[^\0-\x1f]{0,500}", "a line of up to 500 characters"), "", "Why it is paused.")
    paused_until_ms: int | None = _row(
        OrNone(Integer(0, 2**53 - 1)), None, "When the pause ends by itself, in milliseconds since 1970; none: never."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings(PauseSettings):
    """The settings of one queue. The defaults here are those of a server that was configured with nothing."""

    max_jobs_per_second: float | None = _row(
        OrNone(Rate()), None, "The most jobs handed out, over the whole cluster: 100/s, 30/m, none; 0/s is like paused."
    )
    draining: bool = _row(Flag(), False, "New jobs are refused; workers go on.")
    claim_timeout_ms: int = _as_of_server(
        "claim-timeout", "The claim time-out: a claim that is not renewed in this time expires."
    )
    succeeded_ttl_ms: int = _as_of_server(
        "succeeded-ttl", "How long jobs that succeeded are kept; 0s: the ack removes them."
    )
    failed_ttl_ms: int = _as_of_server(
        "failed-ttl", "How long jobs that failed for good are kept; 0s: the ack removes them."
    )
    max_attempts: int | None = _row(OrNone(Integer(1, 2**31 - 1)), None, "Jobs that ask for more attempts are refused.")
    max_body_bytes: int = _as_of_server("max-body", "Larger bodies are refused; never above the server's own.")
    max_result_bytes: int = _row(
        Size(0, 512 * _MIB),
        64 * 1024,
        "A success with a larger result fails the attempt; never above the server's own bound of bodies.",
    )
    result_ttl_ms: int = _row(
        Duration(1000, 3650 * DAY_MS), 3_600_000, "How long the results of jobs are kept, whether or not the jobs are."
    )
    max_pending: int | None = _row(
        OrNone(Integer(0, 2**53 - 1)),
        None,
        "The most pending jobs, with scheduled ones; beyond it new ones are refused.",
    )
    max_in_progress: int | None = _row(
        OrNone(Integer(0, 1_000_000)), None, "The most jobs in progress, over the whole cluster."
    )
    dead_letter_queue: str = _row(
        Text(f"({QUEUE_NAME_PATTERN})?", "the name of a queue, or nothing"),
        "",
        "A job that failed for good is copied to this queue, which has none of its own.",
    )
    priority_aging_ms: int | None = _row(
        OrNone(Duration(1000, 3650 * DAY_MS)),
        None,
        "A job counts one priority higher for each so much time since its run_after; none: priorities are strict.",
    )
    latency_goal_ms: int | None = _row(
        OrNone(Duration(1000, 3650 * DAY_MS)),
        None,
        "The time that a ready job may wait before there is an alarm ([alarms.md](alarms.md)); none: 5m.",
    )
    crash_budget: int = _as_of_server(
        "crash-budget", "A job whose workers were lost this many times fails, whatever attempts remain; 0: no bound."
    )
    pause_on_failures: BreakerRule | None = _row(  # noqa: RUF009 (the rule is frozen, too)
        OrNone(FailureShare()),
        None,
        "The circuit breaker: it pauses the queue when that share of attempts failed, and tries one job now and then.",
    )
    group_concurrency: int | None = _row(
        OrNone(Integer(1, 1_000_000)),
        None,
        "The most jobs of each group in progress, over the whole cluster ([fairness.md](fairness.md#limits)).",
    )
    group_rate: float | None = _row(
        OrNone(Rate(above_zero=True)),
        None,
        "The most jobs of each group handed out, over the whole cluster: 50/s, 30/m, none.",
    )
    group_max_pending: int | None = _row(
        OrNone(Integer(1, 2**53 - 1)),
        None,
        "The most jobs of each group that are due and wait; beyond it new ones of that group are refused.",
    )
    flows_by_group: bool = _row(
        Flag(),
        False,
        "Items of flows that have no group have their flow as one, so that a flow of a million items does not make "
        "others wait ([fairness.md](fairness.md#flows)).",
    )
    bodies: str = _row(
        QueueBodies(),
        "",
        "Where large bodies go, before the rules of the server: shard, or a rule as in its body-rules. Servers without "
        "the tier keep them in the shard.",
    )
    flow_items: bool = _row(
        Flag(),
        False,
        "Items of flows come into it: how its jobs end is recorded in the database of flows first. Then crash_budget "
        "and dead_letter_queue do not apply.",
        by_server=True,
    )
    limits_groups: bool = False
    """No setting: whether some group of the queue has a limit."""

    counts_jobs: bool = field(init=False)
    """No setting: whether a limit counts the jobs of the whole queue, as is then done before a claim, which asks for no
    more than what is ready. Limits of groups take permits behind a claim.
    """

    is_limited: bool = field(init=False)
    """No setting: whether anything keeps jobs from being handed out as they are asked for. Each dequeue wants to know.
    """

    def __post_init__(self) -> None:
        counts_jobs = self.paused or self.max_jobs_per_second is not None or self.max_in_progress is not None
        object.__setattr__(self, "counts_jobs", counts_jobs)
        object.__setattr__(self, "is_limited", counts_jobs or self.limits_groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings(PauseSettings):
    """The settings of one group of a queue, by its name or by a pattern."""

    weight: int = _row(
        Integer(1, MAX_WEIGHT), 1, "Its share of the hand-outs, in proportion to the weights of other groups."
    )
    concurrency: int | None = _row(
        OrNone(Integer(1, 1_000_000)), None, "The most of its jobs in progress; unset: the queue's group_concurrency."
    )
    rate: float | None = _row(
        OrNone(Rate(above_zero=True)), None, "The most of its jobs handed out; unset: the queue's group_rate."
    )


def _table(settings: type[PauseSettings]) -> dict[str, QueueSetting]:
    rows = (
        QueueSetting(each.name, each.metadata["kind"], each.metadata["help"], each.metadata["by_server"])
        for each in fields(settings)
        if each.metadata
    )
    return {row.name: row for row in rows}


SettingTable = Mapping[str, QueueSetting]
"""Rows by their names."""

BY_NAME: SettingTable = _table(QueueSettings)
SETTINGS: tuple[QueueSetting, ...] = tuple(BY_NAME.values())
GROUP_SETTINGS: SettingTable = _table(GroupSettings)
OF_A_PAUSE = tuple(each.name for each in fields(PauseSettings) if each.name != "paused")
"""The fields that say more of a pause."""


def known_key(key: str, table: SettingTable = BY_NAME) -> tuple[QueueSetting | None, str]:
    """The setting that people may write under this key; else None, and what they may have meant.

    >>> known_key("max_pendng")[1]
    'a known key (did you mean max_pending?)'
    """
    setting = table.get(key)
    if setting is not None and not setting.by_server:
        return setting, setting.kind.allowed
    if setting is not None:
        return None, "nothing: the server writes it itself"
    return None, known_or_near(key, [name for name, each in table.items() if not each.by_server])


def known_or_near(key: str, known: Sequence[str]) -> str:
    """A text with what is allowed in place of an unknown key: one that is near to it, or all."""
    near = meant_name(key, known)
    return f"a known key{near}" if near else f"one of {', '.join(known)}"
