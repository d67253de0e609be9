"""One route of the HTTP interface: its address, the forms of its request and its answer, and the call behind it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import NoneType
from typing import Any, TypeVar, get_type_hints

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from pinlater.api import Api
from pinlater.errors import QueueNotFound, RequestInvalid
from pinlater.http.bound_connections import CLAIMS, BoundConnection, BoundConnections
from pinlater.http.caller import API, CONTEXT, USE
from pinlater.http.encodings import form_decoder, refusal
from pinlater.http.forms import Form
from pinlater.http.model_map import arguments_of
from pinlater.http.request_use import RequestUse
from pinlater.job_body import UNREADABLE, unreadable_text
from pinlater.model import RequestContext, is_queue_name
from pinlater.wire.methods import Method

JSON = "application/json"
PASSWORD_HEADER = "X-Admin-Password"
IDEMPOTENCY_HEADER = "Idempotency-Key"
_HEADERS = {"Content-Type": JSON}
_WHERE = re.compile(r"(.*?)(?: - at `(.*)`)?", re.DOTALL)
_MAX_WORDS_CHARS = 500
"""Of what is wrong with a field: the words quote its value, whatever that is."""

_NAMED = re.compile(r"Object (?:contains unknown|missing required) field `(.*)`", re.DOTALL)
_encode = msgspec.json.Encoder().encode
R = TypeVar("R")
Call = TypeVar("Call", bound=Callable[..., Awaitable[Any]])


@dataclass(slots=True, eq=False)
class Incoming:
    """A request as the call of a route finds it, beside its form: its path is decoded. `waiting(wait_ms)` stands around
    a call that waits for so long: Overloaded where its caller has its share of them. `bound_connection()` is its
    connection, to bind claims to; None: it cannot be. `claims` are those that are bound, of all connections.
    `is_gone()`: its caller can no longer be answered.
    """

    api: Api
    context: RequestContext
    path: Mapping[str, str]
    headers: Mapping[str, str]
    waiting: Callable[[int], AbstractContextManager[None]]
    claims: BoundConnections
    bound_connection: Callable[[], BoundConnection | None]
    is_gone: Callable[[], bool]

    @property
    def queue(self) -> str:
        """That of the path. QueueNotFound: none can have such a name."""
        name = self.path["queue"]
        if not is_queue_name(name):
            raise QueueNotFound.of(name[:100])
        return name

    @property
    def password(self) -> str:
        """The admin password; "" for none."""
        return self.headers.get(PASSWORD_HEADER, "").encode(errors="replace").decode()

    async def call(self, method: Callable[..., Awaitable[R]], form: Form, /, *first: Any, **others: Any) -> R:
        """Call a method of Api with these arguments, and with what the form has of the others."""
        arguments = arguments_of(method, form, len(first)) | others
        answer: R = await getattr(self.api, method.__name__)(*first, **arguments, context=self.context)
        return answer


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Route:
    """`method` is the call of the Thrift interface that it makes; each request makes one.

    `form` is that of the body of a request, `query` that of what follows the `?`: `call` takes one of them at most.
    `answer` is None where nothing is answered. `has_idempotency_key`: the header counts. `example`, `answer_example`: a
    body and an answer, for the OpenAPI document.
    """

    name: str
    verb: str
    path: str
    tag: str
    summary: str
    method: Method[Any]
    call: Callable[..., Awaitable[Any]]
    form: type[Form] | None = None
    query: type[Form] | None = None
    answer: type[Any] | None = None
    status: int = 200
    has_idempotency_key: bool = False
    example: Mapping[str, Any] | None = None
    answer_example: Mapping[str, Any] | None = None

    def handler(self) -> Handler:
        """What aiohttp calls."""
        decode = None if self.form is None else form_decoder(self.form)
        call, status, has_answer = self.call, self.status, self.answer is not None
        query_form = self.query

        async def handle(request: web.Request) -> web.StreamResponse:
            forms: list[Form] = []
            if decode is not None:
                if request.headers.get("Content-Type") != JSON and request.content_type != JSON:
                    raise web.HTTPUnsupportedMediaType(text=f"the body is to be JSON, with Content-Type: {JSON}")
                try:
                    forms.append(decode(await request.read()))
                except UNREADABLE as error:
                    raise form_refusal(error) from None
            if query_form is not None:
                forms.append(_read_query(request, query_form))
            elif request.query_string:
                raise _unknown(next(iter(request.query), ""))
            context: RequestContext = request[CONTEXT]
            use: RequestUse = request[USE]
            claims = request.app[CLAIMS]
            incoming = Incoming(
                request.app[API],
                context,
                request.match_info,
                request.headers,
                use.waiting,
                claims,
                lambda: claims.of(request, use.owner),
                lambda: request.transport is None or request.transport.is_closing(),
            )
            answer = await call(incoming, *forms)
            if has_answer:
                return web.Response(body=_encode(answer), status=status, headers=_HEADERS)
            return web.Response(status=204)

        return handle


class RouteTable(list[Route]):
    """Routes in the order of their calls, each of which says by its name, docstring and types what its route is."""

    def add(self, tag: str, address: str, method: Method[Any], **more: Any) -> Callable[[Call], Call]:
        """Decorates a call: the verb and the path of its route are `address`. An argument `form` is that of the body,
        `query` what follows the `?`; what it returns is the answer. `more`: the other fields of Route.
        """

        def added(call: Call) -> Call:
            hints, (verb, path) = get_type_hints(call), address.split()
            self.append(
                Route(
                    name=call.__name__.removeprefix("_"),
                    verb=verb,
                    path=path,
                    tag=tag,
                    summary=(call.__doc__ or "").removesuffix("."),
                    method=method,
                    call=call,
                    form=hints.get("form"),
                    query=hints.get("query"),
                    answer=None if hints["return"] is NoneType else hints["return"],
                    **more,
                )
            )
            return call

        return added


def add_route(router: web.UrlDispatcher, verb: str, path: str, handler: Handler) -> None:
    """Add a route; whatever answers GET answers HEAD too."""
    if verb == "GET":
        router.add_get(path, handler)
    else:
        router.add_route(verb, path, handler)


def _read_query(request: web.Request, form: type[Form]) -> Form:
    given = request.query
    values = dict(given)
    if len(values) < len(given):
        twice = next(name for name in values if len(given.getall(name)) > 1)
        raise refusal(twice, "it is there more than once")
    try:
        query = msgspec.convert(values, form, strict=False)
    except msgspec.ValidationError as error:
        raise form_refusal(error) from None
    if "null" in values.values():  # which counts as none
        for name, value in msgspec.to_builtins(query).items():
            if value is None and name in values:
                raise refusal(name, "it is no value")
    return query


def form_refusal(error: Exception) -> RequestInvalid:
    """The error for the caller, which names the field.

    >>> form_refusal(msgspec.ValidationError("Expected `int`, got `str` - at `$.jobs[0].priority`")).message
    'jobs[0].priority: Expected `int`, got `str`'
    >>> form_refusal(msgspec.ValidationError("Object contains unknown field `x`")).field
    'x'
    """
    if not isinstance(error, msgspec.ValidationError):
        return RequestInvalid(f"the body is no JSON that can be read: {unreadable_text(error)}")
    found = _WHERE.fullmatch(str(error))
    assert found is not None
    text, place = found[1][:_MAX_WORDS_CHARS], (found[2] or "$").removeprefix("$").removeprefix(".")
    named = _NAMED.fullmatch(text)
    if named is not None:
        place = f"{place}.{named[1]}" if place else named[1]
        text = "there is no such field" if "unknown" in text else "it is missing"
    return refusal(place, text) if place else RequestInvalid(text)


def _unknown(field: str) -> RequestInvalid:
    return refusal(field, "there is no such field")
