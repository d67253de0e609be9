"""The files of the pages: styles, scripts and pictures, whose addresses have the hash of what is in them.

So browsers keep them for good, and get new ones with a new version. All are read when the process starts.
"""

from __future__ import annotations

import gzip
from hashlib import sha256
from importlib import resources
from typing import NamedTuple

from aiohttp import web

PATH = "/dashboard/static"
_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "txt": "text/plain"}
_FOR_GOOD = "public, max-age=31536000, immutable"
_LEAST_BYTES = 1_000
"""Shorter ones are sent as they are."""


class _StaticFile(NamedTuple):
    content_type: str
    mark: str
    body: bytes
    zipped: bytes | None


class StaticFiles:
    """All of them."""

    def __init__(self) -> None:
        folder = resources.files("pinlater.dashboard") / "static"
        self._files = {each.name: _read(each.name, each.read_bytes()) for each in folder.iterdir() if each.is_file()}

    def path(self, name: str) -> str:
        """The address of a file. KeyError: there is none of that name."""
        return f"{PATH}/{self._files[name].mark}/{name}"

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """The file of an address; one of another version is the present one, which is not to be kept then."""
        found = self._files.get(request.match_info["name"])
        if found is None:
            raise web.HTTPNotFound
        is_this = request.match_info["mark"] == found.mark
        headers = {
            "Cache-Control": _FOR_GOOD if is_this else "no-cache",
            "ETag": f'"{found.mark}"',
            "Vary": "Accept-Encoding",
            "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
        }
        if request.headers.get("If-None-Match") == headers["ETag"]:
            return web.Response(status=304, headers=headers)
        body = found.body
        if found.zipped is not None and "gzip" in request.headers.get("Accept-Encoding", ""):
            body, headers["Content-Encoding"] = found.zipped, "gzip"
        return web.Response(body=body, content_type=found.content_type, charset="utf-8", headers=headers)


def _read(name: str, body: bytes) -> _StaticFile:
    zipped = gzip.compress(body, mtime=0) if len(body) >= _LEAST_BYTES else None
    return _StaticFile(_TYPES[name.rpartition(".")[2]], sha256(body).hexdigest()[:16], body, zipped)
