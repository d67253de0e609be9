"""Shards that are opened, told apart and watched."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pinlater.backends.base import StoreStatus
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.errors import NothingStored, OutcomeUnknown, ShardConnectionFailed, StoreRefused
from pinlater.shards.handle import ShardHandle
from pinlater.shards.resilience import ResilientShard
from pinlater.shards.router import Router
from pinlater.shards.shard_set import ShardSet
from tests.unit.breaking import Breaking, HeldClock, HeldTime
from tests.unit.stand import NEVER_MS


class Held(ShardSet):
    """With the clock that its members go by."""

    def __init__(self, members: list[ShardHandle], clock: HeldClock, known: dict[str, str] | None) -> None:
        super().__init__(members, clock, known_stores=known, watch_interval_ms=NEVER_MS)
        self.clock = clock


def members_of(*stores: Breaking, known: dict[str, str] | None = None) -> Held:
    clock = HeldClock()
    return Held([ShardHandle(ResilientShard(store), clock) for store in stores], clock, known)


async def came_back(members: Held, member: ShardHandle) -> bool:
    """Whether the pings that are due after a pause bring it in."""
    members.clock.tick(60_000)
    for _ in range(3):
        await members.check(member)
        members.clock.tick(500)
    return member.is_healthy


def store_at(path: Path, shard_id: str = "") -> Breaking:
    return Breaking(SqliteShard(f"sqlite:///{path}", shard_id))


def in_memory(shard_id: str = "") -> Breaking:
    return Breaking(SqliteShard("sqlite://", shard_id))


async def test_new_stores_without_an_id_get_the_smallest_free_numbers_in_order() -> None:
    members = members_of(in_memory(), in_memory("2"), in_memory())
    await members.open()
    assert [member.shard.shard_id for member in members.all] == ["1", "2", "3"]
    assert all(member.is_healthy for member in members.all)
    await members.close()


async def test_a_store_without_a_configured_id_keeps_the_one_it_has(tmp_path: Path) -> None:
    first = members_of(store_at(tmp_path / "a", "7"))
    await first.open()
    await first.close()
    again = members_of(in_memory(), store_at(tmp_path / "a"))
    await again.open()
    assert [member.shard.shard_id for member in again.all] == ["1", "7"]
    await again.close()


async def test_one_store_under_two_ids_is_refused(tmp_path: Path) -> None:
    members = members_of(store_at(tmp_path / "a", "1"), store_at(tmp_path / "a", "2"))
    with pytest.raises(StoreRefused):
        await members.open()


async def test_one_store_named_twice_is_refused(tmp_path: Path) -> None:
    first = members_of(store_at(tmp_path / "a", "1"))
    await first.open()
    await first.close()
    with pytest.raises(StoreRefused):
        await members_of(store_at(tmp_path / "a"), store_at(tmp_path / "a")).open()


async def test_two_stores_under_one_id_are_refused() -> None:
    with pytest.raises(StoreRefused):
        await members_of(in_memory("1"), in_memory("1")).open()


async def test_another_store_than_the_one_this_shard_was_before_is_refused() -> None:
    with pytest.raises(StoreRefused, match="was store"):
        await members_of(in_memory("1"), known={"1": "0123456789abcdef"}).open()


async def test_a_shard_that_cannot_be_opened_is_out_until_it_can() -> None:
    store = in_memory("2")
    store.broken = NothingStored("refused")
    members = members_of(in_memory("1"), store)
    await members.open()
    assert [member.is_healthy for member in members.all] == [True, False]
    await members.check(members.all[1])
    assert not members.all[1].is_healthy
    store.broken = None
    await members.check(members.all[1])
    assert members.all[1].is_healthy
    await members.close()


async def test_while_an_id_is_not_known_a_strange_descriptor_is_not_called_not_found() -> None:
    store = in_memory()
    store.broken = NothingStored("refused")
    members = members_of(in_memory("1"), store)
    await members.open()
    router = Router(members)
    with pytest.raises(ShardConnectionFailed):
        await router.call_by_shard([("9", lambda shard: shard.ping())])
    store.broken = None
    await members.check(members.all[1])
    assert members.all[1].shard.shard_id == "2"
    assert await router.call_by_shard([("9", lambda shard: shard.ping())]) == [None]
    await router.close()


async def test_a_new_store_gets_no_id_while_another_s_id_is_not_known() -> None:
    away = in_memory()
    away.broken = NothingStored("refused")
    members = members_of(away, in_memory())
    await members.open()
    assert [member.is_healthy for member in members.all] == [False, False]
    away.broken = None
    await members.check(members.all[0])
    assert [member.shard.shard_id for member in members.all] == ["1", "2"]
    await members.close()


async def test_a_shard_is_brought_up_before_it_comes_in_and_all_of_them_before_any_at_the_start() -> None:
    late = in_memory("3")
    late.broken = NothingStored("refused")
    members = members_of(in_memory("1"), in_memory("2"), late)
    seen: list[tuple[str, int]] = []

    async def sync(member: ShardHandle) -> None:
        assert not member.is_healthy
        seen.append((member.shard.shard_id, len(members.healthy())))

    members.sync_before_serving = sync
    await members.open()
    assert sorted(seen[:2]) == [("1", 0), ("2", 0)], "each may know what the other lacks"
    assert sorted(shard for shard, _ in seen[2:]) == ["1", "2"]
    late.broken = None
    await members.check(members.all[2])
    assert seen[4:] == [("3", 2)]
    assert len(members.healthy()) == 3
    await members.close()


@pytest.mark.parametrize(
    ("failure", "said"), [(NothingStored("refused"), "refused"), (ValueError("a surprise"), "shard_not_synced")]
)
async def test_a_shard_that_cannot_be_brought_up_stays_out_and_is_tried_again(failure: Exception, said: str) -> None:
    members = members_of(in_memory("1"), in_memory("2"))
    failures: list[Exception] = [failure]

    async def sync(member: ShardHandle) -> None:
        if member.shard.shard_id == "2" and failures:
            raise failures.pop()

    members.sync_before_serving = sync
    await members.open()
    member = members.all[1]
    assert [each.is_healthy for each in members.all] == [True, False]
    assert said in member.last_error
    assert await came_back(members, member)
    await members.close()


async def test_a_store_that_was_wiped_is_out_at_once() -> None:
    store = in_memory("1")
    members = members_of(store)
    await members.open()
    store.failures["ping"] = [StoreRefused("wiped")]
    await members.check(members.all[0])
    assert not members.all[0].is_healthy
    await members.close()


async def test_a_surprise_of_a_driver_counts_as_a_failure_and_does_not_end_the_watch() -> None:
    store = in_memory("1")
    members = members_of(store)
    await members.open()
    store.failures["ping"] = [ValueError("a surprise")] * 3
    for _ in range(3):
        await members.check(members.all[0])
    assert not members.all[0].is_healthy
    await members.close()


async def test_a_watch_ends_also_at_the_moment_when_its_ping_is_answered() -> None:
    for steps in range(12):  # of the event loop, from the answer of the store on
        store = in_memory("1")
        members = ShardSet([ShardHandle(ResilientShard(store), HeldClock())], HeldClock(), watch_interval_ms=1)
        await members.open()
        gate, pings = store.hold("ping"), store.begun["ping"]
        await store.until_begun("ping", pings + 1)
        gate.set()
        store.gates.clear()
        moves = store.moves
        while store.moves < moves + 2:
            await asyncio.sleep(0)
        for _ in range(steps):
            await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await members.close()


async def test_a_ping_measures_how_far_the_store_s_clock_is_from_ours() -> None:
    store = in_memory("1")
    members = members_of(store)
    await members.open()
    member = members.all[0]
    assert member.store_id is not None

    async def ping() -> StoreStatus:
        return StoreStatus(member.store_id or "", 1_790_000_000_000 + 2_500)

    store.ping = ping  # type: ignore[method-assign]
    await members.check(member)
    assert member.skew_ms == 2_500
    await members.close()


LONGEST_PAUSE_S = 1.5
"""Until the next ping, each second: it falls on a beat."""


async def test_an_idle_shard_is_known_to_be_out_and_to_be_back_by_pings_in_the_background() -> None:
    clock = HeldClock()
    stores = [in_memory("1"), in_memory("2")]
    members = ShardSet([ShardHandle(ResilientShard(store), clock) for store in stores], clock, watch_interval_ms=1_000)
    await members.open()
    time = HeldTime(*stores)
    member = members.all[0]
    stores[0].failures["ping"] = [OutcomeUnknown("reset")] * 3
    for _ in range(3):
        assert member.is_healthy
        await time.leap(LONGEST_PAUSE_S)
        await time.leap(0)
    assert (member.view().state, member.last_error) == ("out", "reset")
    pings = stores[0].begun["ping"]
    await time.leap(LONGEST_PAUSE_S)
    await time.leap(0)
    assert stores[0].begun["ping"] == pings, "it is left alone"
    clock.tick(1_000)
    for _ in range(3):
        assert not member.is_healthy
        await time.leap(LONGEST_PAUSE_S)
        await time.leap(0)
        clock.tick(500)
    assert member.is_healthy
    assert members.all[1].is_healthy
    await members.close()


async def test_a_ping_that_is_not_answered_in_time_is_a_failure() -> None:
    clock = HeldClock()
    store = in_memory("1")
    members = ShardSet([ShardHandle(ResilientShard(store), clock)], clock, watch_interval_ms=NEVER_MS)
    await members.open()
    time = HeldTime(store)
    gate = store.hold("ping")
    for _ in range(3):
        assert members.all[0].is_healthy
        await time.taken(members.check(members.all[0]))
    assert not members.all[0].is_healthy
    assert "no answer to a ping within 2000 ms" in members.all[0].last_error
    gate.set()
    await members.close()
