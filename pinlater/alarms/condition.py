"""A condition as a row of the table, and the findings that it makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pinlater.alarms.evidence import Evidence
from pinlater.model.alarm_views import Severity

EVERY: frozenset[str] | None = None
"""The queues of what concerns the whole cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A condition holds of one subject. `queue`, `size`, and the texts are those of the alarm (see Alarm).

    `queues` are those whose alarms it explains. `since_ms` None: since it was found. `severity` None: that of the
    condition. `has_own_cause`: what is wrong with the cluster as a whole does not explain it.
    """

    subject: str
    title: str
    queue: str = ""
    queues: frozenset[str] = frozenset()
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A row of the table: `holds`, `not_for`, `threshold`, `set_where` and `remedy` are texts for people.

    `absorbs`: the conditions whose alarms about the same queues are listed in this one's; about the cluster, where
    `find` names no queues. An alarm ends when nothing was found for `quiet_ms`.
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
    quiet_ms: int = 0
