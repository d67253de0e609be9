"""The source of time, so that a test can hold the clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
passed_ns: Callable[[], int] = partial(time.clock_gettime_ns, BOOTTIME)
"""Nanoseconds that passed, those of a suspended machine too; nobody sets this clock."""


class Clock(Protocol):
    """Tells the time; handed to whatever needs it, never read from a global."""

    uncertainty_ms: int
    """How much later than `now_ms` it may be. What is due, and what has expired, goes by `now_ms`; a time-out and a
    delay that begin now run from so much later.
    """

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, rounded down."""


class SystemClock:
    """The clock of this machine."""

    uncertainty_ms = 0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
