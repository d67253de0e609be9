"""Dequeues that wait for several queues: answered once, by whichever has a job, and no job is forgotten meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from pinlater.data_folder.password import hash_password
from pinlater.errors import DequeueRateLimited, NoHealthyShards, NothingStored, Overloaded, QueueNotFound, UnknownError
from pinlater.model import (
    MAX_QUEUE_NAME_CHARS,
    Ack,
    DequeuedFromQueues,
    DequeueFromQueuesRequest,
    DequeueRequest,
    Job,
    QueueShare,
)
from pinlater.queues.quota_balancer import QuotaBalancer
from pinlater.service import ServiceSettings
from pinlater.wire.codec import encode_reply
from pinlater.wire.convert import dequeued_from_queues_to_wire
from tests.unit.breaking import HeldTime, settled, until_quiet
from tests.unit.stand import ME, Stand, stand

LONG_MS = 60_000
WITHIN_S = 60.0
SELDOM = ServiceSettings(poll_min_ms=50_000, poll_max_ms=60_000)
"""Looking for what others did never happens within a test: whatever comes, was announced."""

PASSWORD = "p" * 20


async def made(at: Stand, *names: str) -> list[QueueShare]:
    for name in names:
        await at.service.create_queue(name)
    return [QueueShare(name) for name in names]


async def asked(at: Stand, shares: list[QueueShare], limit: int = 1, wait_ms: int = 0) -> DequeuedFromQueues:
    return await at.service.dequeue_from_queues(DequeueFromQueuesRequest(shares, limit, wait_ms=wait_ms), context=ME)


async def waiting(
    at: Stand, shares: list[QueueShare], limit: int = 1, wait_ms: int = LONG_MS
) -> asyncio.Task[DequeuedFromQueues]:
    """One more that waits."""
    before = at.service.waiting
    task = asyncio.create_task(asked(at, shares, limit, wait_ms))
    async with asyncio.timeout(WITHIN_S):
        while at.service.waiting == before and not task.done():
            await asyncio.sleep(0)
    await until_quiet(*at.stores)
    return task


async def answered(task: asyncio.Task[DequeuedFromQueues]) -> DequeuedFromQueues:
    return await asyncio.wait_for(task, WITHIN_S)


def bodies(jobs: DequeuedFromQueues) -> list[bytes]:
    return [job.body for job in jobs]


async def set_queue(at: Stand, queue: str, **settings: str) -> None:
    await at.service.queues.change(queue, settings, [], False, "me")
    await QuotaBalancer(at.members, at.service.queues, at.clock).balance(queue)


# -- who gets what ---------------------------------------------------------------------------------------------------


async def test_whichever_queue_gets_a_job_answers_it_again_and_again() -> None:
    async with stand(settings=SELDOM) as at:
        shares = await made(at, "a", "b", "c")
        for number in range(12):
            task = await waiting(at, shares)
            await at.service.enqueue("abc"[number % 3], [Job(b"%d" % number)])
            assert bodies(await answered(task)) == [b"%d" % number]
        assert at.service.waiting == 0


async def test_one_that_comes_back_asks_only_for_the_queue_that_it_does_not_know() -> None:
    """All others are known to be empty, since whatever came was told."""
    async with stand(settings=ServiceSettings(poll_min_ms=60_000, poll_max_ms=60_000)) as at:
        shares = await made(at, *"abcdefgh")
        await at.service.enqueue("a", [Job(b"0")])
        await asked(at, shares, 1, LONG_MS)
        for name in "bcd":
            asks = len(at.stores[0].sent["next_due"])
            task = await waiting(at, shares)
            await at.service.enqueue(name, [Job(b"x")])
            await answered(task)
            asks_since = at.stores[0].sent["next_due"][asks:]
            assert sum(len(queues) for queues, _ in asks_since) <= 2 * len(shares)
        asks = len(at.stores[0].sent["next_due"])
        task = await waiting(at, shares)
        assert [list(queues) for queues, _ in at.stores[0].sent["next_due"][asks:]] == [["d"]]
        await at.service.enqueue("h", [Job(b"x")])
        await answered(task)


async def test_jobs_of_two_queues_at_one_moment_leave_one_for_the_next_call() -> None:
    async with stand(settings=SELDOM) as at:
        shares = await made(at, "a", "b")
        task = await waiting(at, shares)
        await asyncio.gather(at.service.enqueue("a", [Job(b"a")]), at.service.enqueue("b", [Job(b"b")]))
        first = bodies(await answered(task))
        second = bodies(await answered(await waiting(at, shares)))
        assert sorted(first + second) == [b"a", b"b"]


async def test_a_queue_that_passed_it_over_is_told_when_it_is_free_again() -> None:
    """While a claim is under way for it that brings nothing, a job comes in another queue."""
    async with stand(settings=SELDOM) as at:
        shares = await made(at, "a", "b")
        task = await waiting(at, shares)
        claims = at.stores[0].begun["claim"]
        gate = at.stores[0].hold("claim")
        at.service.events.ready("a", 1)  # there is none
        await at.stores[0].until_begun("claim", claims + 1)
        await at.service.enqueue("b", [Job(b"b")])
        await settled()
        assert at.stores[0].begun["claim"] == claims + 1
        gate.set()
        assert bodies(await answered(task)) == [b"b"]


@pytest.mark.parametrize("is_plain", [True, False])
async def test_a_queue_that_passed_over_one_serves_the_next_that_comes(is_plain: bool) -> None:
    async with stand(settings=SELDOM) as at:
        shares = await made(at, "a", "b")
        first = await waiting(at, shares)
        claims = at.stores[0].begun["claim"]
        gate = at.stores[0].hold("claim")
        enqueued = asyncio.create_task(at.service.enqueue("a", [Job(b"a")]))
        await at.stores[0].until_begun("claim", claims + 1)
        await at.service.enqueue("b", [Job(b"b")])
        await settled()
        if is_plain:
            second = asyncio.ensure_future(at.service.dequeue(DequeueRequest("b", 1, wait_ms=LONG_MS), context=ME))
        else:
            second = asyncio.ensure_future(asked(at, [shares[1]], 1, LONG_MS))
        await settled()
        gate.set()
        await enqueued
        got = [*await answered(first), *await asyncio.wait_for(second, WITHIN_S)]
        assert sorted(job.body for job in got) == [b"a", b"b"]


async def test_it_never_gets_more_than_its_limit_from_all_queues_together() -> None:
    async with stand(settings=SELDOM) as at:
        shares = await made(at, *"abcd")
        task = await waiting(at, shares, limit=3)
        await asyncio.gather(*[at.service.enqueue(name, [Job(b"x")] * 5) for name in "abcd"])
        got = len(await answered(task))
        assert 1 <= got <= 3
        total = got
        while jobs := await asked(at, shares, 3):
            assert len(jobs) <= 3
            total += len(jobs)
        assert total == 20


async def test_who_came_first_is_served_first_whether_for_one_queue_or_for_several() -> None:
    async with stand(settings=SELDOM) as at:
        shares = await made(at, "a", "b")
        order: list[str] = []

        async def plain() -> None:
            await at.service.dequeue(DequeueRequest("a", 1, wait_ms=LONG_MS), context=ME)
            order.append("plain")

        async def shared() -> None:
            await asked(at, shares, 1, LONG_MS)
            order.append("shared")

        tasks = []
        for number, each in enumerate((plain, shared, plain, shared)):
            tasks.append(asyncio.create_task(each()))
            while at.service.waiting <= number:
                await asyncio.sleep(0)
        for task in tasks:
            await at.service.enqueue("a", [Job(b"x")])
            await asyncio.wait_for(task, WITHIN_S)
        assert order == ["plain", "shared", "plain", "shared"]


async def test_a_plain_dequeue_is_served_although_one_of_several_queues_has_left() -> None:
    async with stand(settings=SELDOM) as at:
        shares = await made(at, "a", "b")
        task = await waiting(at, shares)
        await at.service.enqueue("b", [Job(b"b")])
        await answered(task)
        plain = asyncio.create_task(at.service.dequeue(DequeueRequest("a", 1, wait_ms=LONG_MS), context=ME))
        while not at.service.waiting:
            await asyncio.sleep(0)
        await at.service.enqueue("a", [Job(b"a")])
        assert [job.body for job in await asyncio.wait_for(plain, WITHIN_S)] == [b"a"]


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("seed", range(4))
async def test_no_job_is_forgotten_and_none_is_handed_out_twice(seed: int, shards: int) -> None:
    """Workers of many queues and of one, some of which leave; every job was announced, and nobody polls."""
    dice = random.Random(seed)
    async with stand(shards, settings=SELDOM) as at:
        names = [f"q{number}" for number in range(12)]
        await made(at, *names)
        got: Counter[bytes] = Counter()
        is_over = False

        async def work(number: int) -> None:
            some = names if number % 3 else dice.sample(names, 5)
            shares = [QueueShare(name, dice.randint(1, 9), dice.choice((0, 0, 3))) for name in some]
            while not is_over:
                if number % 4 == 3:
                    name = dice.choice(names)
                    call = at.service.dequeue(DequeueRequest(name, 2, wait_ms=dice.choice((1, 20))), context=ME)
                else:
                    limit = dice.choice((1, 1, 4))
                    request = DequeueFromQueuesRequest(shares, limit, wait_ms=dice.choice((0, 30, LONG_MS)))
                    call = at.service.dequeue_from_queues(request, context=ME)
                task = asyncio.ensure_future(call)
                if dice.random() < 0.1:  # its caller goes
                    await asyncio.sleep(dice.choice((0, 0, 0.001)))
                    if task.cancel():
                        await asyncio.wait([task])
                        continue
                for job in await task:
                    got[job.body] += 1
                await asyncio.sleep(0)

        workers = [asyncio.create_task(work(number)) for number in range(8)]
        amount = 0
        for _ in range(60):
            some = [Job(b"%d" % (amount + each)) for each in range(dice.choice((1, 1, 2, 6)))]
            amount += len(some)
            await at.service.enqueue(dice.choice(names), some)
            await asyncio.sleep(dice.choice((0, 0, 0.002)))
        async with asyncio.timeout(WITHIN_S):
            while len(got) < amount:
                await asyncio.sleep(0.005)
        is_over = True
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)
        assert got.total() == amount


# -- limits ----------------------------------------------------------------------------------------------------------


async def test_a_paused_queue_is_named_and_waited_for_until_it_is_resumed() -> None:
    async with stand(settings=SELDOM) as at:
        shares = await made(at, "a", "b")
        await set_queue(at, "a", paused="true")
        await at.service.enqueue("a", [Job(b"a")])
        told = await asked(at, shares, 1, 1)
        assert told == []
        assert told.queue_errors["a"].reason == "QUEUE_PAUSED"
        task = await waiting(at, shares)
        await set_queue(at, "a", paused="false")
        assert bodies(await answered(task)) == [b"a"]


async def test_a_queue_that_is_paused_meanwhile_keeps_nobody_from_the_others() -> None:
    async with stand(settings=SELDOM) as at:
        shares = await made(at, "a", "b")
        task = await waiting(at, shares)
        await set_queue(at, "a", paused="true")
        await at.service.enqueue("a", [Job(b"a")])
        await until_quiet(*at.stores)
        assert not task.done()
        await at.service.enqueue("b", [Job(b"b")])
        jobs = await answered(task)
        assert bodies(jobs) == [b"b"]
        assert set(jobs.queue_errors) == {"a"}


async def test_when_the_last_queue_is_paused_or_deleted_the_answer_comes_at_once() -> None:
    async with stand(settings=ServiceSettings(admin_password_hash=hash_password(PASSWORD))) as at:
        shares = await made(at, "a", "b")
        task = await waiting(at, shares)
        await set_queue(at, "a", paused="true")
        await at.service.delete_queue("b", PASSWORD)
        jobs = await answered(task)
        assert jobs == []
        assert isinstance(jobs.queue_errors["a"], DequeueRateLimited)
        assert isinstance(jobs.queue_errors["b"], QueueNotFound)


async def test_a_queue_that_is_made_meanwhile_is_waited_for_too() -> None:
    async with stand(settings=SELDOM) as at:
        shares = await made(at, "a")
        task = await waiting(at, [*shares, QueueShare("later")])
        await made(at, "later")
        await at.service.enqueue("later", [Job(b"x")])
        jobs = await answered(task)
        assert bodies(jobs) == [b"x"]
        assert jobs.queue_errors == {}


async def test_a_name_that_can_be_no_queue_s_is_named_in_the_answer() -> None:
    async with stand() as at:
        jobs = await asked(at, [QueueShare("a b")], 1, LONG_MS)
        assert isinstance(jobs.queue_errors["a b"], QueueNotFound)


async def test_a_rate_hands_out_as_its_tokens_come_although_other_queues_keep_coming() -> None:
    async with stand() as at:
        shares = await made(at, "slow", "quick")
        await set_queue(at, "slow", max_jobs_per_second="10/s")
        await at.service.enqueue("slow", [Job(b"slow")] * 40)
        slow, at_ms = 0, 0
        while jobs := await asked(at, [shares[0]], 1):
            slow += len(jobs)  # what its bucket holds at first
        began = slow
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + 1.0
        while loop.time() < ends_s:
            await at.service.enqueue("quick", [Job(b"quick")])
            jobs = await asked(at, shares, 1, 50)
            slow += sum(job.body == b"slow" for job in jobs)
            passed_ms = int((loop.time() - ends_s + 1.0) * 1000)
            at.clock.tick(passed_ms - at_ms)
            at_ms = passed_ms
            await asyncio.sleep(0.002)
        assert 6 <= slow - began <= 11


async def test_a_rate_is_told_where_it_left_nothing_when_the_time_is_over_and_at_once() -> None:
    async with stand() as at:
        shares = await made(at, "slow", "empty")
        await set_queue(at, "slow", max_jobs_per_second="1/s")
        await at.service.enqueue("slow", [Job(b"x")] * 9)
        while await asked(at, shares, 9):
            pass
        for wait_ms in (0, 50):
            jobs = await asked(at, shares, 1, wait_ms)
            assert jobs == []
            assert {queue: error.reason for queue, error in jobs.queue_errors.items()} == {"slow": "RATE_LIMITED"}


async def test_a_rate_that_keeps_nothing_back_any_more_is_not_told() -> None:
    async with stand() as at:
        shares = await made(at, "slow", "empty")
        await set_queue(at, "slow", max_jobs_per_second="1/s")
        descriptors = await at.service.enqueue("slow", [Job(b"x")] * 9)
        while await asked(at, shares, 9):
            pass
        assert set((await asked(at, shares, 1, 20)).queue_errors) == {"slow"}
        await at.service.cancel("slow", descriptors)
        at.clock.tick(5_000)
        async with asyncio.timeout(WITHIN_S):
            while (await asked(at, shares, 1, 50)).queue_errors:
                await asyncio.sleep(0.01)


async def test_capacity_that_is_freed_answers_one_that_waits() -> None:
    async with stand(settings=SELDOM) as at:
        shares = await made(at, "few", "other")
        await set_queue(at, "few", max_in_progress="1")
        await at.service.enqueue("few", [Job(b"1"), Job(b"2")])
        (first,) = await asked(at, shares, 2)
        task = await waiting(at, shares)
        assert not task.done()
        await at.service.ack("few", [Ack(first.descriptor)], [])
        assert bodies(await answered(task)) == [b"2"]


async def test_prefetch_brings_more_at_once_and_nothing_from_a_queue_with_limits_or_after_waiting() -> None:
    async with stand(settings=SELDOM) as at:
        share = QueueShare("a", prefetch=4)
        await made(at, "a")
        await at.service.enqueue("a", [Job(b"x")] * 30)
        assert len(await asked(at, [share], 2)) == 6
        assert len(await at.service.dequeue(DequeueRequest("a", 2, prefetch=3), context=ME)) == 5
        await set_queue(at, "a", max_in_progress="100")
        assert len(await asked(at, [share], 2)) == 2
        assert len(await at.service.dequeue(DequeueRequest("a", 2, prefetch=3), context=ME)) == 2
        await set_queue(at, "a", max_in_progress="none")
        while await asked(at, [share], 10):
            pass
        task = await waiting(at, [share], 2)
        plain = asyncio.create_task(at.service.dequeue(DequeueRequest("a", 2, wait_ms=LONG_MS, prefetch=3), context=ME))
        while at.service.waiting < 2:
            await asyncio.sleep(0)
        await at.service.enqueue("a", [Job(b"x")] * 9)
        assert len(await answered(task)) == 2
        assert len(await asyncio.wait_for(plain, WITHIN_S)) == 2


async def test_prefetch_of_many_queues_stays_within_what_an_answer_may_hold() -> None:
    async with stand(settings=ServiceSettings(max_jobs=10)) as at:
        shares = [QueueShare(f"q{number}", prefetch=50) for number in range(6)]
        await made(at, *[share.queue for share in shares])
        for share in shares:
            await at.service.enqueue(share.queue, [Job(b"x")] * 10)
        assert len(await asked(at, shares, 6)) == 10


async def test_large_bodies_of_many_queues_fit_the_answer_and_none_is_lost() -> None:
    settings = ServiceSettings(max_body_bytes=200_000, max_answer_bytes=1_000_000)
    async with stand(settings=settings) as at:
        shares = await made(at, *[f"q{number}" for number in range(12)])
        for share in shares:
            await at.service.enqueue(share.queue, [Job(bytes(190_000))] * 2)
        got = 0
        while jobs := await asked(at, shares, 24):
            assert sum(len(job.body) for job in jobs) <= 1_000_000
            got += len(jobs)
        assert got == 24


async def test_an_answer_with_errors_of_many_queues_and_large_bodies_fits_too() -> None:
    settings = ServiceSettings(max_body_bytes=10_000, max_answer_bytes=600_000)
    async with stand(settings=settings) as at:
        (share,) = await made(at, "a")
        await at.service.enqueue("a", [Job(bytes(10_000))] * 70)
        missing = [QueueShare(f"q{number:03}".ljust(MAX_QUEUE_NAME_CHARS, "x")) for number in range(600)]
        jobs = await asked(at, [share, *missing], 100)
        assert len(jobs.queue_errors) == len(missing)
        assert jobs
        assert len(encode_reply("dequeueFromQueues", 1, dequeued_from_queues_to_wire(jobs))) <= 600_000


# -- shares ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 7, 40])
async def test_queues_that_stay_full_share_by_weight(limit: int) -> None:
    async with stand() as at:
        shares = [QueueShare("light", 1), QueueShare("heavy", 3)]
        await made(at, "light", "heavy")
        amount = 400
        for share in shares:
            await at.service.enqueue(share.queue, [Job(b"x")] * amount)
        got: Counter[str] = Counter()
        while got.total() < 280:
            jobs = await asked(at, shares, limit, LONG_MS)
            assert len(jobs) == limit
            got.update(job.descriptor.partition(":")[0] for job in jobs)
        assert 0.12 <= got["light"] / got.total() <= 0.38  # a quarter; five times the deviation of single draws


async def test_what_one_queue_does_not_need_goes_to_the_others() -> None:
    async with stand() as at:
        shares = [QueueShare("heavy", 1000), *[QueueShare(name) for name in "abc"]]
        await made(at, "heavy", *"abc")
        await at.service.enqueue("heavy", [Job(b"x")])
        await at.service.enqueue("b", [Job(b"x")] * 20)
        jobs = await asked(at, shares, 10)
        assert len(jobs) == 10


# -- ends ------------------------------------------------------------------------------------------------------------


async def test_a_server_that_drains_answers_at_once_and_keeps_no_task() -> None:
    async with stand(settings=SELDOM) as at:
        shares = await made(at, "a", "b")
        task = await waiting(at, shares)
        at.service.start_draining()
        assert await answered(task) == []
        assert await asked(at, shares, 1, LONG_MS) == []
        await asyncio.wait_for(at.service.long_polls.drain(), WITHIN_S)


async def test_a_caller_that_goes_loses_no_job_and_leaves_no_place() -> None:
    async with stand(settings=SELDOM) as at:
        shares = await made(at, "a", "b")
        task = await waiting(at, shares)
        gate = at.stores[0].hold_answer("claim")
        claims = at.stores[0].begun["claim"]
        await at.service.enqueue("a", [Job(b"a", attempts_allowed=1)])
        await at.stores[0].until_begun("claim", claims + 1)
        task.cancel()
        await asyncio.wait([task])
        gate.set()
        assert at.service.waiting == 0
        (job,) = await answered(await waiting(at, shares))
        assert (job.body, job.attempts_remaining) == (b"a", 1)


async def test_a_caller_that_goes_during_claims_of_several_queues_loses_no_job() -> None:
    async with stand() as at:
        shares = await made(at, *"abc")
        for name in "abc":
            await at.service.enqueue(name, [Job(b"x", attempts_allowed=1)])
        gate = at.stores[0].hold_answer("claim")
        task = asyncio.create_task(asked(at, shares, 3))
        await at.stores[0].until_begun("claim", 3)
        task.cancel()
        await asyncio.wait([task])
        gate.set()
        del at.stores[0].late["claim"]
        got = 0
        async with asyncio.timeout(WITHIN_S):
            while got < 3:
                got += len(await asked(at, shares, 3))
                await asyncio.sleep(0)


async def test_its_time_is_one_timer_and_ends_with_the_claim_that_is_under_way() -> None:
    async with stand(settings=SELDOM) as at:
        shares = await made(at, "a", "b")
        time = HeldTime(*at.stores)
        task = await waiting(at, shares, wait_ms=5_000)
        gate = at.stores[0].hold("claim")
        claims = at.stores[0].begun["claim"]
        enqueued = asyncio.create_task(at.service.enqueue("a", [Job(b"a")]))
        await at.stores[0].until_begun("claim", claims + 1)
        del at.stores[0].gates["claim"]
        await time.leap(6)
        assert not task.done()
        gate.set()
        await enqueued
        assert bodies(await answered(task)) == [b"a"]


async def test_too_many_that_wait_are_refused() -> None:
    async with stand(settings=ServiceSettings(max_waiters=1)) as at:
        shares = await made(at, "a", "b")
        task = await waiting(at, shares)
        with pytest.raises(Overloaded):
            await asked(at, shares, 1, LONG_MS)
        task.cancel()
        await asyncio.wait([task])


async def test_without_any_shard_it_is_refused_as_a_plain_dequeue_is() -> None:
    async with stand() as at:
        shares = await made(at, "a", "b")
        at.stores[0].broken = NothingStored("it is away")
        with pytest.raises((NoHealthyShards, NothingStored)):
            await asked(at, shares, 1)


async def test_a_queue_that_fails_in_a_way_nobody_foresaw_keeps_nothing_from_the_others() -> None:
    async with stand(settings=SELDOM) as at:
        shares = await made(at, "a", "b")
        task = await waiting(at, shares)
        at.stores[0].failures["claim"] = [ZeroDivisionError("unforeseen")]
        at.service.events.ready("a", 1)
        await until_quiet(*at.stores)
        assert not task.done()
        await at.service.enqueue("b", [Job(b"b")])
        assert bodies(await answered(task)) == [b"b"]


async def test_a_claim_at_once_that_fails_in_a_way_nobody_foresaw_gives_back_what_the_others_brought() -> None:
    async with stand() as at:
        shares = await made(at, *"abc")
        for name in "abc":
            await at.service.enqueue(name, [Job(b"x", attempts_allowed=1)])
        at.stores[0].failures["claim"] = [None, ZeroDivisionError("unforeseen")]
        with pytest.raises((ZeroDivisionError, UnknownError)):
            await asked(at, shares, 3)
        got = 0
        async with asyncio.timeout(WITHIN_S):
            while got < 3:
                got += len(await asked(at, shares, 3))
                await asyncio.sleep(0)
