"""The three databases of flows, each empty for a test; and a server with flows, for a caller that each test has."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from pinlater.flows.database import FlowDatabase
from tests.flows.async_service import SETTINGS, AsyncService, service_of
from tests.flows.stand import check_counters, opened
from tests.server.running import RunningServer, running

_SERVERS = {"postgresql": "postgres_server", "mysql": "mysql_server"}
_PLACE = 13


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.store("postgres")),
        pytest.param("mysql", marks=pytest.mark.store("mysql")),
    ]
)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/flows.db"
    server = request.getfixturevalue(_SERVERS[request.param])
    server.empty(_PLACE)
    return str(server.url(_PLACE))


@pytest.fixture
def database(url: str) -> Iterator[FlowDatabase]:
    """Whose counters are right in the end."""
    with opened(url) as made:
        yield made
    check_counters(url)


@pytest.fixture(scope="session")
def flow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Jobs and flows in SQLite, as a server has them that nobody has told anything."""
    with running(tmp_path_factory.mktemp("flows"), *SETTINGS) as server:
        yield server


@pytest.fixture
def service(flow_server: RunningServer, runner: asyncio.Runner) -> Iterator[AsyncService]:
    stack = AsyncExitStack()
    yield runner.run(stack.enter_async_context(service_of(flow_server)))
    runner.run(stack.aclose())
