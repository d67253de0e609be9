"""How many jobs one step of maintenance takes, so that whoever works on the store meanwhile waits for it only shortly.

A step is one call, and a store does nothing else meanwhile, or not to these jobs. So its size follows from how long the
steps before took: in a store that is slow, or busy with others, steps get smaller. After each there is a rest.
"""

from __future__ import annotations

STEP_S = 0.004
"""What a step may take, and a rest at most. A dequeue that comes in the middle of a step waits for its end."""

LEAST = 100
"""Smaller steps cost more than they are worth: what a call or a commit costs by itself prevails."""


class Stride:
    """The size of the next step, from LEAST up to `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._least = self.limit = min(LEAST, most)

    def took(self, seconds: float, jobs: int) -> float:
        """A step over so many jobs did; how long to rest now: the store is busy half of the time at most.

        One step that was held up by something else makes the next one half as large at worst.
        """
        fitting = jobs * STEP_S / max(seconds, 1e-6)
        self.limit = max(self._least, min(int(self.limit + fitting) // 2, 2 * self.limit, self._most))
        return min(seconds, STEP_S)
