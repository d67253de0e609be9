"""The record of a schedule: an entry `@schedule/NAME` that all shards agree on, and what a change makes of it. Pure."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import structlog

from pinlater.backends.base import ConfigEntry
from pinlater.errors import RequestInvalid
from pinlater.extended_limits import read_group, read_tags
from pinlater.model import (
    MAX_CATCH_UP,
    MAX_KEY_BYTES,
    MAX_TIME_MS,
    Schedule,
    ScheduleChange,
    new_version,
)
from pinlater.schedule import utc_text
from pinlater.stored_json import read_stored
from pinlater.timetable import Firings, TimetableInvalid, checked_zone, is_every_hour

_log = structlog.get_logger("pinlater.schedules")

SCHEDULE_PREFIX = "@schedule/"
MAX_BODY_BYTES = 65_536
"""Of a schedule: every server has all of them at hand."""

MAX_JITTER_MS = 86_400_000
KNOWN_WITHIN_MS = 2_000
"""A change counts at every server within that. Until then no time counts of what may be at home elsewhere, by a new
serialize key, or is made in place of what was deleted.
"""

AHEAD_MS = 60_000
"""What lies further ahead was made by a clock that was wrong."""

_PLAIN = Schedule(name="")
_FIELDS = tuple(name for name in Schedule.__dataclass_fields__ if name not in ("name", "body", "misfire"))
_TIMES = ("cron", "timezone", "every_ms", "start_ms", "end_ms", "paused", "serialize_key")
"""Where one of these changes, the times before the change count no more."""


def queue_missing_text(queue: str) -> str:
    """Why a schedule does not fire whose queue was deleted."""
    return f"its queue {queue!r} is not there: no job comes into being until it is made"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRecord:
    """A schedule as of one version. Only times after `counts_from_ms` count."""

    schedule: Schedule
    version: str = ""
    created_at_ms: int = 0
    updated_at_ms: int = 0
    updated_by: str = ""
    counts_from_ms: int = 0
    generation: str = ""
    """Of its marks: higher each time when the schedule begins anew."""

    @property
    def entry_name(self) -> str:
        return SCHEDULE_PREFIX + self.schedule.name

    def mark(self, time_ms: int) -> str:
        """Of its firing for that time (see Offer): higher than those of earlier times, and of earlier generations."""
        return f"{self.generation}{time_ms:016d}"

    def fired_ms(self, mark: str | None) -> int | None:
        """The time of a mark; None for one of another generation."""
        return int(mark[len(self.generation) :]) if mark and mark.startswith(self.generation) else None

    def silent_until_ms(self, fired_ms: int | None, now_ms: int) -> int | None:
        """Until when it does not fire, since a clock was ahead when it fired last, or was changed; else None."""
        last_ms = max(self.counts_from_ms, fired_ms or 0)
        return last_ms if last_ms > now_ms + AHEAD_MS else None

    def firings(self, both_passes_from_ms: int | None = 0) -> Firings:
        """See CronTimetable. TimetableInvalid: this server does not know the time zone, or a newer one made the
        schedule.
        """
        return Firings(self.schedule, self.created_at_ms, both_passes_from_ms)

    @property
    def has_two_passes(self) -> bool:
        """Whether an hour that comes twice counts twice."""
        return is_every_hour(self.schedule.cron) and self.schedule.timezone != _PLAIN.timezone

    def text(self) -> str:
        """The text of its entry."""
        own = {name: getattr(self.schedule, name) for name in _FIELDS}
        stored: dict[str, Any] = {name: value for name, value in own.items() if value != getattr(_PLAIN, name)}
        if self.schedule.body:
            stored["body"] = base64.b64encode(self.schedule.body).decode("ascii")
        if self.schedule.misfire is not _PLAIN.misfire:
            stored["misfire"] = int(self.schedule.misfire)
        stored |= {"created": self.created_at_ms, "updated": self.updated_at_ms, "by": self.updated_by}
        stored |= {"from": self.counts_from_ms, "generation": self.generation}
        return json.dumps(stored, separators=(",", ":"))


def silence_text(until_ms: int) -> str:
    """Why a schedule does not fire before that time (see ScheduleRecord.silent_until_ms)."""
    return (
        f"it does not fire before {utc_text(until_ms)}: a clock was ahead when it fired last, or is behind now; where "
        "the clocks are right, resume it, and the times from then on count"
    )


def read_record(entry: ConfigEntry | None) -> ScheduleRecord | None:
    """The record of an entry; None where there is none, or it cannot be read, which is logged. What a newer server
    added is left out.
    """
    if entry is None or entry.is_deleted:
        return None
    name = entry.name.removeprefix(SCHEDULE_PREFIX)
    try:
        stored = read_stored(entry.text)
        own = {field: stored[field] for field in (*_FIELDS, "body", "misfire") if field in stored}
        schedule = msgspec.convert({**own, "name": name}, Schedule)
        schedule.tags = tuple(schedule.tags)
        return ScheduleRecord(
            schedule=schedule,
            version=entry.version,
            created_at_ms=int(stored["created"]),
            updated_at_ms=int(stored["updated"]),
            updated_by=str(stored["by"]),
            counts_from_ms=int(stored["from"]),
            generation=str(stored["generation"]),
        )
    except (msgspec.ValidationError, ValueError, LookupError, TypeError, AttributeError) as error:
        _log.warning("schedule_not_understood", schedule=name, error=str(error))
        return None


def changed(
    entry: ConfigEntry | None, change: ScheduleChange, who: str, now_ms: int, *, begins_anew: bool = False
) -> ScheduleRecord:
    """The record that an entry has after a change that is made now; that of the entry where nothing is new.
    RequestInvalid.

    Queue, priority, attempts and the body's bound of that queue are checked by the service. `begins_anew`: its last
    firing counts no more.
    """
    before = read_record(entry)
    had = before.schedule if before else Schedule(name=change.name)
    given = {name: getattr(change, name) for name in ScheduleChange.__dataclass_fields__}
    new: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if change.cron and change.every_ms is not None:
        raise RequestInvalid.of("everyMillis", change.every_ms, "not together with cron: one takes the other's place")
    if change.cron:
        new["every_ms"] = None
    elif change.every_ms is not None:
        new["cron"] = ""
    for name in ("start_ms", "end_ms"):
        if name in new:
            new[name] = new[name] or None
    if "tags" in new:
        new["tags"] = tuple(new["tags"])
    schedule = replace(had, **new)
    _check(schedule)
    if before is not None and schedule == had and not begins_anew:
        return before
    generation = before.generation if before else ""
    counts_from_ms = before.counts_from_ms if before else now_ms
    is_new = before is None or begins_anew
    if is_new:
        generation = new_version(now_ms, entry.version if entry else "")[:16]
    if is_new or any(getattr(schedule, name) != getattr(had, name) for name in _TIMES):
        waits = entry is not None and (is_new or schedule.serialize_key != had.serialize_key)
        counts_from_ms = now_ms + (KNOWN_WITHIN_MS if waits else 0)
    record = ScheduleRecord(
        schedule=schedule,
        created_at_ms=before.created_at_ms if before else now_ms,
        updated_at_ms=now_ms,
        updated_by=who,
        counts_from_ms=counts_from_ms,
        generation=generation,
    )
    try:
        if schedule.timezone != had.timezone:  # also where an interval does not go by it
            checked_zone(schedule.timezone)
        firings = record.firings()
    except TimetableInvalid as error:
        raise RequestInvalid.of(error.field, error.value, error.allowed) from None
    if before is None and not schedule.paused and firings.after(now_ms) is None:
        raise RequestInvalid.of("endMillis", schedule.end_ms, "a time after the first firing")
    return record


def _check(schedule: Schedule) -> None:
    if len(schedule.body) > MAX_BODY_BYTES:
        allowed = f"at most {MAX_BODY_BYTES} bytes; a larger one belongs into a store of its own, and its name here"
        raise RequestInvalid.of("the size of the schedule's body", len(schedule.body), allowed)
    key = schedule.serialize_key
    if len(key.encode()) > MAX_KEY_BYTES or key.startswith("@"):
        raise RequestInvalid.of("serializeKey", key, f"up to {MAX_KEY_BYTES} bytes of UTF-8, with no @ in front")
    read_tags(schedule.tags)
    if schedule.group:
        read_group(schedule.group)
    if not 1 <= schedule.max_catch_up <= MAX_CATCH_UP:
        raise RequestInvalid.of("maxCatchUp", schedule.max_catch_up, f"1 to {MAX_CATCH_UP}")
    if not 0 <= schedule.jitter_ms <= MAX_JITTER_MS:
        raise RequestInvalid.of("jitterMillis", schedule.jitter_ms, f"0 to {MAX_JITTER_MS}, a day")
    for field, value in (("startMillis", schedule.start_ms), ("endMillis", schedule.end_ms)):
        if value is not None and not 0 < value <= MAX_TIME_MS:
            raise RequestInvalid.of(field, value, "0 for none, or milliseconds since 1970")
    if schedule.start_ms is not None and schedule.end_ms is not None and schedule.end_ms <= schedule.start_ms:
        raise RequestInvalid.of("endMillis", schedule.end_ms, f"a time after the start, {schedule.start_ms}")
    if len(schedule.made_by) > 200:
        raise RequestInvalid.of("madeBy", schedule.made_by, "up to 200 characters")
    if schedule.every_ms is not None and schedule.every_ms > MAX_TIME_MS // 2:
        raise RequestInvalid.of("everyMillis", schedule.every_ms, "less than that")
