"""Fair use: what one identity may have under way in a server process, and how often it may call, so that a caller who
asks for too much is told so before others feel it.

An identity is a certificate's or a token's; callers that show neither count by their address. Calls that wait (long
polls) have a bound of their own, and count as none here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from pinlater.backends.token_bucket import BucketLevel, capacity_of, take
from pinlater.errors import Overloaded
from pinlater.model import ANONYMOUS, Caller, ConnectionRef
from pinlater.model.connection_ref import host_of

_FORGET_FROM = 1_000
"""With so many identities those that are idle are forgotten, and again each time that the rest has doubled."""

_FULL_AFTER_MS = 1_000
"""A bucket of any rate is full when nothing was taken for so long: rates are whole numbers a second."""


@dataclass(frozen=True, slots=True)
class UseLimits:
    """Of one identity, per process; 0 is no bound."""

    connections: int = 0
    calls: int = 0
    call_bytes: int = 0
    calls_per_second: int = 0


@dataclass(slots=True, eq=False)
class Use:
    """What one identity has under way."""

    name: str
    calls: int = 0
    call_bytes: int = 0
    connections: set[ConnectionRef] = field(default_factory=set)
    bucket: BucketLevel | None = None


class FairUse:
    """The bounds, and all identities that call."""

    def __init__(self, limits: UseLimits, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._now_s = monotonic
        self._uses: dict[str, Use] = {}
        self._forget_at = _FORGET_FROM

    def begin(self, caller: Caller, connection: ConnectionRef, size: int) -> Use:
        """A call of so many bytes; to be ended. Overloaded, with the bound by name, and when to try again."""
        name = caller.identity
        if name == ANONYMOUS:
            name = f"{ANONYMOUS} at {host_of(connection.peer if caller.address is None else (caller.address, 0))}"
        use = self._uses.get(name)
        if use is None:
            if len(self._uses) >= self._forget_at:
                self._forget_idle()
            use = self._uses[name] = Use(name)
        self._check(use, caller, connection, size)
        use.calls += 1
        use.call_bytes += size
        return use

    def end(self, use: Use, size: int) -> None:
        """A call has its answer, or waits from here on."""
        use.calls -= 1
        use.call_bytes -= size

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
            or any(not connection.is_closed for connection in use.connections)
            or (use.bucket is not None and use.bucket.at_ms > full_ms)
        }
        self._forget_at = max(_FORGET_FROM, 2 * len(self._uses))


def _over(limit: str, use: Use, bound: int, of_what: str, advice: str, retry_after_ms: int) -> Overloaded:
    text = f"{use.name} has {bound} {of_what} at this process of the server, as many as one caller may: {advice}"
    return Overloaded.by(limit, text, retry_after_ms=retry_after_ms)
