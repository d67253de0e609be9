"""The caller of an HTTP request, and what a request handler finds under which key.

A caller shows `Authorization: Bearer TOKEN`, a certificate or the cookie of a session, or nothing. Who that is
and what it may is for the servers to say: they get what it shows with each call.
"""

from __future__ import annotations

from aiohttp import web

from pinlater.api import Api
from pinlater.model import RequestContext

API: web.AppKey[Api] = web.AppKey("api", Api)
"""The servers, in an application."""

CONTEXT = "context"
"""The RequestContext of a request, in the request."""


def context_of(request: web.Request) -> RequestContext:
    """With the caller's source, request id, token and address; to be passed on with each call."""
    found = request[CONTEXT]
    assert isinstance(found, RequestContext)
    return found
