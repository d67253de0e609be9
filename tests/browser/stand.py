"""A server with its dashboard on one store, as an operator starts it, and who may log in there."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from playwright.sync_api import StorageState

from pinlater import Client
from pinlater.data_folder.password import hash_password
from tests.browser.seed import Seeded, seed, workers_alive
from tests.server.running import RunningServer, running

PASSWORD = "open sesame"
RULES = """
[roles.helper]
may = ["read", "operate", "enqueue"]

[roles.of-mail]
may = ["read", "operate"]
queues = ["mail"]
"""
ROLES = {"operator": "helper", "admin": "admin", "viewer": "viewer", "of-mail": "of-mail"}
"""The tokens, by their names, and the role of each."""


@dataclass
class Stand:
    """`address`: of the site, without a / at the end. `tokens`: by name; none where there are no rules."""

    kind: str
    server: RunningServer
    address: str
    password: str
    tokens: dict[str, str] = field(default_factory=dict)
    seeded: Seeded = field(default_factory=Seeded)
    _states: dict[str, StorageState] = field(default_factory=dict)

    @contextmanager
    def client(self) -> Iterator[Client]:
        """May do all that a test does behind the pages' back."""
        with Client(f"127.0.0.1:{self.server.port}", token=self.tokens.get("admin", "")) as client:
            yield client

    def make_token(self, client: Client, name: str, role: str) -> str:
        token = f"plt_{hashlib.sha256(name.encode()).hexdigest()[:43]}"
        client.update_token(name, hashlib.sha256(token.encode()).hexdigest(), [role], self.password)
        return token

    def log_in(self, shown: str) -> StorageState:
        """A session of its own."""
        return log_in(self.address, shown)

    def cookies(self, who: str) -> StorageState:
        """Of a session of that token, or with the admin password where there are no tokens; made once."""
        if who not in self._states:
            self._states[who] = log_in(self.address, self.tokens[who] if self.tokens else self.password)
        return self._states[who]


def log_in(address: str, shown: str) -> StorageState:
    """What a browser keeps of a session that this token, or admin password, has begun."""
    with httpx.Client(base_url=address, timeout=60, trust_env=False) as http:
        csrf = http.get("/session").json()["csrf_token"]
        answer = http.post("/login", data={"csrf": csrf, "token": shown, "next": "/dashboard"})
        assert answer.status_code == 303, answer.text
        ((name, value),) = http.cookies.items()
    return {"cookies": [{"name": name, "value": value, "url": address, "httpOnly": True, "sameSite": "Strict"}]}


@contextmanager
def standing(folder: Path, kind: str, store: str, *, rules: bool = True, seeds: bool = True) -> Iterator[Stand]:
    """`store` is the address of an empty place."""
    options = ["--store", f"1={store}", "--api", "127.0.0.1:0", "--processes", "1"]
    options += ["--admin-password-hash", hash_password(PASSWORD)]
    if rules:
        (folder / "rules.toml").write_text(RULES)
        options += ["--rules", "rules.toml"]
    with running(folder, *options) as server:
        address = str(server.wait_for("api_ready")["address"]).rstrip("/")
        stand = Stand(kind, server, address, PASSWORD)
        if rules:
            with Client(f"127.0.0.1:{server.port}") as client:
                stand.tokens |= {name: stand.make_token(client, name, role) for name, role in ROLES.items()}
        if not seeds:
            yield stand
            return
        with stand.client() as client:
            stand.seeded = seed(client, PASSWORD)
            with workers_alive(client, stand.seeded):
                yield stand
