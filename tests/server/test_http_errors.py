"""Every error of the HTTP interface is a problem document, also those of bytes that are no request."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from tests.server.http_site import RunningSite, WatchedApi, http_site

JSON = b"Content-Type: application/json\r\n"
FORM = b"Content-Type: application/x-www-form-urlencoded"
BODY = b"Content-Length: 2\r\n\r\n{}"


def ask(line: bytes, *headers: bytes, end: bytes = b"\r\n") -> bytes:
    return b"".join([line, b" HTTP/1.1\r\nHost: localhost\r\n", *headers, end])


def encoded(name: bytes) -> bytes:
    return ask(b"POST /echo", JSON, b"Content-Encoding: ", name, b"\r\n", end=BODY)


CASES = {
    "an encoding that is not known": (encoded(b"rot13"), 415, "UNSUPPORTED_MEDIA_TYPE"),
    "an encoding without a library": (encoded(b"br"), 415, "UNSUPPORTED_MEDIA_TYPE"),
    "two encodings": (encoded(b"gzip, gzip"), 415, "UNSUPPORTED_MEDIA_TYPE"),
    "an encoding behind one that is known": (
        encoded(b"gzip\r\nContent-Encoding: rot13"),
        415,
        "UNSUPPORTED_MEDIA_TYPE",
    ),
    "an encoding behind none": (encoded(b"\r\nContent-Encoding: rot13"), 415, "UNSUPPORTED_MEDIA_TYPE"),
    "no gzip": (encoded(b"gzip"), 400, "BAD_REQUEST"),
    "a length that is none": (ask(b"POST /echo", b"Content-Length: x\r\n"), 400, "BAD_REQUEST"),
    "a length below 0": (ask(b"POST /echo", b"Content-Length: -1\r\n"), 400, "BAD_REQUEST"),
    "too large": (ask(b"POST /echo", b"Content-Length: 99999999999\r\n"), 413, "BODY_TOO_LARGE"),
    "a charset that is not known": (ask(b"POST /login", FORM, b"; charset=no\r\n", end=BODY), 400, "REQUEST_INVALID"),
    "no JSON": (ask(b"POST /v1/queues/mail/jobs", end=BODY), 415, "UNSUPPORTED_MEDIA_TYPE"),
    "an expectation that is no text": (ask(b"POST /echo", b"Expect: \xf3\r\n", end=BODY), 417, "EXPECTATION_FAILED"),
    "an expectation of what is not there": (ask(b"GET /nowhere", b"Expect: \xf3\r\n"), 417, "EXPECTATION_FAILED"),
    "an expectation": (ask(b"POST /echo", b"Expect: plt_secret\r\n", end=BODY), 417, "EXPECTATION_FAILED"),
    "a method that is not allowed": (ask(b"DELETE /session"), 405, "METHOD_NOT_ALLOWED"),
    "a method that is none": (ask(b"F@plt_secret\x01 /echo"), 400, "BAD_REQUEST"),
    "a bad chunk": (
        ask(b"POST /echo", b"Transfer-Encoding: chunked\r\n", end=b"\r\nplt_secret\r\n"),
        400,
        "BAD_REQUEST",
    ),
    "a transfer encoding": (ask(b"POST /echo", b"Transfer-Encoding: rot13\r\n"), 400, "BAD_REQUEST"),
    "a length and chunks": (
        ask(b"POST /echo", b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n"),
        400,
        "BAD_REQUEST",
    ),
    "a header that is none": (ask(b"GET /session", b"bad header: plt_secret\r\n"), 400, "BAD_REQUEST"),
    "a long header": (ask(b"GET /session", b"X: ", b"a" * 20_000, b"\r\n"), 400, "BAD_REQUEST"),
    "a long address": (ask(b"GET /" + b"a" * 20_000), 400, "BAD_REQUEST"),
    "an address that is none": (ask(b"GET http://[plt_secret"), 400, "BAD_REQUEST"),
    "an address that is not there": (ask(b"GET /nothing"), 404, "NOT_FOUND"),
    "two hosts": (ask(b"GET /session", b"Host: other\r\n"), 400, "BAD_REQUEST"),
    "another host": (b"GET /session HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421, "MISDIRECTED_REQUEST"),
    "another version": (b"GET /session HTTP/9.9\r\nHost: localhost\r\n\r\n", 400, "BAD_REQUEST"),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400, "BAD_REQUEST"),
}


async def answer(site: RunningSite, sent: bytes) -> tuple[bytes, bytes]:
    """Head and body of the first one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    try:
        async with asyncio.timeout(60):
            writer.write(sent)
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: ([0-9]+)", head)
            assert length is not None, head
            return head, await reader.readexactly(int(length[1]))
    finally:
        writer.close()


@pytest.mark.parametrize("case", CASES)
async def test_every_error_is_a_problem_document(case: str) -> None:
    sent, status, reason = CASES[case]
    async with http_site(WatchedApi()) as site:
        head, body = await answer(site, sent)
        problem = json.loads(body)
        assert (problem["status"], problem["reason"]) == (status, reason), problem
        assert int(head.split()[1]) == status
        assert b"Content-Type: application/problem+json" in head
        assert b"Server: PinLater\r\n" in head
        assert b"X-Content-Type-Options: nosniff" in head
        assert problem["title"]
        assert problem["detail"]
        assert len(problem["detail"]) < 300
        assert "plt_secret" not in problem["detail"]
        assert (await site.ask("GET", "/session")).status == 200


async def test_a_refused_encoding_says_which_are_taken_and_those_are() -> None:
    async with http_site(WatchedApi()) as site:
        head, body = await answer(site, encoded(b"rot13"))
        assert b"Accept-Encoding: gzip, deflate\r\n" in head
        assert "send gzip or deflate, or none" in json.loads(body)["detail"]
        for name in (b"identity", b""):
            head, body = await answer(site, encoded(name))
            assert (head[:12], body) == (b"HTTP/1.1 200", b"{}")
