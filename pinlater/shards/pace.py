"""How long the calls to one shard have been under way: is one of them past half its deadline?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable

Call = Hashable


class Pace:
    """Times are those of the event loop, in seconds, from the moment a call went to the store.

    A call that runs on beyond its whole deadline has lost its caller, and was told of. After it the store counts as
    slow until it answered something in time, a ping for one, but no longer than `rest_s`: else, with little traffic,
    one caller after the other would wait his whole deadline until three of them make a verdict.
    """

    def __init__(self, deadline_s: float, on_slow: Callable[[], None], rest_s: float) -> None:
        """`on_slow` is called when a call passes half the deadline."""
        self._deadline_s = deadline_s
        self._rest_s = rest_s
        self._rests_until = 0.0
        self._half_s = deadline_s / 2
        self._on_slow = on_slow
        self._began: dict[Call, float] = {}  # in order of their beginning
        self._timer: asyncio.TimerHandle | None = None

    def is_slow(self, now: float) -> bool:
        if now < self._rests_until:
            return True
        for began in self._began.values():
            if now - began < self._deadline_s:
                return now - began >= self._half_s
        return False

    def began(self, call: Call, now: float) -> None:
        self._began[call] = now
        if self._timer is None:
            self._look_at(now + self._half_s)

    def ended(self, call: Call, now: float) -> bool | None:
        """Whether it took longer than half the deadline; None where it was given up before, or never timed."""
        began = self._began.pop(call, None)
        if began is None:
            return None
        is_late = now - began > self._half_s
        if not is_late:
            self.answered()
        return is_late

    def answered(self) -> None:
        """The store did something in time."""
        self._rests_until = 0.0

    def gave_up(self, call: Call, now: float) -> bool:
        """Nobody waits for it any more. True where that is the store's fault: it had half the deadline at least."""
        began = self._began.get(call)
        if began is None or now - began < self._half_s:
            return False
        del self._began[call]
        self._rests_until = now + self._rest_s
        return True

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_at(self, when: float) -> None:
        self._timer = asyncio.get_running_loop().call_at(when, self._look)

    def _look(self) -> None:
        """One timer for all: it goes to the next call that may pass half its deadline."""
        now = asyncio.get_running_loop().time()
        self._timer = None
        for began in self._began.values():
            if now - began < self._half_s:
                self._look_at(began + self._half_s)
                break
        if self.is_slow(now):
            self._on_slow()
