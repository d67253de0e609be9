"""Paused queues, the maximum in progress where jobs are handed out, and the bound on pending jobs."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.errors import DequeueRateLimited, EnqueueRejected
from pinlater.model import Ack, Checkpoint, DequeueRequest, Job, JobFilter, JobState
from pinlater.queues import cluster_limits
from pinlater.queues.cluster_limits import PendingCounts
from pinlater.queues.quota_balancer import QuotaBalancer
from pinlater.service import ServiceSettings
from tests.unit.breaking import settled
from tests.unit.stand import ME, Stand, stand

SELDOM = ServiceSettings(poll_min_ms=50_000, poll_max_ms=60_000)


async def change(at: Stand, **settings: str) -> None:
    await at.service.queues.change("mail", settings, [], False, "alice")


async def in_line(at: Stand, limit: int = 1) -> asyncio.Task[list[object]]:
    waiting = at.service.waiting
    task = asyncio.create_task(at.dequeue(limit, wait_ms=60_000))
    while at.service.waiting == waiting and not task.done():
        await asyncio.sleep(0)
    return task  # type: ignore[return-value]


@pytest.mark.parametrize("wait_ms", [0, 60_000])
async def test_a_paused_queue_says_so_at_once_with_who_why_and_until_when(wait_ms: int) -> None:
    async with stand() as at:
        await at.service.enqueue("mail", [Job(b"x")])
        until_ms = at.clock.now_ms() + 5_000
        await change(at, paused="true", paused_why="the mail server is ill", paused_until=str(until_ms))
        with pytest.raises(DequeueRateLimited) as refused:
            await at.dequeue(wait_ms=wait_ms)
        assert refused.value.reason == "QUEUE_PAUSED"
        assert refused.value.retry_after_ms == 5_000
        for word in ("alice", "the mail server is ill", "since 20", "until 20"):
            assert word in refused.value.message
        at.clock.tick(5_000)
        assert len(await at.dequeue(wait_ms=wait_ms)) == 1


@pytest.mark.parametrize(
    ("who", "until_ms"), [("a\nb\x1b[31m", 1_900_000_000_000), ("", 2**53 - 1), (" \0", 2**53 - 1)]
)
async def test_whichever_operator_pauses_until_whenever_the_refusal_says_so(who: str, until_ms: int) -> None:
    async with stand() as at:
        until = {"paused": "true", "paused_until": str(until_ms)}
        await at.service.queues.change("mail", until, [], False, who)
        with pytest.raises(DequeueRateLimited) as refused:
            await at.dequeue()
        assert refused.value.retry_after_ms == until_ms - at.clock.now_ms()
        assert who in refused.value.message
        assert at.service.queues.settings("mail").paused_by == who


async def test_rate_0_is_like_paused() -> None:
    async with stand() as at:
        await at.service.enqueue("mail", [Job(b"x")])
        await change(at, max_jobs_per_second="0/s")
        with pytest.raises(DequeueRateLimited) as refused:
            await at.dequeue(wait_ms=60_000)
        assert refused.value.reason == "QUEUE_PAUSED"
        assert refused.value.retry_after_ms is None


async def test_on_a_paused_queue_all_but_dequeues_go_on_and_riding_acks_are_carried_out() -> None:
    async with stand() as at:
        await at.service.enqueue("mail", [Job(b"x"), Job(b"y")])
        first, second = await at.dequeue()
        await change(at, paused="true")
        await at.service.enqueue("mail", [Job(b"z")])
        assert len(await at.dequeue(dry_run=True)) == 1
        await at.service.checkpoint("mail", [Checkpoint(second.descriptor)], context=ME)
        with pytest.raises(DequeueRateLimited) as refused:
            await at.service.dequeue(DequeueRequest("mail", 1, succeeded=[Ack(first.descriptor)]), context=ME)
        assert refused.value.acks_applied is True
        assert await at.service.count(JobFilter("mail", JobState.SUCCEEDED)) == 1
        assert at.service.metrics.counters[("dequeues_limited", "mail", "paused")] == 1


async def test_who_waits_when_the_queue_is_paused_is_told_at_once_and_an_enqueue_wakes_nobody() -> None:
    async with stand(settings=SELDOM) as at:
        waiting = [await in_line(at) for _ in range(2)]
        await change(at, paused="true")
        for task in waiting:
            with pytest.raises(DequeueRateLimited) as refused:
                await asyncio.wait_for(task, 60)
            assert refused.value.reason == "QUEUE_PAUSED"
        looks = at.stores[0].begun["count_ready"]
        await at.service.enqueue("mail", [Job(b"x")])
        await settled()
        assert at.stores[0].begun["count_ready"] == looks
        assert at.service.waiting == 0


async def test_a_pause_that_comes_during_the_first_look_counts() -> None:
    async with stand(settings=SELDOM) as at:
        gate = at.stores[0].hold("claim")
        waiting = asyncio.create_task(at.dequeue(wait_ms=60_000))
        await at.stores[0].until_begun("claim")
        await change(at, paused="true")
        gate.set()
        with pytest.raises(DequeueRateLimited):
            await asyncio.wait_for(waiting, 60)


async def test_another_setting_wakes_the_line() -> None:
    async with stand(settings=SELDOM) as at:
        await change(at, max_in_progress="0")
        await at.service.enqueue("mail", [Job(b"x")])
        waiting = await in_line(at)
        assert await at.dequeue() == []
        await change(at, max_in_progress="none")
        assert len(await asyncio.wait_for(waiting, 60)) == 1


async def test_the_maximum_in_progress_is_an_empty_answer_and_an_ack_ends_the_wait() -> None:
    async with stand(settings=SELDOM) as at:
        await change(at, max_in_progress="1")
        await at.service.enqueue("mail", [Job(b"x"), Job(b"y")])
        shares = QuotaBalancer(at.members, at.service.queues, at.clock)
        assert await at.dequeue() == []
        assert await shares.balance("mail")
        (job,) = await at.dequeue()
        assert await at.dequeue() == []
        waiting = await in_line(at)
        poller = at.service.long_polls.poller("mail")
        assert poller is not None
        poller.unthrottle()
        while poller.known.throttle is None:
            await asyncio.sleep(0)
        await at.service.ack("mail", [Ack(job.descriptor)], [])
        assert len(await asyncio.wait_for(waiting, 60)) == 1
        assert at.service.metrics.counters[("dequeues_limited", "mail", "in_progress")] >= 2


async def capped(at: Stand, jobs: int = 2) -> str:
    """So many jobs, of which one may be in progress, and is."""
    await change(at, max_in_progress="1")
    await at.service.enqueue("mail", [Job(b"x")] * jobs)
    await QuotaBalancer(at.members, at.service.queues, at.clock).balance("mail")
    (job,) = await at.dequeue()
    return job.descriptor


async def ack_while_it_is_refused(at: Stand, descriptor: str) -> None:
    """The store has found no room for the claim that comes next, which learns of it after the ack."""
    store = at.stores[0]
    gate = store.hold_answer("claim")
    await store.until_begun("claim", store.begun["claim"] + 1)
    await store.until_quiet()
    await at.service.ack("mail", [Ack(descriptor)], [])
    gate.set()


async def test_an_ack_while_a_first_look_finds_no_room_is_not_missed() -> None:
    async with stand(settings=SELDOM) as at:
        held = await capped(at)
        waiting = asyncio.create_task(at.dequeue(wait_ms=60_000))
        await ack_while_it_is_refused(at, held)
        assert len(await asyncio.wait_for(waiting, 60)) == 1


async def test_an_ack_after_a_first_look_found_no_room_ends_the_wait() -> None:
    async with stand(settings=SELDOM) as at:
        held = await capped(at)
        waiting = await in_line(at)
        await at.service.ack("mail", [Ack(held)], [])
        assert len(await asyncio.wait_for(waiting, 60)) == 1


async def test_who_waits_after_a_first_look_that_the_rate_cut_short_waits_as_long_as_the_rate_says() -> None:
    async with stand(settings=SELDOM) as at:
        await change(at, max_jobs_per_second="2/s")
        await at.service.enqueue("mail", [Job(b"x")] * 20)
        await at.dequeue(20)
        waiting = await in_line(at)
        poller = at.service.long_polls.poller("mail")
        assert poller is not None
        assert poller.known.throttle is not None
        assert 0 < poller.known.throttled_for() <= 1
        at.clock.tick(1_000)
        assert len(await asyncio.wait_for(waiting, 60)) == 1


async def test_an_ack_while_the_line_is_being_refused_room_is_not_missed() -> None:
    async with stand(settings=SELDOM) as at:
        held = await capped(at, 1)
        waiting = await in_line(at)
        enqueueing = asyncio.create_task(at.service.enqueue("mail", [Job(b"y")]))
        await ack_while_it_is_refused(at, held)
        await enqueueing
        assert len(await asyncio.wait_for(waiting, 60)) == 1


async def test_a_free_quota_is_found_although_jobs_wait_on_a_shard_without_one() -> None:
    async with stand(2) as at:
        await change(at, max_in_progress="1")
        for store in at.stores:
            await store.inner.enqueue("mail", [Job(b"x")] * 20, at.clock.now_ms())
        await QuotaBalancer(at.members, at.service.queues, at.clock).balance("mail")
        for _ in range(10):
            (job,) = await at.dequeue(1)
            await at.service.ack("mail", [Ack(job.descriptor)], [])


async def test_a_line_at_the_maximum_does_not_spin_when_jobs_keep_coming() -> None:
    async with stand(settings=ServiceSettings(poll_min_ms=1_000, poll_max_ms=60_000)) as at:
        await change(at, max_in_progress="0")
        await at.service.enqueue("mail", [Job(b"x")])
        waiting = await in_line(at)
        await at.service.enqueue("mail", [Job(b"x")])
        await at.stores[0].until_begun("count_ready", 2)
        await settled()
        looks = at.stores[0].begun["count_ready"]
        for _ in range(30):
            await at.service.enqueue("mail", [Job(b"x")])
        assert at.stores[0].begun["count_ready"] <= looks + 1
        at.service.start_draining()
        assert await waiting == []


async def test_a_full_queue_refuses_what_passes_its_bound_whole() -> None:
    async with stand(2) as at:
        await change(at, max_pending="5")
        await at.service.enqueue("mail", [Job(b"x")] * 3)
        await at.service.enqueue("mail", [Job(b"x", run_after_ms=at.clock.now_ms() + 1_000)])
        with pytest.raises(EnqueueRejected, match="about 4 pending jobs; 2 more would pass its bound of 5") as refused:
            await at.service.enqueue("mail", [Job(b"x")] * 2)
        assert refused.value.reason == "QUEUE_FULL"
        assert refused.value.retry_after_ms is not None
        await at.service.enqueue("mail", [Job(b"x")])
        assert len(await at.dequeue(2)) == 2
        await at.service.enqueue("mail", [Job(b"x")] * 2)


async def test_what_others_enqueue_is_known_by_counting() -> None:
    async with stand(2) as at:
        await change(at, max_pending="5")
        pending = PendingCounts(at.members, at.service.queues, at.clock)
        now_ms = at.clock.now_ms()
        await at.stores[0].inner.enqueue("mail", [Job(b"x")] * 2, now_ms)
        await at.stores[1].inner.enqueue("mail", [Job(b"x", run_after_ms=now_ms + 9)] * 3, now_ms)
        pending.check("mail", 5)
        await pending.poll()
        with pytest.raises(EnqueueRejected):
            pending.check("mail", 1)
        await change(at, max_pending="none")
        await pending.poll()
        pending.check("mail", 1_000)


@pytest.mark.parametrize(("jobs", "looks"), [(2, 1), (3, 3)])
async def test_a_queue_that_is_nearly_empty_is_counted_less_often(
    jobs: int, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_limits, "BUSY_SHARE", 1.0)
    async with stand() as at:
        await change(at, max_pending="8")
        await at.service.enqueue("mail", [Job(b"x")] * jobs)
        pending = PendingCounts(at.members, at.service.queues, at.clock)
        before = at.stores[0].begun["count"]
        for _ in range(3):
            await pending.poll()
        assert at.stores[0].begun["count"] == before + 2 * looks


async def test_what_happens_while_it_is_counted_is_not_forgotten() -> None:
    async with stand() as at:
        await change(at, max_pending="5")
        pending = PendingCounts(at.members, at.service.queues, at.clock)
        gate = at.stores[0].hold("count")
        counting = asyncio.create_task(pending.poll())
        await at.stores[0].until_begun("count")
        pending.added("mail", 5)
        gate.set()
        await counting
        with pytest.raises(EnqueueRejected):
            pending.check("mail", 1)
