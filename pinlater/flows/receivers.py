"""Receivers of callbacks: the addresses that an operator allows."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple
from urllib.parse import urlsplit

from pinlater.model.callers import matches

_PORTS = {"http": 80, "https": 443}
"""Of these alone is a pattern without a port."""

_PATTERN = re.compile(r"\[(?P<address>[^\]]*)\](?::(?P<own>[\d*]+))?|(?P<host>[^:]*):(?P<port>[\d*]+)|(?P<bare>.*)")
_FORMS = "http://HOST[:PORT]/... or https://..."


class _Pattern(NamedTuple):
    host: str
    port: str

    def allows(self, host: str, port: int) -> bool:
        is_port = matches(self.port, str(port)) if self.port else port in _PORTS.values()
        return is_port and matches(self.host, host)


def _pattern(text: str) -> _Pattern:
    """
    >>> _pattern("*.example.org:*"), _pattern("[::1]:80"), _pattern("::1")
    (_Pattern(host='*.example.org', port='*'), _Pattern(host='::1', port='80'), _Pattern(host='::1', port=''))
    """
    found = _PATTERN.fullmatch(text.lower())
    if found is None:
        return _Pattern(text.lower(), "")
    return _Pattern(found["address"] or found["host"] or found["bare"] or "", found["own"] or found["port"] or "")


class AllowedReceivers:
    """`hosts`: HOST for the ports 80 and 443 there, HOST:PORT for another one, HOST:* for all; `*` stands for any
    characters. An IPv6 address with a port has brackets.
    """

    def __init__(self, hosts: Collection[str]) -> None:
        self._hosts = hosts
        self._patterns = [_pattern(host) for host in hosts]

    def refusal(self, url: str) -> str:
        """What is allowed instead; "" if this URL is."""
        try:
            parts = urlsplit(url)
            port = _PORTS.get(parts.scheme, 0) if parts.port is None else parts.port
        except ValueError:
            return _FORMS
        if parts.scheme not in _PORTS or not parts.hostname or parts.username or parts.password:
            return f"{_FORMS}, without a user"
        if any(each.allows(parts.hostname, port) for each in self._patterns):
            return ""
        allowed = ", ".join(self._hosts) or "none is"
        return f"an address that flow-callback-hosts allows: {allowed} (without a port it is 80 or 443)"
