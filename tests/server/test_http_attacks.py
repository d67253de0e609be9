"""Attacks on the HTTP interface: what the attacker gets, and that others are served meanwhile."""

from __future__ import annotations

import asyncio
import logging
import socket

import pytest

from pinlater.access.guesses import FREE_TRIES, MAX_WAITING_EACH
from tests.server.http_site import TOKEN, HttpAnswer, RunningSite, WatchedApi, answers_in, http_site
from tests.server.serving import until

HOST = b"Host: localhost\r\n"


async def closed(reader: asyncio.StreamReader) -> list[HttpAnswer]:
    """The answers until the site closes the connection."""
    try:
        async with asyncio.timeout(60):
            return answers_in(await reader.read())
    except ConnectionResetError:
        return []


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"GET /session HTTP/1.1\r\nHost: local", id="head"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 100\r\n\r\nhalf", id="body"),
        pytest.param(b"POST /echo HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhal", id="chunk"),
    ],
)
async def test_who_is_slow_is_cut_off(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinlater.listener.HEAD_WITHIN_S", 0.3)
    monkeypatch.setattr("pinlater.listener.SWEEP_S", 0.05)
    async with http_site(WatchedApi(), body_within_s=0.3) as site:
        slow = [await site.connect() for _ in range(20)]
        for _, writer in slow:
            writer.write(sent)
        async with asyncio.timeout(60):
            while not await site.is_well():  # who asks may be held up by a busy machine, and is cut off as slow then
                pass
        for reader, writer in slow:
            assert await closed(reader) == []
            writer.close()
        assert set(site.seen) == {b"well"}


async def test_a_byte_now_and_then_does_not_keep_a_head_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinlater.listener.HEAD_WITHIN_S", 0.3)
    monkeypatch.setattr("pinlater.listener.SWEEP_S", 0.05)
    async with http_site(WatchedApi()) as site:
        reader, writer = await site.connect()
        writer.write(b"GET /session HTTP/1.1\r\nX: ")
        ended = asyncio.ensure_future(closed(reader))
        while not ended.done():
            writer.write(b"x")
            await asyncio.sleep(0.02)
        assert ended.result() == []
        writer.close()


async def test_many_idle_connections_keep_nobody_out() -> None:
    async with http_site(WatchedApi(), max_connections=200, max_peer_connections=150) as site:
        idle = []
        for _ in range(600):
            connection = socket.socket()
            connection.setblocking(False)
            await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", site.port))
            idle.append(connection)
        for _ in range(3):
            assert await site.is_well()
        for connection in idle:
            connection.close()


async def test_connections_in_a_request_are_not_closed_for_others() -> None:
    async with http_site(WatchedApi(), max_connections=4) as site:
        busy = [await site.connect() for _ in range(3)]
        for _, writer in busy:
            writer.write(b"GET /hang HTTP/1.1\r\n" + HOST + b"\r\n")
        for _ in range(10):
            assert await site.is_well()
        assert not any(reader.at_eof() for reader, _ in busy)
        for _, writer in busy:
            writer.close()


SMUGGLED = b"GET /session HTTP/1.1\r\n" + HOST + b"\r\n"


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(
            b"POST /echo HTTP/1.1\r\n"
            + HOST
            + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            + SMUGGLED,
            id="length and chunks",
        ),
        pytest.param(
            b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\n1234" + SMUGGLED,
            id="two lengths",
        ),
        pytest.param(
            b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: +4\r\n\r\n1234" + SMUGGLED, id="signed length"
        ),
        pytest.param(b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 4,4\r\n\r\n1234" + SMUGGLED, id="list"),
        pytest.param(
            b"POST /echo HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
            id="unknown coding",
        ),
        pytest.param(
            b"POST /echo HTTP/1.1\r\n" + HOST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
            id="space before the colon",
        ),
        pytest.param(
            b"POST /echo HTTP/1.1\r\n" + HOST + b"X: a\r\n Content-Length: 4\r\n\r\n" + SMUGGLED, id="folded line"
        ),
        pytest.param(b"POST /echo HTTP/1.1\n" + b"Host: localhost\nX: y\n\n" + SMUGGLED, id="bare line feeds"),
        pytest.param(
            b"POST /echo HTTP/1.1\r\n"
            + HOST
            + b"Transfer-Encoding: chunked\r\n\r\n4;\nx\r\n1234\r\n0\r\n\r\n"
            + SMUGGLED,
            id="line feed in a chunk",
        ),
        pytest.param(b"GET /echo HTTP/1.1\r\n" + HOST + b"X: a\0b\r\n\r\n" + SMUGGLED, id="zero byte"),
        pytest.param(b"GET /echo HTTP/1.1\r\n" + HOST + b"X: a\rY: b\r\n\r\n" + SMUGGLED, id="bare carriage return"),
        pytest.param(b"GET /echo HTTP/9.9\r\n" + HOST + b"\r\n" + SMUGGLED, id="unknown version"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64, id="TLS"),
    ],
)
async def test_what_can_be_read_in_two_ways_is_refused_and_nothing_behind_it_is_read(request_bytes: bytes) -> None:
    async with http_site(WatchedApi()) as site:
        found = await site.send(request_bytes, ends=False)
        assert [each.status for each in found] in ([400], [])
        assert site.seen in ([], [b""], [b"1234"][:0])
        assert await site.is_well()


@pytest.mark.parametrize(
    ("request_bytes", "statuses"),
    [
        pytest.param(b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", {400, 0}, id="line"),
        pytest.param(
            b"GET /session HTTP/1.1\r\n" + HOST + b"X: " + b"a" * 100_000 + b"\r\n\r\n", {400, 431, 0}, id="header"
        ),
        pytest.param(
            b"GET /session HTTP/1.1\r\n"
            + HOST
            + b"".join(b"X%d: %s\r\n" % (number, b"a" * 1000) for number in range(300))
            + b"\r\n",
            {400, 431, 0},
            id="headers",
        ),
        pytest.param(b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 2000000\r\n\r\n", {413}, id="length"),
        pytest.param(
            b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n", {400, 413}, id="digits"
        ),
        pytest.param(
            b"POST /echo HTTP/1.1\r\n"
            + HOST
            + b"Transfer-Encoding: chunked\r\n\r\n"
            + b"10000\r\n%s\r\n" % (b"a" * 65536) * 20,
            {413, 0},
            id="chunks",
        ),
    ],
)
async def test_what_is_too_large_is_refused(request_bytes: bytes, statuses: set[int]) -> None:
    async with http_site(WatchedApi(), max_request_bytes=2**20) as site:
        found = await site.send(request_bytes, ends=False)
        assert (found[0].status if found else 0) in statuses
        if found and found[0].status == 413:
            assert found[0].json["reason"] == "BODY_TOO_LARGE"
        assert site.seen == []
        assert await site.is_well()


async def test_bodies_on_their_way_are_bounded_and_those_that_are_only_announced_take_no_room() -> None:
    async with http_site(WatchedApi(), max_request_bytes=2**20, max_buffered_bytes=2**20) as site:
        for _ in range(50):
            _, writer = await site.connect()
            writer.write(b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 1048576\r\n\r\na")
        assert await site.is_well()
        _, holding = await site.connect()
        holding.write(b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 1048576\r\n\r\n" + b"a" * 400_000)
        async with asyncio.timeout(60):
            while (answer := await site.ask("POST", "/echo", b"x" * 200_000)).status == 200:
                await asyncio.sleep(0.01)
        assert (answer.status, answer.json["reason"]) == (503, "OVERLOADED")
        assert "Retry-After" in answer.headers
        assert (await site.ask("GET", "/session")).status == 200
        holding.close()
        async with asyncio.timeout(60):
            while (await site.ask("POST", "/echo", b"x" * 200_000)).status != 200:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "path",
    ["/../etc/passwd", "/docs/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/docs/..%2f..%2fetc/passwd", "/\\..\\x"],
)
async def test_paths_lead_nowhere_else(path: str) -> None:
    async with http_site(WatchedApi()) as site:
        answer = await site.ask("GET", path)
        assert answer.status in (400, 404)
        assert b"root:" not in answer.body


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9012", "127.0.0.1.evil.example", "localhost.evil"])
async def test_another_name_is_not_served(host: str) -> None:
    async with http_site(WatchedApi(), names=["queues.example"]) as site:
        for path in ("/", "/session", "/login", "/echo", "/v1/events?queue=mail"):
            assert (await site.ask("GET", path, Host=host)).status == 421
        assert site.seen == []
        assert (await site.ask("POST", "/echo", b"x", Host="queues.example:9012")).body == b"x"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Request-Id", "a\x1b[31mred"),
        ("X-Request-Id", "two words"),
        ("X-Request-Id", "x" * 201),
        ("X-PinLater-Source", "caf\u00e9"),
        ("X-PinLater-Source", "x\u202ey"),
        ("Authorization", "Basic cm9vdDpyb290"),
        ("Authorization", "Bearer caf\u00e9"),
        ("Authorization", "Bearer " + "x" * 600),
        ("Authorization", "Bearer"),
    ],
)
async def test_headers_bring_nothing_into_logs_and_answers(name: str, value: str) -> None:
    async with http_site(WatchedApi()) as site:
        answer = await site.ask("POST", "/echo", b"x", **{name: value})
        assert answer.status == 400
        assert value.encode() not in b"".join(each.encode() for each in answer.headers.values())
        assert site.seen == []


async def test_a_header_that_is_good_comes_back_and_goes_on() -> None:
    async with http_site(WatchedApi(), gateway_token="plt_gateway") as site:
        answer = await site.ask("POST", "/echo", b"x", X_Request_Id="abc-1", X_PinLater_Source="batch@web-1")
        assert answer.headers["X-Request-Id"] == "abc-1"
        (context,) = site.contexts
        assert (context.source, context.request_id, context.caller_address) == ("batch@web-1", "abc-1", "127.0.0.1")
        assert (context.token, context.on_behalf_of) == ("plt_gateway", "anonymous")
        await site.ask("POST", "/echo", b"x", Authorization=f"Bearer {TOKEN}")
        assert site.contexts[1].shown == (TOKEN, None, "127.0.0.1", "plt_gateway", None)


async def test_caller_addresses_are_not_taken_from_headers() -> None:
    async with http_site(WatchedApi()) as site:
        await site.ask(
            "POST", "/echo", b"x", X_Forwarded_For="10.0.0.1", Forwarded="for=10.0.0.1", X_Real_IP="10.0.0.1"
        )
        assert site.contexts[0].caller_address == "127.0.0.1"


async def test_who_leaves_in_a_request_leaves_nothing_behind() -> None:
    api = WatchedApi()
    async with http_site(api) as site:
        for _ in range(5):
            _, writer = await site.connect()
            writer.write(b"GET /v1/events?queue=mail HTTP/1.1\r\n" + HOST + b"\r\n")
            await until(lambda: api.looks > 0)
            writer.transport.abort()
        assert await site.is_well()


async def test_answers_tell_no_version_and_may_not_be_framed() -> None:
    async with http_site(WatchedApi()) as site:
        for path in ("/", "/login", "/session", "/nothing", "/v1/events"):
            headers = (await site.ask("GET", path)).headers
            assert headers["Server"] == "PinLater"
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["X-Frame-Options"] == "DENY"
            assert headers["Cache-Control"] == "no-store"
            assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
            assert "unsafe" not in headers["Content-Security-Policy"]
            assert "Access-Control-Allow-Origin" not in headers


async def test_a_preflight_allows_nothing() -> None:
    async with http_site(WatchedApi()) as site:
        answer = await site.ask(
            "OPTIONS", "/session", Origin="https://evil.example", Access_Control_Request_Method="POST"
        )
        assert answer.status == 405
        assert not any(name.startswith("Access-Control") for name in answer.headers)


async def wrong_token(site: RunningSite, number: int) -> HttpAnswer:
    return await site.ask("GET", "/v1/events?queue=mail", Authorization=f"Bearer plt_{number}")


async def test_an_address_that_guesses_tokens_has_to_wait_and_right_tokens_do_not() -> None:
    api = WatchedApi()
    api.tokens["plt_other"] = "token:other"
    async with http_site(api) as site:
        assert (await site.ask("POST", "/echo", b"x", Authorization=f"Bearer {TOKEN}")).status == 200
        assert [(await wrong_token(site, number)).status for number in range(FREE_TRIES - 1)] == [403] * 4
        guesses = [asyncio.ensure_future(wrong_token(site, number)) for number in range(MAX_WAITING_EACH + 1)]
        refused = await next(asyncio.as_completed(guesses))
        assert (refused.status, refused.json["reason"]) == (503, "OVERLOADED")
        assert int(refused.headers["Retry-After"]) >= 1
        for right in (TOKEN, "plt_other"):
            assert (await site.ask("GET", "/session", Authorization=f"Bearer {right}")).status == 200
            assert (await site.ask("POST", "/echo", b"x", Authorization=f"Bearer {right}")).status == 200
        for guess in guesses:
            guess.cancel()
        await asyncio.gather(*guesses, return_exceptions=True)
        assert (await site.ask("POST", "/echo", b"x")).status == 200


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"[" * 200_000, id="open lists"),
        pytest.param(b'{"body":' * 50_000 + b"1" + b"}" * 50_000, id="nested objects"),
        pytest.param(
            b'{"body_encoding": "json", "body": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", id="a body as JSON"
        ),
        pytest.param(b'{"body": "\xff\xfe"}', id="no UTF-8"),
        pytest.param(b'{"body": "\\ud800"}', id="half a character"),
        pytest.param(b'{"body": "x", "priority": 1' + b"0" * 5_000 + b"}", id="a number of many digits"),
        pytest.param(b'{"body": "x", "priority": 1e999}', id="no number"),
    ],
)
async def test_json_that_is_made_to_hurt_is_refused(body: bytes) -> None:
    api = WatchedApi()
    async with http_site(api) as site:
        answer = await site.ask("POST", "/v1/queues/mail/jobs", body, Content_Type="application/json")
        assert (answer.status, answer.json["reason"]) == (400, "REQUEST_INVALID")
        assert api.calls == []
        assert await site.is_well()


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
async def test_what_forms_of_other_sites_can_send_is_no_call(content_type: str) -> None:
    api = WatchedApi()
    async with http_site(api) as site:
        answer = await site.ask("POST", "/v1/queues/mail/jobs", b'{"body": "x"}', Content_Type=content_type)
        assert answer.status == 415
        assert api.calls == []


async def test_an_unwanted_body_that_cannot_be_decoded_is_no_error_of_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The answer is sent before the body is read, which is then read for a moment."""
    body = b"csrf=1&action=1&and_follows=1" * 20
    lines = ["POST /nowhere HTTP/1.1", "Host: localhost", "Cookie: a=b", "Sec-Fetch-Site: same-origin"]
    lines += ["Content-Encoding: deflate", f"Content-Length: {len(body)}", "", ""]
    async with http_site(WatchedApi()) as site:
        (answer,) = await site.send("\r\n".join(lines).encode() + body, ends=False)
        assert 400 <= answer.status < 500
        assert await site.is_well()
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []
