"""Answers of tools as agents read them: JSON of a bounded size, since a model has to read all of it.

What is too long loses the ends of its texts and lists, and says at each place how much was left out.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from pinlater.cli.output import Row
from pinlater.printable import json_text

MAX_CHARS = 50_000
"""What clients of the protocol take: about 20,000 tokens."""
_STEPS = ((10_000, 500), (2_000, 200), (1_000, 100), (500, 50), (200, 20), (100, 10))
"""So many characters of each text and items of each list: the first that suffices."""
_ADVICE = (
    "this answer was too long, so texts and lists in it were cut: ask for less (a lower limit, one queue, a narrower "
    "filter); `pinlater job get --body` writes a whole body"
)


def bounded_text(answer: Row) -> str:
    """
    >>> bounded_text({"body": "x" * 60_000})[-35:]
    'xxxxx… (60,000 characters in all)"}'
    """
    text = json_text(answer)
    for max_chars, max_items in _STEPS:
        if len(text) <= MAX_CHARS:
            return text
        text = json_text({"shortened": _ADVICE, **_cut(answer, max_chars, max_items)})
    if len(text) <= MAX_CHARS:
        return text
    return json_text({"shortened": _ADVICE, "beginning": text[: MAX_CHARS // 4]})  # a quote and a \\ take two


def _cut(value: Any, max_chars: int, max_items: int) -> Any:
    if isinstance(value, str):
        rest = "" if len(value) <= max_chars else f"… ({len(value):,} characters in all)"
        return value[:max_chars] + rest
    if isinstance(value, list):
        rows = [_cut(each, max_chars, max_items) for each in value[:max_items]]
        return rows if len(value) <= max_items else [*rows, f"… ({len(value):,} in all)"]
    if isinstance(value, dict):
        fields = {key: _cut(each, max_chars, max_items) for key, each in islice(value.items(), max_items)}
        return fields if len(value) <= max_items else {**fields, "…": f"{len(value):,} in all"}
    return value
