"""Whether a caller that waits takes jobs as soon as they are stored, so that no other server need hear of them."""

from __future__ import annotations

import asyncio

from pinlater.model import Job
from tests.unit.stand import Stand, stand
from tests.unit.test_claim_behind import SELDOM, resting
from tests.unit.test_longpoll_shared import set_queue


def at_once(at: Stand, jobs: int = 1) -> bool:
    return at.service.long_polls.claims_at_once("mail", jobs)


async def test_those_who_wait_take_as_many_as_they_may_have() -> None:
    async with stand(settings=SELDOM) as at:
        assert not at_once(at)
        waiting = await resting(at, 2)
        assert at_once(at)
        assert at_once(at, 2)
        assert not at_once(at, 3)
        await at.service.enqueue("mail", [Job(b"1"), Job(b"2")])
        await asyncio.gather(*waiting)
        assert not at_once(at)


async def test_who_is_being_claimed_for_takes_no_more_and_who_is_polled_for_does() -> None:
    async with stand(settings=SELDOM) as at:
        (waiting,) = await resting(at)
        gate = at.stores[0].hold("claim")
        enqueue = asyncio.create_task(at.service.enqueue("mail", [Job(b"1")]))
        await at.stores[0].until_begun("claim")
        assert not at_once(at)
        gate.set()
        await enqueue
        await waiting
        (waiting,) = await resting(at)
        gate = at.stores[0].hold("next_due")
        poller = at.service.long_polls.poller("mail")
        assert poller is not None
        poller.poll_now()
        await at.stores[0].until_begun("next_due")
        assert at_once(at)
        gate.set()
        await at.service.enqueue("mail", [Job(b"2")])
        (job,) = await waiting
        assert job.body == b"2"


async def test_of_a_queue_with_limits_nobody_takes_jobs_for_certain() -> None:
    async with stand(settings=SELDOM) as at:
        await set_queue(at, "mail", max_in_progress="1")
        await resting(at)
        assert not at_once(at)
