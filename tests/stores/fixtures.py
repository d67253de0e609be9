"""Fixtures that start real stores, once per run and only where a selected test needs them.

redis_server, mysql_server, postgres_server, dynamodb_server
                                              fast settings, shared by all tests
durable_redis_server, durable_mysql_server, durable_postgres_server, durable_dynamodb_server
                                              what they answered survives kill -9; one per test
redis_places, redis_cluster_places, mysql_places, postgres_places, dynamodb_places, sqlite_places
                                              `.fresh()` is the URL of an empty place for one shard
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from tests.stores.dynamodb_server import CREDENTIALS
from tests.stores.engines import POOLED
from tests.stores.pgbouncer import PgBouncer
from tests.stores.places import (
    FilePlaces,
    MemoryPlaces,
    Places,
    PooledPlaces,
    RunningPlaces,
    ServerPlaces,
    running_store,
    start_server,
)
from tests.stores.process import StoreMissing, StoreServer
from tests.stores.redis_cluster import RedisCluster


def _started(name: str, *, durable: bool = False) -> Iterator[StoreServer]:
    try:
        server = start_server(name, durable=durable)
    except StoreMissing as missing:
        pytest.fail(str(missing), pytrace=False)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[StoreServer]:
    yield from _started("redis")


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[StoreServer]:
    yield from _started("mysql")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[StoreServer]:
    yield from _started("postgres")


@pytest.fixture(scope="session")
def dynamodb_server() -> Iterator[StoreServer]:
    with _credentials():
        yield from _started("dynamodb")


@pytest.fixture
def durable_redis_server() -> Iterator[StoreServer]:
    yield from _started("redis", durable=True)


@pytest.fixture
def durable_mysql_server() -> Iterator[StoreServer]:
    yield from _started("mysql", durable=True)


@pytest.fixture
def durable_postgres_server() -> Iterator[StoreServer]:
    yield from _started("postgres", durable=True)


@pytest.fixture
def durable_dynamodb_server() -> Iterator[StoreServer]:
    with _credentials():
        yield from _started("dynamodb", durable=True)


@contextlib.contextmanager
def _credentials() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        yield


def _places(name: str, request: pytest.FixtureRequest) -> Places:
    address = running_store(name)
    if address is not None:
        return RunningPlaces(name, address)
    return ServerPlaces(request.getfixturevalue(f"{name}_server"))


@pytest.fixture(scope="session")
def redis_places(request: pytest.FixtureRequest) -> Places:
    return _places("redis", request)


@pytest.fixture(scope="session")
def redis_cluster_places() -> Iterator[Places]:
    try:
        with RedisCluster() as cluster:
            yield cluster
    except StoreMissing as missing:
        pytest.fail(str(missing), pytrace=False)


@pytest.fixture(scope="session")
def mysql_places(request: pytest.FixtureRequest) -> Places:
    return _places("mysql", request)


@pytest.fixture(scope="session")
def postgres_places(request: pytest.FixtureRequest) -> Iterator[Places]:
    places = _places("postgres", request)
    if POOLED not in os.environ:
        yield places
        return
    pooler = PgBouncer(places.fresh(), "session")
    pooler.start()
    try:
        yield PooledPlaces(places, pooler)
    finally:
        pooler.stop()


@pytest.fixture(scope="session")
def dynamodb_places(dynamodb_server: StoreServer) -> Places:
    return ServerPlaces(dynamodb_server)


@pytest.fixture(scope="session")
def sqlite_places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    return FilePlaces(tmp_path_factory.mktemp("sqlite"))


@pytest.fixture(scope="session")
def sqlite_memory_places() -> Places:
    return MemoryPlaces()
