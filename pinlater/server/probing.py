"""Learning that a caller's machine is gone: where its power fails or its cable is cut, no end of the connection comes.

The kernel asks the other side's, not the process, so a busy or a stopped caller is not taken for a dead one.
"""

from __future__ import annotations

import socket
from typing import Any

_OPTIONS = (
    ("TCP_KEEPIDLE", 1),  # seconds until the first question
    ("TCP_KEEPINTVL", 1),  # and between them
    ("TCP_KEEPCNT", 2),
    ("TCP_USER_TIMEOUT", 3_000),  # ms: the same where something that was sent is not acknowledged
)

SILENT_MS = 1_000
"""Of the three seconds without a sign of life before such an end is reported, so much counts as grace."""


def probe(sock: Any) -> None:
    """From now on the connection ends with ETIMEDOUT about three seconds after the other machine is gone. Nothing on a
    system that cannot do that.
    """
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS:
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
