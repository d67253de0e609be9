"""Where a shard of a test lives: an address of its own, empty, in a real store."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from tests.stores.containers import ContainerServer, docker_answers
from tests.stores.dynamodb_server import DynamodbServer, empty_dynamodb
from tests.stores.mariadb_server import MariadbServer, empty_mysql
from tests.stores.postgres_server import PostgresServer, empty_postgres
from tests.stores.process import StoreMissing, StoreServer
from tests.stores.redis_server import RedisServer, empty_redis

RUNNING_STORES = "PINLATER_TEST_STORES"
"""Stores that run already, as `redis=redis://HOST:PORT mysql=mysql+pymysql://USER:PASSWORD@HOST:PORT`, and
`postgres=postgresql+psycopg://USER:PASSWORD@HOST:PORT`.

Everything in their databases 0 to 15 (Redis) or `pinlater_test_0` to `pinlater_test_15` (the others) is deleted.
"""

PLACES = 16
SERVERS: dict[str, type[StoreServer]] = {
    "redis": RedisServer,
    "mysql": MariadbServer,
    "postgres": PostgresServer,
    "dynamodb": DynamodbServer,
}
EMPTY = {"redis": empty_redis, "mysql": empty_mysql, "postgres": empty_postgres, "dynamodb": empty_dynamodb}


class Places(Protocol):
    def fresh(self) -> str:
        """The address of an empty place. At most PLACES of them are in use at a time."""

    def wipe(self, url: str) -> None:
        """Lose all the data of a place, behind the back of the server that has it open."""


class ServerPlaces:
    """Places in one store server, used in turn."""

    def __init__(self, server: StoreServer) -> None:
        self._server = server
        self._numbers = count()

    def fresh(self) -> str:
        place = next(self._numbers) % PLACES
        self._server.empty(place)
        return self._server.url(place)

    def wipe(self, url: str) -> None:
        EMPTY[self._server.name](url)


class RunningPlaces:
    """Places in a store that somebody else runs."""

    def __init__(self, name: str, address: str) -> None:
        self._name = name
        self._address = address.rstrip("/")
        self._numbers = count()

    def fresh(self) -> str:
        prefix = "" if self._name == "redis" else "pinlater_test_"
        url = f"{self._address}/{prefix}{next(self._numbers) % PLACES}"
        EMPTY[self._name](url)
        return url

    def wipe(self, url: str) -> None:
        EMPTY[self._name](url)


class PooledPlaces:
    """Places of a PostgreSQL, by way of the pooler before it."""

    def __init__(self, places: Places, pooler: StoreServer) -> None:
        self._places = places
        self._pooler = urlsplit(pooler.url()).netloc

    def fresh(self) -> str:
        return urlsplit(self._places.fresh())._replace(netloc=self._pooler).geturl()

    def wipe(self, url: str) -> None:
        self._places.wipe(url)


class FilePlaces:
    """SQLite files in one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers = count()

    def fresh(self) -> str:
        return f"sqlite:///{self._directory}/shard-{next(self._numbers)}.db"

    def wipe(self, url: str) -> None:
        for file in self._directory.glob(Path(url).name + "*"):
            file.unlink()


class MemoryPlaces:
    """SQLite in memory: each shard that is opened has a store of its own."""

    def fresh(self) -> str:
        return "sqlite://"

    def wipe(self, url: str) -> None:
        raise AssertionError("what is in memory ends with its shard")


def running_store(name: str) -> str | None:
    """The address of the store in the environment variable, if it is named there."""
    for entry in os.environ.get(RUNNING_STORES, "").split():
        key, _, address = entry.partition("=")
        if key == name and address:
            return address
    return None


def start_server(name: str, *, durable: bool = False) -> StoreServer:
    """Start a store: Debian's program, else a container. StoreMissing with what to install."""
    server = SERVERS[name](durable=durable)
    try:
        server.command()
    except StoreMissing:
        if not docker_answers():
            server.stop()
            raise
        server = ContainerServer(server)
    server.start()
    return server
