"""Claims that are bound to connections (decision 24)."""

from __future__ import annotations

from pinlater.backends.base import CheckpointRequest
from pinlater.model import Checkpoint, ConnectionRef, DequeuedJob, DequeueRequest, Job, JobState, RequestContext
from tests.conformance.served import CLAIM_TIMEOUT_MS, MAX_CLAIM_TIMEOUT_MS, QUEUE, Served
from tests.conformance.subject import key_of


async def taken_by(served: Served, connection: ConnectionRef, limit: int) -> list[DequeuedJob]:
    request = DequeueRequest(QUEUE, limit, release_on_disconnect=True)
    return await served.api.dequeue(request, context=RequestContext("worker", connection=connection))


async def lose(served: Served, connection: ConnectionRef) -> None:
    """The connection breaks, the grace ends, and what is to be released is."""
    served.api.disconnected(connection)
    await served.api.connection_claims.end_grace(connection)


async def test_a_lost_connection_costs_its_claims_an_attempt_and_a_crash(served: Served) -> None:
    descriptors = await served.spread()
    connection = ConnectionRef()
    jobs = await taken_by(served, connection, len(descriptors))
    await served.api.requeue(jobs[20:])
    served.clock.tick(100)
    await lose(served, connection)
    for job in jobs[:20]:
        info = await served.info(job.descriptor)
        assert (info.state, info.attempts_remaining, info.crashes) == (JobState.PENDING, 1, 1)
    for job in jobs[20:]:
        assert (await served.info(job.descriptor)).crashes == 0


async def test_a_checkpoint_binds_a_claim_to_the_connection_it_came_by(served: Served) -> None:
    await served.enqueue(Job(b""), Job(b""))
    first, second = ConnectionRef(), ConnectionRef()
    lost, kept = await taken_by(served, first, 2)
    served.clock.tick(100)
    beat = Checkpoint(kept.descriptor, b"new", run_after_ms=5, claim_descriptor=kept.claim_descriptor)
    await served.api.checkpoint(QUEUE, [beat], context=RequestContext("heartbeat", connection=second))
    await lose(served, first)
    assert (await served.info(lost.descriptor)).state is JobState.PENDING
    assert (await served.info(kept.descriptor)).claim_descriptor == kept.claim_descriptor
    await lose(served, second)
    assert (await served.info(kept.descriptor)).state is JobState.PENDING


async def test_a_checkpoint_for_later_keeps_the_job_until_then_and_no_longer_than_any_claim(served: Served) -> None:
    (descriptor,) = await served.enqueue(Job(b""))
    (job,) = await served.dequeue(1)
    for later_ms, lasts_ms in (
        (10 * CLAIM_TIMEOUT_MS, 11 * CLAIM_TIMEOUT_MS),
        (MAX_CLAIM_TIMEOUT_MS, MAX_CLAIM_TIMEOUT_MS),
        (-1, CLAIM_TIMEOUT_MS),
    ):
        now_ms = served.clock.now_ms()
        beat = Checkpoint(descriptor, run_after_ms=now_ms + later_ms, claim_descriptor=job.claim_descriptor)
        await served.api.checkpoint(QUEUE, [beat], context=served.context)
        assert (await served.info(descriptor)).claim_expires_at_ms == now_ms + lasts_ms
    served.clock.tick(CLAIM_TIMEOUT_MS + 1)
    await served.maintain()
    assert (await served.info(descriptor)).crashes == 1


async def test_a_checkpoint_for_later_by_another_way_prevents_a_release_too(served: Served) -> None:
    """Both checkpoints are for the same time: the connection that took the earlier one releases nothing."""
    await served.enqueue(Job(b""))
    first, second = ConnectionRef(), ConnectionRef()
    (job,) = await taken_by(served, first, 1)
    later_ms = served.clock.now_ms() + 10 * CLAIM_TIMEOUT_MS
    beat = Checkpoint(job.descriptor, run_after_ms=later_ms, claim_descriptor=job.claim_descriptor)
    served.clock.tick(100)
    await served.api.checkpoint(QUEUE, [beat], context=RequestContext("worker", connection=first))
    served.clock.tick(100)
    await served.shards[0 if ":s1:" in job.descriptor else 1].checkpoint(
        QUEUE,
        [CheckpointRequest(*key_of(job.descriptor), "", job.claim_descriptor, run_after_ms=later_ms)],
        served.clock.now_ms(),
    )
    await lose(served, first)
    assert (await served.info(job.descriptor)).claim_descriptor == job.claim_descriptor
    await served.api.checkpoint(QUEUE, [beat], context=RequestContext("worker", connection=second))
    await lose(served, second)
    assert (await served.info(job.descriptor)).state is JobState.PENDING
