"""The table of states in docs/semantics.md, row by row."""

from __future__ import annotations

import pytest

from pinlater.backends.base import AckOutcome, ExpiryCounts
from pinlater.model import CancelOutcome, Job, JobInfo, JobState
from tests.conformance.extended_subject import with_result
from tests.conformance.subject import DAY_MS, TIMEOUT_MS, Subject


def assert_unclaimed(info: JobInfo) -> None:
    assert info.claim_descriptor is None
    assert info.claimed_at_ms is None
    assert info.claim_expires_at_ms is None


async def test_an_enqueued_job_is_pending_with_all_its_attempts_from_now_on(subject: Subject) -> None:
    descriptor = await subject.job(b"data", attempts_allowed=7, priority=2, custom_status="first")
    info = await subject.info(descriptor)
    assert info.state is JobState.PENDING
    assert (info.descriptor, info.body, info.priority, info.custom_status) == (descriptor, b"data", 2, "first")
    assert (info.attempts_allowed, info.attempts_remaining, info.crashes) == (7, 7, 0)
    assert info.run_after_ms == info.created_at_ms == info.updated_at_ms == subject.now_ms
    assert info.finished_at_ms is None
    assert_unclaimed(info)


async def test_a_job_with_a_time_of_its_own_keeps_it(subject: Subject) -> None:
    descriptor = await subject.job(run_after_ms=subject.now_ms + 5_000)
    assert (await subject.info(descriptor)).run_after_ms == subject.now_ms + 5_000


async def test_a_claim_puts_a_pending_job_in_progress_under_a_descriptor_until_its_expiry(subject: Subject) -> None:
    descriptor = await subject.job(b"data", attempts_allowed=3)
    enqueued_at_ms = subject.now_ms
    claimed_at_ms = subject.tick(1_000)
    job = await subject.claimed(timeout_ms=TIMEOUT_MS)
    assert (job.descriptor, job.body, job.priority) == (descriptor, b"data", 1)
    assert (job.attempts_allowed, job.attempts_remaining) == (3, 3)
    assert (job.run_after_ms, job.enqueued_at_ms) == (enqueued_at_ms, enqueued_at_ms)
    assert job.claim_expires_at_ms == claimed_at_ms + TIMEOUT_MS
    info = await subject.info(descriptor)
    assert info.state is JobState.IN_PROGRESS
    assert info.claim_descriptor == job.claim_descriptor != ""
    assert (info.claimed_at_ms, info.claim_expires_at_ms) == (claimed_at_ms, claimed_at_ms + TIMEOUT_MS)
    assert (info.run_after_ms, info.updated_at_ms) == (enqueued_at_ms, claimed_at_ms)


async def test_a_job_requeued_is_pending_again_with_all_its_attempts_and_its_old_time(subject: Subject) -> None:
    descriptor = await subject.job()
    before = await subject.info(descriptor)
    subject.tick(10)
    job = await subject.claimed()
    subject.tick(10)
    assert await subject.requeue(job) == 1
    info = await subject.info(descriptor)
    assert (info.state, info.attempts_remaining) == (JobState.PENDING, before.attempts_remaining)
    assert (info.run_after_ms, info.updated_at_ms) == (before.run_after_ms, subject.now_ms)
    assert_unclaimed(info)


async def test_a_success_ends_the_job_with_its_status_appended(subject: Subject) -> None:
    descriptor = await subject.job(custom_status="a")
    enqueued_at_ms = subject.now_ms
    claim = (await subject.claimed()).claim_descriptor
    finished_at_ms = subject.tick(50)
    assert await subject.succeed(descriptor, append_status="b") is AckOutcome.SUCCEEDED
    info = await subject.info(descriptor)
    assert (info.state, info.custom_status, info.attempts_remaining) == (JobState.SUCCEEDED, "ab", 2)
    assert (info.finished_at_ms, info.updated_at_ms) == (finished_at_ms, finished_at_ms)
    assert (info.run_after_ms, info.claim_descriptor) == (enqueued_at_ms, claim)


@pytest.mark.parametrize("result", [b"", b"r" * 255, b"r" * 256, b"r" * 5_000], ids=len)
async def test_a_result_is_kept_whatever_claim_its_ack_names_if_it_counts(subject: Subject, result: bytes) -> None:
    """A body of a tier goes by the caller of its claim, and a claim need not be named, or be one."""
    for claim_descriptor in ("x", ":::", "a:b:c:d:e"):
        descriptor = await subject.job_in(JobState.IN_PROGRESS)
        ignored = await subject.succeed(descriptor, claim_descriptor=claim_descriptor, result=result)
        assert ignored is AckOutcome.IGNORED
        assert await subject.succeed(descriptor, result=result) is AckOutcome.SUCCEEDED
        info = await with_result(subject, descriptor)
        assert info is not None
        assert info.result == result


async def test_a_success_that_is_not_kept_removes_the_job_at_once(subject: Subject) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS)
    assert await subject.ack_with(descriptor, succeeded=True, keep_succeeded=False) is AckOutcome.SUCCEEDED
    assert await subject.find(descriptor) is None
    assert await subject.count(JobState.SUCCEEDED) == await subject.count(JobState.IN_PROGRESS) == 0


async def test_a_failure_that_is_not_kept_removes_the_job_at_once(subject: Subject) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS, attempts_allowed=1)
    assert await subject.ack_with(descriptor, succeeded=False, keep_failed=False) is AckOutcome.FAILED
    assert await subject.find(descriptor) is None
    assert await subject.count(JobState.FAILED) == await subject.count(JobState.IN_PROGRESS) == 0


async def test_not_keeping_ended_jobs_still_keeps_a_job_that_is_retried(subject: Subject) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS)
    outcome = await subject.ack_with(descriptor, succeeded=False, keep_failed=False, keep_succeeded=False)
    assert outcome is AckOutcome.RETRIED
    assert (await subject.info(descriptor)).state is JobState.PENDING


async def test_a_failure_with_attempts_left_is_pending_again_after_the_delay(subject: Subject) -> None:
    descriptor = await subject.job(attempts_allowed=3, custom_status="a")
    await subject.claimed()
    subject.tick(50)
    assert await subject.fail(descriptor, append_status="b", retry_delay_ms=700) is AckOutcome.RETRIED
    info = await subject.info(descriptor)
    assert (info.state, info.custom_status) == (JobState.PENDING, "ab")
    assert (info.attempts_allowed, info.attempts_remaining, info.crashes) == (3, 2, 0)
    assert (info.run_after_ms, info.updated_at_ms) == (subject.now_ms + 700, subject.now_ms)
    assert info.finished_at_ms is None
    assert_unclaimed(info)


async def test_a_failure_of_the_last_attempt_ends_the_job(subject: Subject) -> None:
    descriptor = await subject.job(attempts_allowed=1)
    enqueued_at_ms = subject.now_ms
    claim = (await subject.claimed()).claim_descriptor
    subject.tick(50)
    assert await subject.fail(descriptor, append_status="why", retry_delay_ms=9) is AckOutcome.FAILED
    info = await subject.info(descriptor)
    assert (info.state, info.custom_status, info.attempts_remaining) == (JobState.FAILED, "why", 0)
    assert (info.finished_at_ms, info.updated_at_ms) == (subject.now_ms, subject.now_ms)
    assert (info.run_after_ms, info.claim_descriptor) == (enqueued_at_ms, claim)


async def test_a_permanent_failure_ends_the_job_whatever_attempts_remain(subject: Subject) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS, attempts_allowed=9)
    assert await subject.fail(descriptor, permanent=True) is AckOutcome.FAILED
    info = await subject.info(descriptor)
    assert (info.state, info.attempts_remaining, info.attempts_allowed) == (JobState.FAILED, 0, 9)


async def test_a_permanent_success_is_a_success(subject: Subject) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS)
    assert await subject.succeed(descriptor, permanent=True) is AckOutcome.SUCCEEDED


async def test_a_checkpoint_restarts_the_expiry_and_leaves_the_job_in_progress(subject: Subject) -> None:
    descriptor = await subject.job(custom_status="a")
    claimed_at_ms = subject.now_ms
    job = await subject.claimed(timeout_ms=TIMEOUT_MS)
    subject.tick(40_000)
    assert await subject.checkpoint(descriptor)
    info = await subject.info(descriptor)
    assert (info.state, info.claim_descriptor) == (JobState.IN_PROGRESS, job.claim_descriptor)
    assert (info.claimed_at_ms, info.claim_expires_at_ms) == (claimed_at_ms, subject.now_ms + TIMEOUT_MS)
    assert (info.run_after_ms, info.updated_at_ms) == (subject.now_ms, subject.now_ms)
    assert (info.body, info.custom_status, info.attempts_remaining) == (b"body", "a", 2)


async def test_a_checkpoint_to_pending_requeues_the_job_with_all_its_attempts(subject: Subject) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS)
    subject.tick(10)
    assert await subject.checkpoint(descriptor, move_to_pending=True, run_after_ms=subject.now_ms + 5)
    info = await subject.info(descriptor)
    assert (info.state, info.attempts_remaining) == (JobState.PENDING, 2)
    assert (info.run_after_ms, info.updated_at_ms) == (subject.now_ms + 5, subject.now_ms)
    assert_unclaimed(info)


@pytest.mark.parametrize(("attempts", "state"), [(2, JobState.PENDING), (1, JobState.FAILED)])
async def test_an_expired_claim_is_a_failed_attempt_and_a_crash(
    subject: Subject, attempts: int, state: JobState
) -> None:
    descriptor = await subject.job(attempts_allowed=attempts)
    await subject.claimed(timeout_ms=TIMEOUT_MS)
    subject.tick(TIMEOUT_MS + 1)
    expired = ExpiryCounts(1, 0) if state is JobState.PENDING else ExpiryCounts(0, 1)
    assert await subject.expire() == {subject.queue: expired}
    info = await subject.info(descriptor)
    assert (info.state, info.attempts_remaining, info.crashes) == (state, attempts - 1, 1)
    assert info.updated_at_ms == subject.now_ms
    assert info.finished_at_ms == (subject.now_ms if state is JobState.FAILED else None)


@pytest.mark.parametrize(("attempts", "state"), [(2, JobState.PENDING), (1, JobState.FAILED)])
async def test_a_released_claim_is_as_an_expired_one(subject: Subject, attempts: int, state: JobState) -> None:
    descriptor = await subject.job(attempts_allowed=attempts)
    job = await subject.claimed()
    subject.tick(1)
    expired = ExpiryCounts(1, 0) if state is JobState.PENDING else ExpiryCounts(0, 1)
    assert await subject.expire_disconnected(job) == expired
    info = await subject.info(descriptor)
    assert (info.state, info.attempts_remaining, info.crashes) == (state, attempts - 1, 1)
    assert info.updated_at_ms == subject.now_ms


async def test_an_operator_brings_a_failed_job_back_with_the_attempts_given(subject: Subject) -> None:
    descriptor = await subject.job_in(JobState.FAILED, attempts_allowed=4)
    subject.tick(10)
    assert await subject.retry_failed(9) == 1
    info = await subject.info(descriptor)
    assert (info.state, info.attempts_allowed, info.attempts_remaining) == (JobState.PENDING, 4, 9)
    assert (info.run_after_ms, info.updated_at_ms, info.finished_at_ms) == (subject.now_ms, subject.now_ms, None)
    assert_unclaimed(info)


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        (JobState.PENDING, CancelOutcome.CANCELLED),
        (JobState.IN_PROGRESS, CancelOutcome.IN_PROGRESS),
        (JobState.SUCCEEDED, CancelOutcome.ENDED),
        (JobState.FAILED, CancelOutcome.ENDED),
    ],
)
async def test_a_cancel_removes_a_pending_job_and_says_what_any_other_was(
    subject: Subject, state: JobState, outcome: CancelOutcome
) -> None:
    descriptor = await subject.job_in(state)
    assert await subject.cancel(descriptor) == [outcome]
    assert (await subject.find(descriptor) is None) is (state is JobState.PENDING)


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.FAILED])
async def test_an_ended_job_is_pruned_when_its_time_to_live_is_over(subject: Subject, state: JobState) -> None:
    descriptor = await subject.job_in(state)
    subject.tick(DAY_MS + 1)
    assert await subject.prune(succeeded_ttl_ms=DAY_MS, failed_ttl_ms=DAY_MS) == {subject.queue: 1}
    assert await subject.find(descriptor) is None


@pytest.mark.parametrize("state", list(JobState))
async def test_a_delete_removes_the_jobs_of_the_state_it_names_and_no_others(subject: Subject, state: JobState) -> None:
    jobs = {each: await subject.job_in(each) for each in reversed(JobState)}
    assert await subject.delete(state) == 1
    for each, descriptor in jobs.items():
        assert (await subject.find(descriptor) is None) is (each is state)


async def test_a_future_job_is_not_handed_out(subject: Subject) -> None:
    await subject.enqueue(Job(b"later", run_after_ms=subject.now_ms + 1), Job(b"now", 2))
    assert [job.body for job in await subject.claim(10)] == [b"now"]
