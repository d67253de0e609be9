"""What a connection means to a dequeue from many queues: claims that are bound to it, receipts, and callers that go."""

from __future__ import annotations

import asyncio
from typing import Any

from pinlater.backends.base import EndRules, PerQueue
from pinlater.metrics import Metrics
from pinlater.model import DequeueFromQueuesRequest, Job, JobState, QueueShare
from pinlater.server.deliveries import MARGIN_MS
from pinlater.service import ServiceSettings
from pinlater.wire.methods import DEQUEUE_FROM_QUEUES
from tests.server.running import Plain
from tests.server.serving import serving, until
from tests.unit.stand import Stand, stand

CALL = "dequeueFromQueues"
LEASE_MS = 60_000
SHARES = [QueueShare("mail"), QueueShare("images")]


async def filled(at: Stand) -> list[str]:
    """One job in each queue."""
    await at.service.create_queue("images")
    return [(await at.service.enqueue(share.queue, [Job(b"x", attempts_allowed=2)]))[0] for share in SHARES]


async def ask(caller: Plain, limit: int = 2, **fields: Any) -> None:
    request = DequeueFromQueuesRequest(SHARES, limit, claim_timeout_ms=LEASE_MS, **fields)
    await caller.send(CALL, request=DEQUEUE_FROM_QUEUES.request(request))


async def states(at: Stand, descriptors: list[str]) -> list[tuple[JobState, int]]:
    found = await at.service.lookup(descriptors)
    return [(found[each].state, found[each].attempts_remaining) for each in descriptors]


async def until_pending(at: Stand, descriptors: list[str], attempts: int) -> None:
    async with asyncio.timeout(60):
        while await states(at, descriptors) != [(JobState.PENDING, attempts)] * len(descriptors):
            await asyncio.sleep(0.02)


async def test_the_claims_of_all_its_queues_are_bound_to_its_connection() -> None:
    async with stand(settings=ServiceSettings(release_grace_ms=0)) as at, serving(at.service, at.clock) as served:
        descriptors = await filled(at)
        caller = await Plain.to(served.port)
        await ask(caller, release_on_disconnect=True)
        assert set((await caller.answer()).success.jobs) == set(descriptors)
        assert at.service.bound_claims == 2
        await caller.close()
        await until_pending(at, descriptors, 1)  # as of any worker that is lost
        assert at.service.bound_claims == 0


async def test_an_answer_of_several_queues_that_nobody_confirms_costs_no_attempt() -> None:
    metrics = Metrics()
    async with stand() as at, serving(at.service, at.clock, metrics) as served:
        descriptors = await filled(at)
        caller = await Plain.to(served.port)
        await ask(caller, confirms_receipt=True)
        answer = (await caller.answer()).success
        assert set(answer.jobs) == set(descriptors)
        assert answer.awaits_receipt
        at.clock.tick(LEASE_MS - MARGIN_MS)
        await until_pending(at, descriptors, 2)
        await caller.close()


async def test_a_receipt_is_the_next_thing_that_the_caller_sends() -> None:
    async with stand() as at, serving(at.service, at.clock) as served:
        descriptors = await filled(at)
        caller = await Plain.to(served.port)
        await ask(caller, confirms_receipt=True)
        await caller.answer()
        await ask(caller)
        assert not (await caller.answer()).success.jobs
        at.clock.tick(LEASE_MS + 1)
        rules = PerQueue(EndRules(crash_budget=3))
        await at.members.all[0].shard.expire_claims(10, at.clock.now_ms(), rules)
        assert await states(at, descriptors) == [(JobState.PENDING, 1)] * 2
        await caller.close()


async def test_jobs_for_a_caller_that_has_gone_go_back() -> None:
    async with stand() as at, serving(at.service, at.clock) as served:
        caller = await Plain.to(served.port)
        await at.service.create_queue("images")
        await ask(caller, wait_ms=50_000)
        await until(lambda: at.service.waiting == 1)
        await caller.close()
        await until(lambda: at.service.waiting == 0)
        descriptors = await filled(at)
        assert await states(at, descriptors) == [(JobState.PENDING, 2)] * 2


async def test_a_caller_that_goes_while_its_queues_are_claimed_from_loses_no_job() -> None:
    async with stand() as at, serving(at.service, at.clock) as served:
        descriptors = await filled(at)
        gate = at.stores[0].hold_answer("claim")
        caller = await Plain.to(served.port)
        await ask(caller)
        await at.stores[0].until_begun("claim", 2)
        caller.half_close()
        onlooker = await Plain.to(served.port)
        for _ in range(3):  # the server has read the end of the other connection by then
            await onlooker.call("getQueueNames")
        gate.set()
        await until_pending(at, descriptors, 2)
        for each in (caller, onlooker):
            await each.close()


async def test_errors_of_queues_come_with_the_jobs_of_others() -> None:
    async with stand() as at, serving(at.service, at.clock) as served:
        descriptors = await filled(at)
        caller = await Plain.to(served.port)
        request = DequeueFromQueuesRequest([*SHARES, QueueShare("nowhere")], 2)
        answer = await caller.call(CALL, request=DEQUEUE_FROM_QUEUES.request(request))
        assert set(answer.jobs) == set(descriptors)
        assert [(each.queue, each.reason) for each in answer.queue_errors] == [("nowhere", "QUEUE_NOT_FOUND")]
        await caller.close()
