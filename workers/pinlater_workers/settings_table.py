"""Settings as people write them: tables of keys, and what a value may be.

A mistake says where it stands, what it is, and what is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from pinlater.durations import allowed_durations, parse_duration
from pinlater.near_names import meant_name
from pinlater.setting_kinds import Choice, Integer, Kind, within
from pinlater_workers.errors import ConfigurationError

MAX_I32 = 2**31 - 1
DAY_S = 86_400.0


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
            raise ConfigurationError(f"{where}: {name} is no key; allowed: {', '.join(keys)}{meant_name(name, keys)}")
        try:
            fields[key.field] = key.parse(value)
        except ConfigurationError as error:
            raise ConfigurationError(f"{where}: {error}") from error
        except (ValueError, TypeError) as error:
            reason = f": {error}" if str(error) else ""
            raise ConfigurationError(f"{where}: {name} is {value!r:.200}{reason}; allowed: {key.allowed}") from error
    return fields


def key(field: str, kind: Kind) -> Key:
    return Key(field, kind.parse, kind.allowed)


def integer(field: str, low: int, high: int = MAX_I32) -> Key:
    return key(field, Integer(low, high))


def duration(field: str, low_s: float, high_s: float, **words: float) -> Key:
    """Seconds, a timedelta, or a text such as "10m" or "600"; or one of the words, which stand for seconds."""

    def parse(value: object) -> float:
        if isinstance(value, str) and value in words:
            return words[value]
        try:
            seconds = parse_duration(value)
        except ValueError:
            raise ValueError from None  # what the key allows says more
        return within(seconds, low_s, high_s)

    return Key(field, parse, "; or ".join((allowed_durations(low_s * 1000, high_s * 1000), *words)))


def member(field: str, words: type[IntEnum]) -> Key:
    """The word of a member, in small letters."""
    choice = Choice(*(each.name.lower() for each in words))
    return Key(field, lambda value: words[choice.parse(value).upper()], choice.allowed)
