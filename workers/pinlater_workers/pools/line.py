"""The process's end of a connection to its worker: plain blocking calls, for any thread to send and one to receive."""

from __future__ import annotations

import os
import socket
import threading
from collections import deque
from typing import Generic, TypeVar

import msgspec

from pinlater_workers.frames import Frames
from pinlater_workers.pools.messages import Message, written

T = TypeVar("T")
_READ_BYTES = 1 << 16


class BlockingSocket(Generic[T]):
    """Programs that a job starts do not inherit it, and no bytes go elsewhere when a job closes what is not its own."""

    def __init__(self, descriptor: int, decoder: msgspec.msgpack.Decoder[T]) -> None:
        os.set_inheritable(descriptor, False)
        self._socket = socket.socket(fileno=descriptor)
        self._decoder = decoder
        self._frames = Frames()
        self._received: deque[bytes] = deque()
        self._sending = threading.Lock()
        self._inode = os.fstat(descriptor).st_ino

    def send(self, message: Message) -> None:
        """OSError: the worker is gone, or the job has closed the connection."""
        data = written(message)
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
        return self._decoder.decode(self._received.popleft())

    def close(self) -> None:
        self._socket.close()
