"""The line between the supervisor and a worker: small messages, each with at most one socket handed along.

A pair of Unix sequenced-packet sockets: a message arrives whole or not at all, its socket with it, and the end of the
line tells each side that the other is gone.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]
MAX_MESSAGE_BYTES = 160 * 1024
"""Stays under the kernel's default send buffer, which bounds one packet."""

_AT_ONCE = 32


class ProcessChannel:
    """One end of the line. Sends in order and never blocks; a socket that is sent belongs to the channel."""

    def __init__(
        self,
        end: socket.socket,
        on_message: Callable[[Message, socket.socket | None], None],
        on_end: Callable[[], None],
    ) -> None:
        end.setblocking(False)
        self._end = end
        self._on_message = on_message
        self._on_end = on_end
        self._waiting: deque[tuple[bytes, socket.socket | None]] = deque()
        self._sent = asyncio.Event()
        self._sent.set()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(end, self._readable)
        self.open = True

    @property
    def waiting(self) -> int:
        """Messages that the other side left no room for yet."""
        return len(self._waiting)

    def send(self, message: Message, passed: socket.socket | None = None) -> None:
        """Send now, or as soon as the other side reads; to nobody, where the line has ended."""
        data = json.dumps(message).encode()
        if len(data) > MAX_MESSAGE_BYTES:
            raise ValueError(f"a message of {len(data)} bytes; allowed: {MAX_MESSAGE_BYTES}")
        self._waiting.append((data, passed))
        if len(self._waiting) == 1:
            self._writable()

    async def flush(self) -> None:
        """Until all is sent, or the line has ended."""
        await self._sent.wait()

    def close(self) -> None:
        if not self.open:
            return
        self.open = False
        self._loop.remove_reader(self._end)
        self._loop.remove_writer(self._end)
        self._end.close()
        self._drop_waiting()

    def read_rest(self) -> None:
        """Read what the other side sent before it ended."""
        while self.open:
            if not self._read_one():
                return

    def _drop_waiting(self) -> None:
        while self._waiting:
            _, passed = self._waiting.popleft()
            if passed is not None:
                passed.close()
        self._sent.set()

    def _writable(self) -> None:
        while self._waiting:
            data, passed = self._waiting[0]
            try:
                if not self.open:
                    raise BrokenPipeError
                socket.send_fds(self._end, [data], [passed.fileno()] if passed is not None else [])
            except BlockingIOError:
                self._sent.clear()
                self._loop.add_writer(self._end, self._writable)
                return
            except OSError:
                self._drop_waiting()
                break
            self._waiting.popleft()
            if passed is not None:
                passed.close()
        self._sent.set()
        if self.open:
            self._loop.remove_writer(self._end)

    def _readable(self) -> None:
        for _ in range(_AT_ONCE):
            if not self.open or not self._read_one():
                return

    def _read_one(self) -> bool:
        """Whether there was a message, or the end."""
        try:
            data, fds, _flags, _address = socket.recv_fds(self._end, MAX_MESSAGE_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data, fds = b"", []
        if data:
            self._on_message(json.loads(data), _as_socket(fds))
        else:
            self.close()
            self._on_end()
        return True


def line() -> tuple[socket.socket, socket.socket]:
    """Both ends of a new line."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def _as_socket(fds: list[int]) -> socket.socket | None:
    return socket.socket(fileno=fds[0]) if fds else None
