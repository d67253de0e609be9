"""A one-time link to the dashboard, got from the HTTP interface for a token or the admin password."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from pinlater.client.client_tls import ClientTls, Tls
from pinlater.data_folder.private_files import write_private_file
from pinlater.errors import MethodUnknown, PasswordInvalid, PinLaterError, ServerUnreachable, UnknownError

LINKS = "/dashboard/links"
DEFAULT_URL = "http://127.0.0.1:9012"
ADDRESS_FILE = "server-api-address"
"""In the data folder: where the HTTP interface of the server is, or was last."""

_UNPRINTABLE = re.compile(r"[^\x21-\x7e]", re.ASCII)
_MAX_SOURCE_CHARS = 200
_WITHIN_S = 10.0
_MAX_BYTES = 64 * 1024


class Shown(NamedTuple):
    """Who asks for a link: by a token, else by the admin password. `source`: what it calls itself in the audit."""

    token: str
    password: str
    source: str

    def headers(self) -> Mapping[str, str]:
        proof = {"Authorization": f"Bearer {self.token}"} if self.token else {"X-Admin-Password": self.password}
        return {"X-PinLater-Source": _UNPRINTABLE.sub("_", self.source)[:_MAX_SOURCE_CHARS], **proof}


def make_link(url: str, shown: Shown, tls: Tls | None = None) -> str:
    """The link. PasswordInvalid: neither the token nor the password is right; ServerUnreachable; MethodUnknown: an
    HTTP interface without a dashboard.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    if parts.scheme == "https":
        connection: HTTPConnection = HTTPSConnection(host, port, timeout=_WITHIN_S, context=_context(tls))
    else:
        connection = HTTPConnection(host, port, timeout=_WITHIN_S)
    try:
        connection.request(
            "POST", parts.path.rstrip("/") + LINKS, headers={key: _latin(text) for key, text in shown.headers().items()}
        )
        response = connection.getresponse()
        status, body = response.status, response.read(_MAX_BYTES)
    except (OSError, HTTPException) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ServerUnreachable(
            f"no HTTP interface answers at {url}: {why}; is the server running, and with --api? Name its address: --url"
        ) from error
    finally:
        connection.close()
    answer = _answer(body)
    if status == 201 and isinstance(path := answer.get("path"), str):
        return f"{parts.scheme}://{parts.netloc}{path}"
    raise _refusal(status, answer, url)


def _refusal(status: int, answer: Mapping[str, Any], url: str) -> PinLaterError:
    detail = str(answer.get("detail") or f"{url} answers with status {status}")
    if status in (401, 403):
        return PasswordInvalid(detail)
    if status in (404, 405):
        return MethodUnknown(f"the HTTP interface at {url} is of an earlier version, which has no dashboard")
    return UnknownError(detail)


def _answer(body: bytes) -> Mapping[str, Any]:
    try:
        answer = json.loads(body)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _context(tls: Tls | None) -> ssl.SSLContext:
    return ClientTls(tls or Tls()).context()


def _latin(text: str) -> bytes:
    """As headers travel here; the other side reads them as UTF-8."""
    return text.encode("utf-8", "replace")


def reachable(url: str) -> str:
    """Where this machine reaches what listens at an address.

    >>> reachable("http://0.0.0.0:9012/"), reachable("https://[::]:9012/"), reachable("http://10.0.0.1:9012/")
    ('http://127.0.0.1:9012', 'https://[::1]:9012', 'http://10.0.0.1:9012')
    """
    return url.rstrip("/").replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def write_address(folder: Path, url: str) -> None:
    """For `pinlater dashboard` on this machine. OSError."""
    write_private_file(folder / ADDRESS_FILE, f"{url}\n")


def read_address(folder: Path) -> str:
    """What a server wrote there; "" for nothing."""
    try:
        line = (folder / ADDRESS_FILE).read_text(encoding="ascii").partition("\n")[0]
    except (OSError, UnicodeDecodeError):
        return ""
    return line if urlsplit(line).scheme in ("http", "https") else ""
