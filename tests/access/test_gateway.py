"""Callers of the HTTP interface, as the servers behind it know them: each by its own address."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pinlater import Client
from pinlater.access.guesses import FREE_TRIES
from pinlater.data_folder.password import hash_password
from tests.access.cluster import PASSWORD
from tests.server.running import RunningServer, running

WEB = f"plt_{'w' * 43}"
RULES = '[[rules]]\nwho = ["token:*"]\nfrom = ["127.0.0.5"]\nmay = ["operate", "enqueue"]'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder: Path = tmp_path_factory.mktemp("gateway")
    (folder / "rules.toml").write_text(RULES)
    options = ("--rules", "rules.toml", "--api", "127.0.0.1:0", "--admin-password-hash", hash_password(PASSWORD))
    with running(folder, *options, "--processes", "1") as server:
        with Client(f"127.0.0.1:{server.port}") as client:
            client.update_token("web", hashlib.sha256(WEB.encode()).hexdigest(), ["viewer"], PASSWORD)
        yield server


def status(server: RunningServer, verb: str, path: str, token: str, address: str, **headers: str) -> int:
    """Of the answer to a request of its own connection, from an address of this machine."""
    base = str(server.wait_for("api_ready")["address"])
    transport = httpx.HTTPTransport(local_address=address)
    with httpx.Client(base_url=base, transport=transport, timeout=60) as client:
        return client.request(verb, path, headers={"Authorization": f"Bearer {token}", **headers}).status_code


def test_a_rule_goes_by_the_address_of_the_http_caller(server: RunningServer) -> None:
    assert status(server, "PUT", "/v1/queues/mail", WEB, "127.0.0.5") == 204
    for address in ("127.0.0.1", "127.0.0.6"):
        assert status(server, "PUT", "/v1/queues/sms", WEB, address) == 403


def test_wrong_tokens_over_http_slow_down_their_own_address_alone(server: RunningServer) -> None:
    def guess(number: int, address: str) -> int:
        return status(server, "GET", "/v1/access", f"plt_{number}", address)

    answers = [guess(number, "127.0.0.8") for number in range(FREE_TRIES + 1)]
    assert answers == [403] * (FREE_TRIES + 1)
    assert [guess(number, "127.0.0.9") for number in range(2)] == [403, 403]
    assert status(server, "GET", "/v1/access", WEB, "127.0.0.8") == 200
    server.wait_for("token_wrong", address="127.0.0.8", level="warning")
    assert "127.0.0.1" not in {each["address"] for each in server.events if each["event"] == "token_wrong"}
