"""The databases that an outbox can be in, each with an empty place for a test, and jobs to put there."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import sqlalchemy as sa

from pinlater.model import Job
from pinlater_workers import App
from pinlater_workers.envelope import read_envelope
from pinlater_workers.outbox import Outbox

DIALECTS = [
    "sqlite",
    pytest.param("postgresql", marks=pytest.mark.store("postgres")),
    pytest.param("mysql", marks=pytest.mark.store("mysql")),
]
_SERVERS = {"postgresql": "postgres_server", "mysql": "mysql_server"}
_PLACE = 15


class OutboxPlace:
    """An empty database. `url` is SQLAlchemy's; `options` are those of a driver's own connect."""

    def __init__(self, url: str) -> None:
        self.url = url
        parts = urlsplit(url)
        self.host, self.port, self.user = parts.hostname or "", parts.port or 0, parts.username or ""
        self.name = parts.path.removeprefix("/")
        self.engine = sa.create_engine(url, poolclass=sa.pool.NullPool)

    def url_of(self, driver: str) -> str:
        scheme, _, rest = self.url.partition("://")
        return f"{scheme.partition('+')[0]}+{driver}://{rest}"

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(statement)]

    def run(self, statement: str) -> None:
        with self.engine.begin() as connection:
            connection.exec_driver_sql(statement)

    def waiting(self, table: str = "pinlater_outbox") -> int:
        return int(self.rows(f"SELECT COUNT(*) FROM {table}")[0][0])


def fresh_place(dialect: str, request: pytest.FixtureRequest, folder: Path) -> OutboxPlace:
    if dialect == "sqlite":
        sqlite3.connect(folder / "app.db").close()
        return OutboxPlace(f"sqlite:///{folder}/app.db")
    server = request.getfixturevalue(_SERVERS[dialect])
    server.empty(_PLACE)
    return OutboxPlace(server.url(_PLACE))


class RecordingSink:
    """Where an app's jobs go in a test that looks at their order alone. `before` is called with each call's bodies."""

    def __init__(self, before: Callable[[list[bytes]], object] = lambda bodies: None) -> None:
        self.before = before
        self.calls: list[tuple[str, list[Job]]] = []

    def send(self, queue: str, jobs: Sequence[Job], *, timeout_s: float | None = None) -> list[str]:
        self.before([job.body for job in jobs])
        self.calls.append((queue, list(jobs)))
        return [f"{queue}:{len(self.calls)}:{index}" for index, _ in enumerate(jobs)]

    async def send_async(self, queue: str, jobs: Sequence[Job]) -> list[str]:
        return self.send(queue, jobs)

    @property
    def bodies(self) -> list[bytes]:
        return [job.body for _, jobs in self.calls for job in jobs]


class Shop:
    """An app with a job, and its outbox."""

    def __init__(self, *servers: str) -> None:
        self.app = App(servers=servers or ["127.0.0.1:1"])
        self.outbox = Outbox(self.app)

        @self.app.job(queue="mail", priority=2, attempts=4)
        def send(to: str, number: int = 0) -> None: ...

        self.send = send

    def record(self) -> RecordingSink:
        self.app.sink = sink = RecordingSink()
        return sink


def numbers(jobs: Sequence[Job]) -> list[int]:
    """The argument `number` of each."""
    envelopes = [read_envelope(job.body) for job in jobs]
    return [int(each.kwargs.get("number", 0)) for each in envelopes if each is not None]


def until(condition: Callable[[], object], what: str, within_s: float = 30.0) -> None:
    """Fails after a while."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)
