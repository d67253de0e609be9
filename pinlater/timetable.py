"""The times of a schedule: of a cron expression in a time zone, or of an interval. Pure.

A cron expression names times on the wall clock of its zone, minutes of the day. Each counts once: one that does not
exist, because the clock is set forward, is the moment of that change; one that comes twice, because the clock is set
back, is the first of the two. Cronsim finds the times on a wall clock that is never set; the zone is brought in here.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from pinlater.model import MIN_INTERVAL_MS, Schedule
from pinlater.schedule import zone_moment

_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS = "minute, hour, day of the month, month, day of the week"
CRON_ALLOWED = f"five fields ({_FIELDS}), as in 30 3 * * 1-5, or {', '.join(_MACROS)}"
ZONE_ALLOWED = "the name of a time zone, as in Europe/Berlin or UTC"
_MAX_CHARS = 200
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)
_LAST_WALL = datetime.max.replace(microsecond=0) - 2 * _DAY
"""The last time on a wall that is on the calendar in every zone."""


class TimetableInvalid(ValueError):
    """`field` has a `value` that is no timetable; `allowed` says what would be one, and `why` this is none."""

    def __init__(self, field: str, value: object, allowed: str, why: str = "") -> None:
        allowed = f"{allowed} ({why})" if why else allowed
        super().__init__(f"{field} is {str(value)[:_MAX_CHARS]!r}; allowed: {allowed}")
        self.field = field
        self.value = value
        self.allowed = allowed
        self.why = why


class Timetable(Protocol):
    """Times in milliseconds since 1970, without end."""

    def after(self, ms: int) -> int | None:
        """The first time after `ms`; None where there is none in the next 50 years."""

    def latest(self, ms: int) -> int | None:
        """The last time that is not after `ms`; None where there was none in the last 50 years."""


class IntervalTimetable:
    """Every `every_ms`, counted from `anchor_ms` in both directions."""

    def __init__(self, every_ms: int, anchor_ms: int) -> None:
        if every_ms < MIN_INTERVAL_MS:
            raise TimetableInvalid("everyMillis", every_ms, f"{MIN_INTERVAL_MS} or more")
        self._every_ms = every_ms
        self._anchor_ms = anchor_ms

    def after(self, ms: int) -> int | None:
        return self.latest(ms) + self._every_ms

    def latest(self, ms: int) -> int:
        return ms - (ms - self._anchor_ms) % self._every_ms


class CronTimetable:
    """The times of an expression of five fields in a time zone. TimetableInvalid."""

    def __init__(self, expression: str, timezone: str = "UTC") -> None:
        self._zone = zone_named(timezone)
        self._expression = _checked(expression)

    def after(self, ms: int) -> int | None:
        local = self._local(ms)
        if local is None:
            return None
        wall = local.replace(tzinfo=None)
        for time in self._walk(wall):
            found_ms = self._moment_ms(time)
            if found_ms > ms:
                return found_ms
        return None

    def latest(self, ms: int) -> int | None:
        local = self._local(ms) or datetime.max.replace(tzinfo=self._zone, microsecond=0)
        wall = min(local.replace(tzinfo=None, fold=0), _LAST_WALL) + _SECOND
        if local.fold:
            wall += _DAY  # times that come twice have been, though the wall clock is before them again
        for time in self._walk(wall, reverse=True):
            found_ms = self._moment_ms(time)
            if found_ms <= ms:
                return found_ms
        return None

    def _walk(self, wall: datetime, *, reverse: bool = False) -> Iterator[datetime]:
        try:
            for time in CronSim(self._expression, wall, reverse=reverse):
                if time > _LAST_WALL:
                    return
                yield time
        except (RuntimeError, OverflowError):
            return

    def _local(self, ms: int) -> datetime | None:
        """Rounded down to seconds; None beyond the calendar."""
        return zone_moment(ms // 1000 * 1000, self._zone)

    def _moment_ms(self, wall: datetime) -> int:
        local = wall.replace(tzinfo=self._zone)
        moment = local.astimezone(UTC)
        if moment.astimezone(self._zone).replace(tzinfo=None) != wall:
            moment = self._change_between(local.replace(fold=1).astimezone(UTC), moment)
        return (moment - _EPOCH) // timedelta(milliseconds=1)

    def _change_between(self, before: datetime, after: datetime) -> datetime:
        """The moment at which the zone's clock is set, in a span in which it is set once."""
        offset = before.astimezone(self._zone).utcoffset()
        while after - before > _SECOND:
            middle = before + timedelta(seconds=(after - before) // _SECOND // 2)
            if middle.astimezone(self._zone).utcoffset() == offset:
                before = middle
            else:
                after = middle
        return after


@lru_cache(maxsize=1024)
def zone_named(name: str) -> ZoneInfo:
    """TimetableInvalid."""
    try:
        if not name.isascii() or len(name) > 64:
            raise ValueError(name)
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        raise TimetableInvalid("timezone", name, ZONE_ALLOWED) from None


@lru_cache(maxsize=4096)
def _checked(expression: str) -> str:
    """As cronsim takes it. TimetableInvalid."""
    text = _MACROS.get(expression.strip().lower(), expression.strip())
    if len(text) > _MAX_CHARS or len(text.split()) != 5:
        raise TimetableInvalid("cron", expression, CRON_ALLOWED)
    try:
        found = next(CronSim(text, datetime(2000, 1, 1)), None)
    except CronSimError as error:
        raise TimetableInvalid("cron", expression, CRON_ALLOWED, str(error)) from None
    if found is None:
        raise TimetableInvalid("cron", expression, CRON_ALLOWED, "this one names a day that never comes")
    return text


def cron_words(expression: str) -> str:
    """An expression in words; "" where this server cannot read it.

    >>> cron_words("0 3 * * *"), cron_words("@hourly"), cron_words("at three")
    ('At 03:00 every day', 'At the start of every hour', '')
    """
    try:
        return str(CronSim(_checked(expression), datetime(2000, 1, 1)).explain())
    except TimetableInvalid:
        return ""


class Firings:
    """The times at which a schedule fires, between its start and its end. TimetableInvalid."""

    def __init__(self, schedule: Schedule, anchor_ms: int) -> None:
        """`anchor_ms`: where an interval is counted from that has no start."""
        self._start_ms = schedule.start_ms or 0
        self._end_ms = schedule.end_ms
        if (schedule.every_ms is None) == (not schedule.cron):
            text = "one of cron and everyMillis"
            raise TimetableInvalid("cron", schedule.cron, f"{CRON_ALLOWED}; or everyMillis: {text}")
        self._times: Timetable
        if schedule.every_ms is not None:
            self._times = IntervalTimetable(schedule.every_ms, schedule.start_ms or anchor_ms)
        else:
            self._times = CronTimetable(schedule.cron, schedule.timezone)

    def after(self, ms: int) -> int | None:
        """The first firing after `ms`."""
        found = self._times.after(max(ms, self._start_ms - 1))
        return None if found is None or (self._end_ms is not None and found >= self._end_ms) else found

    def latest(self, ms: int, after_ms: int) -> int | None:
        """The last firing that is not after `ms`, but after `after_ms`."""
        if self._end_ms is not None:
            ms = min(ms, self._end_ms - 1)
        found = self._times.latest(ms)
        return None if found is None or found <= after_ms or found < self._start_ms else found

    def next(self, ms: int, limit: int) -> list[int]:
        """Up to `limit` firings after `ms`."""
        found: list[int] = []
        while len(found) < limit:
            following = self.after(found[-1] if found else ms)
            if following is None:
                break
            found.append(following)
        return found


def jitter_ms(schedule: Schedule, time_ms: int) -> int:
    """How much after a time its job is handed out at the earliest: the same for whoever asks."""
    if schedule.jitter_ms <= 0:
        return 0
    thrown = blake2b(f"{schedule.name}\0{time_ms}".encode(), digest_size=8).digest()
    return int.from_bytes(thrown, "big") % (schedule.jitter_ms + 1)
