"""The rights of browsers: what they may do with answers of PinLater, and under which names they get them.

Both HTTP servers go by it: the one with the status page and the one with the HTTP interface.
"""

from __future__ import annotations

import logging
import re
import socket
from base64 import b64encode
from collections.abc import Collection, Mapping
from hashlib import sha256
from ipaddress import ip_address
from typing import Any

from aiohttp import web, web_response
from aiohttp.http_exceptions import HttpProcessingError

from pinlater.printable import printable

ANY_NAME = "*"
_SHOWN_CHARS = 100
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Server": "PinLater",
}

# What is no HTTP at all is answered before `add_headers` is asked.
web_response.SERVER_SOFTWARE = "PinLater"  # type: ignore[attr-defined]


async def add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """To every answer, in place of a header that names versions."""
    response.headers.update(HEADERS)


def page_policy(html: str, form_action: str = "'none'") -> dict[str, str]:
    """The header for a page that loads nothing, runs nothing and is framed by nobody; its own style alone counts."""
    styles = " ".join(f"'sha256-{b64encode(sha256(each.encode()).digest()).decode()}'" for each in _STYLE.findall(html))
    rules = f"default-src 'none'; style-src {styles or repr('none')}; frame-ancestors 'none'; base-uri 'none'"
    return {"Content-Security-Policy": f"{rules}; form-action {form_action}"}


def names_of(config: Mapping[str, Any]) -> frozenset[str]:
    """Those that a server has by its configuration, as `config.to_plain` writes it, and by its machine."""
    machine = socket.gethostname()
    places = [config["host"], *(config[key].rpartition(":")[0] for key in ("http", "api", "advertise"))]
    return frozenset(map(_plain, (*places, *config["http_names"], machine, machine.partition(".")[0])))


def is_name_known(host: str, names: Collection[str]) -> bool:
    """`host` as the header Host has it; callers without one are no browsers.

    >>> [is_name_known(host, {"q1"}) for host in ("q1:9011", "127.0.0.1", "[::1]:80", "localhost", "", "evil.example")]
    [True, True, True, True, True, False]
    """
    name = _plain(re.sub(r":[0-9]*$", "", host))
    if not name or ANY_NAME in names or name in names or name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def wrong_name(host: str) -> str:
    """What is told to those who ask for a page under a name that is not known; the status is 421."""
    shown = printable(host[:_SHOWN_CHARS])
    return (
        f"The header Host has {shown!r}, which is no name of this server. Ask for it by address, start the server with "
        "--http-names NAME, or have a proxy in between send a Host that is known."
    )


def _plain(name: str) -> str:
    return name.strip().lower().rstrip(".")


class _Callers(logging.Filter):
    """What a caller sent that is not HTTP is answered with 400; it needs no traceback in the log."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


_server_log = logging.getLogger("aiohttp.server")
_server_log.addFilter(_Callers())
