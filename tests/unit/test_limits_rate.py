"""The rate of a queue: over all processes, charged for what is handed out, kept while its keeper is away."""

from __future__ import annotations

import asyncio
import random

import pytest

from pinlater.backends.base import SLICE_BYTES
from pinlater.backends.redis import RedisShard
from pinlater.clock import SystemClock
from pinlater.errors import DequeueRateLimited, NothingStored, Overloaded, ShardConnectionFailed
from pinlater.model import DequeueRequest, Job
from pinlater.queues.cluster_limits import RateLimiter
from pinlater.shards.rendezvous import rendezvous_pick
from tests.stores.places import Places
from tests.unit.breaking import HeldClock, until_quiet
from tests.unit.fleet import Fleet, Process, fleet, process_over
from tests.unit.stand import Stand, stand


async def set_rate(at: Stand, rate: str) -> None:
    await at.service.queues.change("mail", {"max_jobs_per_second": rate}, [], False, "me")


async def fill(at: Stand, jobs: int) -> None:
    await at.service.enqueue("mail", [Job(b"x")] * jobs)


def calls(at: Stand, name: str) -> int:
    return sum(store.begun[name] for store in at.stores)


async def polled(at: Fleet, for_ms: int, every_ms: int, limit: int, dice: random.Random) -> int:
    """How many jobs all processes get that ask in turn, none of them in step."""
    got = 0
    for _ in range(0, for_ms, every_ms):
        at.clock.tick(every_ms)
        for process in dice.sample(at.processes, len(at.processes)):
            got += len(await process.take("mail", limit))
    return got


@pytest.mark.parametrize(("rate", "every_ms", "limit"), [(1, 50, 5), (10, 20, 5), (100, 50, 20), (5_000, 200, 600)])
async def test_ten_seconds_see_the_rate_whoever_asks(rate: int, every_ms: int, limit: int) -> None:
    async with fleet(processes=4, shards=2) as at:
        await at.change("mail", max_jobs_per_second=f"{rate}/s")
        for store in at.stores:
            for _ in range(0, rate * 12, 5_000):
                await store.enqueue("mail", [Job(b"x")] * min(5_000, rate * 12), at.clock.now_ms())
        dice = random.Random(rate)
        await polled(at, 1_000, every_ms, limit, dice)
        allowed = max(1, rate * 10 * 0.05)
        assert abs(await polled(at, 10_000, every_ms, limit, dice) - rate * 10) <= allowed


async def test_the_order_of_the_shards_is_the_same_for_all_others_after_a_take() -> None:
    async with stand(6) as at:
        limiter = RateLimiter(at.members, at.clock)
        before = list(at.members.healthy())
        for queue in ("mail", "reports", "thumbs"):
            await limiter.take(queue, 1, 10.0)
            first = [store for store in at.stores if store.begun["take_tokens"]]
            assert len(first) == 1
            assert first[0].inner.shard_id == rendezvous_pick(queue, [each.shard.shard_id for each in before])
            first[0].begun.clear()
        assert at.members.healthy() == before


async def test_servers_whose_clocks_differ_fill_the_bucket_by_the_clock_of_its_store() -> None:
    async with fleet(processes=1, shards=1) as at:
        await at.change("mail", max_jobs_per_second="10/s")
        ahead = HeldClock(at.clock.now_ms() + 5_000)
        ids = [*at.processes[0].members.store_ids().values()]
        other = await process_over(at.stores, ids, 2, ahead)
        other.members.all[0].skew_ms = -5_000  # as a ping measures it
        try:
            await other.service.queues.poll()
            await at.processes[0].service.enqueue("mail", [Job(b"x")] * 10)
            assert len(await other.take("mail", 1)) == 1
            at.clock.tick(200)
            ahead.tick(200)
            assert len(await at.processes[0].take("mail", 5)) == 2
            assert await other.take("mail", 5) == []
        finally:
            await other.service.close()


async def test_after_an_idle_time_ten_seconds_see_no_more_than_five_percent_above_the_rate() -> None:
    async with fleet(processes=2, shards=1) as at:
        await at.change("mail", max_jobs_per_second="100/s")
        await at.processes[0].service.enqueue("mail", [Job(b"x")] * 2_000)
        assert len(await at.processes[0].take("mail", 1)) == 1
        at.clock.tick(60_000)
        got = len(await at.processes[0].take("mail", 1_000))
        got += await polled(at, 10_000, 50, 50, random.Random(1))
        assert got <= 1_050


async def test_while_another_shard_keeps_the_bucket_no_second_sees_twice_the_rate() -> None:
    async with fleet(processes=4, shards=2) as at:
        await at.change("mail", max_jobs_per_second="100/s")
        for store in at.stores:
            await store.enqueue("mail", [Job(b"x")] * 2_000, at.clock.now_ms())
        keeper = str(rendezvous_pick("mail", ["1", "2"]))
        dice = random.Random(2)
        for _ in range(3):  # each bucket has filled up meanwhile, as nobody asked for it
            assert await polled(at, 1_000, 20, 50, dice) <= 150
            for process in at.processes:
                process.lose(keeper, at.clock.now_ms())
            assert await polled(at, 1_000, 20, 50, dice) <= 105
            for process in at.processes:
                member = process.members.by_id(keeper)
                assert member is not None
                member.readmit()


async def test_processes_that_see_the_keeper_differently_stay_below_twice_the_rate() -> None:
    async with fleet(processes=4, shards=2) as at:
        await at.change("mail", max_jobs_per_second="100/s")
        for store in at.stores:
            await store.enqueue("mail", [Job(b"x")] * 2_000, at.clock.now_ms())
        dice = random.Random(3)
        await polled(at, 3_000, 20, 50, dice)
        for process in at.processes[:2]:
            process.lose(str(rendezvous_pick("mail", ["1", "2"])), at.clock.now_ms())
        assert await polled(at, 1_000, 20, 50, dice) <= 200
        for _ in range(2):
            assert await polled(at, 1_000, 20, 50, dice) <= 200


async def test_a_process_that_has_changed_the_bucket_soon_gets_the_whole_rate_again() -> None:
    async with fleet(processes=1, shards=2) as at:
        await at.change("mail", max_jobs_per_second="100/s")
        for store in at.stores:
            await store.enqueue("mail", [Job(b"x")] * 2_000, at.clock.now_ms())
        dice = random.Random(4)
        await polled(at, 1_000, 20, 50, dice)
        at.processes[0].lose(str(rendezvous_pick("mail", ["1", "2"])), at.clock.now_ms())
        assert 70 <= await polled(at, 1_000, 20, 50, dice) <= 80
        await polled(at, 1_100, 20, 50, dice)
        assert 95 <= await polled(at, 1_000, 20, 50, dice) <= 105


async def test_over_the_rate_a_dequeue_is_told_when_there_is_a_job_again() -> None:
    async with stand() as at:
        await set_rate(at, "10/s")
        await fill(at, 5)
        assert len(await at.dequeue()) == 1
        with pytest.raises(DequeueRateLimited) as refused:
            await at.dequeue()
        assert refused.value.reason == "RATE_LIMITED"
        assert refused.value.retry_after_ms == 100
        at.clock.tick(100)
        assert len(await at.dequeue()) == 1


async def test_an_empty_queue_is_empty_and_costs_no_token() -> None:
    async with stand() as at:
        await set_rate(at, "10/s")
        assert await at.dequeue() == []
        assert calls(at, "take_tokens") == 0


async def test_a_queue_without_a_limit_makes_no_call_more() -> None:
    async with stand() as at:
        await fill(at, 1)
        assert len(await at.dequeue()) == 1
        assert (calls(at, "claim"), calls(at, "count_ready"), calls(at, "take_tokens")) == (1, 0, 0)


async def test_what_is_asked_for_is_not_charged_but_what_is_handed_out() -> None:
    async with stand() as at:
        await set_rate(at, "100/s")
        await fill(at, 1)
        await at.dequeue()
        at.clock.tick(500)
        await fill(at, 1)
        assert len(await at.dequeue(1_000)) == 1
        await fill(at, 100)
        assert len(await at.dequeue(1_000)) == 49


async def test_a_claim_that_fails_or_finds_less_gives_its_tokens_back() -> None:
    async with stand() as at:
        await set_rate(at, "100/s")
        await fill(at, 100)
        await at.dequeue(1)
        at.clock.tick(500)
        at.stores[0].failures["claim"] = [NothingStored("refused")]
        with pytest.raises(NothingStored):
            await at.dequeue(50)
        await until_quiet(*at.stores)
        assert len(await at.dequeue(50)) == 50


async def test_jobs_whose_caller_left_are_not_charged() -> None:
    async with stand() as at:
        await set_rate(at, "10/s")
        await fill(at, 3)
        jobs = await at.dequeue()
        await at.service.requeue(jobs)
        await until_quiet(*at.stores)
        assert len(await at.dequeue()) == 1


async def test_a_keeper_that_does_not_answer_is_passed_over_and_none_left_is_an_error() -> None:
    async with stand(2) as at:
        await set_rate(at, "10/s")
        rate = RateLimiter(at.members, at.clock)
        keeper = at.stores[int(str(rendezvous_pick("mail", ["1", "2"]))) - 1]
        other = at.stores[2 - int(keeper.shard_id)]
        keeper.failures["take_tokens"] = [NothingStored("refused")] * 2
        assert (await rate.take("mail", 5, 10.0)).granted == 1
        other.failures["take_tokens"] = [NothingStored("refused")]
        with pytest.raises(ShardConnectionFailed, match="rate limit"):
            await rate.take("mail", 5, 10.0)
        await rate.refund("mail", 1, 10.0)
        keeper.failures["take_tokens"] = [Overloaded("busy")]
        with pytest.raises(Overloaded):
            await rate.take("mail", 5, 10.0)


async def test_a_dry_run_is_not_limited() -> None:
    async with stand() as at:
        await set_rate(at, "0/s")
        await fill(at, 3)
        assert len(await at.dequeue(dry_run=True)) == 3


async def test_a_long_poll_waits_for_the_next_token() -> None:
    async with stand() as at:
        await set_rate(at, "10/s")
        await fill(at, 3)
        await at.dequeue()
        waiting = asyncio.create_task(at.dequeue(wait_ms=60_000))
        await at.stores[0].until_begun("take_tokens", 3)
        assert not waiting.done()
        at.clock.tick(100)
        assert len(await asyncio.wait_for(waiting, 60)) == 1


async def test_a_limited_long_poll_whose_time_is_over_says_so_only_if_a_job_was_eligible() -> None:
    async with stand() as at:
        await set_rate(at, "1/s")
        await fill(at, 2)
        await at.dequeue()
        with pytest.raises(DequeueRateLimited) as refused:
            await at.dequeue(wait_ms=50)
        assert refused.value.reason == "RATE_LIMITED"
        at.clock.tick(1_000)
        assert len(await at.dequeue()) == 1
        assert await at.dequeue(wait_ms=50) == []


async def test_enqueues_do_not_wake_a_line_that_is_limited() -> None:
    async with stand() as at:
        await set_rate(at, "1/s")
        await fill(at, 2)
        await at.dequeue()
        waiting = asyncio.create_task(at.dequeue(wait_ms=60_000))
        await at.stores[0].until_begun("take_tokens", 3)
        looks = calls(at, "count_ready")
        for _ in range(50):
            await fill(at, 1)
        assert calls(at, "count_ready") <= looks + 1
        at.service.start_draining()
        assert await waiting == []


async def test_one_round_for_many_who_wait_takes_tokens_once() -> None:
    async with stand() as at:
        await set_rate(at, "100/s")
        await fill(at, 1)
        await at.dequeue()
        at.clock.tick(1_000)
        waiting = [asyncio.create_task(at.dequeue(1, wait_ms=60_000)) for _ in range(20)]
        while at.service.waiting < 20:
            await asyncio.sleep(0)
        tokens = calls(at, "take_tokens")
        await fill(at, 20)
        answers = await asyncio.wait_for(asyncio.gather(*waiting), 60)
        assert sum(map(len, answers)) == 20
        assert calls(at, "take_tokens") == tokens + 1
        assert at.service.metrics.counters[("jobs_dequeued", "mail", 1)] == 21


async def test_of_large_bodies_that_take_several_claims_none_is_lost_when_one_of_them_fails() -> None:
    async with stand() as at:
        await set_rate(at, "1000/s")
        await fill(at, 1)
        await at.dequeue()
        at.clock.tick(1_000)
        waiting = [asyncio.create_task(at.dequeue(1, wait_ms=60_000)) for _ in range(3)]
        while at.service.waiting < 3:
            await asyncio.sleep(0)
        at.stores[0].failures["claim"] = [None, NothingStored("no second claim")]
        await at.service.enqueue("mail", [Job(bytes(SLICE_BYTES))] * 3)
        answers = await asyncio.wait_for(asyncio.gather(*waiting), 60)
        assert [len(jobs) for jobs in answers] == [1, 1, 1]


@pytest.mark.slow
async def test_over_a_real_store_and_in_real_time_no_more_is_handed_out_than_the_rate(redis_places: Places) -> None:
    url, clock, rate = redis_places.fresh(), SystemClock(), 200
    stores = [RedisShard(url, "1") for _ in range(4)]
    ids = [await store.open() for store in stores]
    processes = [
        await process_over([store], [store_id], number, clock)
        for number, (store, store_id) in enumerate(zip(stores, ids, strict=True), 1)
    ]
    first = processes[0].service
    await first.create_queue("mail")
    await first.queues.change("mail", {"max_jobs_per_second": f"{rate}/s"}, [], False, "me")
    for process in processes:
        await process.service.queues.poll()
    await first.enqueue("mail", [Job(b"x")] * 2_000)
    began_ms = clock.now_ms()

    async def work(process: Process) -> int:
        got = 0
        while clock.now_ms() < began_ms + 2_000:
            try:
                got += len(await process.service.dequeue(DequeueRequest("mail", 20, wait_ms=200)))
            except DequeueRateLimited:
                continue
        return got

    got = sum(await asyncio.gather(*[work(process) for process in processes for _ in range(2)]))
    seconds = (clock.now_ms() - began_ms) / 1_000
    assert 0 < got <= rate * seconds * 1.05 + 1
    for process in processes:
        await process.service.close()
    for store in stores:
        await store.close()
