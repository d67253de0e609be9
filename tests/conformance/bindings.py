"""The stores that the suite runs on. A new store is one line here, with the fixture that gives it places.

The tests themselves name no store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from pinlater.backends.base import Shard
from pinlater.backends.redis import RedisShard
from pinlater.backends.sql.mysql import MysqlShard
from pinlater.backends.sql.sqlite import SqliteShard


@dataclass(frozen=True)
class Binding:
    """`kind` is the column of the report; `lasting`: what was stored is there when it is opened again.

    `networked`: a proxy can stand between a shard and its store.
    """

    name: str
    kind: str
    places: str
    make: Callable[[str, str], Shard]
    lasting: bool = True
    networked: bool = False

    def param(self) -> object:
        """As a parameter of a fixture, so that `--without` can leave the store out."""
        return pytest.param(self, id=self.name, marks=pytest.mark.store(self.kind))


BINDINGS = (
    Binding("sqlite", "sqlite", "sqlite_memory_places", SqliteShard, lasting=False),
    Binding("sqlite-file", "sqlite", "sqlite_places", SqliteShard),
    Binding("redis", "redis", "redis_places", RedisShard, networked=True),
    Binding("mysql", "mysql", "mysql_places", MysqlShard, networked=True),
)
KINDS = tuple(dict.fromkeys(binding.kind for binding in BINDINGS))
DEPTHS = ("bare", "chain")
