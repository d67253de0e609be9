"""Families of metrics: a row of the tables of the server, of a worker and of a relay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Family(NamedTuple):
    """One metric. `kind` is counter, gauge or histogram; `buckets` are the upper bounds of a histogram.

    `merge` puts what several processes report into one figure: sum, min or max (by the distance from 0).
    """

    kind: str
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()
    merge: str = "sum"


Key = tuple[str, ...]
"""The name of a family, and a value for each of its labels."""
Series = dict[Key, list[float]]
"""Per key one value, or for a histogram its buckets, what lies above them, and the sum."""


def bucket_bound(buckets: Sequence[float], slots: Sequence[float], part: float) -> float | None:
    """The upper bound of the bucket into which such a part of the observations falls; above the last bound, that bound.
    None: there are no observations.

    >>> [bucket_bound((1.0, 2.0, 5.0), [98, 1, 1, 0, 103.0], part) for part in (0.5, 0.99)]
    [1.0, 2.0]
    """
    wanted, seen = part * sum(slots[:-1]), 0.0
    if not wanted:
        return None
    for bound, count in zip(buckets, slots, strict=False):
        seen += count
        if seen >= wanted:
            return bound
    return buckets[-1]
