"""Which shard gives next where the jobs of a queue have groups."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice

import pytest

from pinlater.backends.base import ConfigEntry
from pinlater.backends.extended import Offer
from pinlater.backends.group_rules import GROUP_RULES_PREFIX
from pinlater.backends.group_store import ReadyCounts
from pinlater.model import Ack, ExtendedJob, Job, new_version
from pinlater.shards.claim_plan import plan_claims
from pinlater.shards.group_spreads import MOST_NAMED, SeenSpread
from pinlater.shards.shard_turns import ShardTurns
from tests.unit.stand import ME, Stand, stand


async def fill(at: Stand, shard: int, group: str, amount: int) -> None:
    """Shards count from 0."""
    offers = [Offer(ExtendedJob(group.encode(), group=group), slot=17) for _ in range(amount)]
    await at.stores[shard].inner.enqueue_extended("mail", offers, at.clock.now_ms(), "")


async def groups_of(at: Stand, calls: int, limit: int = 1) -> list[str]:
    return [bytes(job.body).decode() for _ in range(calls) for job in await at.dequeue(limit)]


def taken(turns: ShardTurns, groups: dict[str, int], amount: int) -> Counter[str]:
    ready = [ReadyCounts([amount], [count]) for count in groups.values()]
    names = list(groups)
    giving = turns.giving(names, ready, [1])
    return Counter(names[shard] for shard, _ in islice(giving(0, [amount] * len(ready)), amount))


@pytest.mark.parametrize("limit", [1, 7])
async def test_a_group_that_comes_to_one_of_four_shards_has_its_turn(limit: int) -> None:
    async with stand(4) as at:
        for shard in range(4):
            await fill(at, shard, "flood", 200)
        for shard in (0, 3, 1, 2) * 3:
            await groups_of(at, 5, limit)
            await fill(at, shard, "calm", 1)
            assert "calm" in await groups_of(at, 8 // limit + 1, limit)


async def test_a_group_that_comes_to_a_shard_that_had_nothing_has_its_turn() -> None:
    async with stand(4) as at:
        for shard in range(3):
            await fill(at, shard, "flood", 200)
        for _ in range(5):
            await groups_of(at, 5)
            await fill(at, 3, "calm", 1)
            assert "calm" in await groups_of(at, 4)


async def test_a_shard_gives_by_its_groups() -> None:
    async with stand(2) as at:
        await fill(at, 0, "a", 200)
        for group in "bcd":
            await fill(at, 1, group, 200)
        counts = Counter(await groups_of(at, 80))
        assert set(counts) == set("abcd")
        assert all(18 <= count <= 22 for count in counts.values())


async def test_jobs_without_a_group_are_a_group_of_their_own_on_each_shard() -> None:
    async with stand(2) as at:
        await fill(at, 0, "a", 100)
        await at.stores[1].inner.enqueue("mail", [Job(b"plain")] * 100, at.clock.now_ms())
        counts = Counter(await groups_of(at, 40))
        assert all(18 <= count <= 22 for count in counts.values())


@pytest.mark.parametrize("alone", ["a", "b", "c", "none"])
async def test_shares_over_four_shards_go_by_the_weights(alone: str) -> None:
    """The bound is 5 % where groups have jobs on all shards, and 25 % with one of them on one shard alone."""
    weights = {"a": 1, "b": 3, "c": 7}
    async with stand(4) as at:
        text = json.dumps({"groups": {group: {"weight": str(weight)} for group, weight in weights.items()}})
        rules = ConfigEntry(GROUP_RULES_PREFIX + "mail", new_version(at.clock.now_ms() + 1, ""), text)
        for store in at.stores:
            await store.inner.put_config([rules], at.clock.now_ms())
        taken: Counter[str] = Counter()
        for _ in range(50):
            for shard in range(4):
                for group in weights:
                    if group != alone or shard == 2:
                        have = await at.stores[shard].inner.count_groups("mail", (1,), [group])
                        await fill(at, shard, group, 100 - (have[group].ready if have else 0))
            taken += Counter(await groups_of(at, 4, 5))
    bound = 0.05 if alone == "none" else 0.25
    for group, weight in weights.items():
        assert taken[group] / taken.total() == pytest.approx(weight / 11, rel=bound), taken


async def test_a_flood_on_all_shards_leaves_a_group_on_one_of_them_its_share() -> None:
    async with stand(4) as at:
        for shard in range(4):
            await fill(at, shard, "flood", 300)
        await fill(at, 1, "calm", 200)
        await groups_of(at, 4)
        counts = Counter(await groups_of(at, 20, 10))
        assert 90 <= counts["calm"] <= 110


async def test_shards_are_asked_where_groups_wait_once_in_a_while_and_only_beside_groups() -> None:
    async with stand(2) as at:
        await at.service.enqueue("mail", [Job(b"plain")] * 30, context=ME)
        await groups_of(at, 5)
        assert [each.begun["waiting_groups"] for each in at.stores] == [0, 0]
    async with stand(2) as at:
        await fill(at, 0, "a", 30)
        await groups_of(at, 10)
        assert [each.begun["waiting_groups"] for each in at.stores] == [1, 1]


def test_what_claims_name_is_bounded_and_a_shard_with_jobs_counts_for_something() -> None:
    names = [str(number) for number in range(MOST_NAMED + 5)]
    seen = SeenSpread({"1": {1: dict.fromkeys(names, 1)}, "2": {1: {**dict.fromkeys(names, 1), "here": 1}}})
    assert set(seen.spread) == {1}
    assert set(seen.spread[1].values()) == {2}
    assert len(seen.spread[1]) == MOST_NAMED
    assert seen.weight_here("2", 1, len(names) + 1) == len(names) + 1 - MOST_NAMED / 2
    assert 0 < seen.weight_here("1", 1, 1) < 1
    assert seen.weight_here("1", 1, 0) == 1
    assert seen.weight_here("1", 2, 3) == 3
    alike = SeenSpread({"1": {1: {"a": 1, "b": 1}}, "2": {1: {"a": 1, "b": 1}}})
    assert alike.spread == {}


async def test_waiting_dequeues_have_turns_too() -> None:
    async with stand(3) as at:
        for shard in range(3):
            await fill(at, shard, "flood", 60)
        acks: list[Ack] = []
        await fill(at, 2, "calm", 1)
        found: list[str] = []
        for _ in range(8):
            jobs = await at.dequeue(1, wait_ms=1_000, succeeded=acks)
            acks = [Ack(job.descriptor) for job in jobs]
            found += [bytes(job.body).decode() for job in jobs]
        assert "calm" in found


def test_shares_go_by_groups_and_a_shard_that_was_away_has_no_credit() -> None:
    turns = ShardTurns()
    assert taken(turns, {"1": 1, "2": 3}, 400) == {"1": 100, "2": 300}
    assert taken(turns, {"1": 1}, 50) == {"1": 50}
    assert taken(turns, {"1": 1, "2": 1}, 100)["2"] in (50, 51)
    assert taken(turns, {"1": 1, "2": 99}, 100)["2"] in (98, 99, 100)


def test_a_level_ends_before_the_next_one_begins() -> None:
    ready = [ReadyCounts([1, 9], [1, 1]), ReadyCounts([2, 9], [2, 5])]
    plan = plan_claims(ready, [3, 4], ShardTurns().giving(["1", "2"], ready, [1, 2]))
    assert [sum(share) for share in zip(*plan.shares, strict=True)] == [3, 4]
    assert plan.levels == 2
    assert [share[0] for share in plan.shares] == [1, 2]
