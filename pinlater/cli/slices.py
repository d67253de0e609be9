"""A long list in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

ItemT = TypeVar("ItemT")


def slices(
    items: Iterable[ItemT], limit: int, max_weight: int, weight: Callable[[ItemT], int]
) -> Iterator[list[ItemT]]:
    """Parts of up to `limit` items that together weigh no more than `max_weight`, or of one item; read as needed.

    >>> list(slices("abcde", 2, 100, len))
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    part: list[ItemT] = []
    weighs = 0
    for item in items:
        more = weight(item)
        if part and (len(part) >= limit or weighs + more > max_weight):
            yield part
            part, weighs = [], 0
        part.append(item)
        weighs += more
    if part:
        yield part
