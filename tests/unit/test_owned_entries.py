"""What one owner may have among the entries that all servers agree on: queues, schedules, tokens."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.access.tokens import TOKEN_PREFIX
from pinlater.backends.base import ConfigEntry
from pinlater.errors import LimitReached
from pinlater.model import Caller, RequestContext, new_version
from pinlater.model.owner_bounds import OwnedKind, OwnerBounds, owner_name
from pinlater.queues.owned_entries import DELETED_SHARE, OwnedEntries, with_owner
from pinlater.queues.replication import KEEP_TOMBSTONES_MS
from pinlater.schedules.record import SCHEDULE_PREFIX
from tests.queues import record_of
from tests.unit.several import Server, several

HERS, HIS = "token:hers", "cert:his.example"
BOUNDS = OwnerBounds(queues=3, schedules=2, tokens=2)


def bound(*servers: Server, bounds: OwnerBounds = BOUNDS) -> None:
    for server in servers:
        server.queues.owned.bounds = lambda owner: bounds


def counts(server: Server, owner: str = HERS) -> tuple[int, ...]:
    return tuple(server.queues.owned.count(kind, owner) for kind in BOUNDS_OF)


BOUNDS_OF = (OwnedKind.QUEUES, OwnedKind.SCHEDULES, OwnedKind.TOKENS)


async def test_all_servers_count_the_same_and_each_kind_has_its_own_bound() -> None:
    async with several() as (one, two):
        bound(one, two)
        for number, server in enumerate((one, two, one)):
            await server.queues.create(f"q{number}", "ann", HERS)
        for prefix in (SCHEDULE_PREFIX, TOKEN_PREFIX):
            for server, name in ((one, "a"), (two, "b")):
                await server.queues.change_record(prefix + name, lambda before: "{}", "ann", HERS)
        for server in (one, two):
            with pytest.raises(LimitReached, match="token:hers has 3 queues, and may have 3: delete queues"):
                await server.queues.create("more", "ann", HERS)
            with pytest.raises(LimitReached, match="queues"):
                await server.queues.change("more", {}, [], True, "ann", HERS)
            with pytest.raises(LimitReached, match="queues"):
                await server.queues.take_items("more", "ann", HERS)
            for prefix, what in ((SCHEDULE_PREFIX, "schedules"), (TOKEN_PREFIX, "tokens")):
                with pytest.raises(LimitReached, match=f"has 2 {what}, and may have 2"):
                    await server.queues.change_record(prefix + "c", lambda before: "{}", "ann", HERS)
            await server.queues.create("q0", "ann", HERS)  # it is there
            assert counts(server) == (3, 2, 2)
        await one.queues.create("his", "bob", HIS)
        for number in range(5):
            await one.queues.create(f"nobodys{number}", "eve")
        await two.queues.delete("q1", "ann")
        await one.queues.create("more", "ann", HERS)
        assert (counts(one), counts(one, HIS)) == ((3, 2, 2), (1, 0, 0))


async def test_a_change_keeps_the_owner_and_a_name_that_is_used_again_gets_another() -> None:
    async with several() as (one, two):
        bound(one, two)
        await one.queues.create("mail", "ann", HERS)
        await two.queues.change("mail", {"max_pending": "5"}, [], False, "bob", HIS)
        await two.queues.take_items("mail", "bob", HIS)
        assert (counts(two), counts(two, HIS)) == ((1, 0, 0), (0, 0, 0))
        assert two.queues.settings("mail").max_pending == 5
        await one.queues.delete("mail", "ann")
        await two.queues.create("mail", "bob", HIS)
        assert (counts(two), counts(two, HIS)) == ((0, 0, 0), (1, 0, 0))
        await one.queues.poll()
        assert (counts(one), counts(one, HIS)) == ((0, 0, 0), (1, 0, 0))


async def test_where_nobody_is_known_an_entry_is_what_it_always_was() -> None:
    async with several() as (one, _):
        await one.service.create_queue("mail", context=RequestContext("ann"))
        record = await record_of(one.ways[0].inner, "mail")
        assert record is not None
        assert record.text == "{}"
        open_caller = Caller("cert:ann.example", is_open=True)
        await one.service.create_queue("news", context=RequestContext("ann", caller=open_caller))
        assert not list(one.queues.owned.owners())
        known = Caller("token:hers", ["operator"])
        await one.service.create_queue("hers", context=RequestContext("ann", caller=known))
        assert list(one.queues.owned.owners()) == [(OwnedKind.QUEUES, HERS, 1)]


async def test_calls_of_one_server_at_once_never_exceed_a_bound_and_those_of_two_by_what_is_under_way() -> None:
    async with several() as (one, two):
        bound(one, two)

        async def make(server: Server, name: str) -> bool:
            try:
                return (await server.queues.create(name, "ann", HERS)).is_new
            except LimitReached:
                return False

        made = await asyncio.gather(*(make(one, f"q{number}") for number in range(10)))
        assert sum(made) == counts(one)[0] == BOUNDS.queues
        bound(one, two, bounds=OwnerBounds(queues=BOUNDS.queues + 1))
        both = await asyncio.gather(make(one, "one"), make(two, "two"))
        assert 1 <= sum(both) <= 2
        await one.queues.poll()
        assert not await make(one, "more")
        assert counts(one)[0] == BOUNDS.queues + sum(both)


async def test_what_was_made_and_deleted_has_a_bound_as_long_as_it_is_kept() -> None:
    async with several() as (one, two):
        bound(one, two, bounds=OwnerBounds(queues=1))
        for number in range(DELETED_SHARE):
            await one.queues.create(f"q{number}", "ann", HERS)
            await one.queues.delete(f"q{number}", "ann")
        for server in (one, two):
            with pytest.raises(LimitReached, match=f"{DELETED_SHARE} more that were deleted within 30 days"):
                await server.queues.create("more", "ann", HERS)
        await one.queues.create("q3", "ann", HERS)  # it is known already, so it is nothing more to know
        await two.queues.delete("q3", "ann")
        one.clock.tick(KEEP_TOMBSTONES_MS + 60_000)
        await one.queues.poll()
        await one.queues.create("more", "ann", HERS)


def test_what_is_made_at_this_moment_counts_once() -> None:
    latest: dict[str, ConfigEntry] = {}
    owned = OwnedEntries(latest)
    owned.bounds = lambda owner: OwnerBounds(queues=2)
    with owned.making("a", HERS), owned.making("a", HERS):  # two calls, one queue
        latest["a"] = ConfigEntry("a", new_version(1, ""), with_owner("{}", HERS), "")
        owned.take("a")  # read from one shard while another one is still written to
        with owned.making("b", HERS), pytest.raises(LimitReached, match="has 2 queues"), owned.making("c", HERS):
            pass


async def test_a_change_by_a_server_that_knows_no_owners_is_nobodys_and_lifts_no_bound_of_others() -> None:
    async with several() as (one, two):
        bound(one, two)
        for name in ("mail", "news"):
            await one.queues.create(name, "ann", HERS)
        await two.queues.poll()
        version = new_version(one.clock.now_ms() + 1, one.queues.entries.latest["mail"].version)
        await two.queues.entries.put(ConfigEntry("mail", version, '{"set":{"max_pending":"5"}}', ""))
        await one.queues.poll()
        assert (counts(one), counts(two)) == ((1, 0, 0), (1, 0, 0))
        assert one.queues.settings("mail").max_pending == 5
        for name in ("q1", "q2"):
            await one.queues.create(name, "ann", HERS)
        with pytest.raises(LimitReached):
            await one.queues.create("q3", "ann", HERS)


def test_names_of_owners_are_short_enough_for_a_database_and_stay_apart() -> None:
    long = "cert:" + "x" * 5_000
    assert len({owner_name(long + "a"), owner_name(long + "b"), owner_name("cert:a")}) == 3
    assert len(owner_name(long + "a")) == 200
