"""TCP as two processes see it: a connection with a way between its two ends, in virtual time.

Each end is a transport of asyncio, so that the product's own protocols sit on it. What one end writes comes to the
other in order, after the time of the way. A kernel acknowledges what came to it, also where its process reads nothing.

A connection can break (both ends learn it), or fall silent (nothing comes through any more: an end learns it by its
time-outs, and a server that asks for the kernel's keepalive soon).
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any

from tests.simulation.virtual_time import as_process

KEPT_ALIVE_S = 3.0
"""So long after a connection fell silent a kernel that keeps it alive gives it up."""

GIVEN_UP_S = 900.0
"""And one that does not."""

NOBODY = as_process("")
"""The context of what the kernels and the network do."""

_ESTABLISHED, _CLOSED = 1, 7
_TCP_INFO_BYTES, _BYTES_ACKED_AT = 128, 120


class _Mark:
    """What a kernel sends that is no bytes."""


_END, _RESET = _Mark(), _Mark()
_Item = bytes | _Mark


class SimulatedSocket:
    """The socket of one end, as far as a server asks for it."""

    family = socket.AF_INET
    _unconnected: socket.socket | None = None

    def __init__(self, end: ConnectionEnd) -> None:
        self.end = end

    def setblocking(self, flag: bool) -> None:
        """It never blocks."""

    def setsockopt(self, level: int, option: int, value: int) -> None:
        if (level, option) == (socket.SOL_SOCKET, socket.SO_KEEPALIVE) and value:
            self.end.keep_alive()

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        """Of TCP_INFO the state and what the other side has acknowledged."""
        info = bytearray(_TCP_INFO_BYTES)
        info[0] = _CLOSED if self.end.is_broken else _ESTABLISHED
        struct.pack_into("=Q", info, _BYTES_ACKED_AT, self.end.acknowledged)
        return bytes(info[:size])

    @classmethod
    def fileno(cls) -> int:
        """Of a real socket without a connection, of which the system says that nothing is on its way."""
        if cls._unconnected is None:
            cls._unconnected = socket.socket()
        return cls._unconnected.fileno()

    def close(self) -> None:
        self.end.abort()


class ConnectionEnd(asyncio.Transport):
    """One end. It has a process when `take` was called; until then its kernel keeps what comes.

    What the process learns, it learns in the context in which it took the connection, and so not while it is frozen.
    """

    def __init__(self, connection: Connection, peer: tuple[str, int]) -> None:
        super().__init__()
        self.other = self
        self.connection = connection
        self.acknowledged = 0
        """Bytes that came to the other kernel."""
        self.is_broken = False
        """Its kernel has given the connection up."""
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self._protocol: asyncio.Protocol | None = None
        self._process: Context | None = None
        self._is_open = True
        self._is_reading = True
        self._is_kept_alive = False
        self._came: deque[_Item] = deque()
        self._on_way: deque[_Item] = deque()
        self._last_at_s = 0.0

    def take(self, protocol: asyncio.Protocol) -> None:
        """The process that asks for this has the connection from now on."""
        self._protocol, self._process = protocol, copy_context()
        protocol.connection_made(self)
        self._read()

    # -- what a protocol asks of its transport -----------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "socket":
            return SimulatedSocket(self)
        return self._peer if name == "peername" else default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_open and data:
            late_s = self.connection.on_send(self, bytes(data))
            if late_s is not None:
                self.put_on_way(bytes(data), self.connection.one_way_s + late_s)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if self._is_open:
            self.put_on_way(_END, self.connection.one_way_s)

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._loop.call_soon(self._read, context=self._process)

    def is_closing(self) -> bool:
        return not self._is_open

    def close(self) -> None:
        """What was written comes to the other end."""
        self.abort()

    def abort(self) -> None:
        if self._is_open:
            self._close()
            self._loop.call_soon(self._lose, None, context=self._process)

    def die(self) -> None:
        """The process is killed: its kernel closes the connection, and no code of it runs any more."""
        self._protocol = None
        if self._is_open:
            self._close()

    # -- what the kernels do -----------------------------------------------------------------------------------------

    def keep_alive(self) -> None:
        self._is_kept_alive = True
        if self.connection.is_silent:
            self.fall_silent()

    def fall_silent(self) -> None:
        """Its kernel gives the connection up some time from now."""
        after_s = KEPT_ALIVE_S if self._is_kept_alive else GIVEN_UP_S
        self._loop.call_later(after_s, self._break, errno.ETIMEDOUT, context=NOBODY)

    def reset(self) -> None:
        """Learns soon that the connection broke, behind what is on its way here."""
        self.other.put_on_way(_RESET, self.connection.one_way_s)

    def put_on_way(self, item: _Item, takes_s: float) -> None:
        """To the other end, behind all that was sent before."""
        self._last_at_s = max(self._last_at_s, self._loop.time() + takes_s)
        self._on_way.append(item)
        self._loop.call_at(self._last_at_s, self._arrive, context=NOBODY)

    def _arrive(self) -> None:
        item = self._on_way.popleft()
        if not self.connection.is_silent:
            self.other.receive(item)

    def receive(self, item: _Item) -> None:
        """In its kernel."""
        if not self._is_open:
            if isinstance(item, bytes):
                self.other.reset()
        elif item is _RESET:
            self._break(errno.ECONNRESET)
        else:
            if isinstance(item, bytes):
                self.other.acknowledged += len(item)
            self._came.append(item)
            if self._protocol is not None:
                self._loop.call_soon(self._read, context=self._process)

    def _close(self) -> None:
        """What came and was not read makes it a reset."""
        self._is_open = False
        unread = any(isinstance(item, bytes) for item in self._came)
        self._came.clear()
        self.put_on_way(_RESET if unread else _END, self.connection.one_way_s)
        self.connection.closed()

    def _break(self, number: int) -> None:
        """It ends with an error of the system. What came before is read first."""
        if self._is_open:
            self.is_broken, self._is_open = True, False
            error = ConnectionResetError if number == errno.ECONNRESET else TimeoutError
            self._loop.call_soon(self._lose, error(number, os.strerror(number)), context=self._process or NOBODY)
            self.connection.closed()

    # -- in the process ----------------------------------------------------------------------------------------------

    def _read(self) -> None:
        while self._came and self._is_reading and self._protocol is not None:
            item = self._came.popleft()
            if isinstance(item, bytes):
                self._protocol.data_received(item)
            elif not self._protocol.eof_received():
                self.close()

    def _lose(self, error: OSError | None) -> None:
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(error)


class Connection:
    """Between a caller and a server. `address`: the caller's, as the server sees it; `one_way_s`: what a packet takes.

    `on_send` is called with whatever an end is about to send, and says how late it comes; None: it does not, since the
    connection breaks or falls silent instead. `on_over` is called when both ends have closed, or given it up.
    """

    def __init__(
        self,
        caller: str,
        server: str,
        address: tuple[str, int],
        one_way_s: float,
        on_send: Callable[[ConnectionEnd, bytes], float | None],
        on_over: Callable[[Connection], None],
    ) -> None:
        self.caller, self.server = caller, server
        self.one_way_s = one_way_s
        self.on_send, self._on_over = on_send, on_over
        self.is_silent = False
        self.client_end = ConnectionEnd(self, (server, 9010))
        self.server_end = ConnectionEnd(self, address)
        self.client_end.other, self.server_end.other = self.server_end, self.client_end

    def closed(self) -> None:
        """One end has closed, or given it up."""
        if self.client_end.is_closing() and self.server_end.is_closing():
            self._on_over(self)

    def break_off(self) -> None:
        """Both ends learn it, behind what is on its way to them."""
        self.client_end.reset()
        self.server_end.reset()

    def fall_silent(self) -> None:
        """From now on nothing comes through, nor what is on its way."""
        if not self.is_silent:
            self.is_silent = True
            self.client_end.fall_silent()
            self.server_end.fall_silent()
