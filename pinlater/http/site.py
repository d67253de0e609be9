"""The application behind the HTTP interface: what every request goes through before and after its handler.

One middleware does all of it, in this order: the name that the caller asks for, its session and its context, the checks
of what a browser changes, room for the body, the body, the handler; and what fails becomes problem+json.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler
from multidict import CIMultiDict

from pinlater import browsers
from pinlater.access.guesses import TokenGuesses
from pinlater.api import Api
from pinlater.client.async_client import AsyncClient
from pinlater.errors import (
    BodyTooLarge,
    Forbidden,
    MethodUnknown,
    Overloaded,
    PasswordInvalid,
    PinLaterError,
    RequestInvalid,
)
from pinlater.http.bound_connections import CLAIMS, MAX_BOUND, BoundConnections
from pinlater.http.caller import (
    API,
    CONTEXT,
    REQUEST_ID,
    USE,
    OtherSite,
    context_of,
    has_credential,
    has_token,
    is_change,
    is_of_browser,
    make_context,
    owner_of,
    refuse_other_sites,
    show_token,
)
from pinlater.http.credential_checks import ADMIN, CredentialChecks
from pinlater.http.events import EventStreams
from pinlater.http.fair_shares import FairEntries, FairPlaces
from pinlater.http.manual import MANUAL, add_manual, is_manual_here
from pinlater.http.path_prefix import PathPrefix
from pinlater.http.problems import CONTENT_ENCODINGS, NOT_DECODED, http_problem_response, problem_response
from pinlater.http.reference_pages import API_PAGE, OPENAPI, add_reference_pages
from pinlater.http.request_use import MAX_WAITS, KnownTokens, RequestPools, RequestUse
from pinlater.http.routes import add_routes
from pinlater.http.sessions import (
    MAX_AGE_S,
    TOKEN_PREFIX,
    BrowserSession,
    Credential,
    Sessions,
    is_csrf_token,
    local_path,
    login_page,
    start_page,
)
from pinlater.listener import HttpConnection, HttpListener, RateLimitedLog
from pinlater.metric_family import Key, Series
from pinlater.metrics import FAMILIES, PREFIX, Histogram, Metrics, merge
from pinlater.model import RequestContext

_log = structlog.get_logger("pinlater.http")
_MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """`names`: under which the site answers, beside addresses and localhost. `max_requests`: under way at a time;
    `max_waits`: of them, those that wait; `max_buffered_bytes`: of all their bodies. `takes_plain`: callers without TLS
    are served too. `needs_credential`: only callers who show a certificate or a token are. `gateway_token`: by which
    others than those with a token are spoken for. `status_page`: its address. `pages`: the path below which pages are,
    "" for none: they say themselves what a caller needs for them, and their forms show the session's text in the body.
    Browsers that ask for / are sent there. `prefix`: the path of a reverse proxy below which the site is, "" for none.
    `data`: the folder in which sessions outlive the process, None for none. `connect`: see BoundConnections.
    """

    names: Collection[str] = ()
    max_requests: int = 5_000
    max_waits: int = MAX_WAITS
    max_request_bytes: int = 16 * _MIB
    max_buffered_bytes: int = 256 * _MIB
    body_within_s: float = 30.0
    write_within_s: float = 30.0
    takes_plain: bool = True
    needs_credential: bool = False
    gateway_token: str = ""
    status_page: str = ""
    pages: str = ""
    prefix: str = ""
    event_listeners: int = 200
    data: Path | None = None
    connect: Callable[..., AsyncClient] | None = None
    max_bound: int = MAX_BOUND


SITE: web.AppKey[ApiSite] = web.AppKey("site")
LOGIN, LOGOUT, SESSION, EVENTS, METRICS = "/login", "/logout", "/session", "/v1/events", "/metrics"
_FAILED = PinLaterError("the request failed in the HTTP process; its log says why")
_WRONG_TOKEN = "this token is not known, was revoked, or has ended"
_OPEN_PATHS = frozenset({"/", LOGIN, LOGOUT, SESSION})
_MAX_HOSTS = 1_000
_SMALL_BYTES = 4 * 1024
_FORM_BYTES = 8 * 1024


class ApiSite:
    """The state of an application, and its middleware."""

    def __init__(self, api: Api, settings: HttpSettings) -> None:
        self.settings = settings
        self.prefix = PathPrefix(settings.prefix) if settings.prefix else None
        self.checks = CredentialChecks(api, settings.gateway_token)
        self.sessions = Sessions(data=settings.data)
        self._guesses = TokenGuesses(lambda *_: None)
        self.uses = RequestPools(settings.max_requests, settings.max_buffered_bytes, settings.max_waits)
        self.events = EventStreams(api, settings.event_listeners, settings.write_within_s)
        self.known_tokens = KnownTokens()
        self.pools: list[FairPlaces | FairEntries[Any]] = [
            self.uses.places,
            self.uses.waits,
            self.uses.bodies,
            self.events.places,
            self.events.watches,
            self.sessions.kept,
            self.known_tokens.kept,
        ]
        """All that callers share here, for the metrics."""
        self.requests = 0
        """Under way."""
        self.is_draining = False
        self._listeners: list[HttpListener] = []
        self._api = api
        self._known_hosts: set[str] = set()
        self._log = RateLimitedLog(_log.warning)
        self._metrics = Metrics()
        self._routes: dict[web.AbstractRoute | None, tuple[str, Histogram]] = {}

    def counts(self) -> list[tuple[Key, list[float]]]:
        """What this process counts."""
        connections = sum(len(listener) for listener in self._listeners)
        self._metrics.gauges.update(
            {
                ("http_requests_under_way",): self.requests,
                ("http_connections",): connections,
                ("http_event_streams",): len(self.events),
            }
        )
        full = {"http_connections": sum(listener.hits for listener in self._listeners)}
        for name, hits in [*full.items(), *((pool.name, pool.hits) for pool in self.pools)]:
            if hits:
                self._metrics.counters["limits_hit", name] = hits
        return self._metrics.snapshot()

    def _count(self, request: web.Request, status: int, seconds: float) -> None:
        route: web.AbstractRoute | None = request.match_info.route
        resource = request.match_info.route.resource
        if resource is None:
            route = None  # what callers ask for that is not there is no label
        known = self._routes.get(route)
        if known is None:
            name = "none" if resource is None else f"{request.method} {resource.canonical}"
            known = self._routes[route] = (name, self._metrics.histogram("http_request_seconds", name))
        name, histogram = known
        self._metrics.counters["http_requests", name, status] += 1
        if request.path != EVENTS:
            histogram.observe(seconds)

    def add_listener(self, listener: HttpListener) -> None:
        """One of those whose connections the requests come from."""
        self._listeners.append(listener)

    def session_of(self, request: web.Request) -> BrowserSession | None:
        shown = request.cookies.get(_cookie_name(request)) if "Cookie" in request.headers else None
        return None if shown is None else self.sessions.find(shown)

    @web.middleware
    async def serve(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Every request, those without a route too."""
        settings = self.settings
        use: RequestUse | None = None
        self.requests += 1
        begun_s = time.monotonic()
        connection = self.connection_of(request.transport)
        if connection is not None:
            connection.begin_request(settings.body_within_s)
        try:
            host = request.headers.get("Host", "")
            if host not in self._known_hosts:
                self._check_host(host)
            session = self.session_of(request)
            request[CONTEXT] = make_context(request, session, settings.gateway_token)
            if is_change(request) and is_of_browser(request, session):
                self._check_browser(request, session)
            if _is_call(request) and (doubt := await self.doubt_of(request)) is not None:
                raise doubt
            context = request[CONTEXT]
            if settings.needs_credential and not has_credential(context) and not self._is_open(request):
                raise Forbidden("this site takes calls of callers with a certificate or a token only: show one")
            if context.token is not None and "Authorization" in request.headers and not self._is_open(request):
                await self._check_new(context.token, context)
            use = request[USE] = RequestUse(self.uses, self._owner(request, session))
            if request.body_exists:
                await self._read(request, use)
            if connection is not None:
                connection.allow(math.inf)
            await use.turn()
            response = await handler(request)
        except OtherSite as error:
            response = problem_response(error, has_credential=True)
        except PinLaterError as error:
            if isinstance(error, Forbidden):
                if connection is not None:
                    connection.allow(math.inf)  # its answer may be held back for longer than its body may take
                error = await self._refused(request, error)
            self._metrics.add(1, "http_requests_refused", error.reason)
            response = problem_response(error, has_credential=_has_credential(request))
        except web.HTTPRequestEntityTooLarge:
            response = problem_response(self._too_large(), has_credential=True)
        except web.HTTPException as error:
            response = http_problem_response(error)
            if isinstance(error, web.HTTPBadRequest):
                response.force_close()
        except Exception as error:
            _log.error("request_failed", path=request.path[:200], exc_info=error)
            response = problem_response(_FAILED, has_credential=True)
        finally:
            if use is not None:
                use.end()
            self.requests -= 1
            if connection is not None:
                connection.end_request()
        self._count(request, response.status, time.monotonic() - begun_s)
        if not response.prepared:
            if self.is_draining:
                response.force_close()
            if self.prefix is not None:
                self.prefix.put_before(response)
            if isinstance(response, web.Response) and response.content_type == "text/html":
                response.enable_compression()  # an open page is fetched every other second, often over a slow line
        return response

    def is_page(self, request: web.Request) -> bool:
        """It is below the path of the pages."""
        pages = self.settings.pages
        return bool(pages) and (request.path == pages or request.path.startswith(f"{pages}/"))

    def _is_open(self, request: web.Request) -> bool:
        """It says itself what a caller needs."""
        return request.path in _OPEN_PATHS or request.path.startswith(MANUAL) or self.is_page(request)

    def connection_of(self, transport: asyncio.BaseTransport | None) -> HttpConnection | None:
        """What is to know what is waited for there."""
        for listener in self._listeners:
            connection = listener.connection_of(transport)
            if connection is not None:
                return connection
        return None

    def _check_host(self, host: str) -> None:
        """HTTPMisdirectedRequest: it is not one of ours."""
        if not browsers.is_name_known(host, self.settings.names):
            raise web.HTTPMisdirectedRequest(text=browsers.wrong_name(host))
        if len(self._known_hosts) < _MAX_HOSTS:
            self._known_hosts.add(host)

    async def add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """To every answer."""
        headers = response.headers
        if "Content-Security-Policy" in headers:
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        else:
            headers.update(_HEADERS)
        if (request_id := request.get(REQUEST_ID)) is not None:
            headers["X-Request-Id"] = request_id
        if request.secure and not self.settings.takes_plain:
            headers["Strict-Transport-Security"] = "max-age=31536000"

    def _check_browser(self, request: web.Request, session: BrowserSession | None) -> None:
        """OtherSite: a change that no page of this site has sent."""
        refuse_other_sites(request)
        if "Authorization" in request.headers or request.path in (LOGIN, LOGOUT) or self.is_page(request):
            return  # browsers add a token only where a page of this site does; forms show theirs in the body
        if not is_csrf_token(session, request.headers.get("X-CSRF-Token", "")):
            raise OtherSite(f"a change by a browser needs the header X-CSRF-Token, with what {SESSION} says")

    def owner_of(self, context: RequestContext) -> str:
        """Whom a caller counts as."""
        return owner_of(context, self.known_tokens)

    def _owner(self, request: web.Request, session: BrowserSession | None) -> str:
        shows = session is not None and session.is_checked and bool(session.credential.password)
        is_admin = shows and "Authorization" not in request.headers
        return ADMIN if is_admin else self.owner_of(request[CONTEXT])

    async def _check_new(self, token: str, context: RequestContext) -> None:
        """Of a token that was not right before: its caller counts as itself from then on. Forbidden: it is wrong."""
        if token not in self.known_tokens:
            with suppress(MethodUnknown):  # servers of before tokens
                await self._api.get_access(context=context)
                self.known_tokens.add(token)

    async def _read(self, request: web.Request, use: RequestUse) -> None:
        """The body, which the request keeps. Room is taken for what has come, not for what is said to come. Overloaded,
        BodyTooLarge. HTTPBadRequest: it broke off, or is none.
        """
        settings = self.settings
        encodings = request.headers.getall("Content-Encoding", ("",))
        if len(encodings) > 1 or encodings[0].strip().lower() not in ("", "identity", *CONTENT_ENCODINGS):
            raise web.HTTPUnsupportedMediaType(text=NOT_DECODED)
        if (request.content_length or 0) > settings.max_request_bytes:
            raise self._too_large()
        content = request.content
        if content.is_eof() and content.total_bytes <= min(_SMALL_BYTES, settings.max_request_bytes):
            request._read_bytes = content.read_nowait()  # it came with the head, and is gone again at once
            return
        body = bytearray()
        try:
            async for chunk in request.content.iter_any():
                size = len(chunk)
                if len(body) + size > settings.max_request_bytes:
                    raise self._too_large()
                try:
                    use.take_body(size)
                except Overloaded:
                    self._log.note("http_bodies_full", at_most=settings.max_buffered_bytes)
                    raise
                body += chunk
        except (web.RequestPayloadError, web.PayloadAccessError, ConnectionError) as error:
            content.feed_eof()  # nothing of it is waited for any more: what comes cannot be read
            raise web.HTTPBadRequest(text="the body of the request cannot be read") from error
        request._read_bytes = bytes(body)  # read() has no bound but its own, and counts nothing

    def _too_large(self) -> PinLaterError:
        bound = self.settings.max_request_bytes
        return BodyTooLarge(f"the request is too large; allowed: {bound} bytes (--max-frame, which goes up to 1GiB)")

    async def _refused(self, request: web.Request, why: Forbidden) -> PinLaterError:
        """How a refusal is answered: late, where the token is wrong. That of a session was right, so it is no guess."""
        context = request.get(CONTEXT)
        if context is not None and has_token(context) and "Authorization" in request.headers:
            try:
                await self.checks.check_token(context)
            except Forbidden:
                try:
                    await self._hold_back(context)
                except Overloaded as error:
                    return error
            except PinLaterError:
                pass
        return why

    async def _hold_back(self, context: RequestContext) -> None:
        """Until the answer to its wrong token may leave. Overloaded: as many as may wait for that do."""
        await self._guesses.hold_back((context.caller_address or "", 0), context.source)

    async def doubt_of(self, request: web.Request) -> PinLaterError | None:
        """Of a session that another process began: have the servers check what it stands for, at its first request
        here. It ends where that is right no more. What comes back is why they cannot say so now.
        """
        session = self.session_of(request)
        if session is None or session.is_checked:
            return None
        try:
            session.credential = await self.checks.check_again(request, session.credential)
        except PasswordInvalid:
            self.sessions.end(request.cookies[_cookie_name(request)])
            request[CONTEXT] = make_context(request, None, self.settings.gateway_token)
            return None
        except PinLaterError as error:
            return error
        if session.credential.token is not None:
            self.known_tokens.add(session.credential.token)
        session.is_checked = True
        return None

    def start_draining(self) -> None:
        """The process ends, and keeps nobody waiting."""
        self.is_draining = True
        self._guesses.start_draining()

    # -- pages -------------------------------------------------------------------------------------------------------

    async def start(self, request: web.Request) -> web.StreamResponse:
        """Who the browser is, and where to go."""
        if self.settings.pages and "text/html" in request.headers.get("Accept", ""):
            return web.Response(status=303, headers={"Location": self.settings.pages})
        session = self.session_or_new(request)
        links = [(API_PAGE, "The calls, and a page to try them"), (LOGIN, "Log in")]
        if is_manual_here():
            links.insert(0, (MANUAL, "The documentation"))
        if self.settings.pages:
            links.insert(0, (self.settings.pages, "The dashboard"))
        if self.settings.status_page:
            links.append((f"http://{self.settings.status_page}/", "The status page"))
        return self._page(request, start_page(session.credential.identity, session.csrf, links), session)

    async def show_login(self, request: web.Request) -> web.StreamResponse:
        """The form."""
        return self._ask(request, local_path(request.query.get("next", "")))

    async def log_in(self, request: web.Request) -> web.StreamResponse:
        """Begins a session for a token or a password that is right, in place of the one that the form was in."""
        form = await self.read_form(request)
        shown, after = form.get("token", "").strip(), local_path(form.get("next", ""))
        try:
            credential = await self._check(request, shown)
        except PasswordInvalid as error:
            return self._ask(request, after, _sentence(error.message), status=403)
        except Overloaded as error:
            return self._ask(request, after, _sentence(error.message), status=503)
        except PinLaterError as error:
            return self._ask(request, after, f"No server can check it now: {error.message}", status=503)
        response = web.Response(status=303, headers={"Location": after})
        self.begin_session(request, response, credential)
        return response

    async def _check(self, request: web.Request, shown: str) -> Credential:
        """What was typed into the form. PasswordInvalid."""
        if not shown.startswith(TOKEN_PREFIX):
            return await self.checks.check_password(request, shown)
        if not (shown.isascii() and shown.isprintable()):
            raise PasswordInvalid(_WRONG_TOKEN)
        context = context_of(request)
        show_token(context, shown, self.settings.gateway_token)
        try:
            return await self.checks.check_token(context)
        except Forbidden as error:
            await self._hold_back(context)
            raise PasswordInvalid(_WRONG_TOKEN) from error

    def _ask(self, request: web.Request, after: str, refusal: str = "", *, status: int = 200) -> web.Response:
        """The form of the login. `refusal`: why what was typed before did not do."""
        session = self.session_or_new(request)
        return self._page(request, login_page(session.csrf, after, refusal), session, status=status)

    async def log_out(self, request: web.Request) -> web.StreamResponse:
        """Ends the session, and its cookie."""
        await self.read_form(request)
        self.sessions.end(request.cookies.get(_cookie_name(request), ""))
        response = web.Response(status=303, headers={"Location": LOGIN})
        if self.prefix is None:  # else others are at home under this name too
            response.headers["Clear-Site-Data"] = '"cache", "storage"'
        name, path = _cookie_name(request), self.settings.prefix or "/"
        response.del_cookie(name, path=path, secure=request.secure, httponly=True, samesite="Strict")
        return response

    async def show_metrics(self, request: web.Request) -> web.StreamResponse:
        """What this process counts, for whom may read all queues."""
        await self._api.cluster_status(queues=[], context=context_of(request))
        merged: Series = {}
        merge(merged, self.counts())
        from pinlater import metric_export  # noqa: PLC0415  # who never asks for metrics does not load what writes them

        families = {
            name: family for name, family in FAMILIES.items() if name.startswith("http_") or name == "limits_hit"
        }
        body = metric_export.exposition(PREFIX, families, merged)
        return web.Response(body=body, headers={"Content-Type": metric_export.CONTENT_TYPE})

    async def show_session(self, request: web.Request) -> web.StreamResponse:
        """What scripts of our pages have to know: who the browser is, and what it shows with changes."""
        session = self.session_or_new(request)
        response = web.json_response({"identity": session.credential.identity, "csrf_token": session.csrf})
        self.keep_session(request, response, session)
        return response

    async def read_form(self, request: web.Request) -> dict[str, str]:
        """RequestInvalid; OtherSite: another page than ours has sent it."""
        if request.content_type != "application/x-www-form-urlencoded" or len(await request.read()) > _FORM_BYTES:
            raise RequestInvalid("the body is no short form: application/x-www-form-urlencoded")
        try:
            form = {name: value for name, value in (await request.post()).items() if isinstance(value, str)}
        except (LookupError, ValueError) as error:
            raise RequestInvalid("the form cannot be read: it is to be UTF-8, with few fields") from error
        if not is_csrf_token(self.session_of(request), form.get("csrf", "")):
            raise OtherSite(f"the form is out of date: load {LOGIN} again")
        return form

    def begin_session(
        self, request: web.Request, response: web.StreamResponse, credential: Credential
    ) -> BrowserSession:
        """A new one, in place of that of the request; its cookie goes with the response."""
        self.sessions.end(request.cookies.get(_cookie_name(request), ""))
        if credential.token is not None:
            self.known_tokens.add(credential.token)
        cookie, session = self.sessions.begin(credential)
        set_cookie(request, response, cookie)
        return session

    def session_or_new(self, request: web.Request) -> BrowserSession:
        """The caller's, or a new one; the answer is to `keep_session`."""
        return self.session_of(request) or self.sessions.visit()

    def keep_session(self, request: web.Request, response: web.StreamResponse, session: BrowserSession) -> None:
        """Have the browser keep what only it does: all of the session of who has shown nothing."""
        if session.credential:
            return
        cookie = self.sessions.sealed(session)
        if cookie != request.cookies.get(_cookie_name(request)):
            set_cookie(request, response, cookie)

    def _page(self, request: web.Request, html: str, session: BrowserSession, *, status: int = 200) -> web.Response:
        policy = browsers.page_policy(html, form_action="'self'")
        response = web.Response(status=status, text=html, content_type="text/html", headers=policy)
        self.keep_session(request, response, session)
        return response


PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
"""What pages may load and do, where they say nothing else."""

_HEADERS: CIMultiDict[str] = CIMultiDict(
    {
        **browsers.HEADERS,
        "Referrer-Policy": "same-origin",  # without a referrer at all, browsers send forms with the Origin "null"
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Content-Security-Policy": PAGE_POLICY,
    }
)


def _is_call(request: web.Request) -> bool:
    """A program's, or of a script that asks who it is; pages, which others write, say in their own way what fails."""
    path = request.path
    return path == SESSION or (path.startswith("/v1/") and path != OPENAPI)


def _has_credential(request: web.Request) -> bool:
    context = request.get(CONTEXT)
    return context is not None and has_credential(context)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _cookie_name(request: web.Request) -> str:
    """The prefix keeps what came without TLS, or from a name below this one, from being taken for ours. Browsers do the
    second for cookies of the path / alone.
    """
    if not request.secure:
        return "pinlater"
    return "__Host-pinlater" if request.app[SITE].prefix is None else "__Secure-pinlater"


def set_cookie(request: web.Request, response: web.StreamResponse, cookie: str) -> None:
    """That of a session."""
    response.set_cookie(
        _cookie_name(request),
        cookie,
        max_age=int(MAX_AGE_S),
        path=request.app[SITE].settings.prefix or "/",
        secure=request.secure,
        httponly=True,
        samesite="Strict",
    )


def make_app(api: Api, settings: HttpSettings) -> web.Application:
    """The application; it has all routes, and leaves `api` open."""
    site = ApiSite(api, settings)
    app = web.Application(middlewares=[site.serve], client_max_size=settings.max_request_bytes)
    app[API], app[SITE] = api, site
    app[CLAIMS] = claims = BoundConnections(api, site.connection_of, settings.connect, settings.max_bound)
    site.pools.append(claims.places)
    app.on_response_prepare.append(site.add_headers)
    app.on_shutdown.append(site.events.close)
    router = app.router
    router.add_get("/", site.start)
    router.add_get(LOGIN, site.show_login)
    router.add_post(LOGIN, site.log_in)
    router.add_post(LOGOUT, site.log_out)
    router.add_get(SESSION, site.show_session)
    router.add_get(EVENTS, site.events.serve)
    router.add_get(METRICS, site.show_metrics)
    add_routes(app)
    add_reference_pages(app, settings.prefix)
    add_manual(app, API_PAGE)
    return app
