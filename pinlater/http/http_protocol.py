"""The protocol of an HTTP connection, with problem documents also where no handler is asked: for bytes that are no
request, and for what is refused before a route has its turn.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import BadStatusLine, ContentEncodingError, InvalidURLError, TransferEncodingError

from pinlater import browsers
from pinlater.http.problems import HTTP_DETAILS, NOT_DECODED, http_problem

_MAX_SHOWN = 120
_QUOTED = re.compile(r":\s*(?:b?['\"]|bytearray\()")
"""What the parser quotes of the bytes that came."""

_PARTS: dict[type[Exception], str] = {
    BadStatusLine: "its first line",
    InvalidURLError: "its address",
    TransferEncodingError: "its chunks",
}
"""What cannot be read, where the text of an error is, or has, nothing but these bytes."""


class ProblemProtocol(web.RequestHandler):
    """That of aiohttp, with its own errors as problem documents."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The last answer of the connection. ConnectionError: one has begun already."""
        if isinstance(exc, UnicodeEncodeError) and "Expect" in request.headers:
            # aiohttp repeats what is expected, and cannot where that is no text
            status, message = HTTPStatus.EXPECTATION_FAILED, HTTP_DETAILS[HTTPStatus.EXPECTATION_FAILED]
            return self._last(status, message)
        super().handle_error(request, status, exc, message)
        if isinstance(exc, ContentEncodingError):
            status, message = HTTPStatus.UNSUPPORTED_MEDIA_TYPE, NOT_DECODED
        elif status < HTTPStatus.INTERNAL_SERVER_ERROR:
            part = next((part for kind, part in _PARTS.items() if isinstance(exc, kind)), "")
            why = part or _QUOTED.split((message or "").partition("\n")[0])[0].rstrip(": ")[:_MAX_SHOWN]
            message = f"the request is no HTTP that can be read: {why}"
        else:
            message = "the request failed in the HTTP process; its log says why"
        return self._last(status, message)

    @staticmethod
    def _last(status: int, detail: str) -> web.Response:
        """After it the connection is closed."""
        response = _problem(status, detail)
        response.force_close()
        return response

    def log_exception(self, *args: Any, **more: Any) -> None:
        """Of a request that was answered, what is left of its body is read for a moment, so that its sender reads why.
        Where that cannot be decoded, it is the sender's mistake, and none to log.
        """
        if isinstance(more.get("exc_info"), web.RequestPayloadError):
            self.log_debug("The rest of a body could not be decoded.")
        else:
            super().log_exception(*args, **more)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send an answer; what aiohttp raised before the application was asked is none yet."""
        if isinstance(resp, web.HTTPException):
            resp = _problem(resp.status, HTTP_DETAILS.get(resp.status) or resp.text or "")
        return await super().finish_response(request, resp, start_time)


def _problem(status: int, detail: str) -> web.Response:
    return http_problem(status, detail, browsers.HEADERS)
