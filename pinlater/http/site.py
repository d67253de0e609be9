"""The application behind the HTTP interface: what every request goes through before and after its handler."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Handler

from pinlater.api import Api
from pinlater.http.caller import API, CONTEXT
from pinlater.http.routes import add_routes
from pinlater.model import RequestContext


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """Bounds on a request. `max_request_bytes`: of its body."""

    max_request_bytes: int = 16 * 1024 * 1024


def make_app(api: Api, settings: HttpSettings) -> web.Application:
    """The application; it has all routes, and leaves `api` open."""
    app = web.Application(middlewares=[_caller], client_max_size=settings.max_request_bytes)
    app[API] = api
    add_routes(app)
    return app


@web.middleware
async def _caller(request: web.Request, handler: Handler) -> web.StreamResponse:
    request_id = request.headers.get("X-Request-Id") or secrets.token_hex(8)
    request[CONTEXT] = RequestContext(f"http@{request.remote}", request_id)
    return await handler(request)
