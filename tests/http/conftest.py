"""A server with its HTTP interface, as an operator starts them, and requests to it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import httpx
import pytest

from pinlater.data_folder.password import hash_password
from tests.http.calls import PASSWORD, Caller
from tests.server.running import running

_queues = itertools.count()


@pytest.fixture(scope="session")
def api_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of the HTTP interface, with http:// and without a / at the end."""
    folder = tmp_path_factory.mktemp("http")
    with running(folder, "--api", "127.0.0.1:0", "--admin-password-hash", hash_password(PASSWORD)) as server:
        yield str(server.wait_for("api_ready")["address"]).rstrip("/")


@pytest.fixture
def caller(api_address: str) -> Iterator[Caller]:
    with httpx.Client(base_url=api_address, timeout=60, trust_env=False) as client:
        yield Caller(client)


@pytest.fixture
def queue(caller: Caller) -> str:
    """A new one."""
    name = f"http_{next(_queues)}"
    caller.done("PUT", f"/v1/queues/{name}")
    return name
