"""The HTTP interface over TLS: who is known by a certificate, and what comes without one."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
from collections.abc import Iterator
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from pinlater.client.client_tls import Tls
from tests.server.certificates import Authority
from tests.server.running import RunningServer, running

RULES = """
[roles.mail]
may = ["enqueue", "read"]
queues = ["mail"]
[[rules]]
who = ["cert:web.example"]
roles = ["mail"]
[[rules]]
who = ["cert:localhost", "cert:127.0.0.1"]
roles = ["admin"]
"""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def server(tmp_path: Path, authority: Authority) -> Iterator[RunningServer]:
    cert, key = authority.issue("server", "localhost", "127.0.0.1")
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES)
    tls = ("--tls-cert", cert, "--tls-key", key, "--tls-client-ca", authority.ca)
    with running(tmp_path, "--api", "127.0.0.1:0", *tls, "--rules", str(rules)) as started:
        yield started


def port_of(server: RunningServer) -> int:
    address = server.wait_for("api_ready")["address"]
    assert address.startswith("https://")
    return urlsplit(address).port or 0


def ask(server: RunningServer, tls: Tls, method: str, path: str, body: Any = None, **headers: str) -> Any:
    """The status, the headers and the answer."""
    context = ssl.create_default_context(cafile=tls.ca)
    context.check_hostname = tls.server_name is None
    if tls.cert:
        context.load_cert_chain(tls.cert, tls.key)
    connection = HTTPSConnection("127.0.0.1", port_of(server), context=context, timeout=60)
    try:
        given = {"Content-Type": "application/json", **headers}
        connection.request(method, path, None if body is None else json.dumps(body), given)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def test_a_certificate_says_who_calls_and_the_process_itself_lends_nobody_its_own(
    server: RunningServer, authority: Authority
) -> None:
    web, nobody = authority.caller("web", "web.example"), Tls(authority.ca)
    assert ask(server, web, "POST", "/v1/queues/sms/jobs", {"body": "x"})[0] == 403
    status, _, body = ask(server, web, "POST", "/v1/queues/mail/jobs", {"body": "x"})
    assert (status, json.loads(body)["reason"]) == (404, "QUEUE_NOT_FOUND")
    for path in ("/v1/queues", "/v1/events?queue=mail", "/v1/access"):
        status, headers, body = ask(server, nobody, "GET", path)
        assert (status, headers["WWW-Authenticate"][:6], json.loads(body)["reason"]) == (401, "Bearer", "FORBIDDEN")
    both = authority.caller("both", "other.example", "web.example")
    assert ask(server, both, "POST", "/v1/queues/mail/jobs", {"body": "x"})[0] == 404
    assert json.loads(ask(server, both, "GET", "/v1/access")[2])["identity"] == "cert:web.example"
    other = authority.caller("other", "other.example")
    assert ask(server, other, "POST", "/v1/queues/mail/jobs", {"body": "x"})[0] == 403
    status, _, body = ask(server, nobody, "GET", "/v1/queues", Authorization="Bearer plt_" + "x" * 43)
    assert status == 403


def test_cookies_stay_on_tls(server: RunningServer, authority: Authority) -> None:
    _, headers, _ = ask(server, Tls(authority.ca), "GET", "/session")
    assert headers["Set-Cookie"].startswith("__Host-pinlater=")
    assert "Secure" in headers["Set-Cookie"]
    assert "max-age" in headers["Strict-Transport-Security"]


def test_below_a_path_cookies_stay_on_tls_and_are_sent_there_alone(tmp_path: Path, authority: Authority) -> None:
    cert, key = authority.issue("server", "localhost", "127.0.0.1")
    with running(
        tmp_path, "--api", "127.0.0.1:0", "--api-prefix", "/queue", "--tls-cert", cert, "--tls-key", key
    ) as server:
        _, headers, first = ask(server, Tls(authority.ca), "GET", "/queue/session")
        name, _, attributes = headers["Set-Cookie"].partition("=")
        assert name == "__Secure-pinlater"
        assert {"Path=/queue", "Secure", "HttpOnly"} <= set(attributes.split("; "))
        shown = headers["Set-Cookie"].partition(";")[0]
        _, headers, again = ask(server, Tls(authority.ca), "GET", "/queue/session", Cookie=shown)
        assert (again, headers["Set-Cookie"]) == (first, None)


def test_who_speaks_no_tls_is_told_so_and_a_foreign_certificate_ends_the_handshake(
    server: RunningServer, authority: Authority, tmp_path: Path
) -> None:
    with socket.create_connection(("127.0.0.1", port_of(server)), timeout=60) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"https://" in plain.recv(1000)
    os.mkdir(tmp_path / "foreign")
    foreign = Authority(tmp_path / "foreign")
    cert, key = foreign.issue("web", "web.example")
    with pytest.raises((ssl.SSLError, OSError)):
        ask(server, Tls(authority.ca, cert, key), "GET", "/v1/queues")


def test_new_files_count_for_new_connections(server: RunningServer, authority: Authority) -> None:
    port, context = port_of(server), ssl.create_default_context(cafile=authority.ca)

    def shown() -> bytes | None:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as tls,
        ):
            return tls.getpeercert(binary_form=True)

    before = shown()
    authority.issue("server", "localhost", "127.0.0.1")
    server.wait_for("tls_reloaded", api=server.wait_for("api_ready")["api"])
    assert shown() != before


def test_the_server_beside_it_is_known_by_its_very_certificate(tmp_path: Path, authority: Authority) -> None:
    """Of an authority that nobody trusts, and without a name that leads there; so is a new one."""
    cert, key = authority.issue("server", "queue.example")
    with running(tmp_path, "--api", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key) as started:
        shown = Tls(authority.ca, server_name="queue.example")
        assert ask(started, shown, "POST", "/v1/queues/mail/jobs", {"body": "x"})[0] == 404  # there is no such queue
        seen = len(started.events)
        authority.issue("server", "queue.example")
        started.wait_for("tls_reloaded", after=seen, worker=started.wait_for("ready")["workers"][0])
        seen = len(started.events)
        os.kill(started.wait_for("api_ready")["api"], signal.SIGKILL)
        started.wait_for("api_replaced", after=seen)
        assert ask(started, shown, "POST", "/v1/queues/mail/jobs", {"body": "x"})[0] == 404
