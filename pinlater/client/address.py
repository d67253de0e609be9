"""Where a server listens, as people write it: `HOST`, `HOST:PORT` or `[IPV6]:PORT`.

`dns:NAME:PORT` is every address that the name has, each a server of its own; NAME alone is one of them, as the system
chooses.
"""

from __future__ import annotations

import re
from typing import NamedTuple

DEFAULT_PORT = 9010
DNS = "dns:"
_HOST_PORT = re.compile(r"(?:\[([0-9A-Fa-f]*:[0-9A-Fa-f:.]+(?:%[0-9A-Za-z]+)?)\]|([^\s:/\[\],]+))(?::([0-9]{1,5}))?")


class Address(NamedTuple):
    """One server."""

    host: str
    port: int = DEFAULT_PORT

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class DnsName(NamedTuple):
    """All servers whose addresses the name has."""

    name: str
    port: int = DEFAULT_PORT

    def __str__(self) -> str:
        return f"{DNS}{self.name}:{self.port}"


Target = Address | DnsName


def parse_target(text: str) -> Target:
    """A server, or a name that stands for several. ValueError for anything else.

    >>> parse_target("dns:queue.internal:9011"), parse_target("dns:9011")
    (DnsName(name='queue.internal', port=9011), Address(host='dns', port=9011))
    """
    prefix, rest = text.strip()[: len(DNS)], text.strip()[len(DNS) :]
    if prefix != DNS or rest.isdecimal():
        return parse_address(text)
    try:
        address = parse_address(rest)
    except ValueError:
        address = Address("")
    if not address.host or ":" in address.host:
        raise ValueError(f"server address {text!r}; allowed: dns:NAME or dns:NAME:PORT, with a port of 1 to 65535")
    return DnsName(*address)


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
