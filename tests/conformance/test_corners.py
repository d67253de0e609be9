"""Where the stores once differed: what a random sequence of the same calls on each of them brought to light."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from pinlater.backends.base import CheckpointRequest, ExpiryCounts
from pinlater.backends.extended import HeartbeatRequest
from pinlater.model import MAX_TIME_MS, DequeuedJob, HeartbeatOutcome, Job, JobState, parse_descriptor
from tests.conformance.bindings import Binding
from tests.conformance.subject import NONE_EXPIRED, START_MS, TIMEOUT_MS, Subject, claim_key_of, key_of
from tests.queues import drop_queue, make_queue
from tests.stores.places import Places

HOUR_MS = 3_600_000


async def heartbeat(subject: Subject, job: DequeuedJob) -> bool:
    (answer,) = await subject.shard.heartbeat(subject.queue, [HeartbeatRequest(*claim_key_of(job))], subject.now_ms)
    return answer.outcome is HeartbeatOutcome.OK


async def checkpoint(subject: Subject, job: DequeuedJob) -> bool:
    return await subject.checkpoint(job.descriptor)


async def test_a_retry_beyond_the_largest_time_comes_at_the_largest_time(subject: Subject) -> None:
    """As where the delay was checked a little before the ack, which waited to be joined."""
    descriptor = await subject.job_in(JobState.IN_PROGRESS)
    await subject.fail(descriptor, retry_delay_ms=MAX_TIME_MS - subject.now_ms + 3)
    assert (await subject.info(descriptor)).run_after_ms == MAX_TIME_MS


async def test_claims_that_ended_otherwise_do_not_hide_those_that_expired(subject: Subject) -> None:
    other = Subject(subject.shard, "other")
    await make_queue(subject.shard, "other", START_MS)
    descriptor = await subject.job_in(JobState.IN_PROGRESS)
    other.now_ms = subject.tick(1)
    await other.job_in(JobState.IN_PROGRESS)
    await subject.succeed(descriptor)
    subject.tick(TIMEOUT_MS + 1)
    assert await subject.expire(limit=1) == {"other": ExpiryCounts(1, 0)}


async def test_ended_jobs_that_went_otherwise_do_not_hide_those_to_prune(subject: Subject) -> None:
    other = Subject(subject.shard, "other")
    await make_queue(subject.shard, "other", START_MS)
    descriptor = await subject.job_in(JobState.FAILED)
    other.now_ms = subject.tick(1)
    await other.job_in(JobState.FAILED)
    await subject.delete_listed(JobState.FAILED, descriptor)
    subject.tick(2)
    assert await subject.prune(limit=1, failed_ttl_ms=1) == {"other": 1}


async def test_claims_of_a_deleted_queue_do_not_hide_those_that_expired(subject: Subject) -> None:
    doomed = Subject(subject.shard, "doomed")
    await make_queue(subject.shard, "doomed", START_MS)
    for _ in range(3):
        await doomed.job_in(JobState.IN_PROGRESS)
    subject.tick(1)
    await subject.job_in(JobState.IN_PROGRESS)
    await drop_queue(subject.shard, "doomed", START_MS)
    subject.tick(TIMEOUT_MS + 1)
    assert await subject.expire(limit=1) == {subject.queue: ExpiryCounts(1, 0)}


async def test_a_heartbeat_after_the_clock_was_set_back_expires_in_its_own_time(subject: Subject) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS)
    subject.tick(-HOUR_MS)
    assert await subject.checkpoint(descriptor)
    subject.tick(TIMEOUT_MS)
    assert not await subject.expire()
    subject.tick(1)
    assert await subject.expire() == {subject.queue: ExpiryCounts(1, 0)}


@pytest.mark.parametrize("behind_ms", [1, 2_000, 60_000])
@pytest.mark.parametrize("way", [heartbeat, checkpoint])
async def test_a_renewal_that_was_overtaken_takes_no_time_from_the_claim(
    subject: Subject, way: Callable[[Subject, DequeuedJob], Awaitable[bool]], behind_ms: int
) -> None:
    """As where a late copy of a call comes behind a newer call. It moves both times all the same, by which those see it
    who give back or release what nobody renewed.
    """
    await subject.job(run_after_ms=START_MS)
    job = await subject.claimed(timeout_ms=90_000)
    subject.tick(70_000)
    assert await subject.checkpoint(job.descriptor, run_after_ms=subject.now_ms + 4_000)
    before = await subject.info(job.descriptor)
    for late_ms in (behind_ms, 1):
        subject.tick(-late_ms)
        assert await way(subject, job)
        subject.tick(late_ms)
    after = await subject.info(job.descriptor)
    assert after.claim_expires_at_ms == (before.claim_expires_at_ms or 0) + 2
    assert after.updated_at_ms == before.updated_at_ms + 2


async def test_renewals_of_one_call_that_were_overtaken_each_count(subject: Subject) -> None:
    """As each of a list stands alone."""
    await subject.job(run_after_ms=START_MS)
    job = await subject.claimed()
    subject.tick(-5)
    beats = [HeartbeatRequest(*claim_key_of(job))] * 2
    await subject.shard.heartbeat(subject.queue, beats, subject.now_ms)
    checkpoints = [CheckpointRequest(*key_of(job.descriptor), "worker", run_after_ms=START_MS)] * 2
    assert await subject.shard.checkpoint(subject.queue, checkpoints, subject.now_ms) == [True, True]
    info = await subject.info(job.descriptor)
    assert (info.claim_expires_at_ms, info.updated_at_ms) == (job.claim_expires_at_ms + 4, START_MS + 4)


@pytest.mark.parametrize("way", [heartbeat, checkpoint])
async def test_a_renewal_whose_clock_is_behind_that_of_the_claim_is_seen(
    subject: Subject, way: Callable[[Subject, DequeuedJob], Awaitable[bool]]
) -> None:
    await subject.job()
    job = await subject.claimed()
    subject.tick(-5)
    assert await way(subject, job)
    subject.tick(5)
    assert await subject.requeue_undelivered(job) == 0
    assert await subject.expire_disconnected(job) == NONE_EXPIRED


@pytest.mark.parametrize("way", [heartbeat, checkpoint])
async def test_a_renewal_of_a_clock_that_was_set_back_counts_from_its_own_time(
    subject: Subject, way: Callable[[Subject, DequeuedJob], Awaitable[bool]]
) -> None:
    await subject.job()
    job = await subject.claimed()
    subject.tick(-60_001)
    assert await way(subject, job)
    assert (await subject.info(job.descriptor)).claim_expires_at_ms == subject.now_ms + TIMEOUT_MS
    assert await subject.expire_disconnected(job, last_seen_ms=subject.now_ms) == ExpiryCounts(1, 0)


async def test_ids_of_a_new_store_are_16_digits_wide_even_on_a_machine_without_the_time(
    binding: Binding, places: Places
) -> None:
    shard = binding.make(places.fresh(), "1")
    await shard.open()
    await make_queue(shard, "mail", 1_000)
    descriptors = await shard.enqueue("mail", [Job(b"body"), Job(b"body", priority=2)], 1_000)
    await shard.close()
    assert all(parse_descriptor(descriptor) for descriptor in descriptors)
