"""Where the time comes from, so that a test can hold the clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time; handed to whatever needs it, never read from a global."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""


class SystemClock:
    """The clock of this machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
