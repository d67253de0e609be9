"""The token bucket of a queue with a rate limit, as every store keeps it. Pure: time is passed in.

A job that is handed out costs a token. The bucket holds half a second's worth and at least one job, so that after an
idle time ten seconds see at most 5 % more than the rate, and a worker that asks twice a second still gets all of it.
A new bucket begins with one token: where one store takes over from another, no second sees twice the rate.

A bucket goes by the largest time it was told, so that servers whose clocks differ a little fill it once. A time far
ahead of what it is told now was that of a clock which was wrong: waiting for it would stop the queue for as long.
"""

from __future__ import annotations

import math
from typing import NamedTuple

BURST_S = 0.5
FAR_AHEAD_MS = 10_000
"""A level that is said to be of so long after now, or later, is taken for one of now."""


class BucketLevel(NamedTuple):
    """What is in a bucket, as of the largest time it was ever told."""

    tokens: float
    at_ms: int


class Taken(NamedTuple):
    """The level after a call, how many tokens it got, and when there will be one more (0: now)."""

    level: BucketLevel
    granted: int
    retry_after_ms: int


def capacity_of(per_second: float) -> float:
    """What a bucket for that rate holds.

    >>> capacity_of(100), capacity_of(0.1)
    (50.0, 1.0)
    """
    return max(1.0, per_second * BURST_S)


def take(level: BucketLevel | None, wanted: int, per_second: float, capacity: float, now_ms: int) -> Taken:
    """Fill by the time that passed, then give whole tokens, as many of `wanted` as there are; negative: refund.

    >>> take(BucketLevel(0.0, 1000), 5, 10.0, 5.0, 1200)
    Taken(level=BucketLevel(tokens=0.0, at_ms=1200), granted=2, retry_after_ms=100)
    """
    tokens, at_ms = level or BucketLevel(1.0, now_ms)
    if at_ms - now_ms >= FAR_AHEAD_MS:
        at_ms = now_ms
    tokens = min(capacity, tokens + max(0, now_ms - at_ms) * per_second / 1000)
    granted = min(wanted, math.floor(tokens + 1e-9))
    tokens = max(0.0, min(capacity, tokens - granted))
    return Taken(BucketLevel(tokens, max(at_ms, now_ms)), max(0, granted), _wait_ms(tokens, per_second))


def _wait_ms(tokens: float, per_second: float) -> int:
    if tokens + 1e-9 >= 1:
        return 0
    return math.ceil((1 - tokens) * 1000 / per_second - 1e-6) if per_second > 0 else 0
