"""Dequeues over several shards that claim by the last counts, and count no more."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from pinlater.backends.base import ClaimRequest
from pinlater.errors import NothingStored
from pinlater.model import DequeuedJob, Job
from pinlater.shards import cross_shard
from pinlater.shards.claim_plan import ClaimPlan
from pinlater.shards.cross_shard import Look
from tests.unit.breaking import settled
from tests.unit.stand import Stand, stand

NOW = 1_790_000_000_000


async def fill(at: Stand, shard: int, amount: int, priority: int = 1) -> None:
    """Shards count from 0."""
    await at.stores[shard].inner.enqueue("mail", [Job(b"%d" % shard, priority)] * amount, at.clock.now_ms())


def counted(at: Stand) -> list[int]:
    return [store.begun["count_ready"] for store in at.stores]


async def test_a_backlog_is_counted_once_for_many_dequeues() -> None:
    async with stand(3) as at:
        for shard in range(3):
            await fill(at, shard, 10)
        descriptors = {job.descriptor for _ in range(30) for job in await at.dequeue(1)}
        assert len(descriptors) == 30
        assert counted(at) == [1, 1, 1]
        assert sum(store.begun["claim"] for store in at.stores) == 30
        assert not await at.dequeue(1)
        assert counted(at) == [2, 2, 2]


async def test_each_shard_has_its_turn() -> None:
    async with stand(2) as at:
        await fill(at, 0, 20)
        await fill(at, 1, 80)
        bodies = Counter([job.body for _ in range(60) for job in await at.dequeue(1)])
        assert bodies[b"0"] == 20  # by chance not once in 10**5 runs


async def test_what_does_not_suffice_for_all_is_counted_again() -> None:
    async with stand(2) as at:
        await fill(at, 0, 7)
        assert len(await at.dequeue(4)) == 4
        await fill(at, 1, 5)
        assert len(await at.dequeue(5)) == 5
        assert counted(at) == [2, 2]


async def test_a_job_of_a_later_priority_waits_for_counts_of_all_shards() -> None:
    async with stand(2) as at:
        await fill(at, 0, 2)
        await fill(at, 0, 2, priority=3)
        assert [job.priority for job in await at.dequeue(1)] == [1]
        await fill(at, 1, 2, priority=2)
        assert [(await at.dequeue(1))[0].priority for _ in range(5)] == [1, 2, 2, 3, 3]


async def test_where_others_took_the_first_priority_a_shard_gives_no_other() -> None:
    async with stand(2) as at:
        await fill(at, 0, 5)
        assert len(await at.dequeue(1)) == 1
        await _take_all(at, 0)
        await fill(at, 0, 1, priority=3)
        await fill(at, 1, 1, priority=2)
        assert [(await at.dequeue(1))[0].priority for _ in range(2)] == [2, 3]


async def test_where_others_took_the_jobs_all_shards_are_counted() -> None:
    async with stand(2) as at:
        await fill(at, 0, 5)
        assert len(await at.dequeue(1)) == 1
        await _take_all(at, 0)
        await fill(at, 1, 1)
        assert [job.body for job in await at.dequeue(1)] == [b"1"]


async def test_where_others_compete_only_plenty_is_claimed_by_the_last_counts() -> None:
    async with stand(2) as at:
        await fill(at, 0, 3)
        await fill(at, 1, 200)
        assert len(await at.dequeue(1)) == 1
        await _take_all(at, 0)
        taken = [(await at.dequeue(1))[0].body for _ in range(50)]
        assert taken == [b"1"] * 50
        before = counted(at)
        await fill(at, 0, 3)
        for _ in range(20):
            assert (await at.dequeue(1))[0].body == b"1", "three are too few to be sure of them"
        assert counted(at) == before


async def test_a_look_names_the_shards_that_had_jobs_or_did_not_say() -> None:
    async with stand(3) as at:
        look = Look(1, 0.0)
        outcomes = [NothingStored("gone"), [0, 0, 2], [0, 0, 0]]
        look.note(at.members.all, outcomes, ClaimPlan([[1], [0]], 3), counted=10)
        assert (look.shard_ids, look.left) == ({"1", "2"}, {})
        look.note(at.members.all, [[5, 0, 0], [2, 0, 0], [0, 0, 0]], ClaimPlan([[1], [2], [0]], 1), counted=10)
        assert (look.shard_ids, look.left) == ({"1", "2"}, {"1": 4})


async def _take_all(at: Stand, shard: int) -> None:
    """As another server does."""
    request = ClaimRequest("h:1:1:1:me", 1_000, (1, 2, 3), 60_000, 2**20)
    claims = await at.stores[shard].inner.claim("mail", [request], at.clock.now_ms())
    assert claims[0]


async def test_where_a_shard_does_not_answer_the_next_dequeue_counts_all() -> None:
    async with stand(2) as at:
        await fill(at, 0, 5)
        assert len(await at.dequeue(1)) == 1
        at.stores[0].failures["claim"].append(NothingStored("refused"))
        with pytest.raises(NothingStored):
            await at.dequeue(1)
        await fill(at, 1, 5)
        assert len(await at.dequeue(9)) == 9


async def two_of_which_one_goes_without(at: Stand) -> tuple[asyncio.Task[list[DequeuedJob]], ...]:
    """Two dequeues of one round, of whose jobs another server has taken one: so all shards are counted for the second,
    while the first has its job. Until that count.
    """
    await fill(at, 0, 3)
    gate = at.stores[0].hold("claim")
    first = asyncio.create_task(at.dequeue(1))
    await at.stores[0].until_begun("claim")
    both = tuple(asyncio.create_task(at.dequeue(1)) for _ in range(2))
    await settled()
    await at.stores[0].inner.claim("mail", [ClaimRequest("h:1:1:2:me", 1, (1, 2, 3), 60_000, 2**20)], NOW)
    at.stores[1].hold("count_ready")
    before = at.stores[1].begun["count_ready"]
    gate.set()
    assert len(await first) == 1
    while at.stores[1].begun["count_ready"] == before:
        await settled()
    return both


async def test_who_has_a_job_gets_it_though_the_count_for_another_fails() -> None:
    async with stand(2) as at, asyncio.timeout(60):
        both = await two_of_which_one_goes_without(at)
        for store in at.stores:
            store.failures["count_ready"] = store.losses["count_ready"] = [NothingStored("gone")] * 20
        at.stores[1].gates["count_ready"].set()
        assert sorted(len(jobs) for jobs in await asyncio.gather(*both)) == [0, 1]


async def test_jobs_of_a_round_that_breaks_go_back_and_are_claimed_anew() -> None:
    async with stand(2) as at, asyncio.timeout(60):
        both = await two_of_which_one_goes_without(at)
        at.stores[1].losses["count_ready"] = [RuntimeError("as no store should")]
        at.stores[1].gates["count_ready"].set()
        assert sorted(len(jobs) for jobs in await asyncio.gather(*both)) == [0, 1]  # each was tried again alone


async def test_a_shard_that_got_jobs_since_has_its_turn_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_shard, "TRUSTED_S", 0.05)
    async with stand(2) as at:
        await fill(at, 0, 100)
        assert len(await at.dequeue(1)) == 1
        await fill(at, 1, 60)
        await asyncio.sleep(0.06)
        bodies = {job.body for _ in range(40) for job in await at.dequeue(1)}
        assert bodies == {b"0", b"1"}
