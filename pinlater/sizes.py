"""Sizes as people write them: 512KiB, 16MiB, 1GiB, or plain bytes."""

from __future__ import annotations

import re

_SIZE = re.compile(r"([0-9]{1,15})\s*(B|KiB|MiB|GiB)?", re.ASCII)
_SIZE_BYTES = {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10, "B": 1}


def parse_size(text: str) -> int:
    """The number of bytes. ValueError, without a message: no size.

    >>> parse_size("64KiB"), parse_size("1000B"), parse_size("7")
    (65536, 1000, 7)
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError
    return int(match[1]) * _SIZE_BYTES[match[2] or "B"]


def size_text(size: int) -> str:
    """The shortest way to write a number of bytes exactly.

    >>> size_text(16 * 2**20), size_text(1000), size_text(0)
    ('16MiB', '1000B', '0B')
    """
    unit = next(unit for unit, factor in _SIZE_BYTES.items() if size % factor == 0 and (size or unit == "B"))
    return f"{size // _SIZE_BYTES[unit]}{unit}"
