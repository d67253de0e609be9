"""POSTs that PinLater signs: how they are made, reported when refused, and checked by a receiver.

Whatever answers may be no receiver at all, but another service of the servers' network. So what is said is the kind of
a failure and never what was sent: who reads that would read the service by it.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import ssl
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

SIGNATURE_HEADER = "PinLater-Signature-2"
CONNECT_TIMEOUT_S = 3.0


class PostOutcome(NamedTuple):
    """Why a POST was refused, "" if it was taken; and whether its receiver has answered, be it with an error."""

    failure: str
    has_answered: bool


async def post_json(url: str, body: bytes, headers: Mapping[str, str], timeout_s: float) -> PostOutcome:
    """POST it, within `timeout_s`. Redirects are not followed: nobody has allowed where they lead."""
    http: Any = import_module("aiohttp")  # only who makes such POSTs loads it here
    timeout = http.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S)
    all_headers = {"Content-Type": "application/json", **headers}
    try:
        async with (
            http.ClientSession(timeout=timeout) as session,
            session.post(url, data=body, headers=all_headers, allow_redirects=False) as answer,
        ):
            return PostOutcome("" if 200 <= answer.status < 300 else f"it answered {answer.status}", True)
    except TimeoutError:
        return PostOutcome(f"it did not answer within {timeout_s:g} s", False)
    except (http.ClientError, OSError) as error:
        return PostOutcome(_kind_of_failure(error), False)


def _kind_of_failure(error: Exception) -> str:
    """Of a POST that has no answer in HTTP, without a byte of what came."""
    http: Any = import_module("aiohttp")
    cause = getattr(error, "os_error", None) or error
    if isinstance(cause, ssl.SSLError | ssl.CertificateError) or isinstance(error, http.ClientSSLError):
        return "TLS was not agreed on, or its certificate is not trusted"
    if isinstance(cause, socket.gaierror):
        return "the name of its host is not known"
    if isinstance(cause, ConnectionRefusedError):
        return "it refused the connection"
    if isinstance(error, http.ClientConnectorError):
        return "it cannot be reached"
    if isinstance(error, http.ClientResponseError):
        return "it answered, and not in HTTP"
    return "the connection broke before an answer came"


def signature(secret: str, signed_s: int, signed: tuple[str, ...], body: bytes) -> str:
    """The header of a POST: when it was signed, in seconds since 1970, and the HMAC-SHA256 of that time and the texts
    `signed`, each a line, and of the body. No line break can be in them.

    >>> signature("s", 1, ("c", "f", "token:shop", "https://shop.example/over"), b"{}")[:24]
    't=1,v2=ec10101662ec24716'
    """
    lines = "\n".join((str(signed_s), *signed, "")).encode()
    return f"t={signed_s},v2={mac(secret, lines + body)}"


def mac(secret: str, message: bytes) -> str:
    """The HMAC-SHA256, as hexadecimal digits."""
    return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()
