"""Which job of a test is next."""

from __future__ import annotations

import heapq

from pinlater.model import JobState
from pinlater_workers.testing_run import Run, VirtualClock


class Line:
    """Jobs that wait. Of those that are due the highest priority goes first, then the earliest, then the oldest.

    An entry counts as long as its run is PENDING and was not run since; all others are dropped when they come up.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._later: list[tuple[int, int, int, Run]] = []
        self._due: list[tuple[int, int, int, int, Run]] = []

    def add(self, run: Run) -> None:
        """A run that is PENDING now."""
        heapq.heappush(self._later, (run.run_after_ms, run.number, run.times, run))

    def first(self, end_ms: float) -> Run | None:
        """The next one, which stays in the line; the clock goes on to when it is due. None: none until then."""
        while True:
            while self._later and self._later[0][0] <= self._clock.now_ms():
                run_after_ms, age, times, run = heapq.heappop(self._later)
                heapq.heappush(self._due, (run.priority, run_after_ms, age, times, run))
            while self._due:
                *_, times, run = self._due[0]
                if run.state is JobState.PENDING and run.times == times:
                    return run
                heapq.heappop(self._due)
            if not self._later or self._later[0][0] > end_ms:
                return None
            self._clock.advance_to(self._later[0][0])
