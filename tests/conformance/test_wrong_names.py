"""A job is named by queue, priority and id; a name that is wrong in one of them names nothing."""

from __future__ import annotations

import pytest

from pinlater.backends.base import AckOutcome, AckRequest, CheckpointRequest, ClaimKey, EndRules, JobKey
from pinlater.model import CancelOutcome, DequeuedJob, JobInfo, JobState
from tests.conformance.subject import NO_BOUND, NONE_EXPIRED, Subject, claim_key_of, key_of
from tests.queues import make_queue


async def in_progress(subject: Subject) -> tuple[DequeuedJob, JobInfo]:
    await subject.job(priority=2)
    job = await subject.claimed()
    return job, await subject.info(job.descriptor)


@pytest.fixture(params=["priority", "id", "queue"])
def wrong(request: pytest.FixtureRequest) -> str:
    part: str = request.param
    return part


async def wrong_name(subject: Subject, descriptor: str, wrong: str) -> tuple[str, JobKey]:
    key = key_of(descriptor)
    await make_queue(subject.shard, "other", subject.now_ms)
    if wrong == "queue":
        return "other", key
    return subject.queue, JobKey(1, key.id) if wrong == "priority" else JobKey(key.priority, key.id + 1)


async def test_an_ack_by_a_wrong_name_is_ignored(subject: Subject, wrong: str) -> None:
    job, before = await in_progress(subject)
    queue, key = await wrong_name(subject, job.descriptor, wrong)
    acks = [AckRequest(*key, True, "x"), AckRequest(*key, False, "x", claim_descriptor=job.claim_descriptor)]
    assert await subject.shard.ack(queue, acks, subject.now_ms) == [AckOutcome.IGNORED] * 2
    assert await subject.info(job.descriptor) == before


async def test_a_checkpoint_by_a_wrong_name_is_refused(subject: Subject, wrong: str) -> None:
    job, before = await in_progress(subject)
    queue, key = await wrong_name(subject, job.descriptor, wrong)
    beats = [CheckpointRequest(*key, "worker"), CheckpointRequest(*key, "", job.claim_descriptor)]
    assert await subject.shard.checkpoint(queue, beats, subject.now_ms) == [False, False]
    assert await subject.info(job.descriptor) == before


async def test_a_claim_under_a_wrong_name_is_neither_requeued_nor_released(subject: Subject, wrong: str) -> None:
    job, before = await in_progress(subject)
    queue, key = await wrong_name(subject, job.descriptor, wrong)
    claim = ClaimKey(*key, job.claim_descriptor)
    assert await subject.shard.requeue(queue, [claim], subject.now_ms) == 0
    quiet = subject.silent(job)._replace(priority=key.priority, id=key.id)
    assert (
        await subject.shard.expire_disconnected(queue, [quiet], subject.now_ms, EndRules(crash_budget=1))
        == NONE_EXPIRED
    )
    fresh = subject.fresh(job)._replace(priority=key.priority, id=key.id)
    assert await subject.shard.requeue_undelivered(queue, [fresh], subject.now_ms) == 0
    assert await subject.info(job.descriptor) == before


async def test_a_lookup_by_a_wrong_name_finds_nothing(subject: Subject, wrong: str) -> None:
    job, _ = await in_progress(subject)
    queue, key = await wrong_name(subject, job.descriptor, wrong)
    assert await subject.shard.lookup(queue, [key], with_body=True, max_bytes=NO_BOUND) == [None]


async def test_a_cancel_by_a_wrong_name_finds_nothing(subject: Subject, wrong: str) -> None:
    descriptor = await subject.job(priority=2)
    queue, key = await wrong_name(subject, descriptor, wrong)
    assert await subject.shard.cancel(queue, [key], subject.now_ms) == [CancelOutcome.NOT_FOUND]
    assert (await subject.info(descriptor)).state is JobState.PENDING


async def test_a_listed_delete_by_a_wrong_name_removes_nothing(subject: Subject, wrong: str) -> None:
    descriptor = await subject.job(priority=2)
    queue, key = await wrong_name(subject, descriptor, wrong)
    assert await subject.shard.delete_listed(queue, JobState.PENDING, [key], subject.now_ms) == 0
    assert (await subject.info(descriptor)).state is JobState.PENDING


async def test_a_job_under_another_claim_is_neither_requeued_nor_released(subject: Subject) -> None:
    job, before = await in_progress(subject)
    stale = claim_key_of(job)._replace(claim_descriptor=job.claim_descriptor + "x")
    assert await subject.shard.requeue(subject.queue, [stale], subject.now_ms) == 0
    quiet = subject.silent(job)._replace(claim_descriptor=stale.claim_descriptor)
    assert await subject.shard.expire_disconnected(subject.queue, [quiet], subject.now_ms) == NONE_EXPIRED
    fresh = subject.fresh(job)._replace(claim_descriptor=stale.claim_descriptor)
    assert await subject.shard.requeue_undelivered(subject.queue, [fresh], subject.now_ms) == 0
    assert await subject.info(job.descriptor) == before


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.SUCCEEDED, JobState.FAILED])
async def test_what_is_not_in_progress_is_neither_requeued_nor_released(subject: Subject, state: JobState) -> None:
    await subject.job()
    job = await subject.claimed()
    if state is JobState.PENDING:
        await subject.requeue(job)
    else:
        await subject.ack_one(job.descriptor, state is JobState.SUCCEEDED, permanent=True)
    before = await subject.info(job.descriptor)
    subject.tick(5)
    assert await subject.requeue(job) == 0
    assert await subject.expire_disconnected(job) == NONE_EXPIRED
    assert await subject.requeue_undelivered(job) == 0
    assert await subject.info(job.descriptor) == before


async def test_every_key_of_a_call_is_answered_in_its_place(subject: Subject) -> None:
    first, second = await subject.job(b"1"), await subject.job(b"2")
    missing = JobKey(1, key_of(second).id + 1)
    keys = [missing, key_of(second), missing, key_of(first), key_of(second)]
    found = await subject.shard.lookup(subject.queue, keys, with_body=True, max_bytes=NO_BOUND)
    assert [info and info.body for info in found] == [None, b"2", None, b"1", b"2"]
    outcomes = await subject.shard.cancel(subject.queue, keys, subject.now_ms)
    assert outcomes[:4] == [
        CancelOutcome.NOT_FOUND,
        CancelOutcome.CANCELLED,
        CancelOutcome.NOT_FOUND,
        CancelOutcome.CANCELLED,
    ]
    assert outcomes[4] is CancelOutcome.NOT_FOUND
