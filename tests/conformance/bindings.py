"""The stores that the suite runs on. A new store is one line here, with the fixture that gives it places.

The tests themselves name no store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from pinlater.backends.base import Shard
from pinlater.backends.dynamodb import DynamodbShard
from pinlater.backends.dynamodb.stored_job import MOST_BYTES
from pinlater.backends.redis import RedisShard
from pinlater.backends.sql.mysql import MysqlShard
from pinlater.backends.sql.postgres import PostgresShard
from pinlater.backends.sql.sqlite import SqliteShard

MOST_BODY_BYTES = 2**20
"""Unless a server is configured otherwise."""


@dataclass(frozen=True)
class Binding:
    """`kind` is the column of the report; `lasting`: what was stored is there when it is opened again.

    `networked`: a proxy can stand between a shard and its store.

    What a store need not hold to: `most_body_bytes`, of the largest body that it takes without a tier;
    `whole_jobs`, so many are stored whole or not at all, and of more a part may be, with OutcomeUnknown; `clock_ms`,
    how exact its clock is; not `one_sequence`: ids of one server ascend, those of several come close;
    not `counts_at_once`: a count of what others change meanwhile is an estimate; not `has_tags`: it keeps none;
    not `has_groups`: it has none.
    test_relaxations.py tells what it holds to instead.
    """

    name: str
    kind: str
    places: str
    make: Callable[[str, str], Shard]
    lasting: bool = True
    networked: bool = False
    most_body_bytes: int = MOST_BODY_BYTES
    whole_jobs: int | None = None
    clock_ms: int = 1
    one_sequence: bool = True
    counts_at_once: bool = True
    has_tags: bool = True
    has_groups: bool = True
    examples: int = 10
    """Of the state machine."""

    many_jobs: int = 10_000
    """As many as a test brings that brings many: DynamoDB Local takes some milliseconds for each."""

    def param(self) -> object:
        """As a parameter of a fixture, so that `--without` can leave the store out."""
        return pytest.param(self, id=self.name, marks=pytest.mark.store(self.kind))


def _dynamodb(url: str, shard_id: str) -> Shard:
    """Two partitions for each priority: enough to be merged, and DynamoDB Local answers slowly."""
    return DynamodbShard(f"{url}&buckets=2", shard_id)


BINDINGS = (
    Binding("sqlite", "sqlite", "sqlite_memory_places", SqliteShard, lasting=False),
    Binding("sqlite-file", "sqlite", "sqlite_places", SqliteShard),
    Binding("redis", "redis", "redis_places", RedisShard, networked=True),
    Binding("redis-cluster", "redis", "redis_cluster_places", RedisShard),
    Binding("mysql", "mysql", "mysql_places", MysqlShard, networked=True),
    Binding("postgres", "postgres", "postgres_places", PostgresShard, networked=True),
    Binding(
        "dynamodb",
        "dynamodb",
        "dynamodb_places",
        _dynamodb,
        most_body_bytes=MOST_BYTES,
        whole_jobs=100,
        clock_ms=1_000,
        one_sequence=False,
        counts_at_once=False,
        has_tags=False,
        has_groups=False,
        examples=4,
        many_jobs=250,
    ),
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


def binding_of(item: pytest.Item) -> Binding | None:
    """The store that a case runs on."""
    parameters = _parameters(item)
    return next((value for value in parameters.values() if isinstance(value, Binding)), None)


def depth_of(item: pytest.Item) -> str:
    """How much lies between a case and its store; a service sees the chain."""
    under = "service" if "serve" in getattr(item, "fixturenames", ()) else "bare"
    return str(_parameters(item).get("depth", under))


def _parameters(item: pytest.Item) -> dict[str, object]:
    spec = getattr(item, "callspec", None)
    return spec.params if spec else {}
