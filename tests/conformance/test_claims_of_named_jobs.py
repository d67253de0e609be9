"""`claim_listed`: claims of these very jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest

from pinlater.backends.base import SLICE_BYTES, ExpiryCounts, JobKey
from pinlater.backends.extended import RescheduleRequest
from pinlater.errors import QueueNotFound
from pinlater.model import ClaimAnswer, ClaimOutcome, DequeuedJob, Job, JobState
from tests.conformance.crowd import Crowd, at_once
from tests.conformance.extended_subject import expire_jobs, found, stop, store
from tests.conformance.subject import TIMEOUT_MS, Subject, key_of

CLAIMED = ClaimOutcome.CLAIMED


async def answers_of(
    subject: Subject, *descriptors: str, enforce_quota: bool = False, is_default_timeout: bool = False, **fields: int
) -> list[ClaimAnswer]:
    request = replace(subject.request(0, priorities=(), **fields), is_default_timeout=is_default_timeout)
    keys = [key_of(each) for each in descriptors]
    return await subject.shard.claim_listed(subject.queue, keys, request, subject.now_ms, enforce_quota=enforce_quota)


async def outcomes_of(subject: Subject, *descriptors: str, enforce_quota: bool = False) -> list[ClaimOutcome]:
    return [each.outcome for each in await answers_of(subject, *descriptors, enforce_quota=enforce_quota)]


def jobs_of(answers: Sequence[ClaimAnswer]) -> list[DequeuedJob]:
    assert all((each.job is not None) is (each.outcome is CLAIMED) for each in answers)
    return [each.job for each in answers if each.job is not None]


async def test_a_job_that_is_named_is_handed_out_as_by_a_claim(subject: Subject) -> None:
    first, second, third = await subject.enqueue(
        Job(b"1", custom_status="old"), Job(b"2", 3, custom_status="new", attempts_allowed=4), Job(b"3", 3)
    )
    (by_claim,) = await subject.claim()
    (job,) = jobs_of(await answers_of(subject, second))
    assert job == replace(
        by_claim,
        descriptor=second,
        body=b"2",
        priority=3,
        attempts_allowed=4,
        attempts_remaining=4,
        claim_descriptor=job.claim_descriptor,
    )
    assert job.claim_descriptor != by_claim.claim_descriptor
    info, as_by_claim = await subject.info(second), await subject.info(first)
    assert info == replace(
        as_by_claim,
        descriptor=second,
        body=b"2",
        priority=3,
        attempts_allowed=4,
        attempts_remaining=4,
        custom_status="new",
        claim_descriptor=job.claim_descriptor,
        body_stored_at=info.body_stored_at,
    )
    assert (await subject.claimed()).descriptor == third
    await subject.ack_all([first, second, third])
    assert await subject.count(JobState.SUCCEEDED) == 3


async def test_each_job_is_answered_in_its_place(subject: Subject) -> None:
    ended, runs, ready, later = [await subject.job(b"%d" % number) for number in range(4)]
    await subject.claim(2)
    await subject.succeed(ended)
    await subject.shard.reschedule(subject.queue, [later_by(subject, later)], subject.now_ms)
    missing = later.replace(str(key_of(later).id), str(key_of(later).id + 1_000_000))
    other_priority = ready.replace(":p1:", ":p2:")
    named = (missing, later, ready, ready, other_priority, runs, ended)
    answers = await answers_of(subject, *named)
    assert [each.outcome for each in answers] == [
        ClaimOutcome.NOT_FOUND,
        ClaimOutcome.NOT_DUE,
        CLAIMED,
        ClaimOutcome.IN_PROGRESS,
        ClaimOutcome.NOT_FOUND,
        ClaimOutcome.IN_PROGRESS,
        ClaimOutcome.ENDED,
    ]
    assert [job.descriptor for job in jobs_of(answers)] == [ready]
    subject.tick(1)
    assert await outcomes_of(subject, later) == [CLAIMED]


def later_by(subject: Subject, descriptor: str) -> RescheduleRequest:
    return RescheduleRequest(*key_of(descriptor), subject.now_ms + 1)


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.FAILED])
async def test_what_has_ended_is_not_handed_out(subject: Subject, state: JobState) -> None:
    descriptor = await subject.job_in(state)
    assert await outcomes_of(subject, descriptor) == [ClaimOutcome.ENDED]
    assert (await subject.info(descriptor)).state is state


async def test_a_cancelled_job_has_ended(subject: Subject) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS)
    await stop(subject, descriptor)
    await subject.fail(descriptor)
    assert await outcomes_of(subject, descriptor) == [ClaimOutcome.ENDED]


async def test_jobs_are_claimed_in_the_order_given_each_once(subject: Subject) -> None:
    descriptors = await subject.enqueue(*[Job(b"%d" % number, 1 + number % 3) for number in range(6)])
    named = descriptors[::-1]
    assert [job.descriptor for job in jobs_of(await answers_of(subject, *named))] == named
    assert await outcomes_of(subject, *named) == [ClaimOutcome.IN_PROGRESS] * 6
    assert await subject.claim(9) == []


async def test_a_job_behind_another_one_of_its_serialize_key_stays(subject: Subject) -> None:
    first, second = [await store(subject, serialize_key="k") for _ in range(2)]
    later = await store(subject, serialize_key="k", run_after_ms=subject.now_ms + 5)
    assert await outcomes_of(subject, later, second, first) == [ClaimOutcome.BEHIND, ClaimOutcome.BEHIND, CLAIMED]
    await subject.succeed(first)
    assert await outcomes_of(subject, later, second) == [ClaimOutcome.BEHIND, CLAIMED]
    assert await found(subject, serialize_key="k") == second


async def test_a_job_whose_time_is_over_has_ended_before_maintenance_says_so(subject: Subject) -> None:
    descriptor = await store(subject, expires_at_ms=subject.now_ms + 10)
    behind = await store(subject, serialize_key="k", expires_at_ms=subject.now_ms + 10)
    subject.tick(9)
    alive = await store(subject, expires_at_ms=subject.now_ms + 10)
    subject.tick(1)
    assert await outcomes_of(subject, descriptor, behind, alive) == [ClaimOutcome.ENDED, ClaimOutcome.ENDED, CLAIMED]
    assert await subject.claim(9) == []
    assert await outcomes_of(subject, descriptor, behind) == [ClaimOutcome.ENDED] * 2
    assert await expire_jobs(subject) == 2
    assert await outcomes_of(subject, descriptor, behind) == [ClaimOutcome.ENDED] * 2


async def test_the_time_out_of_the_job_itself_counts_before_a_default(subject: Subject) -> None:
    one, two, three = [await store(subject, claim_timeout_ms=ms) for ms in (500, 700, None)]
    began_ms = subject.now_ms
    (named,) = jobs_of(await answers_of(subject, one, timeout_ms=90))
    jobs = jobs_of(await answers_of(subject, two, three, timeout_ms=90, is_default_timeout=True))
    assert [job.claim_expires_at_ms - began_ms for job in (named, *jobs)] == [90, 700, 90]
    assert [(await subject.info(each)).claim_expires_at_ms for each in (one, two, three)] == [
        began_ms + 90,
        began_ms + 700,
        began_ms + 90,
    ]
    subject.tick(91)
    assert await subject.expire() == {subject.queue: ExpiryCounts(2, 0)}


async def test_where_the_time_is_uncertain_the_claim_runs_from_the_latest(subject: Subject) -> None:
    descriptor = await subject.job()
    (job,) = jobs_of(await answers_of(subject, descriptor, spare_ms=70))
    assert job.claim_expires_at_ms == subject.now_ms + 70 + TIMEOUT_MS
    assert (await subject.info(descriptor)).claim_expires_at_ms == job.claim_expires_at_ms


async def test_a_retry_comes_with_what_has_changed_since(subject: Subject) -> None:
    descriptor = await subject.job(attempts_allowed=3, custom_status="a")
    await subject.claimed()
    await subject.fail(descriptor, append_status="b", retry_delay_ms=5)
    assert await outcomes_of(subject, descriptor) == [ClaimOutcome.NOT_DUE]
    subject.tick(5)
    (job,) = jobs_of(await answers_of(subject, descriptor))
    assert (job.attempts_allowed, job.attempts_remaining, job.run_after_ms) == (3, 2, subject.now_ms)
    assert (await subject.info(descriptor)).custom_status == "ab"


async def test_within_the_quota_what_is_beyond_it_stays(subject: Subject) -> None:
    descriptors = await subject.enqueue(*[Job(b"")] * 4)
    later = await subject.job(run_after_ms=subject.now_ms + 5)
    assert await outcomes_of(subject, descriptors[0], enforce_quota=True) == [ClaimOutcome.LIMITED]
    await subject.quota(2, 1)
    named = (descriptors[3], descriptors[3], descriptors[1], later, descriptors[0])
    assert await outcomes_of(subject, *named, enforce_quota=True) == [
        CLAIMED,
        ClaimOutcome.IN_PROGRESS,
        CLAIMED,
        ClaimOutcome.NOT_DUE,
        ClaimOutcome.LIMITED,
    ]
    assert await outcomes_of(subject, descriptors[0]) == [CLAIMED]
    assert (await subject.quota()).in_progress == 3


async def test_bodies_end_the_answer_and_the_first_always_comes(subject: Subject) -> None:
    descriptors = await subject.enqueue(*[Job(b"x" * 10)] * 4)
    assert len(jobs_of(await answers_of(subject, *descriptors, max_bytes=5))) == 1
    answers = await answers_of(subject, descriptors[0], *descriptors[1:], max_bytes=29)
    assert [each.outcome for each in answers] == [ClaimOutcome.IN_PROGRESS, CLAIMED, CLAIMED]
    assert [job.descriptor for job in await subject.claim(9)] == descriptors[3:]


async def test_large_bodies_come_a_slice_at_a_time(subject: Subject) -> None:
    size = SLICE_BYTES // 3
    descriptors = await subject.enqueue(*[Job(b"%d" % number * size) for number in range(4)])
    jobs = jobs_of(await answers_of(subject, *descriptors))
    assert [job.body for job in jobs] == [b"0" * size, b"1" * size, b"2" * size]


async def test_a_claim_expires_as_any_other(subject: Subject) -> None:
    slow, quick = await subject.enqueue(Job(b"slow"), Job(b"quick"))
    await answers_of(subject, slow, timeout_ms=10_000)
    await answers_of(subject, quick, timeout_ms=100)
    subject.tick(101)
    assert await subject.expire() == {subject.queue: ExpiryCounts(1, 0)}
    assert (await subject.info(quick)).state is JobState.PENDING


async def test_a_claim_that_lasts_longer_does_not_hide_an_earlier_one(subject: Subject) -> None:
    quick, slow = await subject.enqueue(Job(b"quick"), Job(b"slow"))
    await answers_of(subject, quick, timeout_ms=100)
    await answers_of(subject, slow, timeout_ms=10_000)
    subject.tick(101)
    assert await subject.expire() == {subject.queue: ExpiryCounts(1, 0)}


async def test_a_status_from_the_enqueue_is_there_at_the_end(subject: Subject) -> None:
    descriptor = await subject.job(custom_status="first ")
    await answers_of(subject, descriptor)
    await subject.succeed(descriptor, append_status="last")
    assert (await subject.info(descriptor)).custom_status == "first last"


async def test_in_a_queue_that_is_not_there_nothing_is_claimed(subject: Subject) -> None:
    descriptor = await subject.job()
    request = subject.request()
    with pytest.raises(QueueNotFound):
        await subject.shard.claim_listed("gone", [key_of(descriptor)], request, subject.now_ms)
    await subject.beside("other")
    (answer,) = await subject.shard.claim_listed("other", [key_of(descriptor)], request, subject.now_ms)
    assert answer == ClaimAnswer(ClaimOutcome.NOT_FOUND)
    assert await subject.shard.claim_listed(subject.queue, [], request, subject.now_ms) == []
    assert (await subject.claimed()).descriptor == descriptor


async def test_of_many_at_once_one_gets_the_job(crowd: Crowd) -> None:
    for descriptor in await crowd[0].enqueue(*[Job(b"")] * 5):
        answers = await at_once(*[partial(answers_of, subject, descriptor) for subject in crowd])
        assert [each.outcome for (each,) in answers].count(CLAIMED) == 1


async def test_the_quota_holds_whoever_claims(crowd: Crowd) -> None:
    descriptors = await crowd[0].enqueue(*[Job(b"")] * 12)
    await crowd[0].quota(3, 1)
    by_name = [partial(answers_of, subject, *descriptors[6:], enforce_quota=True) for subject in crowd]
    await at_once(*by_name, *[partial(subject.claim_within_quota, 2) for subject in crowd])
    assert (await crowd[0].quota()).in_progress == 3


async def test_a_key_of_no_job_is_not_found(subject: Subject) -> None:
    request = subject.request()
    answers = await subject.shard.claim_listed(subject.queue, [JobKey(1, 7)], request, subject.now_ms)
    assert answers == [ClaimAnswer(ClaimOutcome.NOT_FOUND)]
