"""What a browser may do with the status page, and under which names it is shown."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Collection
from dataclasses import asdict
from hashlib import sha256

import pytest

from pinlater.browsers import is_name_known, names_of
from pinlater.config import load, to_plain
from pinlater.model import ClusterStatus, ServerView
from pinlater.web.pages import cluster_page
from pinlater.web.status_site import StatusSite
from tests.unit.test_web import STATUS, Reports


async def asked(*requests: str, names: Collection[str] = ()) -> list[tuple[int, dict[str, str], str]]:
    """Status, headers and text of the answer to each request, as bytes that no library has touched."""
    site = StatusSite(Reports(status=[asdict(STATUS)], readiness=[[]]))
    site.names = names
    await site.serve("127.0.0.1:0", 100)
    try:
        found = []
        for request in requests:
            reader, writer = await asyncio.open_connection(*site.bound.split(":"))
            writer.write(request.encode())
            head, _, text = (await reader.read()).decode().partition("\r\n\r\n")
            writer.close()
            first, *lines = head.split("\r\n")
            found.append((int(first.split()[1]), dict(line.split(": ", 1) for line in lines), text))
        return found
    finally:
        await site.close()


def get(path: str, host: str) -> str:
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"


async def test_the_page_runs_and_loads_nothing_and_is_framed_by_nobody() -> None:
    ((status, headers, page),) = await asked(get("/", "127.0.0.1"))
    assert status == 200
    policy = dict(rule.strip().split(" ", 1) for rule in headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    style = page.partition("<style>")[2].partition("</style>")[0]
    assert policy["style-src"] == f"'sha256-{b64encode(sha256(style.encode()).digest()).decode()}'"
    assert "unsafe-inline" not in headers["Content-Security-Policy"]
    assert headers["X-Frame-Options"] == "DENY"


@pytest.mark.parametrize(
    "request_text",
    [get("/", "localhost"), get("/", "evil.example"), get("/metrics", "x"), get("/none", "x"), "\0\r\n\r\n"],
)
async def test_no_answer_tells_a_version_or_is_taken_for_another_type(request_text: str) -> None:
    ((status, headers, _),) = await asked(request_text)
    assert headers["Server"] == "PinLater"
    assert status == 400 or headers["X-Content-Type-Options"] == "nosniff"


async def test_a_name_that_is_not_the_servers_gets_no_page_and_all_the_rest() -> None:
    paths = ("/", "/metrics", "/livez", "/readyz")
    answers = await asked(*(get(path, "evil.example") for path in paths))
    assert [status for status, _, _ in answers] == [421, 200, 200, 200]
    text = answers[0][2]
    assert "--http-names" in text
    assert "Queues" not in text


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:9011", "10.0.0.1", "[::1]:9011", "localhost:9011", "a.localhost", "Q1.example.org.:9011", ""],
)
async def test_names_of_the_server_and_addresses_get_the_page(host: str) -> None:
    ((status, _, _),) = await asked(get("/", host), names={"q1.example.org"})
    assert status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil", "1", "q1.example.org.evil"]
)
def test_what_looks_like_a_name_of_the_server_is_none(host: str) -> None:
    assert not is_name_known(host, {"q1.example.org"})
    assert is_name_known(host, {"*"})


def test_a_server_has_the_names_of_its_configuration() -> None:
    flags = {
        "host": "q1.lan",
        "http": "status.lan:9011",
        "advertise": "Q1.example.org:9010",
        "http-names": ["a.b", "c"],
    }
    assert names_of(to_plain(load(flags, {}).config)) >= {"q1.lan", "status.lan", "q1.example.org", "a.b", "c"}


def test_a_text_on_the_page_turns_nothing_around() -> None:
    server = ServerView("A", "1", "h:1", 0, 0, False, "\u202eexe.\x9b2J")
    page = cluster_page(asdict(ClusterStatus(1, [server], [], [])))
    assert "\\u202eexe.\\x9b2J" in page
    assert "\u202e" not in page


async def test_the_page_links_to_the_dashboard_and_the_http_interface() -> None:
    for api, cert, link in (("q1:9012", "", "http://q1:9012/"), ("q1:9012", "c", "https://q1:9012/"), ("none", "", "")):
        site = StatusSite(Reports(status=[asdict(STATUS)], readiness=[[]]))
        config = to_plain(load({"http": "127.0.0.1:0", "api": api}, {}).config)
        await site.follow({**config, "tls_cert": cert})
        try:
            reader, writer = await asyncio.open_connection(*site.bound.split(":"))
            writer.write(get("/", "localhost").encode())
            page = (await reader.read()).decode()
            writer.close()
        finally:
            await site.close()
        assert (f'<a href="{link}dashboard">the dashboard</a>' in page) == bool(link)
        assert (f'<a href="{link}docs">HTTP interface</a>' in page) == bool(link)
        assert ("HTTP interface" in page) == bool(link)
