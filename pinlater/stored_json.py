"""JSON that another process wrote into a store, maybe of another version, or by another hand."""

from __future__ import annotations

import json
import math
import zlib
from typing import Any, NoReturn

MAX_PACKED_BYTES = 64 * 1024 * 1024
"""That a packed text may come to; a store takes no larger entry by far, and a few bytes can stand for as many."""


def read_stored(text: str | bytes) -> Any:
    """The value that a text holds. ValueError where it holds none, where it is nested too deep, and where it has a
    number that no JSON has, for which `int` would raise something else.

    >>> read_stored('{"a": [1]}')
    {'a': [1]}
    """
    try:
        return _decode(text if isinstance(text, str) else text.decode())
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def read_packed(body: bytes) -> Any:
    """The same of a text that zlib packed."""
    try:
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(body, MAX_PACKED_BYTES)
    except zlib.error as error:
        raise ValueError(f"it is not packed: {error}") from None
    if unpacking.unconsumed_tail or not unpacking.eof:
        raise ValueError("it is cut, or too large")
    return read_stored(text)


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


_decode = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite).decode
