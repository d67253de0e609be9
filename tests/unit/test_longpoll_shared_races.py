"""Dequeues from several queues, where something happens just while they look at the queues."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.errors import RequestInvalid
from pinlater.model import MAX_QUEUES, Ack, DequeueFromQueuesRequest, Job, JobState, QueueAcks, QueueShare
from tests.unit.breaking import HeldTime, settled, until_quiet
from tests.unit.stand import ME, stand
from tests.unit.test_longpoll_shared import LONG_MS, SELDOM, WITHIN_S, answered, asked, bodies, made, set_queue, waiting


async def test_a_queue_that_is_paused_while_it_is_looked_at_hands_out_nothing() -> None:
    async with stand(settings=SELDOM) as at:
        shares = await made(at, "a", "b")
        gate = at.stores[0].hold("next_due")
        task = asyncio.create_task(asked(at, shares, 1, LONG_MS))
        await at.stores[0].until_begun("next_due", 1)
        await set_queue(at, "a", paused="true")
        gate.set()
        async with asyncio.timeout(WITHIN_S):
            while not at.service.waiting:
                await asyncio.sleep(0)
        await at.service.enqueue("a", [Job(b"a")])
        await settled()
        await until_quiet(*at.stores)
        assert not task.done()
        await at.service.enqueue("b", [Job(b"b")])
        jobs = await answered(task)
        assert bodies(jobs) == [b"b"]
        assert jobs.queue_errors["a"].reason == "QUEUE_PAUSED"


async def test_it_is_answered_at_once_where_all_are_paused_while_they_are_looked_at() -> None:
    async with stand(settings=SELDOM) as at:
        shares = await made(at, "a")
        gate = at.stores[0].hold("next_due")
        task = asyncio.create_task(asked(at, shares, 1, LONG_MS))
        await at.stores[0].until_begun("next_due", 1)
        await set_queue(at, "a", paused="true")
        gate.set()
        jobs = await answered(task)
        assert bodies(jobs) == []
        assert jobs.queue_errors["a"].reason == "QUEUE_PAUSED"


async def test_those_who_wait_get_delayed_jobs_although_another_has_looked_when_they_were_due() -> None:
    async with stand(settings=SELDOM) as at:
        time = HeldTime(*at.stores)
        shares = await made(at, "a", "b")
        task = await waiting(at, shares)
        due_ms = at.clock.now_ms() + 1_000
        await at.service.enqueue("a", [Job(b"1", run_after_ms=due_ms), Job(b"2", run_after_ms=due_ms)])
        await settled()
        at.clock.tick(1_000)
        assert len(await asked(at, shares)) == 1
        await time.leap(1.5)
        assert len(await answered(task)) == 1


async def test_those_who_wait_get_delayed_jobs_although_another_was_about_to_look_and_left() -> None:
    async with stand(settings=SELDOM) as at:
        time = HeldTime(*at.stores)
        shares = await made(at, "a", "b")
        task = await waiting(at, shares)
        await at.service.enqueue("a", [Job(b"1", run_after_ms=at.clock.now_ms() + 1_000)])
        await settled()
        at.clock.tick(1_000)
        leaving = asyncio.create_task(asked(at, shares))
        await asyncio.sleep(0)
        leaving.cancel()
        await time.leap(1.5)
        assert bodies(await answered(task)) == [b"1"]


async def test_names_of_queues_that_are_not_there_are_not_kept() -> None:
    """A caller may name others in every call."""
    async with stand() as at:
        for call in range(3):
            names = [f"nowhere{call}_{number}" for number in range(100)]
            answer = await asked(at, [QueueShare(name) for name in names], 1, LONG_MS)
            assert len(answer.queue_errors) == 100
            await settled()
            assert not any(map(at.service.long_polls.poller, names))


async def test_names_of_queues_that_are_not_there_are_not_subscribed_to() -> None:
    """They would take the places of queues that are."""
    async with stand() as at:
        store = at.stores[0]
        before = store.begun["subscribe"]
        await asked(at, [QueueShare(f"nowhere_{number}") for number in range(100)], 1, LONG_MS)
        await settled()
        assert store.begun["subscribe"] == before


async def test_more_acks_than_there_may_be_queues_are_refused_before_any_is_carried_out() -> None:
    async with stand(settings=SELDOM) as at:
        shares = await made(at, "a")
        await at.service.enqueue("a", [Job(b"x")])
        (job,) = await asked(at, shares)
        acks = [QueueAcks("a", [Ack(job.descriptor)], [])] * (MAX_QUEUES + 1)
        with pytest.raises(RequestInvalid, match="length of acks is 1001; allowed: at most 1000") as refused:
            await at.service.dequeue_from_queues(DequeueFromQueuesRequest(shares, 1, acks), context=ME)
        assert refused.value.acks_applied is False
        found = await at.service.lookup([job.descriptor])
        assert found[job.descriptor].state is JobState.IN_PROGRESS
