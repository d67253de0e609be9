"""The listening socket: the supervisor accepts, and gives each worker its turn.

Workers that all accept from one socket do not share evenly: the one that wakes up first takes all there is.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable

import structlog

from pinlater.listener import BACKLOG, AcceptLoop, RateLimitedLog

log = structlog.get_logger(__name__)


class CannotListen(Exception):
    """The address cannot be had; the message says why."""


class Acceptor:
    """Accepts while `wanted`, else leaves new connections where they wait; `give` takes each."""

    def __init__(self, host: str, port: int, wanted: Callable[[], bool], give: Callable[[socket.socket], None]) -> None:
        """CannotListen."""
        self._accepting = AcceptLoop(bound(host, port), give, RateLimitedLog(log.error), wanted)

    @property
    def address(self) -> str:
        """HOST:PORT, as clients write it."""
        host, port = self._accepting.listener.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def close(self) -> None:
        """Take those who are waiting still, where they are wanted, and listen no more."""
        self._accepting.close(take_waiting=True)


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
