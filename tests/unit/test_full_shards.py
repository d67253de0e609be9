"""A shard whose store lacks room: it is well, takes no new jobs, and is tried now and then."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pinlater.errors import NoHealthyShards, ShardConnectionFailed, ShardsFull, StoreFull
from pinlater.model import Job
from pinlater.overflow.descriptors import overflow_of
from tests.unit.overflow_stand import process
from tests.unit.stand import Stand, acks, stand

FULL = StoreFull("its disk is full: free some space")


def are_full(at: Stand, *shards: int) -> None:
    for shard in shards:
        at.members.all[shard - 1].note_full(FULL.message)


async def placed(at: Stand, count: int = 20) -> set[str]:
    """The shards that take so many jobs."""
    return {(await at.service.enqueue("mail", [Job(b"x")]))[0].split(":")[1] for _ in range(count)}


def tried(at: Stand) -> int:
    """How often it was looked whether the first shard has room."""
    return at.stores[0].begun["kv_put"]


async def test_a_refusal_for_lack_of_room_sends_the_job_elsewhere_and_is_asked_for_once() -> None:
    async with stand(2) as at:
        store, member = at.stores[0], at.members.all[0]
        store.failures["enqueue"] = [FULL] * 100
        assert await placed(at) == {"s2"}
        assert store.begun["enqueue"] == 1
        assert member.is_healthy
        assert member.view().is_full
        assert (member.view().state, member.view().trouble) == ("in", FULL.message)
        assert at.members.full() == [member]


async def test_all_else_goes_on_at_a_full_shard_and_no_refusal_makes_it_sick() -> None:
    async with stand(2) as at:
        store, member = at.stores[0], at.members.all[0]
        await placed(at)
        are_full(at, 1)
        jobs = await at.dequeue(20)
        assert {job.descriptor.split(":")[1] for job in jobs} == {"s1", "s2"}
        store.failures["ack"] = [FULL]
        with pytest.raises(ShardConnectionFailed, match="free some space"):
            await at.service.ack("mail", acks(jobs), [])
        for _ in range(30):
            store.failures["checkpoint"] = [FULL]
            with pytest.raises(StoreFull):
                await member.shard.checkpoint("mail", [], at.clock.now_ms())
        assert member.is_healthy
        await at.service.ack("mail", acks(jobs), [])


@pytest.mark.parametrize(("full", "dequeue_only"), [((1, 2), ()), ((1,), (2,))])
async def test_where_no_shard_has_room_the_error_says_so_and_what_to_do(
    full: Sequence[int], dequeue_only: Sequence[int]
) -> None:
    async with stand(2, dequeue_only=dequeue_only) as at:
        are_full(at, *full)
        with pytest.raises(ShardsFull, match="shard 1: its disk is full: free some space") as refused:
            await at.service.enqueue("mail", [Job(b"x")])
        assert (refused.value.reason, refused.value.retryable) == ("SHARDS_FULL", True)
        assert refused.value.retry_after_ms == 1_000


async def test_a_shard_that_turns_out_full_under_a_call_is_told_as_the_others_are() -> None:
    async with stand(2) as at:
        are_full(at, 2)
        at.stores[0].failures["enqueue"] = [FULL]
        with pytest.raises(ShardsFull, match=r"shard 1: .*; shard 2: "):
            await at.service.enqueue("mail", [Job(b"x")])


async def test_a_shard_that_is_meant_to_take_no_jobs_is_not_told_of_as_full() -> None:
    async with stand(2, dequeue_only=[1, 2]) as at:
        are_full(at, 1)
        with pytest.raises(NoHealthyShards, match="no shard that takes new jobs") as refused:
            await at.service.enqueue("mail", [Job(b"x")])
        assert refused.value.reason == "NO_HEALTHY_SHARDS"


async def test_room_is_looked_for_by_a_write_and_then_jobs_come() -> None:
    async with stand(2) as at:
        member = at.members.all[0]
        are_full(at, 1)
        before = tried(at)
        await at.members.check(member)
        assert tried(at) == before
        assert member.full
        at.clock.tick(1_000)
        await at.members.check(member)
        assert not member.full
        kind, _, body, *_ = at.stores[0].sent["kv_put"][before]
        assert (kind, len(body)) == ("room", 64 * 1024)
        assert await at.stores[0].kv_list("room", at.clock.now_ms()) == {}, "nothing of it is left"
        assert await placed(at) == {"s1", "s2"}


async def test_the_tries_come_more_rarely_but_never_more_rarely_than_every_five_seconds() -> None:
    async with stand(2) as at:
        member = at.members.all[0]
        are_full(at, 1)
        seconds, gaps_s = 0, []
        while len(gaps_s) < 5:
            at.clock.tick(1_000)
            seconds += 1
            at.stores[0].failures["kv_put"] = [FULL]
            before = tried(at)
            await at.members.check(member)
            if tried(at) > before:
                gaps_s.append(seconds)
                seconds = 0
        assert gaps_s == [1, 2, 4, 5, 5]
        assert member.full


async def test_one_that_is_full_again_soon_is_believed_for_longer_and_one_that_lasted_is_not() -> None:
    async with stand(2) as at:
        member = at.members.all[0]

        async def full_for_s() -> int:
            are_full(at, 1)
            seconds = 0
            while member.full:
                at.clock.tick(1_000)
                seconds += 1
                await at.members.check(member)
            return seconds

        assert [await full_for_s() for _ in range(4)] == [1, 2, 4, 5]
        at.clock.tick(60_000)
        assert await full_for_s() == 1


async def test_beside_a_full_shard_one_that_is_out_is_alone() -> None:
    """Nobody takes new jobs in its place, so it is tried again each second."""
    async with stand(2) as at:
        away = at.members.all[0]
        for _ in range(3):
            away.eject("it is away")
            at.clock.tick(60_000)
        away.eject("it is away")
        assert away.view().next_try_ms == at.clock.now_ms() + 8_000
        are_full(at, 2)
        assert away.view().next_try_ms == at.clock.now_ms() + 1_000


async def test_what_full_shards_do_not_take_is_kept_by_the_overflow_shard_until_there_is_room(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        it.members.all[0].note_full(FULL.message)
        (descriptor,) = await it.api.enqueue("mail", [Job(b"x")])
        assert overflow_of(descriptor) == it.overflow.id
        await it.overflow.move()
        assert (await it.api.lookup([descriptor]))[descriptor].moved_to is None
        assert it.stores[0].begun["enqueue"] == 0, "nothing moves to a shard that is full"
        it.members.all[0].note_room()
        await it.overflow.move()
        moved_to = (await it.api.lookup([descriptor]))[descriptor].moved_to
        assert moved_to is not None
        assert moved_to.startswith("mail:s1:")


async def test_without_an_overflow_shard_the_refusal_stays_as_it_is(tmp_path: Path) -> None:
    async with process(tmp_path, bound=0) as it:
        it.members.all[0].note_full(FULL.message)
        with pytest.raises(ShardsFull):
            await it.api.enqueue("mail", [Job(b"x")])
