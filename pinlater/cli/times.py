"""Times as people write and read them: durations, moments, and their text."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import click

from pinlater.clock import SystemClock
from pinlater.model import MAX_TIME_MS
from pinlater.schedule import utc_text

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,3})?)\s*(ms|s|m|h|d|)", re.ASCII)
_UNIT_MS = {"ms": 1, "s": 1000, "": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_duration_ms(text: str) -> int:
    """Milliseconds, at least 1, of `10s`, `1.5m`, `250ms`, or a plain number of seconds. ValueError.

    >>> parse_duration_ms("1.5m")
    90000
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no duration; allowed: such as 500ms, 10s, 5m, 2h, 1d")
    duration_ms = round(float(match[1]) * _UNIT_MS[match[2]])
    if not 1 <= duration_ms <= MAX_TIME_MS:
        raise ValueError(f"{text!r} is out of range; allowed: 1ms up to {MAX_TIME_MS}ms")
    return duration_ms


def parse_moment_ms(text: str, now_ms: int) -> int:
    """Milliseconds since the epoch of `+10m` or an ISO time, in this machine's zone where it names none. ValueError.

    >>> parse_moment_ms("2026-01-02T03:04:05Z", 0), parse_moment_ms("+10m", 1_000)
    (1767323045000, 601000)
    >>> parse_moment_ms("2026-01-02T03:04:05.000001Z", 0)
    1767323045001
    """
    if text.startswith("+"):
        return now_ms + parse_duration_ms(text[1:])
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


def time_text(time_ms: int | None) -> str:
    """A time in UTC to the millisecond; "" for none, the bare number where it is beyond the calendar."""
    return "" if time_ms is None else utc_text(time_ms, f"%Y-%m-%dT%H:%M:%S.{time_ms % 1000:03d}Z")


def duration_option(text: str | int) -> int:
    """The value of a command line's DURATION, in milliseconds."""
    try:
        return text if isinstance(text, int) else parse_duration_ms(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def moment_option(text: str) -> int:
    """The value of a command line's TIME, in milliseconds since the epoch; `+10m` counts from now."""
    try:
        return parse_moment_ms(text, SystemClock().now_ms())
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def age_text(age_ms: int) -> str:
    """How long, in the two units that matter most.

    >>> [age_text(ms) for ms in (999, 61_000, 3_600_000, 180_000_000)]
    ['0s', '1m1s', '1h', '2d2h']
    """
    left_s = age_ms // 1000
    found: list[str] = []
    for unit, seconds in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        amount, left_s = divmod(left_s, seconds)
        if amount or found:
            found.append(f"{amount}{unit}" if amount else "")
    return "".join(found[:2]) or "0s"
