"""A server with its dashboard, as operators start it: without rules, and with rules."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pinlater import Client
from tests.dashboard.visitor import Visitor
from tests.server.running import RunningServer, running

RULES = """
[roles.of-mail]
may = ["read", "operate"]
queues = ["mail"]

[[rules]]
who = ["anonymous"]
roles = ["viewer"]
"""
_queues = itertools.count()


class Place(NamedTuple):
    """A server, where its dashboard is, and what opens it: the admin password, or tokens by their roles."""

    server: RunningServer
    address: str
    client: Client
    password: str
    tokens: dict[str, str]

    def visitor(self, role: str = "") -> Visitor:
        """One who has opened a link."""
        visitor = Visitor(self.address)
        return visitor.open(token=self.tokens[role]) if role else visitor.open(password=self.password)


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """On the embedded store, which makes an admin password."""
    folder = tmp_path_factory.mktemp("dashboard")
    with running(folder, "--api", "127.0.0.1:0") as server:
        address = str(server.wait_for("api_ready")["address"]).rstrip("/")
        password = (folder / "pinlater-data" / "admin-password").read_text().strip()
        with Client(f"127.0.0.1:{server.port}") as client:
            yield Place(server, address, client, password, {})


@pytest.fixture(scope="session")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """With rules, by which anybody may look."""
    folder: Path = tmp_path_factory.mktemp("ruled")
    (folder / "rules.toml").write_text(RULES)
    with running(folder, "--api", "127.0.0.1:0", "--rules", "rules.toml") as server:
        address = str(server.wait_for("api_ready")["address"]).rstrip("/")
        password = (folder / "pinlater-data" / "admin-password").read_text().strip()
        tokens = {role: f"plt_{number:043}" for number, role in enumerate(("viewer", "operator", "admin", "of-mail"))}
        with Client(f"127.0.0.1:{server.port}", token=tokens["admin"]) as client:
            for role, token in tokens.items():
                client.update_token(role, hashlib.sha256(token.encode()).hexdigest(), [role], password)
            for queue in ("mail", "sms"):
                client.create_queue(queue)
            yield Place(server, address, client, password, tokens)


@pytest.fixture
def visitor(place: Place) -> Visitor:
    """With the admin password."""
    return place.visitor()


@pytest.fixture
def queue(place: Place) -> str:
    """A new one."""
    name = f"dash-{next(_queues)}"
    place.client.create_queue(name)
    return name
