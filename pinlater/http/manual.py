"""The documentation site under /docs/, where the package `pinlater_docs` is installed; scripts/docs builds it.

Its pages are files that scripts/docs made, tell nothing about this server, and are for who may see nothing else too.
What their own small scripts are is in inline.json by hash: a browser runs no others.
"""

from __future__ import annotations

import json
import mimetypes
import re
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler

from pinlater.http.problems import http_problem

MANUAL = "/docs/"
_NOT_HERE = "the documentation is not installed here; `scripts/docs --install` in a checkout builds and installs it"
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_TEXTS = ("text/", "application/json", "application/javascript", "image/svg+xml")


class Manual:
    """The built pages in a folder."""

    def __init__(self, folder: Path) -> None:
        self._site = folder / "site"
        inline: dict[str, list[str]] = json.loads((folder / "inline.json").read_text(encoding="utf-8"))
        self._policy = _policy(inline["script"])

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """The file of an address, or the page of a folder."""
        try:
            path = (self._site / request.match_info["path"]).resolve()
            is_folder = path.is_dir()
        except (OSError, ValueError):  # no file can have such a name
            raise web.HTTPNotFound from None
        if not path.is_relative_to(self._site):
            raise web.HTTPNotFound
        if is_folder:
            if not request.path.endswith("/"):
                raise web.HTTPMovedPermanently(f"{request.path}/")
            path /= "index.html"
        if not path.is_file():
            return self._not_found(request.rel_url.raw_path.partition(MANUAL)[2].count("/"))
        facts = path.stat()
        mark = f'"{facts.st_mtime_ns:x}-{facts.st_size:x}"'
        headers = {"ETag": mark, "Cache-Control": "no-cache", "Content-Security-Policy": self._policy}
        if request.headers.get("If-None-Match") == mark:
            return web.Response(status=304, headers=headers)
        return self._answer(path, headers)

    def _not_found(self, depth: int) -> web.Response:
        """The page for it speaks of the root of a host; here it is shown so many folders below the first page."""
        up = "../" * depth or "./"
        text = (self._site / "404.html").read_text(encoding="utf-8").replace('"/', f'"{up}')
        hashes = [f"sha256-{b64encode(sha256(each.encode()).digest()).decode()}" for each in _SCRIPT.findall(text)]
        headers = {"Content-Security-Policy": _policy(hashes)}
        return web.Response(status=404, text=text, content_type="text/html", headers=headers)

    def _answer(self, path: Path, headers: dict[str, str]) -> web.Response:
        kind = mimetypes.guess_type(path.name)[0] or ("text/markdown" if path.suffix == ".md" else "text/plain")
        is_text = kind.startswith(_TEXTS)
        response = web.Response(
            body=path.read_bytes(),
            content_type=kind,
            charset="utf-8" if is_text else None,
            headers=headers,
        )
        if is_text:
            response.enable_compression()
        return response


def _policy(hashes: Iterable[str]) -> str:
    """Its styles are in attributes too; nothing that a caller sends comes into a page."""
    scripts = " ".join(f"'{each}'" for each in hashes)
    return (
        f"default-src 'none'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; worker-src 'self'; manifest-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
        "form-action 'none'"
    )


def is_manual_here() -> bool:
    """Whether the built site is installed."""
    return _folder() is not None


def _folder() -> Path | None:
    """Of the package with the built site. None: it is not installed."""
    spec = find_spec("pinlater_docs")
    return None if spec is None or spec.origin is None else Path(spec.origin).resolve().parent


def add_manual(app: web.Application, api_page: str) -> None:
    """To an application that is not running yet. `api_page`: where /docs leads where the site is not installed."""
    folder = _folder()
    if folder is None:
        app.router.add_get(MANUAL[:-1], _redirect_to(api_page))
        app.router.add_get(MANUAL, _redirect_to(api_page))
        app.router.add_get(MANUAL + "{path:.+}", _not_installed)
        return
    manual = Manual(folder)
    app.router.add_get(MANUAL[:-1], _redirect_to(MANUAL))
    app.router.add_get(MANUAL + "{path:.*}", manual.serve)


def _redirect_to(path: str) -> Handler:
    async def redirect(_request: web.Request) -> web.StreamResponse:
        raise web.HTTPFound(path)

    return redirect


async def _not_installed(_request: web.Request) -> web.StreamResponse:
    return http_problem(404, _NOT_HERE, {})
