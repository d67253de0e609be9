"""The types of settings of servers, queues and workers: texts, words, numbers, flags, and amounts with a unit.

Every kind reads text (a flag, an environment variable) and what TOML gives, and writes a TOML literal that it reads
back as the same value. `parse` raises ValueError without a message: `allowed` says what would have been right.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Protocol, TypeVar

from pinlater.durations import allowed_durations, parse_duration_ms, stored_duration_text
from pinlater.sizes import parse_size, size_text

Number = TypeVar("Number", int, float)


class Kind(Protocol):
    """One kind of value. `repeatable`: the flag may be given several times, and TOML takes a list."""

    repeatable: bool
    metavar: str

    @property
    def allowed(self) -> str:
        """What may be written, for people."""

    def parse(self, value: object) -> object:
        """The value of what was written. ValueError."""

    def toml(self, value: object) -> str:
        """The literal that stands for a value."""


class Text:
    """Any text."""

    repeatable = False
    metavar = "TEXT"

    def __init__(self, matches: str | Callable[[str], object] = r"(?s:.*)", allowed: str = "a text") -> None:
        self._matches = re.compile(matches, re.ASCII).fullmatch if isinstance(matches, str) else matches
        self.allowed = allowed

    def parse(self, value: object) -> str:
        if not isinstance(value, str) or not self._matches(value):
            raise ValueError
        return value

    def toml(self, value: object) -> str:
        return quoted(str(value))


class Choice(Text):
    """One of a few words."""

    metavar = "WORD"

    def __init__(self, *words: str) -> None:
        super().__init__("|".join(words), ", ".join(words[:-1]) + " or " + words[-1])


class Integer:
    """A whole number; with `auto`, the word auto too, which is None."""

    repeatable = False
    metavar = "N"

    def __init__(self, low: int, high: int, *, auto: bool = False) -> None:
        self._low, self._high, self._auto = low, high, auto

    @property
    def allowed(self) -> str:
        return f"{self._low} to {self._high}" + (", or auto" if self._auto else "")

    def parse(self, value: object) -> int | None:
        if self._auto and value == "auto":
            return None
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value, re.ASCII):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError
        return within(value, self._low, self._high)

    def toml(self, value: object) -> str:
        return '"auto"' if value is None else str(value)


class Flag:
    """Yes or no."""

    repeatable = False
    metavar = "true|false"
    allowed = "true or false"

    def parse(self, value: object) -> bool:
        if isinstance(value, str):
            value = {"true": True, "false": False}.get(value)
        if not isinstance(value, bool):
            raise ValueError
        return value

    def toml(self, value: object) -> str:
        return "true" if value else "false"


class OrNone:
    """Another kind, or the word none."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self.repeatable = kind.repeatable
        self.metavar = kind.metavar

    @property
    def allowed(self) -> str:
        return f"{self._kind.allowed}, or none"

    def parse(self, value: object) -> object:
        return None if value in ("none", None) else self._kind.parse(value)

    def toml(self, value: object) -> str:
        return '"none"' if value is None else self._kind.toml(value)


class Words:
    """Several texts: a repeatable flag, commas in the environment, a list in TOML."""

    repeatable = True
    metavar = "ID"

    def __init__(self, pattern: str, allowed: str) -> None:
        self._pattern = re.compile(pattern, re.ASCII)
        self.allowed = allowed

    def parse(self, value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise ValueError
        if not all(self._pattern.fullmatch(each) for each in value):
            raise ValueError
        return tuple(dict.fromkeys(value))

    def toml(self, value: object) -> str:
        assert isinstance(value, tuple)
        return "[" + ", ".join(quoted(each) for each in value) + "]"


def within(value: Number, low: float, high: float) -> Number:
    """The value, if it lies in the bounds, both included."""
    if not low <= value <= high:
        raise ValueError
    return value


def quoted(text: str) -> str:
    """A TOML string: JSON's escapes are a part of TOML's, but for DEL."""
    return json.dumps(text, ensure_ascii=True).replace("\x7f", "\\u007f")


_RATE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*(?:/\s*(s|m|h))?", re.ASCII)
_RATE_S = {"s": 1, "m": 60, "h": 3600}


class Duration:
    """A time in ms, written with its unit."""

    repeatable = False
    metavar = "TIME"

    def __init__(self, low_ms: int, high_ms: int) -> None:
        self._low_ms, self._high_ms = low_ms, high_ms

    @property
    def allowed(self) -> str:
        return allowed_durations(self._low_ms, self._high_ms)

    def parse(self, value: object) -> int:
        try:
            return parse_duration_ms(value, self._low_ms, self._high_ms)
        except ValueError:
            raise ValueError from None  # `allowed` says what is right

    def toml(self, value: object) -> str:
        assert isinstance(value, int)
        return quoted(stored_duration_text(value))


class Size:
    """A number of bytes, written plain or with KiB, MiB, GiB."""

    repeatable = False
    metavar = "SIZE"

    def __init__(self, low: int, high: int) -> None:
        self._low, self._high = low, high

    @property
    def allowed(self) -> str:
        return f"{size_text(self._low)} to {size_text(self._high)} (B, KiB, MiB, GiB)"

    def parse(self, value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool):
            return within(value, self._low, self._high)
        if not isinstance(value, str):
            raise ValueError
        return within(parse_size(value), self._low, self._high)

    def toml(self, value: object) -> str:
        assert isinstance(value, int)
        return quoted(size_text(value))


class Rate:
    """So many per second, written per second, minute or hour."""

    repeatable = False
    metavar = "RATE"

    def __init__(self, *, above_zero: bool = False) -> None:
        self._above_zero = above_zero
        self.allowed = f"{'more than ' if above_zero else ''}0/s to 1000000/s, also as 30/m or 5/h"

    def parse(self, value: object) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = f"{value}/s"
        match = _RATE.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None:
            raise ValueError
        per_second = float(match[1]) / _RATE_S[match[2] or "s"]
        if not 0 <= per_second <= 1_000_000 or (self._above_zero and not per_second):
            raise ValueError
        return per_second

    def toml(self, value: object) -> str:
        assert isinstance(value, int | float)
        return quoted(rate_text(value))


def rate_text(per_second: float) -> str:
    """The way to write a rate that people would choose.

    >>> rate_text(100.0), rate_text(0.5), rate_text(2.5), rate_text(1 / 3600), rate_text(0)
    ('100/s', '30/m', '2.5/s', '1/h', '0/s')
    """
    for unit, seconds in _RATE_S.items():
        amount = per_second * seconds
        if amount >= 1 or amount == 0 or unit == "h":
            return f"{amount:.6f}".rstrip("0").rstrip(".") + f"/{unit}"
    raise AssertionError("the last unit always does")
