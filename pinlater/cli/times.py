"""Times as people write and read them: durations, moments, and their text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from pinlater.clock import SystemClock
from pinlater.durations import age_text, parse_duration_ms
from pinlater.model import MAX_TIME_MS
from pinlater.schedule import utc_text

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def seconds_or_duration_ms(text: str, low_ms: int = 1) -> int:
    """Milliseconds of a duration; a plain number is one of seconds. ValueError."""
    return parse_duration_ms(text, low_ms, MAX_TIME_MS, bare="s")


def parse_moment_ms(text: str, now_ms: int) -> int:
    """Milliseconds since the epoch of `+10m` or an ISO time, in this machine's zone where it names none. ValueError.

    >>> parse_moment_ms("2026-01-02T03:04:05Z", 0), parse_moment_ms("+10m", 1_000)
    (1767323045000, 601000)
    >>> parse_moment_ms("2026-01-02T03:04:05.000001Z", 0)
    1767323045001
    """
    if text.startswith("+"):
        return now_ms + seconds_or_duration_ms(text[1:])
    if text.isdecimal() and len(text) != len("20260131"):  # else read as a date, a separator and a time of day
        raise ValueError(f"{text!r} is a bare number; allowed: an ISO time such as 2026-01-31T12:00:00Z, or +10m")
    try:
        moment_ms = -(
            (_EPOCH - datetime.fromisoformat(text).astimezone(UTC)) // timedelta(milliseconds=1)
        )  # rounded up
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text!r} is no time; allowed: an ISO time such as 2026-01-31T12:00:00Z, or +10m") from None
    if not 0 <= moment_ms <= MAX_TIME_MS:
        raise ValueError(f"{text!r} is out of range; allowed: from 1970 on")
    return moment_ms


class MomentText(str):
    """A time as a text, of which a table can say how long ago it was."""

    __slots__ = ("ms",)
    ms: int


def time_text(time_ms: int | None) -> str:
    """A time in UTC to the millisecond; "" for none, the bare number where it is beyond the calendar."""
    if time_ms is None:
        return ""
    text = MomentText(utc_text(time_ms, f"%Y-%m-%dT%H:%M:%S.{time_ms % 1000:03d}Z"))
    text.ms = time_ms
    return text


def from_now(time_ms: int, now_ms: int) -> str:
    """
    >>> from_now(1_000, 63_000), from_now(63_000, 1_000), from_now(1_000, 1_200)
    ('1m2s ago', 'in 1m2s', 'now')
    """
    if abs(time_ms - now_ms) < 1_000:
        return "now"
    return f"{age_text(now_ms - time_ms)} ago" if time_ms < now_ms else f"in {age_text(time_ms - now_ms)}"


def duration_option(text: str | int, low_ms: int = 1) -> int:
    """The value of a command line's DURATION, in milliseconds."""
    try:
        return text if isinstance(text, int) else seconds_or_duration_ms(text, low_ms)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def duration_or_zero_option(text: str | int) -> int:
    """The same where there may be none: 0."""
    return duration_option(text, 0)


def moment_option(text: str) -> int:
    """The value of a command line's TIME, in milliseconds since the epoch; `+10m` counts from now."""
    try:
        return parse_moment_ms(text, SystemClock().now_ms())
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
