"""The model of recurring schedules: their fields, changes, and the view of operators."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from pinlater.model.jobs import CONTINUATION_END, ExtendedJob, Job
from pinlater.model.word_enum import WordEnum

SCHEDULE_NAME_ALLOWED = "1 to 64 letters, digits, _ - . and :, with none of - . : in front"
_SCHEDULE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,63}", re.ASCII)

MIN_INTERVAL_MS = 1_000
MAX_CATCH_UP = 1_000


def is_schedule_name(name: str) -> bool:
    return _SCHEDULE_NAME.fullmatch(name) is not None


class Misfire(WordEnum):
    """What becomes of the times at which no server was there. The numbers are those of the wire contract."""

    SKIP = 0
    """Nothing; the next time counts."""

    RUN_ONCE = 1
    """One job, for the last of them."""

    RUN_ALL = 2
    """A job for each of them, the last `max_catch_up`."""


@dataclass(slots=True, kw_only=True)
class Schedule:
    """A job that is enqueued again and again: at the times of `cron` (in `timezone`), or every `every_ms`.

    `jitter_ms`: each job is not handed out before so much after its time, at most; how much follows from the name and
    the time. No time before `start_ms` or from `end_ms` on counts. `made_by`: the program that made it and keeps it,
    "" for people.
    """

    name: str
    queue: str = ""
    body: bytes = b""
    cron: str = ""
    timezone: str = "UTC"
    every_ms: int | None = None
    priority: int = 1
    attempts_allowed: int = 2
    serialize_key: str = ""
    misfire: Misfire = Misfire.RUN_ONCE
    max_catch_up: int = 10
    jitter_ms: int = 0
    start_ms: int | None = None
    end_ms: int | None = None
    paused: bool = False
    made_by: str = ""
    tags: Sequence[str] = ()
    """Of each job."""

    group: str = ""


@dataclass(slots=True, kw_only=True)
class ScheduleChange:
    """What a call says of a schedule; None leaves a field as it is, or as a new schedule has it.

    `cron` and `every_ms` take each other's place. `start_ms` or `end_ms` 0: none.
    """

    name: str
    queue: str | None = None
    body: bytes | None = None
    cron: str | None = None
    timezone: str | None = None
    every_ms: int | None = None
    priority: int | None = None
    attempts_allowed: int | None = None
    serialize_key: str | None = None
    misfire: Misfire | None = None
    max_catch_up: int | None = None
    jitter_ms: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    paused: bool | None = None
    made_by: str | None = None
    tags: Sequence[str] | None = None
    group: str | None = None


@dataclass(slots=True, kw_only=True)
class ScheduleView:
    """A schedule as a server knows it. `next_ms`: its next firings, of a paused one those that it would have.
    `trouble`: why it does not fire as it should; "" where all is well. `body_size` is there also without the body.
    """

    schedule: Schedule
    version: str = ""
    created_at_ms: int = 0
    updated_at_ms: int = 0
    updated_by: str = ""
    last_fired_ms: int | None = None
    next_ms: list[int] = field(default_factory=list)
    trouble: str = ""
    body_size: int = 0

    def job(self) -> Job:
        """One as its firings make them, to be enqueued now. ValueError: the body did not come whole."""
        shown = self.schedule
        if self.body_size != len(shown.body):
            raise ValueError(f"the body of {shown.name} has {self.body_size} bytes, and {len(shown.body)} came")
        plain = (shown.body, shown.priority, None, shown.attempts_allowed)
        if not (shown.serialize_key or shown.tags or shown.group):
            return Job(*plain)
        return ExtendedJob(*plain, serialize_key=shown.serialize_key, tags=shown.tags, group=shown.group)


@dataclass(slots=True)
class ScheduleUpdated:
    """The schedule as it is after a change, or would be after a dry run, and the shards that did not take it yet."""

    view: ScheduleView
    is_changed: bool = True
    missed_shards: list[str] = field(default_factory=list)


@dataclass(slots=True)
class SchedulesPage:
    """Schedules by name."""

    schedules: list[ScheduleView]
    continuation: str = CONTINUATION_END
