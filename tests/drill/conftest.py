"""One drill for all its tests, and a browser that a test opens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import BrowserMissing, chromium
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


@pytest.fixture
def browser() -> Callable[[], AbstractContextManager[Browser]]:
    """Opened by the test, for while it is open nothing else may begin a loop in this thread."""
    return _opened


@contextmanager
def _opened() -> Iterator[Browser]:
    try:
        with chromium() as browser:
            yield browser
    except BrowserMissing as missing:
        pytest.fail(str(missing), pytrace=False)
