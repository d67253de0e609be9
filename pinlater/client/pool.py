"""The connections to one server: opened when they are needed, shared where that does no harm, bounded."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from dataclasses import dataclass
from typing import Any

from pinlater.client.address import Address
from pinlater.client.connection import Connection
from pinlater.client.transport_errors import CallFailed
from pinlater.errors import Overloaded
from pinlater.wire.codec import Reply
from pinlater.wire.limits import DEFAULT_LIMITS, WireLimits


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Bounds on one server's connections of one kind.

    `depth`: how many short calls one connection may carry at once when all are busy. `idle_s`: a connection unused for
    longer is not used again, since the server may be about to close it.
    """

    connections: int = 8
    depth: int = 4
    waiting_calls: int = 10_000
    connect_timeout_s: float = 2.0
    idle_s: float = 20.0
    wire: WireLimits = DEFAULT_LIMITS


class Pool:
    """Connections to one address. A call takes an idle one, else a new one, else a share of a busy one, else waits."""

    def __init__(self, address: Address, limits: PoolLimits) -> None:
        self._address = address
        self._limits = limits
        self._idle: deque[Connection] = deque()
        self._open: set[Connection] = set()
        self._opening = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._closed_because = ""

    async def call(self, method: str, args: Any, deadline_s: float, *, exclusive: bool) -> Reply:
        """One call on some connection. `exclusive`: on one that carries nothing else meanwhile.

        CallFailed; Overloaded: too many calls wait here for a connection; and the errors of Connection.call.
        """
        connection = self._take_idle()
        if connection is None:
            connection = await self._take(deadline_s, exclusive)
        connection.exclusive = exclusive
        try:
            return await connection.call(method, args, deadline_s)
        finally:
            self._give_back(connection)

    def close(self, why: str) -> None:
        """Closes every connection at once, for good; the calls on them and those waiting fail."""
        self._closed_because = why
        for connection in list(self._open):
            connection.close(why)
        self._refuse_waiters(CallFailed(why, sent=False))

    # -- taking and giving back ------------------------------------------------------------------------------------

    def _take_idle(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if asyncio.get_running_loop().time() - connection.idle_since_s < self._limits.idle_s:
                return connection
            connection.close("idle for too long")
        return None

    async def _take(self, deadline_s: float, exclusive: bool) -> Connection:
        while True:
            connection = self._take_idle()
            if connection is None and len(self._open) + self._opening < self._limits.connections:
                connection = await self._connect(deadline_s)
            if connection is None and not exclusive:
                connection = self._least_loaded()
            if connection is not None:
                return connection
            await self._wait(deadline_s)

    def _least_loaded(self) -> Connection | None:
        """The busy connection with the fewest calls under way, if it can carry one more."""
        depth = self._limits.depth
        shared = [c for c in self._open if c.usable and not c.exclusive and c.pending < depth]
        return min(shared, key=lambda connection: connection.pending, default=None)

    async def _wait(self, deadline_s: float) -> None:
        """Until some connection may be free."""
        if len(self._waiters) >= self._limits.waiting_calls:
            raise Overloaded(f"{len(self._waiters)} calls are waiting for a connection to {self._address} already")
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout_at(deadline_s):
                await waiter
        except TimeoutError:
            raise CallFailed("no connection became free", sent=False, busy=True) from None
        except asyncio.CancelledError:
            self._wake_if(waiter)
            raise

    def _give_back(self, connection: Connection) -> None:
        if not connection.usable:
            return
        if connection.pending == 0:
            connection.exclusive = False
            connection.idle_since_s = asyncio.get_running_loop().time()
            self._idle.append(connection)
        self._wake()

    def _wake(self) -> None:
        """One caller that waits looks again."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _wake_if(self, waiter: asyncio.Future[None]) -> None:
        """A caller that was woken and cancelled at once passes its turn on."""
        if waiter.done() and not waiter.cancelled():
            self._wake()

    def _refuse_waiters(self, error: CallFailed) -> None:
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(CallFailed(error.why, sent=False))

    # -- opening and closing ---------------------------------------------------------------------------------------

    async def _connect(self, deadline_s: float) -> Connection:
        """A new connection. CallFailed: there is none to be had, and whoever waits learns it too."""
        self._opening += 1
        try:
            connection = await self._open_connection(deadline_s)
        except CallFailed as error:
            self._refuse_waiters(error)
            raise
        except asyncio.CancelledError:
            self._wake()
            raise
        finally:
            self._opening -= 1
        self._open.add(connection)
        if self._closed_because:
            connection.close(self._closed_because)
            raise CallFailed(self._closed_because, sent=False)
        for _ in range(self._limits.depth - 1):
            self._wake()
        return connection

    async def _open_connection(self, deadline_s: float) -> Connection:
        loop = asyncio.get_running_loop()
        timeout_s = self._limits.connect_timeout_s
        until_s = min(deadline_s, loop.time() + timeout_s)
        try:
            async with asyncio.timeout_at(until_s):
                _, connection = await loop.create_connection(
                    lambda: Connection(self._address, self._limits.wire, self._forget), *self._address
                )
        except TimeoutError:
            raise CallFailed("no connection within the time-out", sent=False) from None
        except OSError as error:
            raise CallFailed(_reason(error), sent=False) from error
        return connection

    def _forget(self, connection: Connection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._wake()


def _reason(error: OSError) -> str:
    """The system's word for it, which asyncio hides behind its own."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)
