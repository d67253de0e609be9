"""Jobs that went to another shard: the claim ends, and what is left here says where the job is."""

from __future__ import annotations

import pytest

from pinlater.backends.base import AckOutcome, ClaimKey
from pinlater.model import Job, JobState
from tests.conformance.subject import DAY_MS, Subject, claim_key_of, key_of

THERE = "mail:s9:p1:1790000000000000"


async def test_a_job_that_was_moved_has_succeeded_here_and_points_to_its_copy(subject: Subject) -> None:
    descriptor = await subject.job(custom_status="a", run_after_ms=5)
    job = await subject.claimed()
    subject.tick(10)
    assert await subject.move(job, THERE)
    info = await subject.info(descriptor)
    assert (info.state, info.moved_to, info.origin) == (JobState.SUCCEEDED, THERE, None)
    assert (info.finished_at_ms, info.updated_at_ms, info.run_after_ms) == (subject.now_ms, subject.now_ms, 5)
    assert (info.custom_status, info.attempts_remaining, info.body) == ("a", 2, b"body")
    assert info.claim_descriptor == job.claim_descriptor
    assert [each.moved_to for each in await subject.scan(JobState.SUCCEEDED)] == [THERE]


async def test_what_was_moved_does_not_come_again(subject: Subject) -> None:
    descriptor = await subject.job()
    await subject.move(await subject.claimed(timeout_ms=10), THERE)
    subject.tick(11)
    assert await subject.expire() == {}
    assert await subject.claim() == []
    assert await subject.succeed(descriptor) is AckOutcome.IGNORED
    assert not await subject.checkpoint(descriptor)


async def test_what_was_moved_is_pruned_as_a_success(subject: Subject) -> None:
    descriptor = await subject.job()
    await subject.move(await subject.claimed(), THERE)
    subject.tick(DAY_MS)
    assert await subject.prune(succeeded_ttl_ms=DAY_MS, failed_ttl_ms=0) == {}
    subject.tick(1)
    assert await subject.prune(succeeded_ttl_ms=DAY_MS, failed_ttl_ms=10**12) == {subject.queue: 1}
    assert await subject.find(descriptor) is None


@pytest.mark.parametrize("claim", ["", "host:1:2:3:worker"])
async def test_a_job_under_another_claim_is_not_moved(subject: Subject, claim: str) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS)
    before = await subject.info(descriptor)
    moved = [(ClaimKey(*key_of(descriptor), claim), THERE)]
    assert await subject.shard.mark_moved(subject.queue, moved, subject.now_ms) == [False]
    assert await subject.info(descriptor) == before


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.SUCCEEDED, JobState.FAILED])
async def test_what_is_not_in_progress_is_not_moved(subject: Subject, state: JobState) -> None:
    await subject.job()
    job = await subject.claimed()
    if state is JobState.PENDING:
        await subject.requeue(job)
    else:
        await subject.ack_one(job.descriptor, state is JobState.SUCCEEDED, permanent=True)
    before = await subject.info(job.descriptor)
    assert not await subject.move(job, THERE)
    assert await subject.info(job.descriptor) == before


async def test_each_job_of_a_call_is_answered_in_its_place(subject: Subject) -> None:
    await subject.enqueue(*[Job(b"")] * 3)
    one, two, three = await subject.claim(3)
    await subject.succeed(two.descriptor)
    keys = [claim_key_of(each) for each in (one, two, three, one)]
    unknown = keys[0]._replace(id=keys[2].id + 9)
    wrong_priority = keys[2]._replace(priority=2)
    moved = [(key, f"{THERE[:-1]}{place}") for place, key in enumerate([*keys, unknown, wrong_priority])]
    answers = await subject.shard.mark_moved(subject.queue, moved, subject.now_ms)
    assert answers == [True, False, True, False, False, False]
    pointers = [(await subject.info(each.descriptor)).moved_to for each in (one, two, three)]
    assert pointers == [THERE[:-1] + "0", None, THERE[:-1] + "2"]
