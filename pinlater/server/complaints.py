"""What callers do wrong, in the log: each with its address, but no more lines than an operator could read."""

from __future__ import annotations

from typing import Any

import structlog

_log = structlog.get_logger("pinlater.server")
LINES_PER_S = 10
"""For all callers together: one alone could otherwise fill a disk."""


class Complaints:
    """A line each, at most so many a second; then one that says how many were left out."""

    def __init__(self) -> None:
        self._lines = 0
        self._since_s = 0.0

    def note(self, event: str, peer: object, **fields: object) -> None:
        """`peer` is its address as sockets have it."""
        self._lines += 1
        if self._lines <= LINES_PER_S:
            _log.info(event, peer=address(peer), **fields)

    def renew(self, now_s: float) -> None:
        """Called now and then: a new second may have begun."""
        if now_s - self._since_s >= 1.0:
            self.say_rest()
            self._since_s = now_s

    def say_rest(self) -> None:
        if self._lines > LINES_PER_S:
            _log.info("lines_left_out", lines=self._lines - LINES_PER_S, at_most_per_s=LINES_PER_S)
        self._lines = 0


def address(peer: Any) -> str:
    """HOST:PORT; "unknown" where the caller was gone before it could be asked."""
    if not isinstance(peer, tuple):
        return str(peer or "unknown")
    host, port = peer[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
