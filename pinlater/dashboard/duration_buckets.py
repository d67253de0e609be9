"""Durations as counts in buckets, which can be put together and say percentiles within 10 %. Pure.

A bucket is 20 % wider than the one before. A few bytes hold what a queue did in a minute, and those of sixty minutes
are added up to an hour, which percentiles cannot be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import log, sqrt

GROWTH = 1.2
HIGHEST = 127
"""About four months."""

_LOG = log(GROWTH)

Buckets = dict[int, int]
"""How many durations there are by bucket. Bucket 0 is less than a millisecond, bucket n up to GROWTH ** n."""


def bucket_of(ms: float) -> int:
    """
    >>> bucket_of(0), bucket_of(1), bucket_of(1000), bucket_of(10**15)
    (0, 1, 38, 127)
    """
    return 0 if ms < 1 else min(HIGHEST, int(log(ms) / _LOG + 1e-9) + 1)


def middle_ms(bucket: int) -> float:
    """What a duration of this bucket is taken for: no more than 10 % from any of them."""
    return 0.5 if bucket == 0 else float(GROWTH ** (bucket - 1) * sqrt(GROWTH))


def buckets_of(durations_ms: Iterable[float]) -> Buckets:
    found: Buckets = {}
    for ms in durations_ms:
        bucket = bucket_of(ms)
        found[bucket] = found.get(bucket, 0) + 1
    return found


def add(into: Buckets, more: Mapping[int, int]) -> None:
    for bucket, count in more.items():
        into[bucket] = into.get(bucket, 0) + count


def percentile_ms(buckets: Mapping[int, int], part: float) -> float | None:
    """The duration that such a part of all does not exceed; None without any.

    >>> percentile_ms({}, 0.5) is None
    True
    >>> round(percentile_ms(buckets_of([10] * 98 + [5000] * 2), 0.5)), round(percentile_ms({38: 1}, 0.99))
    (10, 932)
    """
    wanted, seen = part * sum(buckets.values()), 0
    for bucket in sorted(buckets):
        seen += buckets[bucket]
        if seen >= wanted:
            return middle_ms(bucket)
    return None
