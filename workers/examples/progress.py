"""How far the demonstration is: one line that moves on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Self

BAR = 40
CALM_EVERY_S = 2.0


class Progress:
    """Of `total` jobs, how many have ended."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._terminal = sys.stdout.isatty()
        self._started = time.monotonic()
        self._said = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._terminal:
            print(flush=True)

    def update(self, succeeded: int, failed: int) -> None:
        if self._terminal:
            filled = BAR * (succeeded + failed) // self._total
            print(f"\r[{'#' * filled:{BAR}}] {self._line(succeeded, failed)} ", end="", flush=True)
        elif succeeded + failed == self._total or time.monotonic() - self._said >= CALM_EVERY_S:
            self._said = time.monotonic()
            print(self._line(succeeded, failed), flush=True)

    def _line(self, succeeded: int, failed: int) -> str:
        ended = succeeded + failed
        trouble = f", {failed} failed" if failed else ""
        return f"{ended} of {self._total} jobs done{trouble} ({time.monotonic() - self._started:.1f} s)"
