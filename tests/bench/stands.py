"""The three stores, each with places that begin empty and a shard to fill them directly."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

from pinlater.backends.base import Shard
from pinlater.backends.redis import RedisShard
from pinlater.backends.sql.mysql import MysqlShard
from pinlater.backends.sql.sqlite import SqliteShard
from tests.bench.run import PERSISTENCE, Run

STORES = ("redis", "sqlite", "mysql")
PLACES = range(8, 16)
"""Those below are for measures that name one."""


@dataclass(frozen=True)
class Stand:
    """`fresh` gives the address of an empty place; `pids` are the processes of the store, if it has any."""

    name: str
    fresh: Callable[[], str]
    shard: Callable[[str], Shard]
    pids: Mapping[str, int]
    persistence: str


@contextmanager
def stand(run: Run, name: str) -> Iterator[Stand]:
    """One of STORES; what was put into its places is gone at the end."""
    numbers = count()
    if name == "sqlite":
        with tempfile.TemporaryDirectory(prefix="pinlater-bench-") as folder:
            yield Stand(
                name,
                lambda: f"sqlite:///{folder}/{next(numbers)}.db",
                lambda url: SqliteShard(url, "1"),
                {},
                PERSISTENCE[name],
            )
        return
    store = run.store(name, durable=name == "mysql")
    used: list[int] = []

    def fresh() -> str:
        place = PLACES[next(numbers) % len(PLACES)]
        store.empty(place)
        used.append(place)
        return store.url(place)

    def shard(url: str) -> Shard:
        return RedisShard(url, "1") if name == "redis" else MysqlShard(url, "1")

    shown = {"redis": "redis", "mysql": "mariadb"}[name]
    try:
        yield Stand(name, fresh, shard, {shown: store.pid}, PERSISTENCE[name])
    finally:
        for place in used:
            store.empty(place)
