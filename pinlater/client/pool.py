"""The connections to one server: opened when they are needed, shared where that does no harm, bounded."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pinlater.client.addresses import Address
from pinlater.client.client_tls import ClientTls
from pinlater.client.connection import AnswerWaiter, CallFailed, ClientConnection
from pinlater.errors import Overloaded
from pinlater.model import RequestContext
from pinlater.wire.message import WireLimits
from pinlater.wire.methods import CHECKPOINT

ANSWER_LIMITS = WireLimits(walk_over_bytes=256 * 1024, max_steps=480_000)
"""Larger answers are walked before they are decoded. To walk one with 1,000 jobs of 200 bytes costs eight times what it
costs to decode it; the worst that a server can send below this size takes the decoder some 0.1 s.
10,000 jobs with all that is known of them and ten tags each, the most that a server answers with, have room."""


RECEIPT_TIMEOUT_S = 10.0
NOTHING = CHECKPOINT.arguments(RequestContext("receipt"), "receipt", ())


class _Unheard:
    """Waits for an answer that says nothing."""

    def __init__(self) -> None:
        self._done = False

    def done(self) -> bool:
        return self._done

    def set_result(self, result: Any) -> None:
        self._done = True

    def set_exception(self, error: Any) -> None:
        self._done = True


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Bounds on one server's connections of one kind: those of short calls, or those of long polls.

    `depth`: how many short calls one connection may carry at once when all are busy. `idle_s`: a connection unused for
    longer is not used again, since the server may be about to close it.
    """

    connections: int = 32
    long_poll_connections: int = 256
    depth: int = 4
    waiting_calls: int = 10_000
    connect_timeout_s: float = 2.0
    idle_s: float = 20.0
    wire: WireLimits = ANSWER_LIMITS


class Pool:
    """Connections to one address. A call takes an idle one, else a new one, else a share of a busy one, else waits.

    Those that wait are served in the order of their coming, and before any newcomer: a connection that becomes free, or
    the room for a new one, is handed to the first of them. So no call waits while a connection could serve it, and a
    call that needs a connection alone is not held off by those that share.
    """

    def __init__(
        self,
        address: Address,
        limits: PoolLimits,
        on_lost: Callable[[], None] | None = None,
        *,
        on_connect: Callable[[], None] | None = None,
        tls: ClientTls | None = None,
        server_name: str | None = None,
    ) -> None:
        """`on_lost` is called in the loop's next turn after a connection has closed, from either side; `on_connect`
        when one has been opened. `server_name`: in the server's certificate; None: the host of the address.
        """
        self._tls = tls
        self._server_name = (tls and tls.server_name) or server_name or address.host
        self._address = address
        self._on_lost = on_lost
        self._on_connect = on_connect
        self._limits = limits
        self._idle: deque[ClientConnection] = deque()
        self._open: dict[ClientConnection, None] = {}
        self._opening = 0
        # Those that wait, and whether for a connection alone. Each gets one; None: leave to open one, counted already.
        self._waiters: OrderedDict[asyncio.Future[ClientConnection | None], bool] = OrderedDict()
        self._closed_because = ""
        self._is_retired = False

    async def call(self, method: str, args: Any, deadline_s: float, *, exclusive: bool, share: float = 1.0) -> Any:
        """One call on some connection: the struct of its answer. `exclusive`: where nothing else is carried meanwhile.

        `share`: how much of the time that is left after the wait for a connection this attempt may use.
        CallFailed; Overloaded: too many calls wait here for a connection; and the errors of ClientConnection.send.
        """
        if self._closed_because:
            raise CallFailed(self._closed_because, sent=False)
        connection = None if self._waiters else self._free(exclusive)
        if connection is None:
            connection = await self._wait_or_connect(deadline_s, exclusive, share)
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        ends_s = deadline_s if share == 1.0 else _part(share, deadline_s)
        self._send(connection, method, args, ends_s, waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            connection.give_up()
            raise

    def begin(self, method: str, args: Any, deadline_s: float, waiter: AnswerWaiter) -> bool:
        """Sends a call that may share its connection, if one is free at once. The errors of ClientConnection.send."""
        connection = None if self._waiters or self._closed_because else self._free(False)
        if connection is None:
            return False
        self._send(connection, method, args, deadline_s, waiter)
        return True

    def close(self, why: str) -> None:
        """Closes every connection at once, for good; the calls on them and those waiting fail."""
        self._closed_because = why
        self._refuse_waiters(why)
        for connection in list(self._open):
            connection.close(why)

    def cancel_calls(self, why: str) -> None:
        """No new calls; the server is told that it need not wait any more before it answers those under way."""
        self._closed_because = why
        self._refuse_waiters(why)
        for connection in list(self._open):
            connection.half_close()

    def resume_calls(self) -> None:
        """There can be calls again, over new connections, after `cancel_calls`."""
        self._closed_because = ""

    def retire(self) -> None:
        """No new calls will come; each connection is closed as soon as it carries none."""
        self._is_retired = True
        for connection in list(self._idle):
            connection.close("the server is not used any more")

    def renew(self) -> None:
        """No new call goes over the connections that are open: each is closed as soon as it carries none."""
        for connection in list(self._open):
            connection.retire()

    @property
    def is_empty(self) -> bool:
        """It has no connections, and will have none unless it is used."""
        return not self._open and not self._opening and not self._waiters

    # -- taking and returning -------------------------------------------------------------------------------------

    def _send(
        self, connection: ClientConnection, method: str, args: Any, deadline_s: float, waiter: AnswerWaiter
    ) -> None:
        try:
            connection.send(method, args, deadline_s, waiter)
        except BaseException:
            self._give_back(connection)
            raise

    def _free(self, exclusive: bool) -> ClientConnection | None:
        """For a new call, while none waits."""
        if self._idle and asyncio.get_running_loop().time() - self._idle[-1].idle_since_s >= self._limits.idle_s:
            for connection in list(self._idle):  # the last was used last
                connection.close("idle for too long")
        return self._reserve(exclusive)

    def _reserve(self, exclusive: bool) -> ClientConnection | None:
        """An idle connection, or a share of a busy one where no other can be opened; it is the caller's at once."""
        if self._idle:
            connection: ClientConnection | None = self._idle.pop()
        elif exclusive or self._has_room():
            return None
        else:
            connection = self._least_loaded()
        if connection is not None:
            connection.users += 1
            connection.exclusive = exclusive
        return connection

    def _has_room(self) -> bool:
        return len(self._open) + self._opening < self._limits.connections

    def _least_loaded(self) -> ClientConnection | None:
        """The busy connection with the fewest calls, if it can carry one more."""
        depth = self._limits.depth
        shared = [c for c in self._open if c.usable and not c.exclusive and c.users < depth]
        return min(shared, key=lambda connection: connection.users, default=None)

    def _give_back(self, connection: ClientConnection) -> None:
        connection.users -= 1
        if not connection.usable:
            return
        if connection.users == 0:
            connection.exclusive = False
            connection.idle_since_s = asyncio.get_running_loop().time()
            self._idle.append(connection)
        if self._waiters:
            self._serve_waiters()
        if self._is_retired:
            self.retire()

    # -- receipts --------------------------------------------------------------------------------------------------

    def _owe(self, connection: ClientConnection) -> None:
        """The caller goes on in the loop's next turn, and its next call is a receipt too. So one is sent in the turn
        after that, if it is still owed.
        """
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._send_receipt, connection)

    def _send_receipt(self, connection: ClientConnection) -> None:
        """A checkpoint of nothing, unless a call was sent meanwhile."""
        if not connection.owes_receipt or not connection.usable:
            return
        if connection in self._idle:
            self._idle.remove(connection)
        connection.users += 1
        deadline_s = asyncio.get_running_loop().time() + RECEIPT_TIMEOUT_S
        with suppress(CallFailed):
            self._send(connection, CHECKPOINT.name, NOTHING, deadline_s, _Unheard())

    # -- waiting ---------------------------------------------------------------------------------------------------

    async def _wait_or_connect(self, deadline_s: float, exclusive: bool, share: float) -> ClientConnection:
        if self._waiters or not self._has_room():
            connection = await self._wait(deadline_s, exclusive)
            if connection is not None:
                return connection
        else:
            self._opening += 1
        return await self._connect(_part(share, deadline_s), exclusive)

    async def _wait(self, deadline_s: float, exclusive: bool) -> ClientConnection | None:
        """In order of arrival. A connection that is the caller's; None: the caller opens one."""
        if len(self._waiters) >= self._limits.waiting_calls:
            raise Overloaded(f"{len(self._waiters)} calls are waiting for a connection to {self._address} already")
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[ClientConnection | None] = loop.create_future()
        self._waiters[waiter] = exclusive
        timer = loop.call_at(deadline_s, self._expire, waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            self._leave(waiter)
            raise
        finally:
            timer.cancel()

    def _expire(self, waiter: asyncio.Future[ClientConnection | None]) -> None:
        if not waiter.done():
            why = f"no connection became free in time ({len(self._open)} are busy, {len(self._waiters)} calls wait)"
            waiter.set_exception(CallFailed(why, sent=False, busy=True))
            self._remove_waiter(waiter)

    def _leave(self, waiter: asyncio.Future[ClientConnection | None]) -> None:
        """A caller was cancelled: what it was handed in that moment goes to the next."""
        if waiter.cancelled():
            self._remove_waiter(waiter)
        elif waiter.exception() is None:
            connection = waiter.result()
            if connection is not None:
                self._give_back(connection)
            else:
                self._opening -= 1
                self._serve_waiters()

    def _remove_waiter(self, waiter: asyncio.Future[ClientConnection | None]) -> None:
        """Those behind it may now be served, where it waited for more than they do."""
        self._waiters.pop(waiter, None)
        self._serve_waiters()

    def _serve_waiters(self) -> None:
        """Hands what is free to those who wait, in their order, as far as it goes."""
        while self._waiters:
            waiter, exclusive = next(iter(self._waiters.items()))
            if not waiter.done():
                connection = self._reserve(exclusive)
                if connection is None:
                    if not self._has_room():
                        return
                    self._opening += 1
                waiter.set_result(connection)
            del self._waiters[waiter]

    def _refuse_waiters(self, why: str) -> None:
        waiters, self._waiters = self._waiters, OrderedDict()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(CallFailed(why, sent=False))

    # -- opening and closing ---------------------------------------------------------------------------------------

    async def _connect(self, until_s: float, exclusive: bool) -> ClientConnection:
        """A new connection, which `_opening` counts already.

        CallFailed: there is none to be had, and all who wait learn it too.
        """
        try:
            connection = await self._open_connection(until_s)
        except BaseException as error:
            self._opening -= 1
            if isinstance(error, CallFailed):
                self._refuse_waiters(error.why)
            else:
                self._serve_waiters()
            raise
        self._opening -= 1
        connection.users = 1
        connection.exclusive = exclusive
        if connection.usable:
            self._open[connection] = None
            if self._on_connect is not None:
                self._on_connect()
        if self._closed_because:
            connection.close(self._closed_because)
            raise CallFailed(self._closed_because, sent=False)
        self._serve_waiters()
        return connection

    async def _open_connection(self, until_s: float) -> ClientConnection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(min(until_s, loop.time() + self._limits.connect_timeout_s)):
                _, connection = await loop.create_connection(
                    lambda: ClientConnection(
                        self._address, self._limits.wire, self._give_back, self._forget, self._owe
                    ),
                    *self._address,
                    ssl=None if self._tls is None else self._tls.context(),
                    server_hostname=None if self._tls is None else self._server_name,
                )
                if self._tls is not None and self._tls.shows_certificate:
                    await self._prove(connection, until_s)
        except OSError as error:
            raise unconnected(error, self._tls is not None) from error
        return connection

    async def _prove(self, connection: ClientConnection, until_s: float) -> None:
        """A call of nothing. In TLS 1.3 a server may refuse a certificate after the client counts itself connected
        (RFC 8446, section 4.4.2.4): what was sent first would be lost, and nobody could say whether it was carried out.
        """
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        connection.users += 1
        connection.send(CHECKPOINT.name, NOTHING, until_s, waiter)
        try:
            await waiter
        except CallFailed as error:
            raise unproved(error) from error
        except BaseException:
            connection.close("it was not proved")
            raise

    def _forget(self, connection: ClientConnection) -> None:
        if self._on_lost is not None:
            asyncio.get_running_loop().call_soon(self._on_lost)
        self._open.pop(connection, None)
        if connection in self._idle:
            self._idle.remove(connection)
        self._serve_waiters()


def _part(share: float, deadline_s: float) -> float:
    """The moment at which that share of the time until the deadline is over."""
    if share == 1.0:
        return deadline_s
    now_s = asyncio.get_running_loop().time()
    return now_s + (deadline_s - now_s) * share


def unproved(error: CallFailed) -> CallFailed:
    """For the callers of a connection whose proof failed so."""
    return CallFailed(f"{error.why}; perhaps it does not accept the certificate of this client", sent=False)


def unconnected(error: OSError, with_tls: bool) -> CallFailed:
    """For the callers of a connection that could not be opened."""
    return CallFailed(_reason(error, with_tls), sent=False)


def _reason(error: OSError, with_tls: bool) -> str:
    """The system's word for it, which asyncio hides behind its own."""
    if isinstance(error, TimeoutError):
        return "no connection within the time-out"
    if isinstance(error, ssl.SSLError):
        return _tls_reason(error)
    if with_tls and isinstance(error, ConnectionResetError | ConnectionAbortedError):
        return "it ended the connection where TLS begins; perhaps it does not speak TLS"
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)


def _tls_reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if error.reason == "WRONG_VERSION_NUMBER":
        return "it does not speak TLS"
    return f"TLS failed: {error.reason or error}"
