"""Enums whose values are numbers to programs and words to people."""

from __future__ import annotations

from enum import IntEnum

_NUMBERS = "bcdeEfFgGnoxX%"
"""The last letter of a format specification that asks for a number."""


class WordEnum(IntEnum):
    """In a text a value reads as its name in lower case, as documents and JSON have it; elsewhere it is its number.

    >>> class Light(WordEnum):
    ...     RED_AMBER = 1
    >>> str(Light.RED_AMBER), f"{Light.RED_AMBER:>10}", f"{Light.RED_AMBER:d}", Light.RED_AMBER + 1
    ('red_amber', ' red_amber', '1', 2)
    """

    def __str__(self) -> str:
        return self.name.lower()

    def __format__(self, spec: str) -> str:
        return format(int(self) if spec and spec[-1] in _NUMBERS else str(self), spec)
