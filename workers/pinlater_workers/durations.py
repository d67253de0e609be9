"""Times as people write them: "250ms", "30s", "10m", "1h30m", "2d"; a number alone is seconds."""

from __future__ import annotations

import re
from datetime import timedelta

_UNITS_S = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(ms|s|m|h|d)", re.ASCII)
_SECONDS = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,6})?", re.ASCII)
_WHOLE = re.compile(rf"(?:{_PART.pattern}\s*)+", re.ASCII)


def parse_duration(value: object) -> float:
    """Seconds. ValueError: neither a text as above, nor a timedelta, nor a number; or a negative one.

    >>> parse_duration("1h30m"), parse_duration("250ms"), parse_duration(2), parse_duration("2")
    (5400.0, 0.25, 2.0, 2.0)
    """
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf"):
        return float(value)
    if isinstance(value, str) and _SECONDS.fullmatch(value.strip()):
        return float(value)
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return sum(float(amount) * _UNITS_S[unit] for amount, unit in _PART.findall(value))
    raise ValueError(f"{value!r} is no duration; allowed: seconds, or as in 250ms, 30s, 10m, 1h30m, 2d")


def duration_text(seconds: float) -> str:
    """The way people would write it.

    >>> duration_text(5400), duration_text(0.25), duration_text(90), duration_text(0)
    ('1h30m', '250ms', '1m30s', '0s')
    """
    left_ms = round(seconds * 1000)
    parts = []
    for unit, size_s in _UNITS_S.items():
        amount, left_ms = divmod(left_ms, round(size_s * 1000))
        if amount:
            parts.append(f"{amount}{unit}")
    return "".join(parts) or "0s"
