"""Claims that are bound to connections (decision 24)."""

from __future__ import annotations

import asyncio

from pinlater.model import Checkpoint, DequeuedJob, DequeueRequest, Holder, Job, JobState, RequestContext
from tests.conformance.served import QUEUE, Served


async def taken_by(served: Served, holder: Holder, limit: int) -> list[DequeuedJob]:
    request = DequeueRequest(QUEUE, limit, release_on_disconnect=True)
    return await served.api.dequeue(request, context=RequestContext("worker", holder=holder))


async def lose(served: Served, holder: Holder) -> None:
    """The connection breaks, the grace ends, and what is to be released is."""
    ties = served.api._ties
    served.api.disconnected(holder)
    ties._graces[holder].cancel()
    ties._grace_is_over(holder)
    await asyncio.wait(ties._releasing)


async def test_a_lost_connection_costs_its_claims_an_attempt_and_a_crash(served: Served) -> None:
    descriptors = await served.spread()
    holder = Holder()
    jobs = await taken_by(served, holder, len(descriptors))
    await served.api.give_back(jobs[20:])
    served.clock.tick(100)
    await lose(served, holder)
    for job in jobs[:20]:
        info = await served.info(job.descriptor)
        assert (info.state, info.attempts_remaining, info.crashes) == (JobState.PENDING, 1, 1)
    for job in jobs[20:]:
        assert (await served.info(job.descriptor)).crashes == 0


async def test_a_checkpoint_binds_a_claim_to_the_connection_it_came_by(served: Served) -> None:
    await served.enqueue(Job(b""), Job(b""))
    first, second = Holder(), Holder()
    lost, kept = await taken_by(served, first, 2)
    served.clock.tick(100)
    beat = Checkpoint(kept.descriptor, b"new", run_after_ms=5, claim_descriptor=kept.claim_descriptor)
    await served.api.checkpoint(QUEUE, [beat], context=RequestContext("heartbeat", holder=second))
    await lose(served, first)
    assert (await served.info(lost.descriptor)).state is JobState.PENDING
    assert (await served.info(kept.descriptor)).claim_descriptor == kept.claim_descriptor
    await lose(served, second)
    assert (await served.info(kept.descriptor)).state is JobState.PENDING
