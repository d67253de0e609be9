"""What is wrong with a configuration: all of it at once, each with its key, value, origin and what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pinlater.redaction import redact

SHOWN_CHARS = 100


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake. `origin` is the flag, the variable or the file that the value came from."""

    key: str
    value: object
    allowed: str
    origin: str

    def __str__(self) -> str:
        return f"{self.key} = {shown(self.value)} (from {self.origin}); allowed: {self.allowed}"


class ConfigInvalid(Exception):
    """The configuration cannot be used; `mistakes` holds everything that is wrong with it."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        super().__init__("\n".join(str(mistake) for mistake in mistakes))
        self.mistakes = mistakes


def shown(value: object) -> str:
    """A value for a message, without secrets, and cut where it is long."""
    text = redact(repr(value))
    return text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS] + "…"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """What is allowed instead of an unknown name.

    >>> did_you_mean("prot", ["port", "host"])
    'a known key (did you mean port?)'
    """
    close = difflib.get_close_matches(name.replace("_", "-"), list(known), n=1)
    return f"a known key (did you mean {close[0]}?)" if close else "a known key (`pinlater serve --help` names all)"
