"""Stores that lack a part: what belongs to it is refused by its name, and all else goes on."""

from __future__ import annotations

import inspect

import pytest

from pinlater.backends.base import (
    GroupStore,
    KeyStore,
    OperatorStore,
    PermitStore,
    ReferenceStore,
    Shard,
    operations_of,
)
from pinlater.backends.dynamodb import DynamodbShard
from pinlater.backends.redis import RedisShard
from pinlater.backends.sql.mysql import MysqlShard
from pinlater.backends.sql.postgres import PostgresShard
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.errors import PartMissing
from pinlater.model import ExtendedJob, Job, JobState, KeyRef
from pinlater.shards.decorator import ShardDecorator
from tests.conformance.served import QUEUE, Served
from tests.unit.cluster_stand import cluster_stand


class KeylessShard(SqliteShard, lacks=(KeyStore,)):
    """A store without keys."""


class PlainShard(SqliteShard, lacks=(KeyStore, ReferenceStore, OperatorStore)):
    """A store that has nothing but what a store must have."""


ANSWERED_BY_THE_PART = {"subscribe", "watch_ends", "list_groups", "count_groups", "clear_groups"}
"""Where a store tells nobody anything."""


@pytest.mark.parametrize("store", [SqliteShard, MysqlShard, PostgresShard, RedisShard, DynamodbShard])
def test_a_store_has_every_operation_of_the_parts_that_it_does_not_lack(store: type[Shard]) -> None:
    missing = {name for name, method in inspect.getmembers(Shard) if getattr(store, name) is method}
    operations = {name for name, _ in inspect.getmembers(Shard, inspect.iscoroutinefunction)}
    lacked = {each.name for part in store.lacks for each in operations_of(part)}
    assert missing & operations <= ANSWERED_BY_THE_PART | lacked
    assert {"keeps_order", "has_own_clock"}.isdisjoint(missing)
    assert store.lacks == ((GroupStore, PermitStore) if store is DynamodbShard else ())


async def test_what_belongs_to_a_missing_part_is_refused_by_its_name() -> None:
    served = Served([PlainShard("sqlite://", "7")])
    await served.open()
    await served.enqueue(Job(b"plain"))
    with pytest.raises(PartMissing) as refused:
        await served.enqueue(ExtendedJob(b"keyed", dedupe_key="one"))
    assert refused.value.message == (
        "enqueue_extended is refused: the store of shard '7' lacks the part KeyStore; use a shard whose store has it"
    )
    with pytest.raises(PartMissing, match=r"retry_failed is refused: .* lacks the part OperatorStore"):
        await served.shards[0].retry_failed(QUEUE, 1, 1, None, 10, served.clock.now_ms())
    (job,) = await served.dequeue(1)
    assert job.body == b"plain"
    await served.close()


async def test_a_store_that_lacks_a_part_holds_nothing_of_its_kind() -> None:
    shard = ShardDecorator(PlainShard("sqlite://", "7"))
    await shard.open()
    assert await shard.find_keys(QUEUE, [KeyRef(dedupe_key="one")]) == [None]
    assert await shard.has_chains(["a", "b"]) == [False, False]
    assert await shard.key_slots() == ()
    assert (await shard.list_references("", 10)).references == []
    assert shard.lacks == (KeyStore, ReferenceStore, OperatorStore)
    await shard.close()


async def test_keys_live_on_the_shards_whose_stores_keep_them() -> None:
    served = Served([KeylessShard("sqlite://", "1"), SqliteShard("sqlite://", "2")])
    await served.open()
    descriptors = [await served.enqueue(ExtendedJob(b"", dedupe_key=f"key-{number}")) for number in range(8)]
    assert {descriptor.split(":")[1] for (descriptor,) in descriptors} == {"s2"}
    expiring = [await served.enqueue(ExtendedJob(b"", expires_at_ms=served.clock.now_ms() + 1_000)) for _ in range(8)]
    assert {descriptor.split(":")[1] for (descriptor,) in expiring} == {"s2"}, (
        "what a store cannot keep goes to another"
    )
    assert await served.shards[1].count(QUEUE, JobState.PENDING, (1,), False, served.clock.now_ms()) == 16
    await served.close()


async def test_a_shard_whose_store_keeps_no_keys_never_becomes_a_home() -> None:
    async with cluster_stand(2) as at:
        await at.stores[0].close()
        at.stores[0] = KeylessShard("sqlite://", "1")
        at.store_ids[0] = await at.stores[0].open()
        server = await at.server("a")
        assert (await server.homes.begin()).record.members == ("2",)
        await at.look_at_homes(times=3)
        table = server.homes.table
        assert table is not None
        assert table.record.members == ("2",)
        assert server.homes_change.blocked == ""
