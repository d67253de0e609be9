"""Settings as people write them: tables of keys, and what a value may be.

A mistake says where it stands, what it is, and what is allowed.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pinlater.schedule import duration_text, parse_duration
from pinlater_workers.errors import ConfigurationError

MAX_I32 = 2**31 - 1
DAY_S = 86_400.0
NEVER = "never"


@dataclass(frozen=True, slots=True)
class Key:
    """One key. `field`: of the settings. `parse` raises ValueError or TypeError where `allowed` says what is right."""

    field: str
    parse: Callable[[Any], Any]
    allowed: str


def read_table(keys: Mapping[str, Key], values: Mapping[str, object], where: str) -> dict[str, Any]:
    """The fields and their values. `where` names the file and table, or the decorator. ConfigurationError."""
    fields = {}
    for name, value in values.items():
        key = keys.get(name)
        if key is None:
            raise ConfigurationError(f"{where}: {name} is no key; allowed: {_known(name, keys)}")
        try:
            fields[key.field] = key.parse(value)
        except ConfigurationError as error:
            raise ConfigurationError(f"{where}: {error}") from error
        except (ValueError, TypeError) as error:
            said = f": {error}" if str(error) else ""
            raise ConfigurationError(f"{where}: {name} is {value!r:.200}{said}; allowed: {key.allowed}") from error
    return fields


def _known(name: str, keys: Mapping[str, Key]) -> str:
    close = difflib.get_close_matches(name, keys, n=1)
    return f"{', '.join(keys)}" + (f" (did you mean {close[0]}?)" if close else "")


def integer(field: str, low: int, high: int = MAX_I32) -> Key:
    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError
        return value

    return Key(field, parse, f"{low} or more" if high == MAX_I32 else f"{low} to {high}")


def duration(field: str, low_s: float, high_s: float, *, never: bool = False) -> Key:
    """Seconds, a timedelta, or a text such as "10m" or "600". With `never` that text too, which is infinite."""

    def parse(value: object) -> float:
        if never and value == NEVER:
            return float("inf")
        try:
            seconds = parse_duration(value)
        except ValueError:
            raise ValueError from None  # what the key allows says more
        if not low_s <= seconds <= high_s:
            raise ValueError
        return seconds

    allowed = f"{duration_text(low_s)} to {duration_text(high_s)}, as in 30s, 10m, 1h30m"
    return Key(field, parse, f"{allowed}; or {NEVER}" if never else allowed)


def word(field: str, words: Sequence[str], *, none: bool = False) -> Key:
    def parse(value: object) -> object:
        if not (value in words or (none and value is None)):
            raise ValueError
        return value

    return Key(field, parse, " or ".join(words))


def text(field: str, allowed: str, matches: Callable[[str], object] = lambda _text: True) -> Key:
    def parse(value: object) -> str:
        if not isinstance(value, str) or not matches(value):
            raise ValueError
        return value

    return Key(field, parse, allowed)


def flag(field: str) -> Key:
    def parse(value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError
        return value

    return Key(field, parse, "true or false")
