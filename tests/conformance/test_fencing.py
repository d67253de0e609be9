"""Who may end an attempt, and who may not (decisions 1, 6 and 7)."""

from __future__ import annotations

import pytest

from pinlater.backends.base import AckOutcome, AckRequest
from pinlater.model import Job, JobState
from tests.conformance.subject import NONE_EXPIRED, START_MS, TIMEOUT_MS, Subject, key_of, new_claim

NOT_IN_PROGRESS = [JobState.PENDING, JobState.SUCCEEDED, JobState.FAILED]


@pytest.mark.parametrize("state", NOT_IN_PROGRESS)
@pytest.mark.parametrize("succeeded", [True, False])
async def test_an_ack_of_what_is_not_in_progress_changes_nothing(
    subject: Subject, state: JobState, succeeded: bool
) -> None:
    descriptor = await subject.job_in(state)
    before = await subject.info(descriptor)
    subject.tick(10)
    outcome = await subject.ack_one(descriptor, succeeded, append_status="late", retry_delay_ms=5, permanent=True)
    assert outcome is AckOutcome.IGNORED
    assert await subject.info(descriptor) == before


@pytest.mark.parametrize("state", NOT_IN_PROGRESS)
async def test_a_checkpoint_of_what_is_not_in_progress_changes_nothing(subject: Subject, state: JobState) -> None:
    descriptor = await subject.job_in(state)
    before = await subject.info(descriptor)
    subject.tick(10)
    assert not await subject.checkpoint(descriptor, new_body=b"new", prepend_status="x", attempts_allowed=9)
    assert not await subject.checkpoint(descriptor, source="", claim_descriptor=before.claim_descriptor or "")
    assert await subject.info(descriptor) == before


async def test_an_ack_of_an_unknown_job_is_ignored(subject: Subject) -> None:
    unknown = AckRequest(1, START_MS * 1000, True)
    assert await subject.ack(unknown) == [AckOutcome.IGNORED]


async def test_an_ack_without_a_claim_is_taken_for_any_claim(subject: Subject) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS)
    assert await subject.succeed(descriptor, claim_descriptor="") is AckOutcome.SUCCEEDED


@pytest.mark.parametrize("succeeded", [True, False])
async def test_an_ack_with_another_claim_is_ignored(subject: Subject, succeeded: bool) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS)
    before = await subject.info(descriptor)
    subject.tick(10)
    assert await subject.ack_one(descriptor, succeeded, claim_descriptor=new_claim()) is AckOutcome.IGNORED
    assert await subject.info(descriptor) == before


@pytest.mark.parametrize("succeeded", [True, False])
async def test_an_ack_with_the_current_claim_is_taken(subject: Subject, succeeded: bool) -> None:
    descriptor = await subject.job()
    job = await subject.claimed()
    outcome = await subject.ack_one(descriptor, succeeded, claim_descriptor=job.claim_descriptor)
    assert outcome is (AckOutcome.SUCCEEDED if succeeded else AckOutcome.RETRIED)


async def test_a_worker_whose_claim_expired_cannot_end_the_next_attempt(subject: Subject) -> None:
    descriptor = await subject.job()
    late = await subject.claimed(timeout_ms=TIMEOUT_MS)
    subject.tick(TIMEOUT_MS + 1)
    await subject.expire()
    current = await subject.claimed()
    assert await subject.succeed(descriptor, claim_descriptor=late.claim_descriptor) is AckOutcome.IGNORED
    assert not await subject.checkpoint(descriptor, claim_descriptor=late.claim_descriptor)
    assert await subject.requeue(late) == 0
    assert await subject.expire_disconnected(late) == NONE_EXPIRED
    assert (await subject.info(descriptor)).claim_descriptor == current.claim_descriptor


async def test_a_claim_that_differs_in_case_or_trailing_blanks_is_another_claim(subject: Subject) -> None:
    descriptor = await subject.job()
    job = await subject.claimed(source="Worker")
    for other in (job.claim_descriptor.lower(), job.claim_descriptor + " ", job.claim_descriptor + "\0"):
        assert await subject.succeed(descriptor, claim_descriptor=other) is AckOutcome.IGNORED
        assert not await subject.checkpoint(descriptor, claim_descriptor=other)
    assert await subject.succeed(descriptor, claim_descriptor=job.claim_descriptor) is AckOutcome.SUCCEEDED


async def test_a_job_named_twice_is_acked_by_the_first_that_applies(subject: Subject) -> None:
    descriptor = await subject.job(attempts_allowed=1)
    job = await subject.claimed()
    stale = AckRequest(*key_of(descriptor), False, "stale", claim_descriptor=new_claim())
    good = AckRequest(*key_of(descriptor), True, "good", claim_descriptor=job.claim_descriptor)
    late = AckRequest(*key_of(descriptor), False, "late")
    assert await subject.ack(stale, good, late) == [AckOutcome.IGNORED, AckOutcome.SUCCEEDED, AckOutcome.IGNORED]
    info = await subject.info(descriptor)
    assert (info.state, info.custom_status) == (JobState.SUCCEEDED, "good")


async def test_a_retried_job_named_twice_is_not_failed_twice(subject: Subject) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS, attempts_allowed=5)
    fail = AckRequest(*key_of(descriptor), False, "once ")
    assert await subject.ack(fail, fail) == [AckOutcome.RETRIED, AckOutcome.IGNORED]
    info = await subject.info(descriptor)
    assert (info.attempts_remaining, info.custom_status) == (4, "once ")


async def test_unlike_acks_of_one_call_each_have_their_own_outcome(subject: Subject) -> None:
    pending = await subject.job(run_after_ms=subject.now_ms + 1)
    jobs = await subject.enqueue(*[Job(b"x", priority) for priority in (1, 3, 2, 1)])
    await subject.claim(4)
    keys = [key_of(each) for each in jobs]
    outcomes = await subject.ack(
        AckRequest(*keys[3], False, "d", retry_delay_ms=9),
        AckRequest(*key_of(pending), True),
        AckRequest(*keys[0], True, "a"),
        AckRequest(*keys[2], False, "c", permanent=True),
        AckRequest(*keys[1], True),
    )
    assert outcomes == [
        AckOutcome.RETRIED,
        AckOutcome.IGNORED,
        AckOutcome.SUCCEEDED,
        AckOutcome.FAILED,
        AckOutcome.SUCCEEDED,
    ]
    statuses = [(await subject.info(each)).custom_status for each in jobs]
    assert statuses == ["a", "", "c", "d"]


@pytest.mark.parametrize("odd_run_after_ms", [None, START_MS - 5])
@pytest.mark.parametrize("missing", [False, True])
async def test_many_jobs_that_are_acked_keep_their_run_after(
    subject: Subject, odd_run_after_ms: int | None, missing: bool
) -> None:
    """Also where the first and the last of the acks have the same one, and a job between them has another, or ended."""
    jobs = [Job(b"x", 1, START_MS - 10) for _ in range(20)]
    jobs[7].run_after_ms = odd_run_after_ms or jobs[7].run_after_ms
    descriptors = await subject.enqueue(*jobs)
    claimed = {job.descriptor: job.run_after_ms for job in await subject.claim(20)}
    assert claimed == {each: job.run_after_ms for each, job in zip(descriptors, jobs, strict=True)}
    if missing:
        await subject.succeed(descriptors[9])
    assert await subject.ack_all(descriptors) == 20 - missing
    infos = [await subject.info(each) for each in descriptors]
    assert [(info.state, info.run_after_ms) for info in infos] == [
        (JobState.SUCCEEDED, job.run_after_ms) for job in jobs
    ]


@pytest.mark.parametrize("source", ["worker", "", "a:b", ":", "wörker ☃", "x" * 200])
async def test_a_checkpoint_without_a_claim_needs_exactly_the_same_source(subject: Subject, source: str) -> None:
    descriptor = await subject.job()
    await subject.claimed(source=source)
    before = await subject.info(descriptor)
    subject.tick(10)
    for other in (source + " ", source + ":", "b", source.upper() + "X", source[:-1] + "?"):
        assert not await subject.checkpoint(descriptor, other)
    assert await subject.info(descriptor) == before
    assert await subject.checkpoint(descriptor, source)


@pytest.mark.parametrize(("source", "other"), [("worker", "Worker"), ("worker", "worker "), ("é", "e"), ("a:b", "b")])
async def test_sources_are_compared_byte_by_byte(subject: Subject, source: str, other: str) -> None:
    descriptor = await subject.job()
    await subject.claimed(source=source)
    assert not await subject.checkpoint(descriptor, other)


async def test_a_checkpoint_with_the_claim_is_taken_whatever_the_source(subject: Subject) -> None:
    descriptor = await subject.job()
    job = await subject.claimed(source="worker")
    assert await subject.checkpoint(descriptor, "somebody", claim_descriptor=job.claim_descriptor)


async def test_a_checkpoint_with_another_claim_is_refused_even_from_the_same_source(subject: Subject) -> None:
    descriptor = await subject.job()
    await subject.claimed(source="worker")
    assert not await subject.checkpoint(descriptor, "worker", claim_descriptor=new_claim("worker"))


async def test_a_job_that_was_acked_successfully_is_never_handed_out_again(subject: Subject) -> None:
    await subject.job_in(JobState.SUCCEEDED)
    subject.tick(10 * TIMEOUT_MS)
    assert await subject.expire() == {}
    assert await subject.claim(10) == []


async def test_a_job_is_handed_out_at_most_as_often_as_its_attempts_allow(subject: Subject) -> None:
    descriptor = await subject.job(attempts_allowed=3)
    handed_out = 0
    for end in (lambda: subject.fail(descriptor), subject.expire, subject.expire, subject.expire):
        handed_out += len(await subject.claim(timeout_ms=1_000))
        subject.tick(1_001)
        await end()
    assert handed_out == 3
    assert (await subject.info(descriptor)).state is JobState.FAILED


async def test_a_claim_alone_takes_no_attempt(subject: Subject) -> None:
    descriptor = await subject.job(attempts_allowed=1)
    for _ in range(3):
        job = await subject.claimed()
        assert job.attempts_remaining == 1
        await subject.requeue(job)
    assert (await subject.info(descriptor)).attempts_remaining == 1
