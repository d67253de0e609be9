"""The beat of a process, by which its background work wakes up together."""

from __future__ import annotations

import random

_LONGEST_S = 86_400.0


class Beat:
    """Work that is done every half second falls on each beat, work of each second on every other one.

    An idle process is woken only to see that there is nothing to do, and each wake-up costs more than the look. The
    beats of two processes differ.
    """

    def __init__(self) -> None:
        self._phase_s = random.uniform(0.0, _LONGEST_S)

    def pause_s(self, interval_s: float, now_s: float) -> float:
        """From now, a time of the loop, to the beat that is nearest to an interval from now: half of it at least, one
        and a half at most.
        """
        begun = (now_s - self._phase_s) / interval_s % 1.0
        return interval_s * (1.0 - begun if begun <= 0.5 else 2.0 - begun)
