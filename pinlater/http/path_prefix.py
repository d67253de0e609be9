"""The path of a reverse proxy below which the HTTP interface is: taken off what comes, put before what leaves.

Routes, pages and redirects speak of paths from the root of this site. Requests bring the prefix where the proxy passes
it on, and do not where it takes it off.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from aiohttp import web
from yarl import URL

LINK_ATTRIBUTES = ("href", "src", "action", "data-complete", "data-login")
"""Of elements in pages, whose values are addresses."""


class PathPrefix:
    """A prefix such as /queue. No path of this site begins with it (`config.values.UrlPrefix`), so what has it gets it
    no second time, and what lacks it loses nothing.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        here = rf"{re.escape(text)}(?![^/?#])"
        self._here = re.compile(here)
        # Values are escaped, so what looks like an attribute is one; a page that goes on by itself has its own form.
        begin = rf'\s(?:{"|".join(LINK_ATTRIBUTES)})="|\scontent="0;url='
        self._links = re.compile(rf'({begin})(?=/(?!/))(?!{re.escape(text)}[/?#"])'.encode())

    def inner(self, path: str) -> str:
        """The path of this site that a path of a request stands for."""
        return (path[len(self.text) :] or "/") if self._here.match(path) else path

    def outer(self, address: str) -> str:
        """Where browsers find a path of this site; other addresses stay."""
        if not address.startswith("/") or address.startswith("//") or self._here.match(address):
            return address
        return self.text + address

    def in_page(self, html: bytes) -> bytes:
        """With addresses as browsers need them."""
        return self._links.sub(rb"\1" + self.text.encode(), html)

    def take_off(self, make_request: Callable[..., web.BaseRequest]) -> Callable[..., web.BaseRequest]:
        """A maker of requests that do not have it: routes are found by the path, before any handler is asked."""

        def make(message: Any, *args: Any) -> web.BaseRequest:
            url: URL = message.url
            path = self.inner(url.raw_path)
            if path != url.raw_path:
                query = url.raw_query_string
                url = URL.build(scheme=url.scheme, authority=url.authority, path=path, query_string=query, encoded=True)
                message = message._replace(path=str(url), url=url)
            return make_request(message, *args)

        return make

    def put_before(self, response: web.StreamResponse) -> None:
        """To what an answer links to."""
        if (address := response.headers.get("Location")) is not None:
            response.headers["Location"] = self.outer(address)
        if (
            isinstance(response, web.Response)
            and response.content_type == "text/html"
            and isinstance(response.body, bytes)
        ):
            response.body = self.in_page(response.body)
