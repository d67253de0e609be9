"""One server for the tests of `pinlater queue` and `pinlater job`; each test has a queue of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater import Client
from pinlater.data_folder.password import hash_password
from tests.server.cli_jobs.rows import PASSWORD
from tests.server.commands import Shell
from tests.server.running import running


@pytest.fixture(scope="package")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("served")
    with running(folder, "--admin-password-hash", hash_password(PASSWORD)) as server:
        yield f"127.0.0.1:{server.port}"


@pytest.fixture(scope="package")
def client(address: str) -> Iterator[Client]:
    with Client(address) as made:
        yield made


@pytest.fixture
def queue(client: Client, request: pytest.FixtureRequest) -> str:
    """A queue of the test's own."""
    name = "".join(c if c.isalnum() else "_" for c in request.node.name)[-64:]
    client.create_queue(name)
    return name


@pytest.fixture
def shell(address: str, tmp_path: Path) -> Shell:
    return Shell(tmp_path, address)
