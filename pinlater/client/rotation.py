"""Which server the next call goes to: in turn from a random start; one that fails is left out for a growing pause.

Where it is asked for, the turn stays with a server for a while, so that claims tied to a connection
are acked where they are held.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import Generic, Protocol, TypeVar

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 10.0


class Standing:
    """How one server has been doing. Times are seconds of the event loop's clock."""

    __slots__ = ("failures", "paused_until_s")

    def __init__(self) -> None:
        self.failures = 0
        self.paused_until_s = 0.0

    def answered(self) -> None:
        """It is there: the pause ends, and the next one starts small again."""
        self.failures = 0
        self.paused_until_s = 0.0

    def failed(self, now_s: float, rng: random.Random) -> None:
        """Leave it out for a while: twice as long with every failure in a row, jittered by half.

        The many calls that fail with one broken connection are one failure.
        """
        if now_s < self.paused_until_s:
            return
        pause_s: float = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self.failures, 16))
        self.failures += 1
        self.paused_until_s = now_s + pause_s * rng.uniform(0.5, 1.0)


class HasStanding(Protocol):
    standing: Standing


ServerT = TypeVar("ServerT", bound=HasStanding)


class Rotation(Generic[ServerT]):
    """The turn among servers, of which there may be more or fewer each time.

    `pick` always names one: where all are paused, the one whose pause ends first. `stay_s`: about how long one is named
    again and again while it can be, half of that at least; 0: a call each.
    """

    def __init__(self, rng: random.Random, stay_s: float = 0.0) -> None:
        self._rng = rng
        self._next = rng.randrange(2**16)
        self._stay_s = stay_s
        self._stay_until_s = 0.0
        self._stay_with: ServerT | None = None

    def pick(self, servers: Sequence[ServerT], now_s: float, tried: Collection[ServerT]) -> ServerT:
        """The next in turn that is neither paused nor among `tried`; else the soonest of the untried, else of all."""
        count = len(servers)
        if count == 1:
            return servers[0]
        if self._stay_with is not None:
            server = self._stay_with
            stays = now_s < self._stay_until_s and server in servers
            if stays and server.standing.paused_until_s <= now_s and server not in tried:
                return server
        for offset in range(count):
            position = (self._next + offset) % count
            server = servers[position]
            if server.standing.paused_until_s <= now_s and server not in tried:
                self._next = position + 1
                if self._stay_s:
                    self._stay_with = server
                    self._stay_until_s = now_s + self._stay_s * self._rng.uniform(0.5, 1.5)
                return server
        untried = [server for server in servers if server not in tried]
        return min(untried or servers, key=lambda server: server.standing.paused_until_s)
