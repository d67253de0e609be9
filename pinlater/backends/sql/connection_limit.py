"""The number of connections of a pool that may be in use: all that it wants, or those that the server has for it."""

from __future__ import annotations

from threading import Condition
from time import monotonic

TRIED_AGAIN_S = 30.0
"""So long after a connection was refused, one more is tried."""


class ConnectionLimit:
    """Threads enter before they take a connection, and leave when they have put it back."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.most = wanted
        self._in_use = 0
        self._changed = Condition()
        self._refused_s = 0.0

    @property
    def is_first(self) -> bool:
        """Whether the one who entered is alone: one connection is what a process cannot do without."""
        return self._in_use <= 1

    def enter(self) -> None:
        """Wait until there is a connection to take, or to make."""
        with self._changed:
            if self.most < self.wanted and monotonic() - self._refused_s > TRIED_AGAIN_S:
                self.most, self._refused_s = self.most + 1, monotonic()
            self._changed.wait_for(lambda: self._in_use < self.most)
            self._in_use += 1

    def leave(self) -> None:
        with self._changed:
            self._in_use -= 1
            self._changed.notify()

    def shrink(self, resting: int) -> bool:
        """The server refused one more connection: whether there are others to go on with. `resting` were put back.
        Whoever asks is in no more.
        """
        with self._changed:
            self._in_use -= 1
            self._refused_s = monotonic()
            found = self._in_use + resting
            self.most = min(self.most, max(1, found))
            self._changed.notify()
            return found > 0
