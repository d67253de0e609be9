"""Fair use: what one identity may have under way in a server process, and how often it may call, so that a caller who
asks for too much is told so; and turns, so that others do not feel a caller that asks for much.

An identity is a certificate's or a token's; callers that show neither count by their address. Calls that wait (long
polls) have a bound of their own, and count here for a moment only.

Turns: while identities call at the same time, none has more calls under way than the busiest of the others; the rest of
its calls wait here, in order. So a caller that makes one call at a time shares the process with one call of a caller
that makes a thousand, and two that both make many hinder each other not at all. What counts as "at the same time" is a
window of some milliseconds; who calls alone has its turn at once, up to half of the calls that may wait for a store.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from pinlater.backends.token_bucket import BucketLevel, capacity_of, take
from pinlater.errors import Overloaded
from pinlater.model import Caller, ConnectionRef
from pinlater.model.callers import holder_of

_FORGET_FROM = 1_000
"""With so many identities those that are idle are forgotten, and again each time that the rest has doubled."""

_FULL_AFTER_MS = 1_000
"""A bucket of any rate is full when nothing was taken for so long: rates are whole numbers a second."""

WINDOW_S = 0.005
"""Identities that call within it call at the same time."""

ALONE_LIMIT = 500
"""Calls of one identity that are under way while nobody else calls: the lines of the stores have room for the next."""

BULK_LIMIT = 4
"""Calls of one identity that read or change many jobs at a time: a store carries out few of these, in their order."""

SHARED_FOR_S = 1.0
"""So long after another identity called, the next call of that one shall find little before it."""

SHARED_LIMIT = 8
"""Calls of one identity that are under way meanwhile. Single calls without pause get about half of their rate for that;
calls by 100 hardly less."""

STALLED_S = 0.05
"""An identity none of whose calls ends for so long waits for a store: its further calls may be for another one."""

POLL_S = 0.002
"""A long poll has its turn until it is answered, and at most so long: by then it waits for jobs."""


@dataclass(frozen=True, slots=True)
class UseLimits:
    """Of one identity, per process; 0 is no bound. `running`: calls that have their turn while nobody else calls."""

    connections: int = 0
    calls: int = 0
    call_bytes: int = 0
    calls_per_second: int = 0
    running: int = ALONE_LIMIT


@dataclass(slots=True, eq=False)
class Use:
    """What one identity has under way."""

    name: str
    calls: int = 0
    call_bytes: int = 0
    connections: set[ConnectionRef] = field(default_factory=set)
    bucket: BucketLevel | None = None
    running: int = 0
    """Calls that have their turn."""
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)
    """Calls that wait for it."""
    window: int = 0
    """The one in which it was seen last."""
    peak: int = 0
    """The most calls that it had under way in that window, waiting ones among them."""
    is_moving: bool = True
    """A call of it has ended since that was looked at last."""
    look: asyncio.TimerHandle | None = None
    bulk_turns: asyncio.Semaphore | None = None
    """Those of its calls over many jobs, from the first one on."""


class CallUse:
    """One call, which counts for its identity until it is ended; one that waits, with its bytes alone."""

    __slots__ = ("_bulk_turns", "_fair_use", "_has_bytes", "_is_over", "has_turn", "size", "use")

    def __init__(self, fair_use: FairUse, use: Use, size: int) -> None:
        self._fair_use = fair_use
        self._is_over = False
        self._has_bytes = True
        self._bulk_turns: asyncio.Semaphore | None = None
        self.use = use
        self.size = size
        self.has_turn = False

    def end(self) -> None:
        """The call has its answer. Once more is nothing."""
        if self._has_bytes:
            self._has_bytes = False
            self.use.call_bytes -= self.size
            if self._bulk_turns is not None:
                self._bulk_turns.release()
        self.end_turn()

    async def wait_for_bulk(self) -> None:
        """Until no more than some of this identity's calls over many jobs are under way; ends the call where that is
        cancelled.
        """
        if self.use.bulk_turns is None:
            self.use.bulk_turns = asyncio.Semaphore(BULK_LIMIT)
        try:
            await self.use.bulk_turns.acquire()
        except asyncio.CancelledError:
            self.end()
            raise
        self._bulk_turns = self.use.bulk_turns

    def end_turn(self) -> None:
        """The call waits from now on, or is over. Once more is nothing."""
        if not self._is_over:
            self._is_over = True
            self._fair_use.ended(self)


class FairUse:
    """The bounds, and all identities that call."""

    def __init__(self, limits: UseLimits, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._now_s = monotonic
        self._uses: dict[str, Use] = {}
        self._forget_at = _FORGET_FROM
        self._window = 0
        self._window_ends_s = 0.0
        self._seen: list[Use] = []
        """In this window, each once."""
        self._busiest: Use | None = None
        """In the window before."""
        self._busiest_calls = self._others_calls = 0
        """The most calls that it had under way then; and that any other identity had."""
        self._shared_until_s = 0.0

    def begin(self, caller: Caller, connection: ConnectionRef, size: int) -> CallUse:
        """A call of so many bytes; to be ended. Overloaded, with the bound by name, and when to try again."""
        name = holder_of(caller, connection.peer)
        use = self._uses.get(name)
        if use is None:
            if len(self._uses) >= self._forget_at:
                self._forget_idle()
            use = self._uses[name] = Use(name)
        self._check(use, caller, connection, size)
        use.calls += 1
        use.call_bytes += size
        connection.holder = name
        self._see(use)
        return CallUse(self, use, size)

    def ended(self, call: CallUse) -> None:
        """By `CallUse.end_turn`."""
        use = call.use
        use.calls -= 1
        if call.has_turn:
            use.running -= 1
            use.is_moving = True
        if use.waiting:
            self._give_turns(use)

    # -- turns ---------------------------------------------------------------------------------------------------------

    def turn(self, call: CallUse) -> asyncio.Future[None] | None:
        """What to wait for before the call is carried out, with `wait`; None: for nothing."""
        use = call.use
        if use.running < self._limit(use) and not use.waiting:
            use.running += 1
            call.has_turn = True
            return None
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        use.waiting.append(turn)
        if use.look is None:
            self._look_later(use)
        return turn

    async def wait(self, call: CallUse, turn: asyncio.Future[None]) -> None:
        """Until a call has its turn; ends the call where that is cancelled."""
        try:
            await turn
        except asyncio.CancelledError:
            call.has_turn = not turn.cancelled()
            if turn in call.use.waiting:
                call.use.waiting.remove(turn)
            call.end()
            raise
        call.has_turn = True

    def is_shared(self, use: Use) -> bool:
        """Whether another identity calls, or called a moment ago."""
        return self._limit(use) < self._limits.running

    def _limit(self, use: Use) -> int:
        """How many calls of an identity may be under way."""
        alone = self._limits.running
        others = self._others_calls if use is self._busiest else self._busiest_calls
        if others:
            return min(others, alone)
        return SHARED_LIMIT if self._window_ends_s < self._shared_until_s else alone

    def _give_turns(self, use: Use) -> None:
        self._roll(self._now_s())
        limit = self._limit(use)
        while use.waiting and use.running < limit:
            self._give_turn(use)

    def _give_turn(self, use: Use) -> None:
        turn = use.waiting.popleft()
        if not turn.cancelled():
            use.running += 1
            turn.set_result(None)

    def _look_later(self, use: Use) -> None:
        use.is_moving = False
        use.look = asyncio.get_running_loop().call_later(STALLED_S, self._look, use)

    def _look(self, use: Use) -> None:
        """At an identity whose calls wait: others may have gone meanwhile, or a store may not answer."""
        use.look = None
        self._give_turns(use)
        if use.waiting:
            if not use.is_moving:
                self._give_turn(use)
            self._look_later(use)

    def _see(self, use: Use) -> None:
        self._roll(self._now_s())
        if use.window != self._window:
            use.window, use.peak = self._window, 0
            self._seen.append(use)
        use.peak = max(use.peak, use.calls)

    def _roll(self, now_s: float) -> None:
        """Begin the next window where this one is over; constant cost per call, whatever the number of identities."""
        if now_s < self._window_ends_s:
            return
        self._busiest, self._busiest_calls, self._others_calls = None, 0, 0
        if now_s < self._window_ends_s + WINDOW_S:
            for use in self._seen:
                if use.peak > self._busiest_calls:
                    self._others_calls = self._busiest_calls
                    self._busiest, self._busiest_calls = use, use.peak
                else:
                    self._others_calls = max(self._others_calls, use.peak)
            if self._others_calls:
                self._shared_until_s = now_s + SHARED_FOR_S
        self._window += 1
        self._window_ends_s = now_s + WINDOW_S
        self._seen = [use for use in self._seen if use.calls]
        for use in self._seen:
            use.window, use.peak = self._window, use.calls

    def _check(self, use: Use, caller: Caller, connection: ConnectionRef, size: int) -> None:
        limits = self._limits
        if limits.connections and caller.address is None and connection not in use.connections:
            if len(use.connections) >= limits.connections:
                use.connections = {each for each in use.connections if not each.is_closed}
            if len(use.connections) >= limits.connections:
                raise _over("identity_connections", use, limits.connections, "connections", "use fewer", 1_000)
            use.connections.add(connection)
        if limits.calls and use.calls >= limits.calls:
            raise _over("identity_calls", use, limits.calls, "calls under way", "send fewer at a time", 100)
        if limits.call_bytes and use.call_bytes and use.call_bytes + size > limits.call_bytes:
            raise _over("identity_bytes", use, limits.call_bytes, "bytes of calls under way", "send less", 100)
        rate = caller.calls_per_second or limits.calls_per_second
        if rate:
            now_ms = int(self._now_s() * 1_000)
            capacity = capacity_of(rate)
            level = use.bucket or BucketLevel(capacity, now_ms)
            use.bucket, granted, wait_ms = take(level, 1, rate, capacity, now_ms)
            if not granted:
                raise _over("identity_rate", use, rate, "calls a second", "send fewer, or more jobs a call", wait_ms)

    def _forget_idle(self) -> None:
        """Those of which nothing is under way, and whose bucket is full again by now: they lose nothing by that."""
        full_ms = int(self._now_s() * 1_000) - _FULL_AFTER_MS
        self._uses = {
            name: use
            for name, use in self._uses.items()
            if use.calls
            or use.call_bytes
            or any(not connection.is_closed for connection in use.connections)
            or (use.bucket is not None and use.bucket.at_ms > full_ms)
        }
        self._forget_at = max(_FORGET_FROM, 2 * len(self._uses))


def _over(limit: str, use: Use, bound: int, of_what: str, advice: str, retry_after_ms: int) -> Overloaded:
    text = f"{use.name} has {bound} {of_what} at this process of the server, as many as one caller may: {advice}"
    return Overloaded.by(limit, text, retry_after_ms=retry_after_ms)
