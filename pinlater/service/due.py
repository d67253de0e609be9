"""When delayed jobs become eligible, as far as this server knows: bounded, and only to look no later than needed."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

_MAX_TIMES = 256
_MAX_QUEUES = 10_000


class DueTimes:
    """The next times of each queue. What passes the bounds is forgotten: looking finds those jobs, a little later."""

    def __init__(self) -> None:
        self._times: dict[str, list[int]] = {}

    def add(self, queue: str, times_ms: Sequence[int], now_ms: int) -> None:
        times = self._times.get(queue)
        if times is None:
            if len(self._times) >= _MAX_QUEUES:
                return
            times = self._times[queue] = []
        while times and times[0] <= now_ms:
            heapq.heappop(times)
        known = set(times)
        for time_ms in sorted(set(times_ms) - known):
            if len(times) < _MAX_TIMES:
                heapq.heappush(times, time_ms)
            elif time_ms < max(times):
                times.remove(max(times))
                heapq.heapify(times)
                heapq.heappush(times, time_ms)
            else:
                break

    def take(self, queue: str, now_ms: int) -> bool:
        """Forget what is due by now; whether anything was."""
        times = self._times.get(queue)
        if times is None:
            return False
        taken = False
        while times and times[0] <= now_ms:
            heapq.heappop(times)
            taken = True
        if not times:
            del self._times[queue]
        return taken

    def next(self, queue: str) -> int | None:
        times = self._times.get(queue)
        return times[0] if times else None
