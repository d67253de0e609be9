"""The homes of keys begin, and change when shards come, are drained, are lost or are given up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from pinlater.backends.base import ConfigEntry
from pinlater.cluster.lease import GROUPS, REPLACE_RULES, TAGS
from pinlater.errors import (
    GroupsNotYet,
    HomeOut,
    KeysNotYet,
    NothingStored,
    ReplaceRulesNotYet,
    RequestInvalid,
    TagsNotYet,
)
from pinlater.homes.cluster_homes import LOCK_KIND, LOCK_MS, LOCK_NAME, ClusterHomes
from pinlater.model import ExtendedJob
from pinlater.shards.keys.homes_record import HOMES, HomesRecord, parse_record
from tests.unit.cluster_stand import ClusterStand, Server, cluster_stand

OUT = NothingStored("connection refused")


def known(server: Server) -> HomesRecord:
    table = server.homes.table
    assert table is not None
    return table.record


async def at_store(at: ClusterStand, number: int) -> HomesRecord | None:
    """What a store itself has."""
    entries = (await at.stores[number - 1].list_config(0, 1_000)).entries
    texts = [entry.text for entry in entries if entry.name == HOMES]
    return parse_record(texts[0]) if texts else None


def lose(server: Server, number: int) -> None:
    server.reach[number - 1].broken = OUT
    handle = server.members.by_id(str(number))
    assert handle is not None
    handle.eject(OUT.message)


def find(server: Server, number: int) -> None:
    server.reach[number - 1].broken = None
    handle = server.members.by_id(str(number))
    assert handle is not None
    handle.readmit()


async def test_the_first_record_is_one_for_all_however_many_make_it_at_once() -> None:
    async with cluster_stand(3) as at:
        servers = [await at.server(name) for name in ("a", "b", "c")]
        tables = await asyncio.gather(*[server.homes.begin() for server in servers])
        assert {(table.version, table.record.members) for table in tables} == {(tables[0].version, ("1", "2", "3"))}
        for number in (1, 2, 3):
            assert await at_store(at, number) == HomesRecord(("1", "2", "3"))


async def test_less_than_most_shards_decide_nothing() -> None:
    async with cluster_stand(2) as at:
        server = await at.server("a")
        lose(server, 2)
        with pytest.raises(HomeOut, match="1 of 2 shards"):
            await server.homes.begin()
        assert await at_store(at, 1) is None


async def test_a_lock_that_nobody_frees_ends_by_itself() -> None:
    async with cluster_stand(1) as at:
        server = await at.server("a")
        now_ms = at.clock.now_ms()
        assert await at.stores[0].kv_put(LOCK_KIND, LOCK_NAME, b"", now_ms + LOCK_MS, now_ms, expected_version=0)
        at.clock.tick(LOCK_MS + 1)
        assert (await server.homes.begin()).record.members == ("1",)


async def test_keys_wait_for_servers_that_do_not_know_them() -> None:
    async with cluster_stand(1) as at:
        server = await at.server("a")
        older = await at.server("b", describe=lambda: {})
        await at.round()
        server.homes.check()
        assert older.membership.unaware_of("something yet unknown") == ["a/1"]
        unaware = server.membership.unaware_of("something yet unknown")
        homes = type(server.homes)(server.members, server.queues.entries, at.clock, lambda _: unaware)
        with pytest.raises(KeysNotYet, match="b/1"):
            homes.check()
        unaware.clear()
        homes.check()


@pytest.mark.parametrize(
    ("feature", "check", "error", "what"),
    [
        (TAGS, lambda homes: homes.check_jobs([ExtendedJob(b"", tags=["t"])]), TagsNotYet, "tags"),
        (GROUPS, lambda homes: homes.check_jobs([ExtendedJob(b"", group="acme")]), GroupsNotYet, "groups"),
        (REPLACE_RULES, ClusterHomes.check_replace_rules, ReplaceRulesNotYet, "replaceRunning or replaceWithinMillis"),
    ],
)
async def test_a_feature_waits_for_servers_that_do_not_know_it(
    feature: str, check: Callable[[ClusterHomes], None], error: type[NothingStored], what: str
) -> None:
    async with cluster_stand(1) as at:
        server = await at.server("a")
        await at.server("b")
        await at.round()
        assert server.membership.unaware_of(feature) == []
        unaware = {feature: server.membership.unaware_of("something yet unknown")}
        homes = ClusterHomes(server.members, server.queues.entries, at.clock, lambda name: unaware.get(name, ()))
        homes.check()
        homes.check_jobs([ExtendedJob(b"")])
        with pytest.raises(error, match=f"do not know {what}: b/1"):
            check(homes)
        unaware.clear()
        check(homes)


async def test_a_new_shard_is_a_member_when_all_can_use_it() -> None:
    async with cluster_stand(2) as at:
        one = await at.server("a", shards=[1])
        await one.homes.begin()
        two = await at.server("b")
        await at.look_at_homes(2)
        assert known(two) == HomesRecord(("1",))
        at.kill(one)
        at.clock.tick(10_000)
        await at.look_at_homes(2)
        assert known(two) == HomesRecord(("1", "2"))  # and nothing is left of before: there was no key
        assert await at_store(at, 2) == await at_store(at, 1) == known(two)


async def test_a_drained_shard_is_no_member_and_becomes_one_again() -> None:
    async with cluster_stand(2) as at:
        server, other = await at.server("a"), await at.server("b")
        await server.homes.begin()
        await server.queues.override_shard("2", True, "me")
        await at.look_at_homes(2)
        assert known(server).members == known(other).members == ("1",)
        assert not known(server).is_opening
        await other.queues.override_shard("2", False, "me")
        await at.look_at_homes(2)
        assert known(server).members == ("1", "2")


async def test_the_last_shard_stays_a_member() -> None:
    async with cluster_stand(1) as at:
        server = await at.server("a")
        await server.homes.begin()
        await server.queues.override_shard("1", True, "me")
        await at.look_at_homes(2)
        assert known(server) == HomesRecord(("1",))


async def test_a_member_that_is_out_blocks_a_change_until_it_is_back() -> None:
    async with cluster_stand(3) as at:
        server = await at.server("a")
        await server.homes.begin()
        lose(server, 3)
        await server.queues.override_shard("2", True, "me")
        await at.look_at_homes(2)
        assert known(server) == HomesRecord(("1", "2", "3"))
        assert "shard 3 cannot be used now: connection refused" in server.homes_change.blocked
        find(server, 3)
        await at.look_at_homes(2)
        assert known(server).members == ("1", "3")
        assert server.homes_change.blocked == ""


async def test_a_member_that_was_given_up_blocks_nothing() -> None:
    async with cluster_stand(3) as at:
        server = await at.server("a")
        await server.homes.begin()
        lose(server, 3)
        await server.queues.override_shard("3", True, "me", give_up=True)
        await at.look_at_homes(2)
        assert known(server).members == ("1", "2")
        assert known(server).gone == ("3",)
        assert server.homes_change.blocked == ""


async def test_another_server_ends_a_change_that_one_began() -> None:
    async with cluster_stand(2) as at:
        server = await at.server("a")
        await server.homes.begin()
        opening = HomesRecord(("1",), (("1", "2"),), is_opening=True)
        version = f"{int(server.homes.table.version[:16]) + 1:016d}-00000000"  # type: ignore[union-attr]
        await at.stores[0].put_config([ConfigEntry(HOMES, version, opening.text())], at.clock.now_ms())
        await server.queues.override_shard("2", True, "me")
        await at.look_at_homes(2)
        assert known(server).members == ("1",)
        assert not known(server).is_opening


async def test_an_opening_change_waits_for_every_member_before() -> None:
    async with cluster_stand(3) as at:
        server = await at.server("a")
        await server.homes.begin()
        opening = HomesRecord(("1", "2"), (("1", "2", "3"),), is_opening=True)
        version = f"{int(server.homes.table.version[:16]) + 1:016d}-00000000"  # type: ignore[union-attr]
        lose(server, 3)
        await at.stores[0].put_config([ConfigEntry(HOMES, version, opening.text())], at.clock.now_ms())
        await server.queues.override_shard("3", True, "me")
        await at.look_at_homes(2)
        assert known(server) == opening
        assert "took note: shard 3 cannot be used now" in server.homes_change.blocked
        find(server, 3)
        await at.look_at_homes(2)
        assert not known(server).is_opening


async def test_homes_that_are_configured_nowhere_any_more_are_replaced_when_they_are_given_up() -> None:
    async with cluster_stand(2) as at:
        before = await at.server("a", shards=[1])
        await before.homes.begin()
        both = await at.server("b")
        await both.queues.poll()
        at.kill(before)
        at.kill(both)
        server = await at.server("c", shards=[2])
        await server.queues.poll()
        assert known(server).members == ("1",)
        at.clock.tick(10_000)
        await at.look_at_homes(2)
        assert known(server).members == ("1",)  # it may be back, with jobs of its keys
        assert "shard 1 is in no server's configuration" in server.homes_change.blocked
        assert "pinlater shard give-up" in server.homes_change.blocked
        with pytest.raises(RequestInvalid):
            await server.queues.override_shard("1", True, "me")
        with pytest.raises(RequestInvalid):
            await server.queues.override_shard("9", True, "me", give_up=True)
        await server.queues.override_shard("1", True, "me", give_up=True)
        await at.look_at_homes(2)
        assert known(server).members == ("2",)
        assert known(server).gone == ("1",)
        assert server.homes_change.blocked == ""


async def test_a_process_that_ends_in_the_middle_of_a_change_delays_the_next_by_its_lock_alone() -> None:
    async with cluster_stand(2) as at:
        server = await at.server("a")
        await server.homes.begin()
        await server.queues.override_shard("2", True, "me")
        now_ms = at.clock.now_ms()
        for store in at.stores:
            assert await store.kv_put(LOCK_KIND, LOCK_NAME, b"", now_ms + LOCK_MS, now_ms, expected_version=0)
        await at.look_at_homes(2)
        assert known(server).members == ("1", "2")
        assert "ended while it did" in server.homes_change.blocked
        at.clock.tick(LOCK_MS)
        await at.look_at_homes(2)
        assert known(server).members == ("1",)
        assert server.homes_change.blocked == ""
