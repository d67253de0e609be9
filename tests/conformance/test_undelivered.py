"""Jobs that were handed out to nobody who received them."""

from __future__ import annotations

import pytest

from pinlater.backends.base import UNDELIVERED_IN_A_ROW, ExpiryCounts
from pinlater.model import JobState
from tests.conformance.subject import Subject


async def go_undelivered(subject: Subject, times: int) -> None:
    """The next job is handed out so often, and nobody receives it."""
    for _ in range(times):
        subject.tick(10)
        assert await subject.requeue_undelivered(await subject.claimed()) == 1


async def is_the_last(subject: Subject) -> None:
    """The job goes back undelivered so often and no more."""
    await go_undelivered(subject, UNDELIVERED_IN_A_ROW)
    assert await subject.requeue_undelivered(await subject.claimed()) == 0


async def test_a_job_that_nobody_received_is_pending_again_with_all_its_attempts_and_its_old_time(
    subject: Subject,
) -> None:
    descriptor = await subject.job(custom_status="as it was")
    before = await subject.info(descriptor)
    await go_undelivered(subject, 1)
    info = await subject.info(descriptor)
    assert (info.state, info.attempts_remaining, info.crashes) == (JobState.PENDING, before.attempts_remaining, 0)
    assert (info.run_after_ms, info.updated_at_ms) == (before.run_after_ms, subject.now_ms)
    assert (info.claim_descriptor, info.claimed_at_ms, info.claim_expires_at_ms) == (None, None, None)
    assert info.custom_status == "as it was"


async def test_so_often_in_a_row_and_then_its_claims_expire_as_any_other(subject: Subject) -> None:
    descriptor = await subject.job(attempts_allowed=3)
    await is_the_last(subject)
    subject.tick(1_000_000)
    assert await subject.expire() == {subject.queue: ExpiryCounts(1, 0)}
    info = await subject.info(descriptor)
    assert (info.attempts_remaining, info.crashes) == (2, 1)


@pytest.mark.parametrize("end", ["failure", "failure at the same time", "expiry", "snooze", "retry"])
async def test_a_hand_out_that_was_received_ends_the_row(subject: Subject, end: str) -> None:
    descriptor = await subject.job(attempts_allowed=9)
    enqueued_at_ms = subject.now_ms
    await go_undelivered(subject, UNDELIVERED_IN_A_ROW - 1)
    subject.tick(10)
    job = await subject.claimed(timeout_ms=100)
    if end.startswith("failure"):
        if end != "failure":
            subject.tick(enqueued_at_ms - subject.now_ms)  # run_after stays what it was
        await subject.fail(descriptor)
    elif end == "expiry":
        subject.tick(101)
        await subject.expire()
    elif end == "snooze":
        assert await subject.checkpoint(descriptor, claim_descriptor=job.claim_descriptor, move_to_pending=True)
    else:
        await subject.fail(descriptor, permanent=True)
        await subject.shard.retry_failed(subject.queue, 1, 9, None, 1, subject.now_ms)
    await is_the_last(subject)


async def test_a_job_requeued_in_between_does_not_end_the_row(subject: Subject) -> None:
    await subject.job()
    await go_undelivered(subject, UNDELIVERED_IN_A_ROW)
    await subject.requeue(await subject.claimed())
    assert await subject.requeue_undelivered(await subject.claimed()) == 0


async def test_a_claim_that_was_heard_of_stays(subject: Subject) -> None:
    descriptor = await subject.job()
    job = await subject.claimed()
    subject.tick(7)
    assert await subject.checkpoint(descriptor, claim_descriptor=job.claim_descriptor)
    before = await subject.info(descriptor)
    assert await subject.requeue_undelivered(job) == 0
    assert await subject.info(descriptor) == before


async def test_of_several_those_that_stand_go_back_each_once(subject: Subject) -> None:
    descriptors = [await subject.job(priority=priority) for priority in (1, 2, 3)]
    jobs = await subject.claim(3)
    await subject.succeed(descriptors[1])
    assert await subject.requeue_undelivered(*jobs, jobs[0]) == 2
    states = [(await subject.info(each)).state for each in descriptors]
    assert states == [JobState.PENDING, JobState.SUCCEEDED, JobState.PENDING]
    assert [job.descriptor for job in await subject.claim(3)] == [descriptors[0], descriptors[2]]


async def test_a_job_under_another_claim_stays(subject: Subject) -> None:
    descriptor = await subject.job()
    old = await subject.claimed()
    await subject.requeue(old)
    job = await subject.claimed()
    assert job.claim_expires_at_ms == old.claim_expires_at_ms
    before = await subject.info(descriptor)
    assert await subject.requeue_undelivered(old) == 0
    assert await subject.info(descriptor) == before


async def test_the_count_of_one_job_is_not_that_of_another(subject: Subject) -> None:
    await subject.job()
    await go_undelivered(subject, 2)
    assert await subject.shard.delete_jobs(subject.queue, JobState.PENDING, 1, 10, subject.now_ms) == 1
    await subject.job()
    await is_the_last(subject)
