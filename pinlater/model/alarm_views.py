"""Alarms: what is broken in a cluster, since when, why, how bad that is, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pinlater.model.callers import EVERY_QUEUE
from pinlater.model.word_enum import WordEnum

OLD_MS = 60_000
"""A judgement that is older is shown as old."""


class Severity(WordEnum):
    """The worst first. The numbers are those of the wire contract."""

    CRITICAL = 0
    """Jobs are not done, or will be lost."""

    WARNING = 1
    """Jobs will not be done in time, if nobody acts."""

    INFO = 2
    """Worth knowing."""


@dataclass(frozen=True, slots=True)
class AbsorbedAlarm:
    """What is wrong as well because of the alarm that absorbed it."""

    name: str
    title: str
    queue: str = ""


@dataclass(frozen=True, slots=True)
class Alarm:
    """One condition that holds of one subject: a queue, a shard, a server process; "" is the cluster.

    `queue` says who may see it: whoever may read that queue, or with "" whoever may read any. `size` is how much it is
    now, in what `title` counts, and `peak` the most that it was; these and `impact` tell of jobs, of all queues where
    `queue` is "", and `error` of what jobs said: nothing for who may not see that. `path` is the page of the dashboard
    where its cause is.
    """

    name: str
    subject: str
    severity: Severity
    title: str
    since_ms: int
    queue: str = ""
    size: int = 0
    peak: int = 0
    why: str = ""
    impact: str = ""
    error: str = ""
    action: str = ""
    command: str = ""
    path: str = ""
    absorbed: tuple[AbsorbedAlarm, ...] = ()
    ended_ms: int | None = None
    muted_until_ms: int | None = None
    muted_by: str = ""
    muted_why: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """No other alarm has the same at the same time."""
        return self.name, self.subject

    @property
    def order(self) -> tuple[int, int, str, str]:
        """The worst first, then the largest."""
        return int(self.severity), -self.size, self.name, self.subject

    @property
    def is_muted(self) -> bool:
        return self.muted_until_ms is not None

    def shown_to(self, may_read: Callable[[str, bool], bool]) -> Alarm | None:
        """As a caller sees it; None: it may not read the queue. `may_read` takes a queue, and whether bodies are
        meant.
        """
        if self.queue and not may_read(self.queue, False):
            return None
        sees_jobs = may_read(self.queue or EVERY_QUEUE, False)
        return replace(
            self,
            size=self.size if sees_jobs else 0,
            peak=self.peak if sees_jobs else 0,
            impact=self.impact if sees_jobs else "",
            error=self.error if may_read(self.queue or EVERY_QUEUE, True) else "",
            absorbed=tuple(each for each in self.absorbed if not each.queue or may_read(each.queue, False)),
        )


@dataclass(frozen=True, slots=True)
class AlarmsPage:
    """The alarms of a cluster, the worst first, or those that ended, the latest first.

    `judged_by` is the server process that judged, as SERVER/PROCESS, and `judged_at_ms` when it did so last; None: none
    did so yet. `is_alone`: no shard can be reached, so a server judged by what it knows itself. `more` are alarms that
    are too many to be listed.
    """

    now_ms: int
    alarms: list[Alarm] = field(default_factory=list)
    judged_by: str = ""
    judged_at_ms: int | None = None
    is_alone: bool = False
    more: int = 0

    def by_queue(self) -> dict[str, Alarm]:
        """The worst of each queue that has any that is not muted."""
        return {alarm.queue: alarm for alarm in reversed(self.alarms) if alarm.queue and not alarm.is_muted}
