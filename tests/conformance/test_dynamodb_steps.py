"""The optimistic transaction of the store in DynamoDB: what it read or requires may not change before it writes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pinlater.backends.base import ConfigEntry, Shard
from pinlater.backends.dynamodb.items import ItemKey
from pinlater.backends.dynamodb.steps import Lost, Step
from pinlater.backends.dynamodb.store_parts import Store
from pinlater.backends.dynamodb.table import JobTable
from pinlater.backends.dynamodb.table_address import parse_address
from pinlater.errors import HomesChanged, QueueNotFound, StoreConflict
from pinlater.model import new_version
from tests.conformance.bindings import BINDINGS
from tests.conformance.subject import START_MS
from tests.conformance.test_identity import Stores
from tests.queues import drop_queue, make_queue

pytestmark = pytest.mark.store("dynamodb")
(DYNAMODB,) = [each for each in BINDINGS if each.kind == "dynamodb"]
PROBE = ItemKey("probe")


@pytest.fixture
def stores(request: pytest.FixtureRequest) -> Stores:
    return Stores(DYNAMODB, request.getfixturevalue(DYNAMODB.places))


@asynccontextmanager
async def opened(stores: Stores) -> AsyncIterator[tuple[Shard, Store]]:
    """A shard with a queue, and its table beside it."""
    url = stores.places.fresh()
    async with stores.opened(url) as (shard, _):
        await make_queue(shard, "mail", START_MS)
        table = JobTable(parse_address(url))
        await table.open("a")
        try:
            yield shard, Store(table)
        finally:
            await table.client.close()


async def test_a_step_that_requires_a_queue_writes_nothing_once_it_is_gone(stores: Stores) -> None:
    async with opened(stores) as (shard, store):
        step = store.steps.new()
        await store.queues.guard(step, await store.queues.known("mail"), "mail")
        step.add(PROBE, {"n": 1})
        await drop_queue(shard, "mail", START_MS)
        with pytest.raises(Lost):
            await step.commit()
        assert await store.table.read(PROBE) is None


async def test_a_queue_that_is_gone_cannot_be_required(stores: Stores) -> None:
    async with opened(stores) as (shard, store):
        qid = await store.queues.known("mail")
        await drop_queue(shard, "mail", START_MS)
        with pytest.raises(QueueNotFound):
            await store.queues.guard(store.steps.new(), qid, "mail")


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_step_that_requires_the_homes_of_keys_writes_nothing_once_they_are_newer(
    stores: Stores, is_known: bool
) -> None:
    async with opened(stores) as (shard, store):
        old = new_version(START_MS)
        if is_known:
            await shard.put_config([ConfigEntry("@homes", old)], START_MS)
        step = store.steps.new()
        await store.queues.guard_homes(step, old)
        step.add(PROBE, {"n": 1})
        await shard.put_config([ConfigEntry("@homes", new_version(START_MS, old))], START_MS)
        with pytest.raises(Lost):
            await step.commit()
        assert await store.table.read(PROBE) is None
        with pytest.raises(HomesChanged):
            await store.queues.guard_homes(store.steps.new(), old)


async def test_of_two_steps_that_change_an_item_the_second_loses(stores: Stores) -> None:
    async with opened(stores) as (_, store):
        await store.steps.run(_counting)
        first, second = store.steps.new(), store.steps.new()
        for step in (first, second):
            await _counting(step)
        await first.commit()
        with pytest.raises(Lost):
            await second.commit()
        assert ((await store.table.read(PROBE)) or {})["n"] == 2


async def test_of_two_steps_that_make_an_item_the_second_loses(stores: Stores) -> None:
    async with opened(stores) as (_, store):
        first, second = store.steps.new(), store.steps.new()
        for step in (first, second):
            await _counting(step)
        await first.commit()
        with pytest.raises(Lost):
            await second.commit()


async def test_steps_at_once_that_lose_are_done_again_until_all_count(stores: Stores) -> None:
    async with opened(stores) as (_, store):
        await asyncio.gather(*[store.steps.run(_counting, tries=50) for _ in range(8)])
        assert ((await store.table.read(PROBE)) or {})["n"] == 8


async def test_a_step_that_loses_again_and_again_is_a_conflict(stores: Stores) -> None:
    async with opened(stores) as (_, store):

        async def loses(step: Step) -> None:
            await _counting(step)
            await store.steps.run(_counting)

        with pytest.raises(StoreConflict):
            await store.steps.run(loses, tries=3)


async def test_a_priority_is_noted_only_of_a_queue_that_is_there(stores: Stores) -> None:
    async with opened(stores) as (_, store):
        await store.queues.note_priorities({("12345", 1)})
        assert await store.table.read(ItemKey("q12345")) is None


async def test_two_servers_that_choose_the_same_slot_share_no_number(stores: Stores) -> None:
    url = stores.places.fresh()
    async with stores.opened(url):
        tables = []
        for _ in range(2):
            random.seed(1)  # the slot is drawn when the server starts
            tables.append(JobTable(parse_address(url)))
        try:
            taken = [0]
            for table in tables:
                await table.open("a")
            for _ in range(3):
                for table in tables:
                    taken += await table.ids.take(5, START_MS)
        finally:
            for table in tables:
                await table.client.close()
        assert len(set(taken)) == len(taken)


async def _counting(step: Step) -> None:
    item = await step.item(PROBE)
    if item is None:
        item = step.add(PROBE, {"n": 0})
    item["n"] += 1
