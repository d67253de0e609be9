"""The three databases of flows, each empty for a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater.flows.database import FlowDatabase
from tests.flows.stand import check_counters, opened

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
