"""While the time is uncertain: what is due goes by the earliest time, and what begins by the latest."""

from __future__ import annotations

from pinlater.model import Ack, Checkpoint, DequeueRequest, Job, JobAction, JobChange, JobState
from tests.conformance.served import CLAIM_TIMEOUT_MS, QUEUE, SUCCEEDED_TTL_MS, Served

HOUR_MS = 3_600_000


async def uncertain(served: Served) -> int:
    """The earliest time."""
    served.clock.uncertainty_ms = HOUR_MS
    return served.clock.now_ms()


async def test_a_job_without_a_time_is_due_at_once_and_one_with_a_time_by_the_earliest_clock(served: Served) -> None:
    now_ms = await uncertain(served)
    first, later = await served.enqueue(Job(b"now"), Job(b"later", run_after_ms=now_ms + 5))
    assert [job.descriptor for job in await served.dequeue(9)] == [first]
    served.clock.tick(4)
    assert await served.dequeue(9) == []
    served.clock.tick(1)
    assert [job.descriptor for job in await served.dequeue(9)] == [later]


async def test_a_claim_and_its_checkpoints_last_their_time_out_by_the_latest_clock(served: Served) -> None:
    now_ms = await uncertain(served)
    await served.enqueue(Job(b""))
    (job,) = await served.dequeue(1)
    assert job.claim_expires_at_ms == now_ms + HOUR_MS + CLAIM_TIMEOUT_MS
    served.clock.tick(70)
    await served.api.checkpoint(QUEUE, [Checkpoint(job.descriptor)], context=served.context)
    info = await served.info(job.descriptor)
    assert (info.claim_expires_at_ms, info.run_after_ms) == (job.claim_expires_at_ms + 70, now_ms + 70)
    served.clock.uncertainty_ms = 0
    await served.api.checkpoint(QUEUE, [Checkpoint(job.descriptor)], context=served.context)
    assert (await served.info(job.descriptor)).claim_expires_at_ms == now_ms + 70 + CLAIM_TIMEOUT_MS


async def test_a_job_that_a_checkpoint_requeues_is_due_at_once(served: Served) -> None:
    now_ms = await uncertain(served)
    await served.enqueue(Job(b""))
    (job,) = await served.dequeue(1)
    given_back = Checkpoint(job.descriptor, move_to_pending=True)
    await served.api.checkpoint(QUEUE, [given_back], context=served.context)
    assert (await served.info(job.descriptor)).run_after_ms == now_ms
    assert len(await served.dequeue(1)) == 1


async def test_a_retry_without_a_delay_is_due_at_once_and_a_delay_runs_from_the_latest_clock(served: Served) -> None:
    now_ms = await uncertain(served)
    at_once, later, done = await served.enqueue(*[Job(b"", attempts_allowed=2)] * 3)
    await served.dequeue(3)
    failed = [Ack(at_once), Ack(later, retry_delay_ms=7)]
    await served.api.ack(QUEUE, [Ack(done)], failed, context=served.context)
    assert (await served.info(at_once)).run_after_ms == now_ms
    assert (await served.info(later)).run_after_ms == now_ms + HOUR_MS + 7
    assert [job.descriptor for job in await served.dequeue(3)] == [at_once]


async def test_a_long_poll_is_woken_by_a_retry_without_a_delay(served: Served) -> None:
    await uncertain(served)
    (descriptor,) = await served.enqueue(Job(b"", attempts_allowed=2))
    await served.dequeue(1)
    request = DequeueRequest(QUEUE, 1, wait_ms=20_000, failed=[Ack(descriptor)])
    (job,) = await served.api.dequeue(request, context=served.context)
    assert job.descriptor == descriptor


async def test_a_time_to_live_runs_from_the_latest_clock_to_the_earliest(served: Served) -> None:
    await uncertain(served)
    (descriptor,) = await served.enqueue(Job(b""))
    await served.dequeue(1)
    await served.api.ack(QUEUE, [Ack(descriptor)], [], context=served.context)
    served.clock.uncertainty_ms = 0
    served.clock.tick(HOUR_MS + SUCCEEDED_TTL_MS)
    await served.maintain()
    assert await served.count(JobState.SUCCEEDED) == 1
    served.clock.tick(1)
    await served.maintain()
    assert await served.count(JobState.SUCCEEDED) == 0


async def test_operators_find_the_jobs_that_ended_meanwhile(served: Served) -> None:
    now_ms = await uncertain(served)
    (descriptor,) = await served.enqueue(Job(b"", attempts_allowed=1))
    await served.dequeue(1)
    await served.api.ack(QUEUE, [], [Ack(descriptor)], context=served.context)
    done = await served.api.change_jobs(JobChange(QUEUE, JobAction.RETRY), context=served.context)
    assert done.changed == 1
    assert (await served.info(descriptor)).run_after_ms == now_ms
