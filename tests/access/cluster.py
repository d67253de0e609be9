"""A cluster of two servers with rules, over one store, in which tokens are made and revoked."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pinlater import Client
from pinlater.data_folder.password import hash_password
from tests.server.commands import Shell
from tests.server.running import RunningServer, running
from tests.stores.places import start_server

PASSWORD = "open sesame"
WITHIN_S = 60.0
RULES = """
[[rules]]
who = ["token:by-rule"]
may = ["enqueue"]
queues = ["mail"]
"""


@dataclass
class Cluster:
    """The servers, and a shell at each of them."""

    servers: list[RunningServer]
    shells: list[Shell]
    reader: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.reader = self.make("reader", "operator", everywhere=False)

    def make(self, name: str, *roles: str, expires_ms: int | None = None, everywhere: bool = True) -> str:
        """A token that the first server is told of; `everywhere`: the other has read of it too."""
        made = f"plt_{hashlib.sha256(name.encode()).hexdigest()[:43]}"
        with self.client(0) as client:
            hashed = hashlib.sha256(made.encode()).hexdigest()
            client.update_token(name, hashed, roles, PASSWORD, expires_ms=expires_ms, replace=True)
        if everywhere:
            self.uses(1)
        return made

    def revoke(self, name: str) -> None:
        with self.client(0) as client:
            client.delete_token(name, PASSWORD)

    def address(self, number: int) -> str:
        return f"127.0.0.1:{self.servers[number].port}"

    def client(self, number: int, token: str | Path = "") -> Client:
        return Client(self.address(number), token=token)

    def uses(self, number: int) -> dict[str, int | None]:
        """When each token was used last, as one server knows."""
        with self.client(number, self.reader) as client:
            return {each.name: each.last_used_ms for each in client.get_tokens()}

    def log(self) -> str:
        return json.dumps([server.events for server in self.servers])


@contextmanager
def two_servers(folder: Path) -> Iterator[Cluster]:
    """With the queue mail."""
    (folder / "rules.toml").write_text(RULES)
    folders = [folder / name for name in "ab"]
    store = start_server("redis")
    rules = ("--rules", str(folder / "rules.toml"), "--admin-password-hash", hash_password(PASSWORD))
    options = ("--store", store.url(), "--processes", "1", *rules)
    for each in folders:
        each.mkdir()
    try:
        with running(folders[0], *options) as one, running(folders[1], *options) as other:
            servers = [one, other]
            shells = [Shell(each, f"127.0.0.1:{server.port}") for each, server in zip(folders, servers, strict=True)]
            cluster = Cluster(servers, shells)
            with cluster.client(0, cluster.reader) as client:
                client.create_queue("mail")
            yield cluster
    finally:
        store.stop()


def until(holds: Callable[[], object], within_s: float = WITHIN_S) -> None:
    deadline_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline_s, "it did not come to pass"
        time.sleep(0.02)


def private(path: Path, text: str) -> Path:
    """A file that no other user can read."""
    path.touch(0o600)
    path.write_text(text)
    return path
