"""The worker's end of a connection to a process of the pool, on the event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import msgspec

from pinlater_workers.frames import Frames
from pinlater_workers.pools.messages import FROM_PROCESS, FromProcess, Message, written

_READ_BYTES = 1 << 16


class LoopSocket:
    """A plain socket rather than a transport, as all that a process said must be read at once when it is found dead."""

    def __init__(
        self, connection: socket.socket, received: Callable[[FromProcess], None], broken: Callable[[], None]
    ) -> None:
        """`broken` is told once: the other side closed it, or sent what cannot be read."""
        connection.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._socket = connection
        self._received = received
        self._broken = broken
        self._frames = Frames()
        self._unsent = bytearray()
        self._open = True
        self._loop.add_reader(connection, self._read)

    def send(self, message: Message) -> None:
        """In order, and never waiting. Nothing is said when the other side is gone: its death is found out apart."""
        data = written(message)
        if self._unsent:
            self._unsent += data
        elif self._open and (sent := self._send(data)) < len(data):
            self._unsent += data[sent:]
            self._loop.add_writer(self._socket, self._write)

    def finish(self) -> None:
        """Nothing more will be sent: the other side reads the end."""
        if self._open:
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Receive what has come, and end."""
        while self._open and self._read():
            pass
        self._stop()
        self._socket.close()

    def _read(self) -> bool:
        """False: nothing more is there for now."""
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._break()
            return False
        try:
            for content in self._frames.feed(data):
                self._received(FROM_PROCESS.decode(content))
        except msgspec.MsgspecError:
            self._break()
        return True

    def _send(self, data: bytes | bytearray) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            return len(data)

    def _write(self) -> None:
        del self._unsent[: self._send(self._unsent)]
        if not self._unsent:
            self._loop.remove_writer(self._socket)

    def _break(self) -> None:
        self._stop()
        self._broken()

    def _stop(self) -> None:
        if self._open:
            self._open = False
            self._unsent.clear()
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
