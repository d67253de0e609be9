"""How fast this machine is just now: bounds of time are those of a quick and idle one, and others are given more."""

from __future__ import annotations

import time
from collections.abc import Callable

LOOP_S = 0.012
"""What a loop of a million steps takes a quick machine."""


def slower(clock: Callable[[], float] = time.process_time) -> float:
    """How many times as long as a quick machine this one takes, 1 at least.

    By processor time; with `time.monotonic` as the clock also by what other programs take meanwhile.
    """
    begun = clock()
    for _ in range(1_000_000):
        pass
    return max(1.0, (clock() - begun) / LOOP_S)
