"""A claim that leaves right behind the enqueue which brings its jobs."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.errors import OutcomeUnknown, ShardConnectionFailed
from pinlater.model import DequeuedJob, Job
from pinlater.service import ServiceSettings
from tests.unit.breaking import settled
from tests.unit.stand import Stand, stand
from tests.unit.test_longpoll import LONG_MS, in_line

SELDOM = ServiceSettings(poll_min_ms=50_000, poll_max_ms=60_000)
"""Looking for what others did never happens within a test: whatever comes, was announced."""


async def resting(at: Stand, waiters: int = 1) -> list[asyncio.Task[list[DequeuedJob]]]:
    """So many dequeues that wait, and have looked."""
    waiting = [await in_line(at, wait_ms=LONG_MS) for _ in range(waiters)]
    await at.stores[0].until_quiet()
    await settled()
    for store in at.stores:
        store.begun.clear()
    return waiting


async def test_it_leaves_before_the_enqueue_is_answered() -> None:
    async with stand(settings=SELDOM) as at:
        (waiting,) = await resting(at)
        enqueue = asyncio.create_task(at.service.enqueue("mail", [Job(b"x")]))
        await asyncio.sleep(0)
        assert at.stores[0].begun == {"enqueue": 1, "claim": 1}
        assert not enqueue.done()
        (job,) = await waiting
        await enqueue
        assert job.body == b"x"


async def test_nobody_looks_again_for_what_was_handed_out_already() -> None:
    async with stand(settings=SELDOM) as at:
        first, second = await resting(at, 2)
        await at.service.enqueue("mail", [Job(b"1")])
        await first
        await settled()
        assert at.stores[0].begun["claim"] == 1
        await at.service.enqueue("mail", [Job(b"2")])
        (job,) = await second
        assert job.body == b"2"
        assert at.stores[0].begun["claim"] == 2


async def test_jobs_that_the_claim_was_too_early_for_are_claimed_when_they_are_announced() -> None:
    """The enqueue is held up on its way; the claim that left behind it comes before it."""
    async with stand(settings=SELDOM) as at:
        (waiting,) = await resting(at)
        gate = at.stores[0].hold("enqueue")
        enqueue = asyncio.create_task(at.service.enqueue("mail", [Job(b"x")]))
        await at.stores[0].until_begun("claim")
        await at.stores[0].until_quiet()
        gate.set()
        await enqueue
        (job,) = await waiting
        assert job.body == b"x"
        assert at.stores[0].begun["claim"] == 2


async def test_several_shards_are_looked_at_behind_the_enqueue() -> None:
    async with stand(3, settings=SELDOM) as at:
        for number in range(5):
            (waiting,) = await resting(at)
            await at.service.enqueue("mail", [Job(b"%d" % number)])
            (job,) = await waiting
            assert job.body == b"%d" % number


@pytest.mark.parametrize("error", [OutcomeUnknown("lost"), ShardConnectionFailed("gone")])
async def test_after_an_enqueue_that_failed_the_next_one_is_noticed(error: Exception) -> None:
    async with stand(settings=SELDOM) as at:
        (waiting,) = await resting(at)
        at.stores[0].failures["enqueue"].append(error)
        with pytest.raises(type(error)):
            await at.service.enqueue("mail", [Job(b"lost")])
        await at.service.enqueue("mail", [Job(b"x")])
        (job,) = await waiting
        assert job.body == b"x"


async def test_what_an_unanswered_enqueue_has_stored_is_handed_out() -> None:
    async with stand(settings=SELDOM) as at:
        (waiting,) = await resting(at)
        at.stores[0].losses["enqueue"].append(OutcomeUnknown("lost"))
        with pytest.raises(OutcomeUnknown):
            await at.service.enqueue("mail", [Job(b"x")])
        (job,) = await waiting
        assert job.body == b"x"


async def test_a_claim_that_fails_is_made_up_for() -> None:
    async with stand(settings=SELDOM) as at:
        (waiting,) = await resting(at)
        at.stores[0].failures["claim"].append(ShardConnectionFailed("gone"))
        await at.service.enqueue("mail", [Job(b"x")])
        (job,) = await waiting
        assert job.body == b"x"


async def test_a_caller_that_leaves_takes_nothing_from_who_waits() -> None:
    async with stand(settings=SELDOM) as at:
        (waiting,) = await resting(at)
        gate = at.stores[0].hold("enqueue")
        leaving = asyncio.create_task(at.service.enqueue("mail", [Job(b"1")]))
        await at.stores[0].until_begun("claim")
        leaving.cancel()
        await asyncio.wait([leaving])
        gate.set()
        await at.service.enqueue("mail", [Job(b"2")])
        (job,) = await waiting
        assert job.body in (b"1", b"2")


async def test_a_store_that_keeps_no_order_is_asked_when_the_enqueue_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SqliteShard, "keeps_order", False)
    async with stand(settings=SELDOM) as at:
        (waiting,) = await resting(at)
        gate = at.stores[0].hold("enqueue")
        enqueue = asyncio.create_task(at.service.enqueue("mail", [Job(b"x")]))
        await at.stores[0].until_begun("enqueue")
        await settled()
        assert at.stores[0].begun == {"enqueue": 1}
        gate.set()
        await enqueue
        await waiting
        assert at.stores[0].begun["claim"] == 1


async def test_delayed_jobs_are_not_claimed_ahead() -> None:
    async with stand(settings=SELDOM) as at:
        (waiting,) = await resting(at)
        await at.service.enqueue("mail", [Job(b"x", run_after_ms=at.clock.now_ms() + 60_000)])
        await settled()
        assert at.stores[0].begun == {"enqueue": 1}
        waiting.cancel()
