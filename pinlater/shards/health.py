"""Is a shard in use? Pure: it is told what happened and when, and holds no timer.

    IN ──(so many failures in a row)──> OUT ──(pause over: one probe)──> IN, or OUT for another pause

Only a probe brings a shard back: the late success of a call that was under way when it went out does not.
"""

from __future__ import annotations


class Health:
    """Counts failures in a row; `is_in` says whether calls may go to the shard."""

    __slots__ = ("_failures", "_failures_to_trip", "_pause_ms", "_probe_from_ms", "is_in")

    def __init__(self, *, failures_to_trip: int = 3, pause_ms: int = 1_000, is_in: bool = True) -> None:
        self.is_in = is_in
        self._failures = 0
        self._failures_to_trip = failures_to_trip
        self._pause_ms = pause_ms
        self._probe_from_ms = 0

    def call_succeeded(self) -> None:
        if self._failures and self.is_in:
            self._failures = 0

    def call_failed(self, now_ms: int) -> bool:
        """The shard could not be reached, or gave no answer in time. True: with this it went out."""
        if not self.is_in:
            return False
        self._failures += 1
        if self._failures < self._failures_to_trip:
            return False
        self.trip(now_ms)
        return True

    def trip(self, now_ms: int) -> None:
        """Out at once."""
        self.is_in = False
        self._probe_from_ms = now_ms + self._pause_ms

    def may_probe(self, now_ms: int) -> bool:
        """Whether a ping is welcome: always while the shard is in, and after the pause while it is out."""
        return self.is_in or now_ms >= self._probe_from_ms

    def probe_succeeded(self) -> bool:
        """True: with this it came back in."""
        came_back = not self.is_in
        self.is_in = True
        self._failures = 0
        return came_back

    def probe_failed(self, now_ms: int) -> bool:
        """True: with this it went out. A shard that is out stays out for another pause."""
        if self.is_in:
            return self.call_failed(now_ms)
        self._probe_from_ms = now_ms + self._pause_ms
        return False
