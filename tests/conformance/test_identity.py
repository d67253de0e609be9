"""A store knows which shard it is, and says so (decisions 14 and 15)."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from pinlater.backends.base import ConfigEntry, KvEntry, Quota, Shard, Tokens
from pinlater.errors import NothingStored, StoreRefused
from pinlater.model import Job
from tests.conformance.bindings import Binding
from tests.conformance.subject import START_MS, Subject, key_of
from tests.queues import make_queue, names_of
from tests.stores.places import Places


class Stores:
    """Opens shards on places of one store; what is open at the end is closed."""

    def __init__(self, binding: Binding, places: Places) -> None:
        self.binding = binding
        self.places = places

    def shard(self, url: str, shard_id: str) -> Shard:
        return self.binding.make(url, shard_id)

    @asynccontextmanager
    async def opened(self, url: str, shard_id: str = "a") -> Any:
        shard = self.shard(url, shard_id)
        try:
            store_id = await shard.open()
            yield shard, store_id
        finally:
            await shard.close()


@pytest.fixture
def stores(lasting: Binding, request: pytest.FixtureRequest) -> Stores:
    return Stores(lasting, request.getfixturevalue(lasting.places))


async def test_a_store_has_a_random_id_that_stays(stores: Stores) -> None:
    url = stores.places.fresh()
    async with stores.opened(url) as (shard, store_id):
        assert len(store_id) >= 16
        assert (await shard.ping()).store_id == store_id
    async with stores.opened(url) as (_, again):
        assert again == store_id
    async with stores.opened(stores.places.fresh()) as (_, other):
        assert other != store_id


async def test_a_shard_that_is_closed_stores_nothing_and_says_so(stores: Stores) -> None:
    """What comes late, while a server ends, is refused as by any store that cannot be reached."""
    async with stores.opened(stores.places.fresh()) as (shard, _):
        pass
    for call in (partial(shard.kv_list, "kind"), partial(shard.kv_put, "kind", "name", b"", START_MS + 1)):
        with pytest.raises(NothingStored, match="closed"):
            await call(START_MS)


async def test_two_servers_may_open_one_store_under_one_id(stores: Stores) -> None:
    url = stores.places.fresh()
    async with stores.opened(url) as (_, first), stores.opened(url) as (_, second):
        assert first == second


async def test_servers_that_open_a_new_store_at_once_agree_on_its_id(stores: Stores) -> None:
    url = stores.places.fresh()
    shards = [stores.shard(url, "a") for _ in range(4)]
    try:
        assert len(set(await asyncio.gather(*[shard.open() for shard in shards]))) == 1
    finally:
        for shard in shards:
            await shard.close()


async def test_a_store_under_another_shard_id_is_refused_and_stays_as_it_was(stores: Stores) -> None:
    url = stores.places.fresh()
    async with stores.opened(url, "a") as (shard, store_id):
        await make_queue(shard, "mail", START_MS)
    with pytest.raises(StoreRefused):
        async with stores.opened(url, "b"):
            pass
    async with stores.opened(url, "a") as (shard, again):
        assert again == store_id
        assert await names_of(shard) == {"mail"}


async def test_without_a_shard_id_the_stores_own_record_decides(stores: Stores) -> None:
    url = stores.places.fresh()
    async with stores.opened(url, "abc123") as (_, store_id):
        pass
    async with stores.opened(url, "") as (shard, again):
        assert (shard.shard_id, again) == ("abc123", store_id)
        await make_queue(shard, "mail", START_MS)
        (descriptor,) = await shard.enqueue("mail", [Job(b"")], START_MS)
        assert ":sabc123:" in descriptor


async def test_a_new_store_without_a_shard_id_is_refused(stores: Stores) -> None:
    with pytest.raises(StoreRefused):
        async with stores.opened(stores.places.fresh(), ""):
            pass


async def test_a_shard_may_be_closed_twice(stores: Stores) -> None:
    async with stores.opened(stores.places.fresh()) as (shard, _):
        await shard.close()


async def test_a_store_that_was_wiped_while_it_was_open_is_refused(stores: Stores) -> None:
    url = stores.places.fresh()
    async with stores.opened(url) as (shard, _):
        await asyncio.to_thread(stores.places.wipe, url)
        with pytest.raises(StoreRefused):
            await shard.ping()
        with pytest.raises(StoreRefused):
            await shard.list_config(0, 10)


async def test_a_store_that_was_swapped_for_another_while_it_was_open_is_refused(stores: Stores) -> None:
    url = stores.places.fresh()
    async with stores.opened(url) as (shard, _):
        await asyncio.to_thread(stores.places.wipe, url)
        async with stores.opened(url):
            with pytest.raises(StoreRefused):
                await shard.ping()


async def test_a_ping_tells_the_clock_of_the_store(stores: Stores) -> None:
    async with stores.opened(stores.places.fresh()) as (shard, _):
        first, second = await shard.ping(), await shard.ping()
        assert 1_700_000_000_000 < first.now_ms <= second.now_ms


async def test_a_ping_tells_the_largest_time_at_which_jobs_were_stored(stores: Stores) -> None:
    async with stores.opened(stores.places.fresh()) as (shard, _):
        subject = Subject(shard)
        await make_queue(shard, subject.queue, START_MS)
        assert (await shard.ping()).newest_ms < START_MS
        for now_ms in (START_MS, START_MS + 3_600_000, START_MS + 5):
            subject.now_ms = now_ms
            await subject.job()
        assert (await shard.ping()).newest_ms == START_MS + 3_600_000


async def test_jobs_and_claims_are_there_when_the_store_is_opened_again(stores: Stores) -> None:
    url = stores.places.fresh()
    async with stores.opened(url) as (shard, _):
        subject = Subject(shard)
        await make_queue(shard, subject.queue, START_MS)
        descriptors = await subject.enqueue(Job(b"1"), Job(b"2", custom_status="kept"))
        await subject.claimed()
        before = [await subject.info(each) for each in descriptors]
    async with stores.opened(url) as (shard, _):
        subject = Subject(shard)
        assert [await subject.info(each) for each in descriptors] == before


async def test_entries_buckets_and_quotas_are_there_when_the_store_is_opened_again(
    stores: Stores,
) -> None:
    url = stores.places.fresh()
    records = [
        ConfigEntry("mail", "1790000000000001-00000001", "[1]"),
        ConfigEntry("@defaults", "1790000000000001-00000002"),
    ]
    async with stores.opened(url) as (shard, _):
        assert await shard.put_config(records, START_MS) == [True, True]
        assert await shard.kv_put("lease", "me", b"body", START_MS + 10, START_MS) == 1
        assert await shard.take_tokens("mail", 1, 0.5, 1.0, START_MS) == Tokens(1, 2_000)
        assert await shard.set_quota("mail", 3, 7, START_MS) == Quota(3, 7, 0)
        page = await shard.list_config(0, 10)
    async with stores.opened(url) as (shard, _):
        assert await shard.list_config(0, 10) == page
        assert page.entries == records
        assert await shard.kv_list("lease", START_MS) == {"me": KvEntry(b"body", 1, START_MS + 10)}
        assert await shard.take_tokens("mail", 1, 0.5, 1.0, START_MS) == Tokens(0, 2_000)
        assert await shard.set_quota("mail", 0, 0, START_MS) == Quota(3, 7, 0)


async def test_ids_do_not_repeat_after_all_data_was_lost(stores: Stores) -> None:
    url = stores.places.fresh()
    used = []
    for step in (0, 1):
        async with stores.opened(url) as (shard, _):
            subject = Subject(shard)
            subject.tick(step * stores.binding.clock_ms)
            await make_queue(shard, subject.queue, START_MS)
            used += [key_of(each).id for each in await subject.enqueue(*[Job(b"")] * 100)]
        stores.places.wipe(url)
    assert used == sorted(set(used))
