"""One drill for all its tests, and a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.drill.stand import Drill, drill
from tests.stores.process import StoreServer
from tests.stores.redis_server import RedisServer


@pytest.fixture(scope="module")
def store(redis_server: StoreServer) -> Iterator[StoreServer]:
    """A Redis of its own, which is stopped."""
    server = RedisServer()
    server.start()
    try:
        yield server
    finally:
        server.resume()
        server.stop()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, store: StoreServer) -> Iterator[Drill]:
    with drill(tmp_path_factory.mktemp("drill"), store) as made:
        yield made
