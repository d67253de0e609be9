"""Patterns of names of groups: `*` stands for any text."""

from __future__ import annotations

from collections.abc import Sequence


def fits(parts: Sequence[bytes], group: bytes) -> bool:
    """Whether a group fits a pattern; each part is looked for once.

    >>> [fits(b"a*c*".split(b"*"), group) for group in (b"abc", b"ac1", b"ab", b"bc")]
    [True, True, False, False]
    >>> fits([b"ab", b"ba"], b"aba")
    False
    """
    first, *middle, last = parts
    if not group.startswith(first):
        return False
    at, end = len(first), len(group) - len(last)
    for part in middle:
        found = group.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return at <= end and group.endswith(last)


def in_order(names: Sequence[str]) -> list[str]:
    """Patterns, the one that counts before others first: by the longest part, then as texts.

    >>> in_order(["a*", "*long*", "b*", "*abc"])
    ['*long*', '*abc', 'a*', 'b*']
    """
    return sorted(names, key=lambda name: (-max(map(len, name.split("*"))), name))
