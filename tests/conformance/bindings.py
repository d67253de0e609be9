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
from pinlater.backends.sql.postgres import PostgresShard
from pinlater.backends.sql.sqlite import SqliteShard


@dataclass(frozen=True)
class Binding:
    """`kind` is the column of the report; `lasting`: what was stored is there when it is opened again.

    `networked`: a proxy can stand between a shard and its store. `longest`: the depths that only `--slow` runs, since
    another store runs the same code there.
    """

    name: str
    kind: str
    places: str
    make: Callable[[str, str], Shard]
    lasting: bool = True
    networked: bool = False
    longest: frozenset[str] = frozenset()

    def param(self) -> object:
        """As a parameter of a fixture, so that `--without` can leave the store out."""
        return pytest.param(self, id=self.name, marks=pytest.mark.store(self.kind))


BINDINGS = (
    Binding("sqlite", "sqlite", "sqlite_memory_places", SqliteShard, lasting=False),
    Binding("sqlite-file", "sqlite", "sqlite_places", SqliteShard),
    Binding("redis", "redis", "redis_places", RedisShard, networked=True),
    Binding("redis-cluster", "redis", "redis_cluster_places", RedisShard, longest=frozenset({"chain", "tiered"})),
    Binding("mysql", "mysql", "mysql_places", MysqlShard, networked=True),
    Binding("postgres", "postgres", "postgres_places", PostgresShard, networked=True),
)
KINDS = tuple(dict.fromkeys(binding.kind for binding in BINDINGS))
DEPTHS = ("bare", "chain")
TIERED = frozenset(
    {
        "test_ack_and_claim",
        "test_bodies",
        "test_checkpoints",
        "test_claims",
        "test_claims_of_named_jobs",
        "test_dead_letters",
        "test_dedupe_keys",
        "test_ended_jobs",
        "test_queries",
        "test_replay",
        "test_retry_listed",
        "test_states",
    }
)
"""Modules that run a third time, through a chain whose bodies all lie in a tier."""

NOT_TIERED = frozenset(
    {
        "test_a_claim_begun_right_behind_an_enqueue_sees_its_jobs_where_the_store_keeps_order",
        "test_a_small_lookup_ends_before_a_large_one_that_began_earlier",
    }
)
"""What does not hold for an enqueue that first puts a body into its tier, which announces its jobs all the same; and
what is the store's own: bodies of a tier come as it gives them.
"""
