"""Programs of other protocols, recognised by the first bytes that they send.

What they send is no frame: its first four bytes make a length far beyond any bound.
"""

from __future__ import annotations

_FIRST_BYTES = (
    (b"HTTP/", "HTTP"),
    *(
        (method + b" ", "HTTP")
        for method in (b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"PRI")
    ),
    (b"\x16\x03", "TLS"),
    (b"\x15\x03", "TLS"),
    (b"SSH-", "SSH"),
    (b"AMQP", "AMQP, as RabbitMQ does"),
    (b"-ERR ", "what Redis does"),
    (b"-NOAUTH", "what Redis does"),
    (b"220 ", "SMTP or FTP"),
    (b"220-", "SMTP or FTP"),
    (b"E\x00\x00\x00", "what PostgreSQL does"),
)
_MYSQL_GREETING = 10
"""The version of the protocol, behind a length of three bytes, the smallest first, and the number 0."""


def protocol_spoken(data: bytes) -> str:
    """The protocol whose bytes these are, for people; "" where nothing is known.

    >>> protocol_spoken(b"HTTP/1.1 400 Bad Request"), protocol_spoken(bytes([0, 0, 0, 40]))
    ('HTTP', '')
    """
    for first, protocol in _FIRST_BYTES:
        if data.startswith(first):
            return protocol
    if len(data) > 4 and data[3] == 0 and data[4] == _MYSQL_GREETING:
        return "what MariaDB and MySQL do"
    return ""
