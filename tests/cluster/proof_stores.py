"""Two Redis and two MariaDB servers that keep what they answered: the shards 1 and 2, 3 and 4 of the proofs.

`four_stores` starts them once per run. Each cluster gets places of its own in them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from tests.stores.places import PLACES, start_server
from tests.stores.process import StoreMissing, StoreServer

REDIS, MARIADB = ("1", "2"), ("3", "4")
SHARDS = (*REDIS, *MARIADB)


class FourStores:
    """The stores by the id of their shard."""

    def __init__(self) -> None:
        """StoreMissing."""
        self._hands = ThreadPoolExecutor(len(SHARDS))
        """Its threads live as long as the stores, since a store ends with the thread that started it (dies_with_us)."""
        starting = {shard: self._hands.submit(_start, shard) for shard in SHARDS}
        self.servers = {shard: started.result() for shard, started in starting.items()}
        self._places = count()

    def fresh(self) -> dict[str, str]:
        """The address of an empty place in each of them; those that a test has left dead are started first."""
        list(self._hands.map(_mend, self.servers.values()))
        place = next(self._places) % PLACES
        for server in self.servers.values():
            server.empty(place)
        return {shard: server.url(place) for shard, server in self.servers.items()}

    async def do(self, step: Callable[[StoreServer], None], *shards: str) -> None:
        """The same to some stores at once, while the event loop goes on: `StoreServer.kill`, `StoreServer.start`."""
        loop = asyncio.get_running_loop()
        await asyncio.gather(*[loop.run_in_executor(self._hands, step, self.servers[shard]) for shard in shards])

    def stop(self) -> None:
        list(self._hands.map(StoreServer.stop, self.servers.values()))
        self._hands.shutdown()


def _mend(server: StoreServer) -> None:
    if server.is_running:
        server.resume()
    else:
        server.start()


def _start(shard: str) -> StoreServer:
    return start_server("redis" if shard in REDIS else "mysql", durable=True)


@pytest.fixture(scope="session")
def four_stores() -> Iterator[FourStores]:
    try:
        stores = FourStores()
    except StoreMissing as missing:
        pytest.fail(str(missing), pytrace=False)
    yield stores
    stores.stop()
