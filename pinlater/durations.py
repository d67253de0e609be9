"""Durations as people write and read them: `1h30m`, `1.5h`, `90s`, `250ms`, `2d`, the same everywhere.

What is written here is read back here as the same number of milliseconds.
"""

from __future__ import annotations

import re
from datetime import timedelta

FORMS = "250ms, 90s, 1h30m, 2d"
DAY_MS = 86_400_000

_UNIT_MS = {"d": DAY_MS, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_PARTS_OF_MS = 10**6  # as many decimals as an amount may have: sums of whole numbers have no error of floats
_MAX_CHARS = 200
_AMOUNT = r"([0-9]{1,18})(?:\.([0-9]{1,6}))?"
_PART = re.compile(rf"{_AMOUNT}\s*(ms|s|m|h|d)\s*", re.ASCII)
_WHOLE = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)
_BARE = re.compile(_AMOUNT, re.ASCII)
_WRITTEN = re.compile("([0-9]+)([a-z]+)", re.ASCII)


def parse_duration(value: object) -> float:
    """Seconds of a text, a timedelta, or a number of seconds. ValueError: it is none of these, or negative.

    >>> parse_duration("1h30m"), parse_duration("250ms"), parse_duration(2), parse_duration("2")
    (5400.0, 0.25, 2.0, 2.0)
    """
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf"):
        return float(value)
    parts = _parts_of_ms(value, "s")
    if parts is None:
        raise ValueError(f"{value!r:.200} is no duration; allowed: seconds, or as in {FORMS}")
    return parts / (1000 * _PARTS_OF_MS)


def parse_duration_ms(text: object, low_ms: int, high_ms: int, *, bare: str = "") -> int:
    """Milliseconds of a text, from `low_ms` to `high_ms`. `bare`: the unit of a number without one; "": it needs one.
    ValueError.

    >>> parse_duration_ms("1.5m", 1, DAY_MS), parse_duration_ms("10", 1, DAY_MS, bare="s")
    (90000, 10000)
    """
    parts = _parts_of_ms(text, bare)
    found_ms = None if parts is None else (parts + _PARTS_OF_MS // 2) // _PARTS_OF_MS
    if found_ms is None or not low_ms <= found_ms <= high_ms:
        fault = "no duration" if found_ms is None else "out of range"
        raise ValueError(f"{text!r:.200} is {fault}; allowed: {allowed_durations(low_ms, high_ms)}")
    return found_ms


def allowed_durations(low_ms: float, high_ms: float) -> str:
    """What may be written, for people."""
    return f"{duration_text(low_ms)} to {duration_text(high_ms)}, as in {FORMS}"


def duration_text(ms: float) -> str:
    """The way people would write it, exact to the millisecond.

    >>> duration_text(5_400_000), duration_text(250), duration_text(90_000), duration_text(0)
    ('1h30m', '250ms', '1m30s', '0s')
    """
    left_ms, text = round(ms), ""
    for unit, unit_ms in _UNIT_MS.items():
        amount, left_ms = divmod(left_ms, unit_ms)
        text += f"{amount}{unit}" if amount else ""
    return text or "0s"


def seconds_text(seconds: float) -> str:
    """The same of a number of seconds."""
    return duration_text(seconds * 1000)


def stored_duration_text(ms: int) -> str:
    """One whole number and its unit: what servers of earlier versions read where a cluster keeps it.

    >>> stored_duration_text(90_000), stored_duration_text(DAY_MS), stored_duration_text(0)
    ('90s', '24h', '0s')
    """
    if ms in (0, DAY_MS):
        return "24h" if ms else "0s"
    unit = next(unit for unit, unit_ms in _UNIT_MS.items() if ms % unit_ms == 0)
    return f"{ms // _UNIT_MS[unit]}{unit}"


def age_text(ms: float) -> str:
    """How long, in whole seconds and in the two units that matter most; 0s of what is yet to come.

    >>> [age_text(ms) for ms in (999, 61_000, 3_600_000, 180_000_000, 86_430_000)]
    ['0s', '1m1s', '1h', '2d2h', '1d']
    """
    whole_ms = max(0, int(ms // 1000)) * 1000
    largest_ms = next((each for each in _UNIT_MS.values() if each <= whole_ms), 1000)
    second_ms = next((each for each in _UNIT_MS.values() if each < largest_ms), 1)
    return duration_text(whole_ms // max(1000, second_ms) * max(1000, second_ms))


def elapsed_text(seconds: float) -> str:
    """How long something took: milliseconds, then tenths of a second, then seconds.

    >>> elapsed_text(0.0123), elapsed_text(12.34), elapsed_text(3725.4)
    ('12ms', '12.3s', '1h2m5s')
    """
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    return f"{seconds:.1f}s" if seconds < 100 else seconds_text(round(seconds))  # tenths say nothing more


def span_text(ms: float) -> str:
    """The same as pages show it, with milliseconds below a second; static/live.js of the dashboard writes it too.

    >>> span_text(80), span_text(4_200), span_text(64_000), span_text(7_320_000), span_text(200_000_000)
    ('80 ms', '4 s', '1 min 4 s', '2 h 2 min', '2 d 7 h')
    """
    return spaced(age_text(ms)) if ms >= 1_000 else f"{max(0, ms):.0f} ms"


def ago_text(ms: float) -> str:
    """How long ago something was, or in how long it will be.

    >>> ago_text(200), ago_text(90_000), ago_text(-90_000)
    ('now', '1 min 30 s ago', 'in 1 min 30 s')
    """
    if abs(ms) < 1_000:
        return "now"
    return f"{span_text(ms)} ago" if ms > 0 else f"in {span_text(-ms)}"


def spaced(text: str) -> str:
    """The text of a duration as pages and charts show it.

    >>> spaced("1h30m"), spaced("1s500ms")
    ('1 h 30 min', '1 s 500 ms')
    """
    return " ".join(f"{amount} {'min' if unit == 'm' else unit}" for amount, unit in _WRITTEN.findall(text))


def _parts_of_ms(value: object, bare: str) -> int | None:
    """Millionths of a millisecond; None: the value is no text of a duration."""
    text = value.strip() if isinstance(value, str) else ""
    if len(text) > _MAX_CHARS:
        return None
    if bare and _BARE.fullmatch(text):
        text += bare
    if not _WHOLE.fullmatch(text):
        return None
    return sum(int(whole + fraction.ljust(6, "0")) * _UNIT_MS[unit] for whole, fraction, unit in _PART.findall(text))
