"""Debian's redis-server for the tests: 16 databases are 16 places."""

from __future__ import annotations

import redis

from tests.stores.engines import program_of
from tests.stores.process import StoreMissing, StoreServer

INSTALL = "redis-server is not installed: apt-get install redis-server (or leave it out: --without redis)"


class RedisServer(StoreServer):
    name = "redis"
    places = 16

    def command(self) -> list[str]:
        program = program_of("redis", "redis-server")
        if program is None:
            raise StoreMissing(INSTALL)
        kept = ["--appendonly", "yes", "--appendfsync", "always"] if self.durable else ["--appendonly", "no"]
        where = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory)]
        return [program, *where, "--save", "", "--databases", str(self.places), *kept]

    def url(self, place: int = 0) -> str:
        return f"redis://127.0.0.1:{self.port}/{place}"

    def answers(self) -> bool:
        with redis.Redis(port=self.port, socket_timeout=1) as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False

    def empty(self, place: int) -> None:
        empty_redis(self.url(place))


def empty_redis(url: str) -> None:
    """Remove all keys of the database that the address names; millions are freed in the background."""
    with redis.Redis.from_url(url, socket_timeout=5) as client:
        client.flushdb(asynchronous=True)
