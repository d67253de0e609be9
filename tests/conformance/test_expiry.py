"""Claims that nobody ended: expiry, release, and the crash budget."""

from __future__ import annotations

import pytest

from pinlater.backends.base import EndRules, ExpiryCounts
from pinlater.backends.status_lines import crash_budget_status, expired_status, released_status
from pinlater.model import MAX_TIME_MS, DequeuedJob, Job, JobState
from tests.conformance.subject import TIMEOUT_MS, Subject
from tests.queues import make_queue


async def test_a_claim_expires_only_after_its_time_out(subject: Subject) -> None:
    await subject.job()
    await subject.claimed(timeout_ms=TIMEOUT_MS)
    subject.tick(TIMEOUT_MS)
    assert await subject.expire() == {}
    assert await subject.count(JobState.IN_PROGRESS) == 1
    subject.tick(1)
    assert await subject.expire() == {subject.queue: ExpiryCounts(1, 0)}


async def test_where_the_time_is_uncertain_a_claim_runs_from_the_latest_and_jobs_are_due_by_the_earliest(
    subject: Subject,
) -> None:
    await subject.job(b"due")
    await subject.job(b"not yet", run_after_ms=subject.now_ms + 1)
    began_ms = subject.now_ms
    requests = [subject.request(5, spare_ms=spare_ms) for spare_ms in (3_600_000, 0)]
    (job,), _ = await subject.shard.claim(subject.queue, requests, began_ms)
    assert (job.body, job.claim_expires_at_ms) == (b"due", began_ms + 3_600_000 + TIMEOUT_MS)
    assert (await subject.info(job.descriptor)).claim_expires_at_ms == job.claim_expires_at_ms
    subject.tick(3_600_000 + TIMEOUT_MS)
    assert await subject.expire() == {}
    assert await subject.expire_disconnected(job, last_seen_ms=began_ms + 3_600_000 - 1) == ExpiryCounts(0, 0)
    assert await subject.expire_disconnected(job) == ExpiryCounts(1, 0)


async def test_claims_of_one_call_that_begin_at_other_times_expire_at_other_times(subject: Subject) -> None:
    await subject.enqueue(*[Job(b"%d" % number) for number in range(3)])
    requests = [subject.request(spare_ms=spare_ms) for spare_ms in (0, 50, 0)]
    claimed = await subject.shard.claim(subject.queue, requests, subject.now_ms)
    expiries = [job.claim_expires_at_ms - subject.now_ms - TIMEOUT_MS for jobs in claimed for job in jobs]
    assert expiries == [0, 50, 0]
    infos = [await subject.info(job.descriptor) for jobs in claimed for job in jobs]
    assert [info.claim_expires_at_ms for info in infos] == [job.claim_expires_at_ms for jobs in claimed for job in jobs]


async def test_a_failed_ack_with_a_delay_below_0_makes_the_job_due_from_before_now(subject: Subject) -> None:
    descriptor = await subject.job()
    await subject.claimed()
    subject.tick(10)
    await subject.fail(descriptor, retry_delay_ms=-10)
    assert (await subject.info(descriptor)).run_after_ms == subject.now_ms - 10
    subject.tick(-10)
    assert (await subject.claimed()).descriptor == descriptor


async def test_an_expired_claim_leaves_the_job_to_be_handed_out_at_once(subject: Subject) -> None:
    descriptor = await subject.job(run_after_ms=5, custom_status="before ")
    await subject.claimed(timeout_ms=1_000)
    subject.tick(1_001)
    await subject.expire()
    info = await subject.info(descriptor)
    assert info.custom_status == "before " + expired_status(subject.now_ms, 1)
    assert info.run_after_ms == subject.now_ms
    assert (info.claim_descriptor, info.claimed_at_ms, info.claim_expires_at_ms) == (None, None, None)
    assert (await subject.claimed()).attempts_remaining == 1


async def test_the_last_attempt_that_expires_ends_the_job_under_its_last_claim(subject: Subject) -> None:
    descriptor = await subject.job(attempts_allowed=1)
    job = await subject.claimed(timeout_ms=1_000)
    subject.tick(1_001)
    await subject.expire()
    info = await subject.info(descriptor)
    assert info.custom_status == expired_status(subject.now_ms, 0)
    assert (info.state, info.finished_at_ms) == (JobState.FAILED, subject.now_ms)
    assert info.claim_descriptor == job.claim_descriptor


async def test_each_claim_has_its_own_time_out(subject: Subject) -> None:
    slow, quick = await subject.enqueue(Job(b"slow"), Job(b"quick"))
    await subject.claimed(timeout_ms=10_000)
    await subject.claimed(timeout_ms=100)
    subject.tick(101)
    assert await subject.expire() == {subject.queue: ExpiryCounts(1, 0)}
    assert (await subject.info(quick)).state is JobState.PENDING
    assert (await subject.info(slow)).state is JobState.IN_PROGRESS


async def test_a_later_claim_that_lasts_longer_does_not_hide_an_earlier_one(subject: Subject) -> None:
    await subject.enqueue(Job(b"quick"), Job(b"slow"))
    await subject.claimed(timeout_ms=100)
    await subject.claimed(timeout_ms=10_000)
    subject.tick(101)
    assert await subject.expire() == {subject.queue: ExpiryCounts(1, 0)}


async def test_of_two_claims_only_the_one_whose_time_is_over_expires(subject: Subject) -> None:
    over, exact = await subject.enqueue(Job(b"over"), Job(b"exact"))
    await subject.claimed(timeout_ms=999)
    await subject.claimed(timeout_ms=1_000)
    subject.tick(1_000)
    assert await subject.expire() == {subject.queue: ExpiryCounts(1, 0)}
    assert (await subject.info(over)).state is JobState.PENDING
    assert (await subject.info(exact)).state is JobState.IN_PROGRESS


async def test_a_checkpoint_puts_off_the_expiry_by_the_claims_own_time_out(subject: Subject) -> None:
    descriptor = await subject.job()
    await subject.claimed(timeout_ms=1_000)
    subject.tick(900)
    assert await subject.checkpoint(descriptor)
    subject.tick(1_000)
    assert await subject.expire() == {}
    subject.tick(1)
    assert await subject.expire() == {subject.queue: ExpiryCounts(1, 0)}


async def test_a_future_run_after_keeps_the_claim_until_its_time_out_after_that(subject: Subject) -> None:
    descriptor = await subject.job()
    await subject.claimed(timeout_ms=1_000)
    assert await subject.checkpoint(descriptor, run_after_ms=subject.now_ms + 50_000)
    assert (await subject.info(descriptor)).claim_expires_at_ms == subject.now_ms + 51_000
    subject.tick(51_000)
    assert await subject.expire() == {}
    assert await subject.claim() == []
    subject.tick(1)
    assert await subject.expire() == {subject.queue: ExpiryCounts(1, 0)}
    assert (await subject.claimed()).attempts_remaining == 1


@pytest.mark.parametrize(("latest_ms", "lasts_ms"), [(20_000, 20_000), (999, 1_000), (51_000, 51_000)])
async def test_a_future_run_after_keeps_no_claim_for_longer_than_the_bound(
    subject: Subject, latest_ms: int, lasts_ms: int
) -> None:
    descriptor = await subject.job()
    await subject.claimed(timeout_ms=1_000)
    fields = {"run_after_ms": subject.now_ms + 50_000, "latest_expiry_ms": subject.now_ms + latest_ms}
    assert await subject.checkpoint(descriptor, **fields)
    info = await subject.info(descriptor)
    assert (info.claim_expires_at_ms, info.run_after_ms) == (subject.now_ms + lasts_ms, subject.now_ms + 50_000)


async def test_a_later_checkpoint_without_a_time_ends_what_a_future_run_after_gave(subject: Subject) -> None:
    descriptor = await subject.job()
    await subject.claimed(timeout_ms=1_000)
    assert await subject.checkpoint(descriptor, run_after_ms=MAX_TIME_MS)
    assert (await subject.info(descriptor)).claim_expires_at_ms == MAX_TIME_MS
    subject.tick(10)
    assert await subject.checkpoint(descriptor)
    assert (await subject.info(descriptor)).claim_expires_at_ms == subject.now_ms + 1_000


@pytest.mark.parametrize("ended", ["acked", "failed", "requeued", "moved to pending"])
async def test_a_claim_that_has_ended_does_not_expire(subject: Subject, ended: str) -> None:
    descriptor = await subject.job(attempts_allowed=2)
    job = await subject.claimed(timeout_ms=1_000)
    if ended == "acked":
        await subject.succeed(descriptor)
    elif ended == "failed":
        await subject.fail(descriptor)
    elif ended == "requeued":
        await subject.requeue(job)
    else:
        await subject.checkpoint(descriptor, move_to_pending=True)
    before = await subject.info(descriptor)
    subject.tick(TIMEOUT_MS)
    assert await subject.expire() == {}
    assert await subject.info(descriptor) == before


async def test_the_expiry_of_an_old_claim_does_not_end_the_next_one(subject: Subject) -> None:
    await subject.job()
    await subject.requeue(await subject.claimed(timeout_ms=1_000))
    subject.tick(500)
    await subject.claimed(timeout_ms=1_000)
    subject.tick(600)
    assert await subject.expire() == {}
    subject.tick(401)
    assert await subject.expire() == {subject.queue: ExpiryCounts(1, 0)}


async def test_expiry_works_in_steps_of_at_most_the_limit_over_all_queues(subject: Subject) -> None:
    for queue in ("one", "two", "three"):
        await make_queue(subject.shard, queue, subject.now_ms)
        await subject.shard.enqueue(queue, [Job(b"", attempts_allowed=1)] * 3, subject.now_ms)
        await subject.shard.claim(queue, [subject.request(3, timeout_ms=10)], subject.now_ms)
    subject.tick(11)
    failed = {"one": 0, "two": 0, "three": 0}
    for _ in range(20):
        counts = await subject.expire(limit=2)
        assert sum(each.failed + each.retried for each in counts.values()) <= 2
        for queue, each in counts.items():
            failed[queue] += each.failed
        if not counts:
            break
    assert failed == {"one": 3, "two": 3, "three": 3}


async def test_a_second_expiry_finds_nothing_more(subject: Subject) -> None:
    await subject.job()
    await subject.claimed(timeout_ms=10)
    subject.tick(11)
    assert await subject.expire() == {subject.queue: ExpiryCounts(1, 0)}
    assert await subject.expire() == {}


async def test_expiry_counts_retried_and_failed_jobs_by_queue(subject: Subject) -> None:
    await subject.enqueue(*[Job(b"", attempts_allowed=attempts) for attempts in (1, 2, 3)])
    await subject.claim(3, timeout_ms=10)
    subject.tick(11)
    assert await subject.expire() == {subject.queue: ExpiryCounts(2, 1)}


async def test_a_released_claim_leaves_its_own_line_and_the_job_to_be_handed_out_at_once(subject: Subject) -> None:
    descriptor = await subject.job(run_after_ms=5, custom_status="before ")
    job = await subject.claimed()
    subject.tick(7)
    assert await subject.expire_disconnected(job) == ExpiryCounts(1, 0)
    info = await subject.info(descriptor)
    assert info.custom_status == "before " + released_status(subject.now_ms, 1)
    assert (info.run_after_ms, info.claim_descriptor, info.claim_expires_at_ms) == (subject.now_ms, None, None)


async def test_a_release_of_several_claims_counts_each_fate(subject: Subject) -> None:
    await subject.enqueue(*[Job(b"", attempts_allowed=attempts) for attempts in (1, 2, 3)])
    jobs = await subject.claim(3)
    assert await subject.expire_disconnected(*jobs, jobs[0]) == ExpiryCounts(2, 1)
    assert await subject.expire_disconnected(*jobs) == ExpiryCounts(0, 0)


async def test_a_claim_that_was_heard_of_since_is_not_released(subject: Subject) -> None:
    """The server that renewed it last releases it, and none that knows less. Where its clock was behind that of another
    server that changed the job before it, nobody does until it renews the claim again: what then is the last sign of
    life is what a late copy of an older one would be.
    """
    descriptor = await subject.job()
    job = await subject.claimed()
    claimed_at_ms = subject.now_ms
    for step_ms in (7, -20):
        subject.tick(step_ms)
        assert await subject.checkpoint(descriptor, claim_descriptor=job.claim_descriptor)
        before = await subject.info(descriptor)
        assert await subject.expire_disconnected(job, last_seen_ms=claimed_at_ms) == ExpiryCounts(0, 0)
        assert await subject.info(descriptor) == before
    assert await subject.expire_disconnected(job, last_seen_ms=subject.now_ms) == ExpiryCounts(0, 0)
    subject.tick(30)
    assert await subject.checkpoint(descriptor, claim_descriptor=job.claim_descriptor)
    assert await subject.expire_disconnected(job, last_seen_ms=subject.now_ms + 1) == ExpiryCounts(0, 0)
    assert await subject.expire_disconnected(job, last_seen_ms=subject.now_ms) == ExpiryCounts(1, 0)


async def test_of_two_checkpoints_with_the_same_future_run_after_the_later_one_counts(subject: Subject) -> None:
    """The time-out runs from the same time after both; the one that took the first releases nothing."""
    descriptor = await subject.job()
    job = await subject.claimed(timeout_ms=1_000)
    later_ms = subject.now_ms + 50_000
    subject.tick(5)
    assert await subject.checkpoint(descriptor, run_after_ms=later_ms)
    first_ms = subject.now_ms
    subject.tick(5)
    assert await subject.checkpoint(descriptor, run_after_ms=later_ms)
    for last_seen_ms in (job.claim_expires_at_ms - 1_000, first_ms, later_ms):
        assert await subject.expire_disconnected(job, last_seen_ms=last_seen_ms) == ExpiryCounts(0, 0)
    assert await subject.expire_disconnected(job, last_seen_ms=subject.now_ms) == ExpiryCounts(1, 0)


async def test_of_several_claims_those_that_were_heard_of_stay(subject: Subject) -> None:
    await subject.enqueue(Job(b""), Job(b""), Job(b""))
    jobs = await subject.claim(3, timeout_ms=1_000)
    renewed = jobs[1]
    subject.tick(5)
    assert await subject.checkpoint(renewed.descriptor, run_after_ms=subject.now_ms + 900)
    assert await subject.expire_disconnected(*jobs) == ExpiryCounts(2, 0)
    info = await subject.info(renewed.descriptor)
    assert (info.state, info.claim_descriptor) == (JobState.IN_PROGRESS, renewed.claim_descriptor)


async def crash(subject: Subject, how: str, budget: int) -> DequeuedJob:
    """Hand the job out, and let its worker die."""
    job = await subject.claimed(timeout_ms=10)
    subject.tick(11)
    if how == "expiry":
        await subject.expire(budget=budget)
    else:
        await subject.expire_disconnected(job, budget=budget)
    return job


@pytest.mark.parametrize("how", ["expiry", "release"])
async def test_a_job_fails_when_its_crash_budget_is_used_up_whatever_attempts_remain(
    subject: Subject, how: str
) -> None:
    descriptor = await subject.job(attempts_allowed=9)
    await crash(subject, how, budget=2)
    first = await subject.info(descriptor)
    assert (first.state, first.crashes, first.attempts_remaining) == (JobState.PENDING, 1, 8)
    await crash(subject, how, budget=2)
    info = await subject.info(descriptor)
    assert (info.state, info.crashes, info.attempts_remaining) == (JobState.FAILED, 2, 0)
    assert info.finished_at_ms == subject.now_ms
    assert info.custom_status.startswith(first.custom_status)
    assert info.custom_status.endswith(crash_budget_status(2))


@pytest.mark.parametrize("how", ["expiry", "release"])
async def test_without_a_budget_crashes_count_as_attempts_only(subject: Subject, how: str) -> None:
    descriptor = await subject.job(attempts_allowed=9)
    for _ in range(5):
        await crash(subject, how, budget=0)
    info = await subject.info(descriptor)
    assert (info.state, info.crashes, info.attempts_remaining) == (JobState.PENDING, 5, 4)


async def test_a_queue_with_a_crash_budget_of_its_own_goes_by_that(subject: Subject) -> None:
    strict = await subject.beside("strict")
    mine, theirs = await subject.job(attempts_allowed=9), await strict.job(attempts_allowed=9)
    for each in (subject, strict):
        await each.claimed(timeout_ms=10)
    subject.tick(11)
    counts = await subject.expire(budget=5, of={"strict": EndRules(crash_budget=1)})
    assert counts == {subject.queue: ExpiryCounts(1, 0), "strict": ExpiryCounts(0, 1)}
    assert (await subject.info(mine)).state is JobState.PENDING
    assert (await strict.info(theirs)).custom_status.endswith(crash_budget_status(1))


async def test_a_queue_can_be_without_the_crash_budget_that_all_others_have(subject: Subject) -> None:
    patient = await subject.beside("patient")
    for each in (subject, patient):
        await each.job(attempts_allowed=9)
        await each.claimed(timeout_ms=10)
    subject.tick(11)
    counts = await subject.expire(budget=1, of={"patient": EndRules(crash_budget=0)})
    assert counts == {subject.queue: ExpiryCounts(0, 1), "patient": ExpiryCounts(1, 0)}


async def test_rules_of_queues_that_are_not_there_change_nothing(subject: Subject) -> None:
    await subject.job(attempts_allowed=9)
    await subject.claimed(timeout_ms=10)
    subject.tick(11)
    assert await subject.expire(of={"none": EndRules(crash_budget=1)}) == {subject.queue: ExpiryCounts(1, 0)}


@pytest.mark.parametrize("how", ["expiry", "release"])
async def test_a_job_that_ends_by_a_crash_is_left_to_collection_also_where_failed_jobs_are_not_kept(
    subject: Subject, how: str
) -> None:
    descriptor = await subject.job(attempts_allowed=1)
    job = await subject.claimed(timeout_ms=10)
    subject.tick(11)
    if how == "expiry":
        await subject.expire(keep_failed=False)
    else:
        await subject.expire_disconnected(job, keep_failed=False)
    assert (await subject.info(descriptor)).state is JobState.FAILED
    subject.tick(1)
    assert await subject.prune(failed_ttl_ms=0) == {subject.queue: 1}


async def test_a_failed_attempt_is_no_crash(subject: Subject) -> None:
    descriptor = await subject.job(attempts_allowed=9)
    for _ in range(3):
        await subject.claimed()
        await subject.fail(descriptor)
    await crash(subject, "expiry", budget=2)
    info = await subject.info(descriptor)
    assert (info.state, info.crashes) == (JobState.PENDING, 1)


async def test_the_last_attempt_that_crashes_without_using_up_the_budget_says_only_that_it_expired(
    subject: Subject,
) -> None:
    descriptor = await subject.job(attempts_allowed=1)
    await crash(subject, "expiry", budget=5)
    assert (await subject.info(descriptor)).custom_status == expired_status(subject.now_ms, 0)


@pytest.mark.parametrize("listed", [False, True])
async def test_an_operators_retry_clears_the_crashes(subject: Subject, listed: bool) -> None:
    descriptor = await subject.job(attempts_allowed=9)
    await crash(subject, "expiry", budget=1)
    assert (await subject.info(descriptor)).state is JobState.FAILED
    assert await (subject.retry_listed(descriptor) if listed else subject.retry_failed(5)) == 1
    assert (await subject.info(descriptor)).crashes == 0
    await crash(subject, "expiry", budget=2)
    assert (await subject.info(descriptor)).state is JobState.PENDING
