"""The caller of an HTTP request, and what a request handler finds under which key.

A caller shows `Authorization: Bearer TOKEN`, a certificate or the cookie of a session, or nothing. Who that is and what
it may is for the servers to say: they get what it shows with each call.
"""

from __future__ import annotations

import re
import secrets
import ssl
from collections.abc import Mapping
from hashlib import sha256
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from pinlater.api import Api
from pinlater.errors import Forbidden, RequestInvalid
from pinlater.http.request_use import KnownTokens, RequestUse
from pinlater.http.sessions import BrowserSession, Credential
from pinlater.model import ANONYMOUS, RequestContext
from pinlater.model.callers import holder_of
from pinlater.model.connection_ref import names_in

API: web.AppKey[Api] = web.AppKey("api", Api)
"""The servers, in an application."""

_RequestKey: Any = getattr(web, "RequestKey", lambda name, _type: name)  # aiohttp before 3.14 has texts alone
CONTEXT: Any = _RequestKey("context", RequestContext)
"""The RequestContext of a request, in the request."""

REQUEST_ID: Any = _RequestKey("request_id", str)
"""What the caller calls its request in X-Request-Id, or what it is called here; it comes back in the answer."""

USE: Any = _RequestKey("use", RequestUse)
"""The RequestUse of a request: what it has of the pools of this process."""

_EPOCH = secrets.token_hex(4)
_numbers = count(1)
_WORD = re.compile(r"[\x21-\x7e]{1,200}", re.ASCII)
_BEARER = re.compile(r"bearer +([\x21-\x7e]{1,500}) *", re.ASCII | re.IGNORECASE)
_READS = frozenset({"GET", "HEAD", "OPTIONS"})


class OtherSite(Forbidden):
    """A change that no page of this site sent."""


def context_of(request: web.Request) -> RequestContext:
    """With the caller's source, request id, token and address; to be passed on with each call."""
    found = request[CONTEXT]
    assert isinstance(found, RequestContext)
    return found


def make_context(request: web.Request, session: BrowserSession | None, gateway_token: str) -> RequestContext:
    """What the servers are to know of the caller; also sets its request id. RequestInvalid: a header that cannot be."""
    headers = request.headers
    request_id = _word(headers, "X-Request-Id")
    request[REQUEST_ID] = request_id or f"{_EPOCH}{next(_numbers):x}"
    address = request.remote or ""
    credential = Credential() if session is None else session.credential
    source = _word(headers, "X-PinLater-Source") or credential.source or f"http@{address}"
    context = RequestContext(source, request_id, caller_address=address)
    if (shown := headers.get("Authorization")) is not None:
        bearer = _BEARER.fullmatch(shown)
        if bearer is None:
            raise RequestInvalid("the header Authorization is not what is allowed: Bearer and a token")
        show_token(context, bearer[1], gateway_token)
    elif credential.token is not None:
        show_token(context, credential.token, gateway_token)
    else:
        show_connection(request, context, gateway_token)
    return context


def show_connection(request: web.Request, context: RequestContext, gateway_token: str) -> None:
    """Have a context show no token of a caller, but its certificate, where it has one."""
    context.token, context.gateway_token = gateway_token or None, None
    context.on_behalf_of, context.certificate_names = ANONYMOUS if gateway_token else None, None
    certificate = _certificate(request) if gateway_token else None
    if names := names_in(certificate):
        context.certificate_names = names
        context.on_behalf_of = f"cert:{_first_name(certificate) or names[0]}"


def show_token(context: RequestContext, token: str, gateway_token: str) -> None:
    """Have a context show the token of a caller, beside that of this process."""
    context.token, context.gateway_token = token, gateway_token or None
    context.on_behalf_of = context.certificate_names = None


def has_credential(context: RequestContext) -> bool:
    """The caller showed a token, a session that has one, or a certificate."""
    return context.token is not None and context.on_behalf_of != ANONYMOUS


def has_token(context: RequestContext) -> bool:
    """The caller showed a token, or a session that has one."""
    return context.token is not None and context.on_behalf_of is None


def owner_of(context: RequestContext, known: KnownTokens) -> str:
    """Whom a caller counts as: its token, if that was right before; its certificate; else its address."""
    if context.token is not None and context.on_behalf_of is None and context.token in known:
        return f"token {sha256(context.token.encode('utf-8', 'replace')).hexdigest()}"
    if context.on_behalf_of not in (None, ANONYMOUS):
        return str(context.on_behalf_of)
    return holder_of(None, (context.caller_address or "", 0))


def _certificate(request: web.Request) -> Mapping[str, Any] | None:
    """That which the caller has proved to have."""
    transport = request.transport
    tls = None if transport is None else transport.get_extra_info("ssl_object")
    return tls.getpeercert() if isinstance(tls, ssl.SSLObject | ssl.SSLSocket) else None


def _first_name(certificate: Mapping[str, Any] | None) -> str | None:
    """A URI, else a DNS name: servers that know of one name go by it."""
    names = () if certificate is None else certificate.get("subjectAltName", ())
    return next((name for kind in ("URI", "DNS") for each, name in names if each == kind), None)


def is_change(request: web.Request) -> bool:
    return request.method not in _READS


def is_of_browser(request: web.Request, session: BrowserSession | None) -> bool:
    """Browsers say so, with every request that is no reading."""
    return session is not None or "Sec-Fetch-Site" in request.headers or "Origin" in request.headers


def refuse_other_sites(request: web.Request) -> None:
    """OtherSite: a page of another site made a browser send this."""
    site = request.headers.get("Sec-Fetch-Site")
    origin = request.headers.get("Origin")
    is_ours = origin is None or urlsplit(origin).netloc == request.headers.get("Host")
    if site not in (None, "same-origin", "none") or not is_ours:
        raise OtherSite("a page of another site sent this request; only pages of this one may change anything")


def is_word(text: str) -> bool:
    """A caller, a worker or a request can have such a name.

    >>> is_word("web-1"), is_word("web 1"), is_word("")
    (True, False, False)
    """
    return _WORD.fullmatch(text) is not None


def _word(headers: object, name: str) -> str:
    """RequestInvalid."""
    found: str = headers.get(name, "")  # type: ignore[attr-defined]
    if found and not is_word(found):
        raise RequestInvalid.of(f"the header {name}", found, "1 to 200 printable characters of ASCII without spaces")
    return found
