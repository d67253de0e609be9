"""The limits of groups, as one process keeps to them while shards come and go."""

from __future__ import annotations

import asyncio

from pinlater.backends.permit_store import PermitKey, PermitRequest
from pinlater.model import ExtendedJob, RequestContext
from pinlater.queues.gone_shards import GONE_MS
from pinlater.queues.group_limits import CHECK_AGAIN_MS, CHECK_MS
from pinlater.service import ServiceSettings
from pinlater.shards.handle import ShardHandle
from tests.unit.breaking import settled
from tests.unit.stand import Stand, stand
from tests.unit.test_limits_pause import change


def jobs(group: str, count: int) -> list[ExtendedJob]:
    return [ExtendedJob(b"x", group=group)] * count


async def home_of(at: Stand) -> ShardHandle:
    """The shard with the permits of a queue, whose groups have a maximum of 1."""
    await change(at, group_concurrency="1")
    await at.service.limits.groups.running("mail", ["acme"])
    home = at.members.by_id(at.service.queues.group_rules.home("mail"))
    assert home is not None
    return home


OPERATOR = RequestContext("me", "", is_granted=True)


def everything(_shard_id: str) -> bool:
    return True


async def test_a_home_that_was_missing_once_is_waited_for_again() -> None:
    async with stand(2) as at:
        home, limits = await home_of(at), at.service.limits.groups
        for _ in range(2):
            at.members.all.remove(home)
            assert await limits.running("mail", ["acme"]) == {}
            at.members.all.append(home)
            assert await limits.running("mail", ["acme"]) == {"acme": 0}
            at.clock.tick(GONE_MS)
        assert at.service.queues.group_rules.home("mail") == home.shard.shard_id


async def test_permits_of_a_shard_that_was_missing_once_are_kept_again() -> None:
    async with stand(2) as at:
        home, limits = await home_of(at), at.service.limits.groups
        await change(at, group_concurrency="12")
        for job in jobs("acme", 12):
            await at.service.enqueue("mail", [job])
        assert len(await at.dequeue(12)) == 12
        (other,) = [each for each in at.members.all if each is not home]
        for _ in range(2):
            at.members.all.remove(other)
            at.clock.tick(CHECK_AGAIN_MS)
            await limits.tick(everything)
            at.members.all.append(other)
            at.clock.tick(GONE_MS)
            await limits.tick(everything)
        assert await limits.running("mail", ["acme"]) == {"acme": 12}


async def test_a_shard_may_be_one_that_could_not_be_opened_yet() -> None:
    async with stand(2) as at:
        home, limits = await home_of(at), at.service.limits.groups
        request, now_ms = PermitRequest("acme", [PermitKey("3", 1, 1, "a claim")], 1), at.clock.now_ms()
        await home.shard.take_permits("mail", [request], now_ms + CHECK_MS, now_ms)
        unopened, at.members.has_unknown_ids = at.members.has_unknown_ids, lambda: True  # type: ignore[method-assign]
        for ms in (CHECK_MS, GONE_MS, GONE_MS):
            at.clock.tick(ms)
            await limits.tick(everything)
            assert await limits.running("mail", ["acme"]) == {"acme": 1}
        at.members.has_unknown_ids = unopened  # type: ignore[method-assign]
        for ms in (CHECK_AGAIN_MS, GONE_MS):
            at.clock.tick(ms)
            await limits.tick(everything)
        assert await limits.running("mail", ["acme"]) == {"acme": 0}


async def test_a_home_that_is_out_is_not_asked() -> None:
    async with stand(2) as at:
        home, limits = await home_of(at), at.service.limits.groups
        (store,) = [each for each in at.stores if each.shard_id == home.shard.shard_id]
        for job in jobs("acme", 12):
            await at.service.enqueue("mail", [job])
        home.eject("out for this test")
        await at.dequeue(10)
        await limits.drain()
        assert not store.begun["take_permits"]
        assert limits.is_uncounted("mail")


async def test_who_waits_gets_a_job_that_nobody_took_at_once() -> None:
    seldom = ServiceSettings(poll_min_ms=50_000, poll_max_ms=60_000)
    async with stand(settings=seldom) as at:
        await change(at, group_concurrency="2")
        await at.service.enqueue("mail", [ExtendedJob(b"x", group="a")])
        jobs = await at.dequeue(1)
        waiting = asyncio.create_task(at.dequeue(1, wait_ms=60_000))
        while not at.service.waiting:
            await asyncio.sleep(0)
        await settled()
        await at.service.limits.groups.give_back("mail", jobs)
        (again,) = await asyncio.wait_for(waiting, 5)
        assert again.descriptor == jobs[0].descriptor


async def test_a_home_that_is_given_up_is_replaced_and_claims_there_count_no_more() -> None:
    async with stand(2) as at:
        home, limits = await home_of(at), at.service.limits.groups
        await change(at, group_concurrency="12")
        for job in jobs("acme", 12):
            await at.service.enqueue("mail", [job])
        handed_out = await at.dequeue(12)
        shard_id = home.shard.shard_id
        await at.service.update_shard(shard_id, "", dequeue_only=True, give_up=True, context=OPERATOR)
        assert await limits.running("mail", ["acme"]) == {"acme": 0}
        assert at.service.queues.group_rules.home("mail") not in ("", shard_id)
        assert any(f":s{shard_id}:" in job.descriptor for job in handed_out)


async def test_claims_of_a_shard_that_is_given_up_count_no_more() -> None:
    async with stand(2) as at:
        home, limits = await home_of(at), at.service.limits.groups
        await change(at, group_concurrency="12")
        for job in jobs("acme", 12):
            await at.service.enqueue("mail", [job])
        handed_out = await at.dequeue(12)
        (other,) = [each.shard.shard_id for each in at.members.all if each is not home]
        there = sum(f":s{other}:" in job.descriptor for job in handed_out)
        await at.service.update_shard(other, "", dequeue_only=True, give_up=True, context=OPERATOR)
        at.clock.tick(CHECK_MS)
        await limits.tick(everything)
        assert 0 < there < 12
        assert await limits.running("mail", ["acme"]) == {"acme": 12 - there}


async def test_a_pattern_limits_a_group_whose_pause_has_ended_by_itself() -> None:
    async with stand(1) as at:
        queues, limits = at.service.queues, at.service.limits.groups
        await change(at, group_concurrency="9")
        await queues.change_group("mail", "trial-*", {"concurrency": "2"}, [], "alice")
        until_ms = at.clock.now_ms() + 1_000
        await queues.change_group("mail", "trial-7", {"paused": "true", "paused_until": str(until_ms)}, [], "alice")
        assert queues.group_rules.of("mail", "trial-7").paused
        assert limits.limit("mail", "trial-7").concurrency == 2
        at.clock.tick(1_000)
        assert limits.limit("mail", "trial-7").concurrency == 2
        view = queues.group_rules.settings("mail", "trial-7", queues.limit_of_groups("mail"))
        assert view["concurrency"] == ("2", "pattern trial-*")
