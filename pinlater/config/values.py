"""How the value of a setting is written and read: texts, words, paths, whole numbers, yes and no. See also amounts.py.

Every kind reads text (a flag, an environment variable) and what TOML gives, and writes a TOML literal that it reads
back as the same value. `parse` raises ValueError without a message: `allowed` says what would have been right.
"""

from __future__ import annotations

import json
import re
from typing import Protocol

from pinlater.password import is_password_hash


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

    def __init__(self, pattern: str = r".*", allowed: str = "a text") -> None:
        self._pattern = re.compile(pattern, re.ASCII)
        self.allowed = allowed

    def parse(self, value: object) -> str:
        if not isinstance(value, str) or not self._pattern.fullmatch(value):
            raise ValueError
        return value

    def toml(self, value: object) -> str:
        return quoted(str(value))


class Place(Text):
    """A path of the file system."""

    metavar = "PATH"

    def __init__(self) -> None:
        super().__init__(r"[^\0]+", "a path")


class Choice(Text):
    """One of a few words."""

    metavar = "WORD"

    def __init__(self, *words: str) -> None:
        super().__init__("|".join(words), ", ".join(words[:-1]) + " or " + words[-1])


class PasswordHash(Text):
    """A salted hash of a password, or nothing."""

    def __init__(self) -> None:
        super().__init__(allowed="what `pinlater admin hash-password` prints, or nothing")

    def parse(self, value: object) -> str:
        text = super().parse(value)
        if text and not is_password_hash(text):
            raise ValueError
        return text


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


def within(value: int, low: int, high: int) -> int:
    """The value, if it lies in the bounds, both included."""
    if not low <= value <= high:
        raise ValueError
    return value


def quoted(text: str) -> str:
    """A TOML string: JSON's escapes are a part of TOML's, but for DEL."""
    return json.dumps(text, ensure_ascii=True).replace("\x7f", "\\u007f")
