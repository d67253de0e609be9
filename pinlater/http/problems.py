"""Errors by RFC 9457: `application/problem+json` with the reason, and whether to send the request again.

`reason` is the stable word for programs, that of the Thrift interface. `Retry-After` stands where the server says when,
in whole seconds; `retry_after_ms` says it in milliseconds.
"""

from __future__ import annotations

import re
from http import HTTPStatus

import msgspec
from aiohttp import web

from pinlater import errors
from pinlater.errors import PinLaterError

CONTENT_TYPE = "application/problem+json"

NOT_FOUND = "NOT_FOUND"
"""The reason where a job, a schedule, a token or an address is not there."""

_CONFLICTS = {"CHANGED", "DUPLICATE"}
"""Reasons of errors that are about the state of what the request names."""


class NotThere(PinLaterError):
    """What a path names is not there, although its queue may be."""

    reason = NOT_FOUND


class NotAssigned(PinLaterError):
    """What keeps an item from being assigned, as the reason says."""


class NotHeld(PinLaterError):
    """An assignment that is over, or that another one has followed."""

    reason = "NOT_HELD"


STATUSES: dict[type[PinLaterError], HTTPStatus] = {
    errors.RequestInvalid: HTTPStatus.BAD_REQUEST,
    errors.ContinuationInvalid: HTTPStatus.BAD_REQUEST,
    errors.QueueNameInvalid: HTTPStatus.BAD_REQUEST,
    errors.QueueNameTooLong: HTTPStatus.BAD_REQUEST,
    errors.PriorityNotSupported: HTTPStatus.BAD_REQUEST,
    errors.PasswordInvalid: HTTPStatus.FORBIDDEN,
    errors.QueueNotFound: HTTPStatus.NOT_FOUND,
    NotThere: HTTPStatus.NOT_FOUND,
    NotAssigned: HTTPStatus.CONFLICT,
    NotHeld: HTTPStatus.GONE,
    errors.RecordChanged: HTTPStatus.CONFLICT,
    errors.FlowNotFound: HTTPStatus.NOT_FOUND,
    errors.ShardNotFound: HTTPStatus.NOT_FOUND,
    errors.ItemNotFound: HTTPStatus.NOT_FOUND,
    errors.StageSealed: HTTPStatus.CONFLICT,
    errors.LimitReached: HTTPStatus.CONFLICT,
    errors.FlowsUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.TierUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.BodyTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    errors.DequeueRateLimited: HTTPStatus.TOO_MANY_REQUESTS,
    errors.EnqueueRejected: HTTPStatus.TOO_MANY_REQUESTS,
    errors.Overloaded: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.Draining: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.NoHealthyShards: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.ShardConnectionFailed: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.OutcomeUnknown: HTTPStatus.GATEWAY_TIMEOUT,
    errors.StoreRefused: HTTPStatus.INTERNAL_SERVER_ERROR,
    errors.ServerUnreachable: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.ProtocolError: HTTPStatus.BAD_GATEWAY,
    errors.MethodUnknown: HTTPStatus.NOT_IMPLEMENTED,
    errors.UnknownError: HTTPStatus.INTERNAL_SERVER_ERROR,
}
"""By the class of an error, or of the nearest one above it."""

CONTENT_ENCODINGS = ("gzip", "deflate")
"""In which the body of a request may come."""

NOT_DECODED = f"the body has a Content-Encoding that is not known here; send {' or '.join(CONTENT_ENCODINGS)}, or none"
_HTTP_REASONS = {413: "BODY_TOO_LARGE"}
HTTP_DETAILS = {
    404: "there is no such address; /v1/openapi.json lists those that there are",
    405: "this address does not take the method; the header Allow says which it takes",
    417: "the header Expect has what is not known here; allowed: 100-continue, or none",
}


_FIELD = re.compile(r"(?<![\w'\"])[a-z]+(?:[A-Z][a-z]+)+(?![\w'\"])", re.ASCII)
_OWN_NAMES = {
    "bodyRegexToMatch": "body_regex",
    "jobDescriptor": "descriptor",
    "jobDescriptors": "descriptors",
    "jobState": "state",
    "numAttemptsAllowed": "attempts_allowed",
    "numOfAttemptsAllowed": "attempts_allowed",
    "runAfterTimestampMillis": "run_after_ms",
}
"""Fields whose names here do not follow from those of the Thrift interface."""


class Problem(msgspec.Struct, omit_defaults=True):
    """Why a request failed."""

    title: str
    status: int
    detail: str
    reason: str
    retryable: bool
    field: str | None = None
    retry_after_ms: int | None = None
    acks_applied: bool | None = None
    job_descriptors: list[str] | None = None


def status_of(error: PinLaterError, *, has_credential: bool = True) -> HTTPStatus:
    """Of a caller that shows nothing, and may not: it is to show who it is."""
    if isinstance(error, errors.Forbidden) and not has_credential:
        return HTTPStatus.UNAUTHORIZED
    if error.reason in _CONFLICTS:
        return HTTPStatus.CONFLICT
    for cls in type(error).__mro__:
        if cls in STATUSES:
            return STATUSES[cls]
    return HTTPStatus.INTERNAL_SERVER_ERROR


def problem_response(error: PinLaterError, *, has_credential: bool) -> web.Response:
    """The answer to a request that failed. `has_credential`: the caller showed who it is."""
    status = status_of(error, has_credential=has_credential)
    problem = Problem(
        status.phrase,
        int(status),
        detail_of(error),
        error.reason,
        error.retryable,
        getattr(error, "field", "") or None,
        error.retry_after_ms,
        error.acks_applied,
        None if error.job_descriptors is None else list(error.job_descriptors),
    )
    headers = {}
    if error.retry_after_ms is not None:
        headers["Retry-After"] = str(max(1, -(-error.retry_after_ms // 1000)))
    if status is HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="pinlater"'
    return _response(problem, headers)


def detail_of(error: PinLaterError) -> str:
    """The message without the reason in front, and with the names that fields have here.

    >>> detail_of(errors.RequestInvalid("REQUEST_INVALID: waitMillis is -1; allowed: 0 or more"))
    'wait_ms is -1; allowed: 0 or more'
    """
    text = error.message.removeprefix(f"{error.reason}: ")
    return _FIELD.sub(_name_here, text) if isinstance(error, errors.INVALID) else text


def _name_here(match: re.Match[str]) -> str:
    name = match[0]
    snake = re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", name)
    return _OWN_NAMES.get(name, f"{snake[:-7]}_ms" if snake.endswith("_millis") else snake)


def http_problem_response(error: web.HTTPException) -> web.Response:
    """The same for what aiohttp, or a check of the request as HTTP, refuses."""
    skip = {"content-type", "content-length"}
    headers = {name: value for name, value in error.headers.items() if name.lower() not in skip}
    return http_problem(error.status, HTTP_DETAILS.get(error.status) or error.text or "", headers)


def http_problem(code: int, detail: str, headers: dict[str, str]) -> web.Response:
    """The answer with a status of HTTP. `detail` "": its phrase."""
    status = HTTPStatus(code)
    if status is HTTPStatus.UNSUPPORTED_MEDIA_TYPE and detail == NOT_DECODED:
        headers = {**headers, "Accept-Encoding": ", ".join(CONTENT_ENCODINGS)}
    reason = _HTTP_REASONS.get(code, status.name)
    return _response(Problem(status.phrase, code, detail or status.phrase, reason, code in (429, 503)), headers)


def _response(problem: Problem, headers: dict[str, str]) -> web.Response:
    body = msgspec.json.encode(problem)
    return web.Response(status=problem.status, body=body, content_type=CONTENT_TYPE, headers=headers)
