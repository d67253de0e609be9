"""An operator's retry of listed jobs."""

from __future__ import annotations

from functools import partial

import pytest

from pinlater.backends.base import JobKey
from pinlater.errors import HomesChanged
from pinlater.model import JobState
from tests.conformance.crowd import Crowd, at_once
from tests.conformance.extended_subject import newer_homes
from tests.conformance.subject import DAY_MS, START_MS, Subject, key_of


async def test_a_job_that_is_named_comes_back_as_by_any_retry(subject: Subject) -> None:
    descriptor = await subject.job_in(JobState.FAILED, attempts_allowed=4, custom_status="why")
    subject.tick(10)
    assert await subject.retry_listed(descriptor, attempts=9) == 1
    info = await subject.info(descriptor)
    assert (info.state, info.attempts_allowed, info.attempts_remaining) == (JobState.PENDING, 4, 9)
    assert (info.run_after_ms, info.updated_at_ms, info.finished_at_ms) == (subject.now_ms, subject.now_ms, None)
    assert (info.claim_descriptor, info.custom_status, info.crashes) == (None, "why", 0)
    assert (await subject.claimed()).attempts_remaining == 9


async def test_without_a_number_of_attempts_it_gets_as_many_as_were_allowed(subject: Subject) -> None:
    one = await subject.job_in(JobState.FAILED, attempts_allowed=4)
    two = await subject.job_in(JobState.FAILED, attempts_allowed=7)
    assert await subject.retry_listed(one, two) == 2
    assert [(await subject.info(each)).attempts_remaining for each in (one, two)] == [4, 7]


async def test_it_comes_at_the_time_that_is_asked_for(subject: Subject) -> None:
    descriptor = await subject.job_in(JobState.FAILED)
    assert await subject.retry_listed(descriptor, run_after_ms=START_MS + 77) == 1
    assert (await subject.info(descriptor)).run_after_ms == START_MS + 77
    subject.tick(76)
    assert await subject.claim() == []
    subject.tick(1)
    assert (await subject.claimed()).descriptor == descriptor


async def test_the_others_stay_as_they_are(subject: Subject) -> None:
    named = await subject.job_in(JobState.FAILED, priority=2)
    jobs = {state: await subject.job_in(state, priority=2) for state in reversed(JobState)}
    before = [await subject.info(each) for each in jobs.values()]
    subject.tick(5)
    failed = key_of(jobs.pop(JobState.FAILED))
    wrong = [JobKey(1, failed.id), JobKey(2, failed.id + 1_000)]
    assert await subject.shard.retry_listed(subject.queue, wrong, 1, None, subject.now_ms) == 0
    assert await subject.retry_listed(*jobs.values()) == 0
    assert await subject.retry_listed(named, named) == 1
    assert [await subject.info(info.descriptor) for info in before] == before


async def test_by_older_homes_none_comes_back(subject: Subject) -> None:
    descriptor = await subject.job_in(JobState.FAILED)
    old, new = await newer_homes(subject)
    with pytest.raises(HomesChanged):
        await subject.retry_listed(descriptor, homes_version=old)
    assert (await subject.info(descriptor)).state is JobState.FAILED
    assert await subject.retry_listed(descriptor, homes_version=new) == 1


async def test_a_job_that_was_retried_is_not_pruned_by_its_old_end(subject: Subject) -> None:
    descriptor = await subject.job_in(JobState.FAILED)
    assert await subject.retry_listed(descriptor) == 1
    subject.tick(DAY_MS)
    assert await subject.prune(failed_ttl_ms=0) == {}
    assert await subject.retry_failed() == 0


async def test_jobs_of_another_queue_stay(subject: Subject) -> None:
    other = await subject.beside("other")
    theirs = await other.job_in(JobState.FAILED)
    assert await subject.retry_listed(theirs) == 0
    assert (await other.info(theirs)).state is JobState.FAILED


@pytest.mark.parametrize("number", [1, 300])
async def test_many_jobs_come_back_in_one_call(subject: Subject, number: int) -> None:
    descriptors = [await subject.job_in(JobState.FAILED) for _ in range(number)]
    assert await subject.retry_listed(*descriptors) == number
    assert await subject.count(JobState.PENDING) == number


async def test_retries_at_once_bring_each_job_back_once(crowd: Crowd) -> None:
    descriptors = [await crowd[0].job_in(JobState.FAILED) for _ in range(30)]
    answers = await at_once(
        *[partial(subject.retry_listed, *descriptors[place:]) for place, subject in enumerate(crowd)]
    )
    assert sum(answers) == 30
    assert await crowd[0].count(JobState.PENDING) == 30
