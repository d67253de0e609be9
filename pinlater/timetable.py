"""The times of a schedule: of a cron expression in a time zone, or of an interval. Pure.

A cron expression names times on the wall clock of its zone. Where its hour is `*` or `*/n`, it is a rhythm: each real
minute counts whose wall time matches, in both passes of an hour that comes twice. Any other hour names times of the
day, and each counts once: one that does not exist, because the clock is set forward, is the moment of that change; one
that comes twice, because the clock is set back, is the first of the two. Cronsim finds the times on a wall clock that
is never set; the zone is brought in here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from hashlib import blake2b
from typing import Protocol
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from pinlater.model import MIN_INTERVAL_MS, Schedule

_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS = ("minute", "hour", "day of the month", "month", "day of the week")
_VALUES = (range(60), range(24), range(1, 32), range(1, 13), range(8))
_EVERY_HOUR = re.compile(r"\*(/\d+)?")
CRON_ALLOWED = f"five fields ({', '.join(_FIELDS)}), as in 30 3 * * 1-5, or {', '.join(_MACROS)}"
ZONE_ALLOWED = "the name of a time zone, as in Europe/Berlin or UTC"
_NO_PLACES = {
    "localtime": "it is whatever a machine is set to, and servers may differ",
    "posixrules": "it is whatever a machine is set to, and servers may differ",
    "Factory": "it stands for a zone that nobody has chosen",
    "right": "it counts leap seconds, which no server's clock shows",
}
"""By the first part of their names: what a machine's database has, and is no zone to plan by."""

_MAX_CHARS = 200
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = 253_000_000_000_000
"""In the year 9987: dates end soon after it."""

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
    """The times of an expression of five fields in a time zone. TimetableInvalid.

    `both_passes_from_ms`: up to then an expression for every hour skips the second pass of an hour that comes twice, as
    earlier versions do; None: always.
    """

    def __init__(self, expression: str, timezone: str = "UTC", *, both_passes_from_ms: int | None = 0) -> None:
        self._zone = zone_named(timezone)
        self._expression = _checked(expression)
        self._each_from_ms = both_passes_from_ms if is_every_hour(expression) else None

    def after(self, ms: int) -> int | None:
        from_ms = self._each_from_ms
        if ms > _LAST_MS:
            return None
        if from_ms is None:
            return self._once_after(ms)
        if ms < from_ms:
            found_ms = self._once_after(ms)
            if found_ms is not None and found_ms <= from_ms:
                return found_ms
        return self._each_after(max(ms, from_ms))

    def latest(self, ms: int) -> int | None:
        from_ms = self._each_from_ms
        ms = min(ms, _LAST_MS)
        if from_ms is not None and ms > from_ms:
            found_ms = self._each_latest(ms)
            if found_ms is None or found_ms > from_ms:
                return found_ms
            ms = from_ms
        return self._once_latest(ms)

    # -- times of the day, each once -----------------------------------------------------------------------------------

    def _once_after(self, ms: int) -> int | None:
        for time in self._walk(self._wall(_moment(ms))):
            found_ms = self._moment_ms(time)
            if found_ms > ms:
                return found_ms
        return None

    def _once_latest(self, ms: int) -> int | None:
        local = _moment(ms).astimezone(self._zone)
        wall = local.replace(tzinfo=None, fold=0) + _SECOND
        if local.fold:
            wall += _DAY  # times that come twice have been, though the wall clock is before them again
        for time in self._walk(wall, reverse=True):
            found_ms = self._moment_ms(time)
            if found_ms <= ms:
                return found_ms
        return None

    def _moment_ms(self, wall: datetime) -> int:
        local = wall.replace(tzinfo=self._zone)
        moment = local.astimezone(UTC)
        if self._wall(moment) != wall:
            moment = self._change_between(local.replace(fold=1).astimezone(UTC), moment)
        return _ms(moment)

    # -- each real minute ----------------------------------------------------------------------------------------------

    def _each_after(self, ms: int) -> int | None:
        """The wall clock is walked in spans, from one moment at which it is set to the next."""
        begin = _moment(ms)
        wall = self._wall(begin)
        while (time := next(self._walk(wall), None)) is not None:
            found = time.replace(tzinfo=UTC) - self._offset(begin)
            change = self._first_change(begin, found)
            if change is None:
                return _ms(found)
            begin, wall = change, self._wall(change) - _SECOND  # a time at this very moment counts
        return None

    def _each_latest(self, ms: int) -> int | None:
        end = _moment(ms)
        while (time := next(self._walk(self._wall(end) + _SECOND, reverse=True), None)) is not None:
            found = time.replace(tzinfo=UTC) - self._offset(end)
            change = self._last_change(found, end)
            if change is None:
                return _ms(found)
            end = change - _SECOND
        return None

    def _first_change(self, begin: datetime, end: datetime) -> datetime | None:
        """The first moment after `begin`, up to `end`, at which the zone's clock is set."""
        offset = self._offset(begin)
        while begin < end:
            later = min(begin + _DAY, end)
            if self._offset(later) != offset:
                return self._change_between(begin, later)
            begin = later
        return None

    def _last_change(self, begin: datetime, end: datetime) -> datetime | None:
        """The last such moment."""
        offset = self._offset(end)
        while begin < end:
            earlier = max(end - _DAY, begin)
            if self._offset(earlier) != offset:
                return self._change_between(earlier, end)
            end = earlier
        return None

    # -- the zone ------------------------------------------------------------------------------------------------------

    def _walk(self, wall: datetime, *, reverse: bool = False) -> Iterator[datetime]:
        try:
            for time in CronSim(self._expression, wall, reverse=reverse):
                if time > _LAST_WALL:
                    return
                yield time
        except (RuntimeError, OverflowError):
            return

    def _wall(self, moment: datetime) -> datetime:
        return moment.astimezone(self._zone).replace(tzinfo=None, fold=0)

    def _offset(self, moment: datetime) -> timedelta:
        return moment.astimezone(self._zone).utcoffset() or timedelta()

    def _change_between(self, before: datetime, after: datetime) -> datetime:
        """The moment at which the zone's clock is set, in a span in which it is set once."""
        offset = self._offset(before)
        while after - before > _SECOND:
            middle = before + timedelta(seconds=(after - before) // _SECOND // 2)
            if self._offset(middle) == offset:
                before = middle
            else:
                after = middle
        return after


def _moment(ms: int) -> datetime:
    """Rounded down to seconds."""
    return _EPOCH + timedelta(seconds=ms // 1000)


def _ms(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(milliseconds=1)


@lru_cache(maxsize=4096)
def is_every_hour(expression: str) -> bool:
    """Whether it names no hours of the day.

    >>> is_every_hour("*/5 * * * *"), is_every_hour("@hourly"), is_every_hour("0 */2 * * *"), is_every_hour("0 3 * * *")
    (True, True, True, False)
    """
    fields = _written_out(expression).split()
    return len(fields) == 5 and _EVERY_HOUR.fullmatch(fields[1]) is not None


def cron_warnings(expression: str) -> list[str]:
    """What an expression has that can hardly be meant: steps that leave their field at once.

    >>> cron_warnings("*/90 * * * *")
    ['*/90 in the field minute is the same as 0: no step leads beyond the field; for an even distance, use an interval']
    >>> cron_warnings("*/45 9-17/2 * * *")
    []
    """
    found = []
    for name, values, text in zip(_FIELDS, _VALUES, _written_out(expression[:_MAX_CHARS]).split(), strict=False):
        for term in text.split(","):
            base, _, step = term.partition("/")
            if not step.isdecimal():
                continue
            low, _, high = base.partition("-")
            first = values[0] if low == "*" else int(low) if low.isdecimal() else None
            last = int(high) if high.isdecimal() else values[-1]
            if first is not None and int(step) > last - first:
                hint = "; for an even distance, use an interval" if name in ("minute", "hour") else ""
                found.append(f"{term} in the field {name} is the same as {first}: no step leads beyond the field{hint}")
    return found


def checked_zone(name: str) -> str:
    """A zone that a schedule may be given; records of earlier versions may have others, and go on. TimetableInvalid."""
    why = _NO_PLACES.get(name.partition("/")[0])
    if why is not None:
        raise TimetableInvalid("timezone", name, ZONE_ALLOWED, why)
    zone_named(name)
    return name


@cache
def zone_names() -> list[str]:
    """All that this machine knows, and that a schedule may be given, in order."""
    return sorted(name for name in available_timezones() if name.partition("/")[0] not in _NO_PLACES)


def _written_out(expression: str) -> str:
    text = expression.strip()
    return _MACROS.get(text.lower(), text)


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
    text = _written_out(expression)
    if max(len(text), len(expression)) > _MAX_CHARS or len(text.split()) != 5:  # it is kept as it is written
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

    def __init__(self, schedule: Schedule, anchor_ms: int, both_passes_from_ms: int | None = 0) -> None:
        """`anchor_ms`: where an interval without a start is counted from. `both_passes_from_ms`: see CronTimetable."""
        self._start_ms = schedule.start_ms or 0
        self._end_ms = schedule.end_ms
        if (schedule.every_ms is None) == (not schedule.cron):
            text = "one of cron and everyMillis"
            raise TimetableInvalid("cron", schedule.cron, f"{CRON_ALLOWED}; or everyMillis: {text}")
        self._times: Timetable
        if schedule.every_ms is not None:
            self._times = IntervalTimetable(schedule.every_ms, schedule.start_ms or anchor_ms)
        else:
            self._times = CronTimetable(schedule.cron, schedule.timezone, both_passes_from_ms=both_passes_from_ms)

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
