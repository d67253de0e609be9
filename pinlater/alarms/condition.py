"""A condition as a row of the table, and the findings that it makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pinlater.alarms.evidence import Evidence
from pinlater.model.alarm_views import Alarm, Severity

QUIET_MS = 10_000
"""Two judgements: what one of them could not see is not over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A condition holds of one subject. `queue`, `size`, and the texts are those of the alarm (see Alarm).

    It explains alarms of its queue alone, or of all where it has none. `since_ms` None: since it was found. `severity`
    None: that of the condition. `has_own_cause`: what is wrong with the cluster as a whole does not explain it.
    """

    subject: str
    title: str
    queue: str = ""
    since_ms: int | None = None
    severity: Severity | None = None
    size: int = 0
    why: str = ""
    impact: str = ""
    error: str = ""
    action: str = ""
    command: str = ""
    path: str = ""
    has_own_cause: bool = False


def found_before(alarm: Alarm, size: int) -> Finding:
    """An alarm that stands, found again where what showed it is gone."""
    return Finding(
        subject=alarm.subject,
        title=alarm.title,
        queue=alarm.queue,
        severity=alarm.severity,
        size=size,
        why=alarm.why,
        impact=alarm.impact,
        action=alarm.action,
        command=alarm.command,
        path=alarm.path,
        has_own_cause=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A row of the table: `holds`, `not_for`, `threshold`, `set_where` and `remedy` are texts for people.

    `absorbs`: the conditions whose alarms about the same queue are listed in this one's; of all queues, where that is
    about none. An alarm ends when nothing was found for `quiet_ms`, so that one which comes and goes is one.
    `of_queue`: it ends with its queue.
    """

    name: str
    severity: Severity
    holds: str
    threshold: str
    remedy: str
    find: Callable[[Evidence], Iterable[Finding]]
    set_where: str = "fixed"
    not_for: str = ""
    absorbs: tuple[str, ...] = ()
    quiet_ms: int = QUIET_MS
    of_queue: bool = False
