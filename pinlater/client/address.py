"""Where a server listens, as people write it: `HOST`, `HOST:PORT` or `[IPV6]:PORT`."""

from __future__ import annotations

import re
from typing import NamedTuple

DEFAULT_PORT = 9010
_HOST_PORT = re.compile(r"(?:\[([0-9A-Fa-f]*:[0-9A-Fa-f:.]+(?:%[0-9A-Za-z]+)?)\]|([^\s:/\[\],]+))(?::([0-9]{1,5}))?")


class Address(NamedTuple):
    """One server."""

    host: str
    port: int = DEFAULT_PORT

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """The host and port of a text; ValueError for anything else.

    >>> parse_address("queue-1"), parse_address("[::1]:9011")
    (Address(host='queue-1', port=9010), Address(host='::1', port=9011))
    """
    match = _HOST_PORT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"server address {text!r}; allowed: HOST, HOST:PORT or [IPV6]:PORT")
    bracketed, plain, port_text = match.groups()
    port = int(port_text) if port_text else DEFAULT_PORT
    if not 1 <= port <= 65535:
        raise ValueError(f"server address {text!r}: port {port}; allowed: 1 to 65535")
    return Address(bracketed or plain, port)
