"""The pages about the routes: the OpenAPI document, the page to try the calls, and docs/http-routes.md."""

from __future__ import annotations

from importlib import resources
from itertools import groupby

from aiohttp import web

from pinlater.http.openapi import openapi_json
from pinlater.http.route import JSON, Route
from pinlater.http.routes import ROUTES

OPENAPI, API_PAGE = "/v1/openapi.json", "/docs/api"
_FILES = {
    API_PAGE: ("docs.html", "text/html"),
    f"{API_PAGE}/docs.js": ("docs.js", "text/javascript"),
    f"{API_PAGE}/docs.css": ("docs.css", "text/css"),
}


def add_reference_pages(app: web.Application, prefix: str) -> None:
    """To an application that is not running yet."""

    async def openapi(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=openapi_json(prefix), content_type=JSON)

    app.router.add_get(OPENAPI, openapi)
    for path in _FILES:
        app.router.add_get(path, _file)


async def _file(request: web.Request) -> web.StreamResponse:
    name, content_type = _FILES[request.path]
    body = (resources.files("pinlater.http") / "pages" / name).read_bytes()
    return web.Response(body=body, content_type=content_type, charset="utf-8")


_PAGE = """# The routes of the HTTP interface

<!-- Written by `python -m pinlater.http`. Edit the tables of routes in pinlater/http instead of this page. -->

[http.md](http.md) says what all of them have in common.
A route makes the call that stands beside it, with the meaning that [wire.md](wire.md) tells.
[access.md](access.md) says which action each call needs.
The OpenAPI document has the fields of requests and answers.
`pinlater api openapi` prints it, and it is served under `/v1/openapi.json`; `/docs/api` is a page to try the calls.
"""


def docs_page() -> str:
    """docs/http-routes.md."""
    parts = [_PAGE]
    for tag, routes in groupby(sorted(ROUTES, key=_place), key=lambda route: route.tag):
        parts.append(f"\n## {tag}\n\n| route | what it does | query | body | answer | call |\n")
        parts.append("| --- | --- | --- | --- | --- | --- |\n")
        parts += [_row(route) for route in routes]
    return "".join(parts)


def _place(route: Route) -> int:
    """Tags are in the order in which they first come."""
    return list(dict.fromkeys(each.tag for each in ROUTES)).index(route.tag)


def _row(route: Route) -> str:
    query = "" if route.query is None else ", ".join(f"`{name}`" for name in route.query.__struct_encode_fields__)
    body = "" if route.form is None else f"`{route.form.__name__}`"
    answer = "204" if route.answer is None else f"{route.status} `{route.answer.__name__}`"
    return f"| `{route.verb} {route.path}` | {route.summary} | {query} | {body} | {answer} | `{route.method.name}` |\n"
