"""The sockets between a worker and its child processes: messages, each a length of four bytes and then MessagePack.

    worker, on its event loop            child
    start_child, LoopSocket      ◄────►  LoopSocket, where the child has an event loop (heartbeat.process)
                                         BlockingSocket, where its threads wait for messages (pools.child)

An end of file says that the other side is gone, or wants no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from pinlater.child_process import ChildProcess, module_command
from pinlater.forks import stays_with_parent

T = TypeVar("T")
_LENGTH_BYTES = 4
_READ_BYTES = 1 << 16


def frame(message: bytes) -> bytes:
    return len(message).to_bytes(_LENGTH_BYTES, "big") + message


class Frames:
    """Bytes as they come in, whole messages out."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that are whole now; what is left waits for the rest."""
        buffer = self._buffer
        buffer += data
        messages: list[bytes] = []
        start = 0
        while len(buffer) - start >= _LENGTH_BYTES:
            body = start + _LENGTH_BYTES
            end = body + int.from_bytes(buffer[start:body], "big")
            if len(buffer) < end:
                break
            messages.append(bytes(buffer[body:end]))
            start = end
        del buffer[:start]
        return messages


def start_child(
    module: str, sockets: int, exited: Callable[[int], None], *, quiet: bool = False, more: int = 0
) -> tuple[ChildProcess, list[socket.socket]]:
    """`python -m MODULE FD... PID FD...`, which imports from where this process does: a child with so many sockets to
    it, and `more` of them behind the PID; the child, and our ends of them.

    OSError: the system can start no more. To be called in the thread whose end the child does not outlive.
    """
    with contextlib.ExitStack() as on_error:
        ours: list[socket.socket] = []
        theirs: list[socket.socket] = []
        for _ in range(sockets + more):
            our_end, their_end = socket.socketpair()
            for end, ends in ((our_end, ours), (their_end, theirs)):
                on_error.callback(end.close)
                ends.append(end)
        descriptors = [each.fileno() for each in theirs]
        command = [
            *module_command(module),
            *map(str, descriptors[:sockets]),
            str(os.getpid()),
            *map(str, descriptors[sockets:]),
        ]
        child = ChildProcess(command, descriptors, exited, quiet=quiet)
        on_error.pop_all()
    for each in theirs:
        each.close()
    return child, ours


class LoopSocket(Generic[T]):
    """One end on an event loop.

    A plain socket rather than a transport: when a child is found dead, all that it said has to be read at once.
    """

    def __init__(
        self,
        connection: socket.socket,
        decode: Callable[[bytes], T],
        received: Callable[[T], None],
        closed: Callable[[], None],
    ) -> None:
        """`closed` is called once: the other side closed it, or sent what cannot be read."""
        connection.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._socket = connection
        self._decode = decode
        self._received = received
        self._closed = closed
        self._frames = Frames()
        self._unsent = bytearray()
        self._open = True
        stays_with_parent(connection)
        self._loop.add_reader(connection, self._read)

    @property
    def unsent_bytes(self) -> int:
        """What the other side has left no room for yet."""
        return len(self._unsent)

    def send(self, data: bytes) -> None:
        """A framed message, in order, and never waiting. Nothing is said when the other side is gone."""
        if self._unsent:
            self._unsent += data
        elif self._open and (sent := self._send(data)) < len(data):
            self._unsent += data[sent:]
            self._loop.add_writer(self._socket, self._write)

    def finish(self) -> None:
        """Nothing more will be sent: the other side reads the end."""
        if self._open:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)

    def read_rest(self) -> None:
        """Receive what has come."""
        while self._open and self._read():
            pass

    def close(self) -> None:
        """Nothing more is received."""
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
                self._received(self._decode(content))
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
        self._closed()

    def _stop(self) -> None:
        if self._open:
            self._open = False
            self._unsent.clear()
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)


class BlockingSocket(Generic[T]):
    """The child's end where threads wait: any thread may send, one receives.

    Programs that a job starts do not inherit it, and no bytes go elsewhere when a job closes what is not its own.
    """

    def __init__(self, descriptor: int, decode: Callable[[bytes], T]) -> None:
        os.set_inheritable(descriptor, False)
        self._socket = socket.socket(fileno=descriptor)
        self._decode = decode
        self._frames = Frames()
        self._received: deque[bytes] = deque()
        self._sending = threading.Lock()
        self._inode = os.fstat(descriptor).st_ino

    def send(self, data: bytes) -> None:
        """A framed message. OSError: the worker is gone, or the job has closed the connection."""
        with self._sending:
            if os.fstat(self._socket.fileno()).st_ino != self._inode:
                raise OSError("a job has closed the connection to the worker")
            self._socket.sendall(data)

    def receive(self) -> T | None:
        """The next message, as long as it takes. None: the worker has ended this connection, or it broke."""
        while not self._received:
            try:
                data = self._socket.recv(_READ_BYTES)
            except OSError:
                return None
            if not data:
                return None
            self._received += self._frames.feed(data)
        return self._decode(self._received.popleft())

    def close(self) -> None:
        self._socket.close()
