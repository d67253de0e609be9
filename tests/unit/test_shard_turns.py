"""Which shard gives next where the jobs of a queue have groups."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest

from pinlater.backends.extended import Offer
from pinlater.backends.group_store import ReadyCounts
from pinlater.model import Ack, ExtendedJob, Job
from pinlater.shards.claim_plan import plan_claims
from pinlater.shards.shard_turns import ShardTurns
from tests.unit.stand import Stand, stand


async def fill(at: Stand, shard: int, group: str, amount: int) -> None:
    """Shards count from 0."""
    offers = [Offer(ExtendedJob(group.encode(), group=group), slot=17) for _ in range(amount)]
    await at.stores[shard].inner.enqueue_extended("mail", offers, at.clock.now_ms(), "")


async def groups_of(at: Stand, calls: int, limit: int = 1) -> list[str]:
    return [bytes(job.body).decode() for _ in range(calls) for job in await at.dequeue(limit)]


def taken(turns: ShardTurns, groups: dict[str, int], amount: int) -> Counter[str]:
    ready = [ReadyCounts([amount], [count]) for count in groups.values()]
    names = list(groups)
    giving = turns.giving(names, ready)
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
    plan = plan_claims(ready, [3, 4], ShardTurns().giving(["1", "2"], ready))
    assert [sum(share) for share in zip(*plan.shares, strict=True)] == [3, 4]
    assert plan.levels == 2
    assert [share[0] for share in plan.shares] == [1, 2]
