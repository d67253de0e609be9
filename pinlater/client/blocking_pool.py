"""The connections to one server for calls whose threads wait for the answers themselves, one call at a time on each."""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pinlater.client.addresses import Address
from pinlater.client.client_tls import ClientTls
from pinlater.client.connection import LAST_SEQID, METHOD_CODECS, CallFailed, unreadable
from pinlater.client.pool import NOTHING, PoolLimits, unconnected, unproved
from pinlater.errors import PinLaterError
from pinlater.forks import stays_with_parent
from pinlater.wire.framing import Splitter
from pinlater.wire.message import WireError, WireLimits
from pinlater.wire.methods import CHECKPOINT

_FIRST_BYTES, _MORE_BYTES = 16 * 1024, 256 * 1024
"""Of one read: most answers are short, and a large buffer is a system call of its own."""


class BlockingConnection:
    """One connection, which one thread uses at a time. `age`: see BlockingPool."""

    __slots__ = (
        "__weakref__",
        "_address",
        "_closed_because",
        "_is_spoiled",
        "_limits",
        "_poll",
        "_seqid",
        "_socket",
        "_splitter",
        "age",
        "idle_since_s",
    )

    def __init__(self, address: Address, connected: socket.socket, limits: WireLimits, age: int) -> None:
        self._address = address
        self._socket = connected
        self._limits = limits
        self._splitter = Splitter(limits)
        self._splitter.framed = True
        self._seqid = 0
        self._closed_because = ""
        self._is_spoiled = False
        self._poll = select.poll() if hasattr(select, "poll") else None  # Windows has none
        if self._poll is not None:
            self._poll.register(connected, select.POLLIN)
        self.age = age
        self.idle_since_s = 0.0
        stays_with_parent(self)

    def fileno(self) -> int:
        """Of its socket; -1: it is closed."""
        return self._socket.fileno()

    @property
    def is_silent(self) -> bool:
        """Nothing has come behind the last answer, as its end would. False: it is not to be used again."""
        return not (self._closed_because or self._is_spoiled or self._has_more())

    def _has_more(self) -> bool:
        if self._poll is None:
            return bool(select.select([self._socket], [], [], 0)[0])
        return bool(self._poll.poll(0))

    def call(self, method: str, args: Any, ends_s: float) -> Any:
        """The struct of the answer to one call, before `ends_s` of the monotonic clock.

        CallFailed, ProtocolError: the connection is closed, as it is after an interruption. Other errors of
        `pinlater.errors` leave it as it was: RequestInvalid for what cannot be encoded, and what the server says.
        """
        self._seqid = seqid = self._seqid % LAST_SEQID + 1
        codec = METHOD_CODECS[method]
        message = codec.call(seqid, args, self._limits)
        began_s = time.monotonic()
        try:
            self._socket.settimeout(max(ends_s - began_s, 0.001))
            self._socket.sendall(len(message).to_bytes(4, "big") + message)
            result = codec.result(self._answer(ends_s), codec.due(seqid), seqid, self._limits)
        except TimeoutError:
            self.close(f"no answer within {ends_s - began_s:.3g} s")
        except OSError as error:
            self.close(self._closed_because or f"the connection broke: {error}")
        except WireError as error:
            self.close(str(error))
            raise unreadable(self._address, error) from None
        except BaseException:
            self.close("the call was given up")
            raise
        else:
            if isinstance(result, PinLaterError):
                raise result
            return result
        raise CallFailed(self._closed_because, sent=True)

    def _answer(self, ends_s: float) -> bytes:
        """TimeoutError; OSError: the connection has ended; WireError."""
        data = self._socket.recv(_FIRST_BYTES)
        whole = self._splitter.whole(data)
        while whole is None:
            if not data:
                raise ConnectionError("the server closed it")
            answers = list(self._splitter.feed(data))
            if answers:
                self._is_spoiled = len(answers) > 1 or self._splitter.buffered > 0
                return answers[0]
            self._socket.settimeout(max(ends_s - time.monotonic(), 0.001))
            data = self._socket.recv(_MORE_BYTES)
        return whole

    def close(self, why: str) -> None:
        """For the thread that uses it, and for others where none does."""
        self._closed_because = why
        self._socket.close()

    def end(self, why: str) -> None:
        """From any thread: a call that is under way fails."""
        self._closed_because = why
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


class BlockingPool:
    """Opens connections where they are needed, and keeps them for the next call. Any number of threads may use it.

    Those that were open when the server said that it is about to close them are not used again: `renew` counts up, and
    a connection of an earlier age is closed in place of being used.
    """

    def __init__(
        self,
        address: Address,
        limits: PoolLimits,
        *,
        on_connect: Callable[[], None],
        tls: ClientTls | None = None,
        server_name: str | None = None,
    ) -> None:
        self._address = address
        self._limits = limits
        self._on_connect = on_connect
        self._tls = tls
        self._server_name = (tls and tls.server_name) or server_name or address.host
        self._idle: deque[BlockingConnection] = deque()
        self._open: set[BlockingConnection] = set()
        self._age = 0
        self._closed_because = ""

    def take(self, ends_s: float) -> BlockingConnection:
        """A connection that is the caller's, who gives it back. CallFailed: there is none to be had."""
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread has it
                break
            idle_s = time.monotonic() - connection.idle_since_s
            if connection.age == self._age and idle_s < self._limits.idle_s and connection.is_silent:
                return connection
            self._open.discard(connection)
            connection.close("it is not used any more")
        connection = self._connect(ends_s)
        self._open.add(connection)
        if self._closed_because:
            connection.end(self._closed_because)
        return connection

    def give_back(self, connection: BlockingConnection) -> None:
        """Closed or not."""
        if connection.fileno() >= 0 and connection.age == self._age:
            connection.idle_since_s = time.monotonic()
            self._idle.append(connection)
        else:
            self._open.discard(connection)
            connection.close("it is not used any more")

    def renew(self) -> None:
        """No new call goes over the connections that are open."""
        self._age += 1
        while self._idle:
            with suppress(IndexError):
                connection = self._idle.pop()
                self._open.discard(connection)
                connection.close("it is not used any more")

    def close(self, why: str) -> None:
        """For good; calls under way fail."""
        self._closed_because = why
        self.renew()
        for connection in list(self._open):
            connection.end(why)

    def _connect(self, ends_s: float) -> BlockingConnection:
        if self._closed_because:
            raise CallFailed(self._closed_because, sent=False)
        until_s = min(ends_s, time.monotonic() + self._limits.connect_timeout_s)
        age = self._age
        connected: socket.socket | None = None
        try:
            connected = socket.create_connection(self._address, max(until_s - time.monotonic(), 0.001))
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                connected.settimeout(max(until_s - time.monotonic(), 0.001))
                connected = self._tls.context().wrap_socket(connected, server_hostname=self._server_name)
            connection = BlockingConnection(self._address, connected, self._limits.wire, age)
            if self._tls is not None and self._tls.shows_certificate:
                self._prove(connection, until_s)
        except BaseException as error:
            if connected is not None:
                connected.close()
            if isinstance(error, OSError):
                raise unconnected(error, self._tls is not None) from error
            raise
        self._on_connect()
        return connection

    def _prove(self, connection: BlockingConnection, until_s: float) -> None:
        """As of a Pool."""
        try:
            connection.call(CHECKPOINT.name, NOTHING, until_s)
        except CallFailed as error:
            raise unproved(error) from error
