"""What callers do wrong, in the log: with the address of one who did, and no more lines than an operator could read."""

from __future__ import annotations

from typing import Any

import structlog

from pinlater.listener import RateLimitedLog

_log = structlog.get_logger("pinlater.server")


class Complaints:
    """A line a minute for each kind; see RateLimitedLog."""

    def __init__(self) -> None:
        self._lines = RateLimitedLog(lambda event, **fields: _log.info(event, **fields))

    def note(self, event: str, peer: object, *, kind: str = "", **fields: object) -> None:
        """`peer` is its address as sockets have it; `kind` tells troubles of one event apart."""
        self._lines.note(event, kind, peer=address(peer), **fields)

    def say_rest(self) -> None:
        """At the end: how many lines were left out."""
        self._lines.say_rest()


def address(peer: Any) -> str:
    """HOST:PORT; "unknown" where the caller was gone before it could be asked."""
    if not isinstance(peer, tuple):
        return str(peer or "unknown")
    host, port = peer[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
