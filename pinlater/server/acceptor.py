"""The listening socket: the supervisor accepts, and gives each worker its turn.

Workers that all accept from one socket do not share evenly: the one that wakes up first takes all there is.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

import structlog

log = structlog.get_logger(__name__)
BACKLOG = 1024
_AT_ONCE = 64
_PAUSE_S = 0.02
_FULL_PAUSE_S = 0.5


class CannotListen(Exception):
    """The address cannot be had; the message says why."""


class Acceptor:
    """Accepts while `wanted`, else leaves new connections where they wait; `give` takes each."""

    def __init__(self, host: str, port: int, wanted: Callable[[], bool], give: Callable[[socket.socket], None]) -> None:
        """CannotListen."""
        self._listener = bound(host, port)
        self._wanted = wanted
        self._give = give
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._loop.add_reader(self._listener, self._accept)

    @property
    def address(self) -> str:
        """HOST:PORT, as clients write it."""
        host, port = self._listener.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def close(self) -> None:
        """Take those who are waiting still, where they are wanted, and listen no more."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listener)
        while self._wanted() and self._accept_one():
            pass
        self._listener.close()

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            if not self._wanted():
                self._rest(_PAUSE_S)
                return
            if not self._accept_one():
                return

    def _accept_one(self) -> bool:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False
        except OSError as error:
            log.error("cannot_accept", reason=error.strerror)
            self._rest(_FULL_PAUSE_S)
            return False
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # stays with it, wherever it goes
        self._give(connection)
        return True

    def _rest(self, seconds: float) -> None:
        self._loop.remove_reader(self._listener)
        self._pause = self._loop.call_later(seconds, self._loop.add_reader, self._listener, self._accept)


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens on the first address of the host. CannotListen."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise CannotListen(f"cannot listen on {host}: {error.strerror}") from error
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        other = "--host" if error.errno == errno.EADDRNOTAVAIL else "--port"
        raise CannotListen(f"cannot listen on {host}:{port}: {error.strerror}; choose another {other}") from error
    listener.setblocking(False)
    return listener
