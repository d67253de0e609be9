"""What happens to ended jobs: collection, an operator's retry, deletion."""

from __future__ import annotations

from typing import Any

import pytest

from pinlater.backends.base import Retention
from pinlater.model import Job, JobState
from tests.conformance.subject import DAY_MS, START_MS, Subject
from tests.queues import make_queue

ENDED = [JobState.SUCCEEDED, JobState.FAILED]


def ttl(state: JobState, ttl_ms: int) -> dict[str, Any]:
    """A time to live for one state; the other is kept for ever."""
    other = {"succeeded_ttl_ms": 10**12, "failed_ttl_ms": 10**12}
    return other | {"succeeded_ttl_ms" if state is JobState.SUCCEEDED else "failed_ttl_ms": ttl_ms}


@pytest.mark.parametrize("state", ENDED)
async def test_a_job_is_pruned_only_after_its_time_to_live(subject: Subject, state: JobState) -> None:
    descriptor = await subject.job_in(state)
    subject.tick(1_000)
    assert await subject.prune(**ttl(state, 1_000)) == {}
    assert await subject.find(descriptor) is not None
    subject.tick(1)
    assert await subject.prune(**ttl(state, 1_000)) == {subject.queue: 1}
    assert await subject.find(descriptor) is None


@pytest.mark.parametrize("state", ENDED)
async def test_jobs_that_end_one_after_another_are_pruned_as_each_becomes_due(
    subject: Subject, state: JobState
) -> None:
    first = await subject.job_in(state)
    subject.tick(500)
    second = await subject.job_in(state)
    subject.tick(501)
    assert await subject.prune(**ttl(state, 1_000)) == {subject.queue: 1}
    assert await subject.find(first) is None
    subject.tick(499)
    assert await subject.prune(**ttl(state, 1_000)) == {}
    subject.tick(1)
    assert await subject.prune(**ttl(state, 1_000)) == {subject.queue: 1}
    assert await subject.find(second) is None


@pytest.mark.parametrize("state", ENDED)
async def test_each_ended_state_has_its_own_time_to_live(subject: Subject, state: JobState) -> None:
    descriptors = {each: await subject.job_in(each) for each in ENDED}
    subject.tick(1_001)
    assert await subject.prune(**ttl(state, 1_000)) == {subject.queue: 1}
    for each, descriptor in descriptors.items():
        assert (await subject.find(descriptor) is None) is (each is state)


async def test_the_time_to_live_counts_from_the_end_and_not_from_run_after_or_the_claim(subject: Subject) -> None:
    descriptor = await subject.job(run_after_ms=0)
    await subject.claimed()
    subject.tick(5 * DAY_MS)
    await subject.succeed(descriptor)
    subject.tick(DAY_MS)
    assert await subject.prune(succeeded_ttl_ms=DAY_MS) == {}


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.IN_PROGRESS])
async def test_a_job_that_has_not_ended_is_never_pruned(subject: Subject, state: JobState) -> None:
    await subject.job_in(state, run_after_ms=0)
    subject.tick(1_000 * DAY_MS)
    assert await subject.prune(succeeded_ttl_ms=0, failed_ttl_ms=0) == {}
    assert await subject.count(state) == 1


async def test_a_job_that_was_retried_is_not_pruned_by_its_old_end(subject: Subject) -> None:
    descriptor = await subject.job_in(JobState.FAILED)
    await subject.retry_failed()
    subject.tick(DAY_MS)
    assert await subject.prune(failed_ttl_ms=0) == {}
    await subject.claimed()
    await subject.fail(descriptor)
    subject.tick(10)
    assert await subject.prune(failed_ttl_ms=100) == {}
    subject.tick(91)
    assert await subject.prune(failed_ttl_ms=100) == {subject.queue: 1}


async def test_pruning_works_in_steps_of_at_most_the_limit_over_all_queues(subject: Subject) -> None:
    for queue in ("one", "two"):
        await make_queue(subject.shard, queue, subject.now_ms)
        await subject.shard.enqueue(queue, [Job(b"", attempts_allowed=1)] * 5, subject.now_ms)
        (jobs,) = await subject.shard.claim(queue, [subject.request(5)], subject.now_ms)
        other = Subject(subject.shard, queue)
        for position, job in enumerate(jobs):
            await other.ack_one(job.descriptor, position % 2 == 0)
    subject.tick(10)
    collected = {"one": 0, "two": 0}
    for _ in range(20):
        counts = await subject.prune(limit=3, succeeded_ttl_ms=1, failed_ttl_ms=1)
        assert sum(counts.values()) <= 3
        for queue, number in counts.items():
            collected[queue] += number
        if not counts:
            break
    assert collected == {"one": 5, "two": 5}


@pytest.mark.parametrize("state", ENDED)
async def test_a_queue_with_a_time_to_live_of_its_own_is_pruned_by_that(subject: Subject, state: JobState) -> None:
    brief = await subject.beside("brief")
    kept, gone = await subject.job_in(state), await brief.job_in(state)
    subject.tick(101)
    counts = await subject.prune(succeeded_ttl_ms=DAY_MS, failed_ttl_ms=DAY_MS, of={"brief": Retention(100, 100)})
    assert counts == {"brief": 1}
    assert await subject.find(kept) is not None
    assert await brief.find(gone) is None


@pytest.mark.parametrize("state", ENDED)
async def test_jobs_that_a_queue_keeps_for_longer_do_not_hide_those_of_other_queues(
    subject: Subject, state: JobState
) -> None:
    lasting = await subject.beside("lasting")
    for _ in range(5):
        await lasting.job_in(state)
    subject.tick(1)
    descriptor = await subject.job_in(state)
    subject.tick(101)
    counts = await subject.prune(limit=1, **ttl(state, 100), of={"lasting": Retention(DAY_MS, DAY_MS)})
    assert counts == {subject.queue: 1}
    assert await subject.find(descriptor) is None
    assert await lasting.count(state) == 5


async def test_queues_with_times_to_live_of_their_own_share_the_limit_of_a_step(subject: Subject) -> None:
    others = [await subject.beside(queue) for queue in ("one", "two", "three")]
    for other in (*others, subject):
        for _ in range(2):
            await other.job_in(JobState.SUCCEEDED)
    subject.tick(10)
    of = {"one": Retention(1, 1), "two": Retention(2, 2), "three": Retention(DAY_MS, 0)}
    collected = 0
    for _ in range(20):
        counts = await subject.prune(limit=3, succeeded_ttl_ms=3, of=of)
        assert sum(counts.values()) <= 3
        collected += sum(counts.values())
        if not counts:
            break
    assert collected == 6
    assert await others[2].count(JobState.SUCCEEDED) == 2


async def test_each_state_of_a_queue_has_its_own_time_to_live(subject: Subject) -> None:
    descriptors = {state: await subject.job_in(state) for state in ENDED}
    subject.tick(101)
    assert await subject.prune(of={subject.queue: Retention(DAY_MS, 100)}) == {subject.queue: 1}
    assert await subject.find(descriptors[JobState.FAILED]) is None
    assert await subject.prune(of={subject.queue: Retention(100, DAY_MS)}) == {subject.queue: 1}
    assert await subject.find(descriptors[JobState.SUCCEEDED]) is None


async def test_a_retry_sets_run_after_as_asked(subject: Subject) -> None:
    descriptor = await subject.job_in(JobState.FAILED)
    assert await subject.retry_failed(run_after_ms=START_MS + 77) == 1
    assert (await subject.info(descriptor)).run_after_ms == START_MS + 77
    assert await subject.claim() == []
    subject.tick(77)
    assert (await subject.claimed()).descriptor == descriptor


async def test_a_retry_takes_at_most_the_limit_oldest_run_after_first(subject: Subject) -> None:
    times = [50, 10, 40, 20, 30]
    descriptors = await subject.enqueue(*[Job(b"", run_after_ms=time, attempts_allowed=1) for time in times])
    await subject.claim(5)
    for descriptor in descriptors:
        await subject.fail(descriptor)
    assert await subject.retry_failed(limit=2) == 2
    back = [time for time, each in zip(times, descriptors, strict=True) if await is_pending(subject, each)]
    assert sorted(back) == [10, 20]
    assert await subject.retry_failed(limit=9) == 3
    assert await subject.retry_failed(limit=9) == 0


async def is_pending(subject: Subject, descriptor: str) -> bool:
    return (await subject.info(descriptor)).state is JobState.PENDING


async def test_a_retry_takes_failed_jobs_of_its_priority_only(subject: Subject) -> None:
    descriptors = {}
    for priority in (1, 2, 3):
        descriptors[priority] = await subject.job_in(JobState.FAILED, priority=priority)
    assert await subject.retry_failed(priority=2) == 1
    for priority, descriptor in descriptors.items():
        assert await is_pending(subject, descriptor) is (priority == 2)


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.IN_PROGRESS, JobState.SUCCEEDED])
async def test_a_retry_leaves_what_has_not_failed(subject: Subject, state: JobState) -> None:
    descriptor = await subject.job_in(state)
    before = await subject.info(descriptor)
    subject.tick(5)
    assert await subject.retry_failed(9) == 0
    assert await subject.info(descriptor) == before


async def test_a_retried_job_lives_through_its_attempts_again(subject: Subject) -> None:
    descriptor = await subject.job_in(JobState.FAILED, attempts_allowed=1)
    await subject.retry_failed(2)
    assert (await subject.claimed()).attempts_remaining == 2
    await subject.fail(descriptor)
    await subject.claimed()
    await subject.fail(descriptor)
    assert (await subject.info(descriptor)).state is JobState.FAILED


@pytest.mark.parametrize("state", list(JobState))
async def test_a_delete_takes_at_most_the_limit_of_one_priority(subject: Subject, state: JobState) -> None:
    for priority in (1, 1, 1, 2):
        await subject.job_in(state, priority=priority)
    assert await subject.delete(state, limit=2) == 2
    assert await subject.delete(state, limit=2) == 1
    assert await subject.delete(state, limit=2) == 0
    assert await subject.count(state) == await subject.count(state, priorities=(2,)) == 1


async def test_a_delete_takes_future_jobs_too(subject: Subject) -> None:
    await subject.job(run_after_ms=START_MS + 10)
    assert await subject.delete(JobState.PENDING) == 1
    assert await subject.count(JobState.PENDING, future=True) == 0


@pytest.mark.parametrize("state", list(JobState))
async def test_a_listed_delete_removes_those_that_are_still_in_the_state(subject: Subject, state: JobState) -> None:
    descriptors = {each: await subject.job_in(each) for each in reversed(JobState)}
    assert await subject.delete_listed(state, *descriptors.values(), descriptors[state]) == 1
    for each, descriptor in descriptors.items():
        assert (await subject.find(descriptor) is None) is (each is state)


async def test_a_deleted_job_is_not_handed_out_and_does_not_expire(subject: Subject) -> None:
    pending, running = await subject.job(b"p", run_after_ms=START_MS + 1), await subject.job(b"r")
    await subject.claimed(timeout_ms=10)
    await subject.delete_listed(JobState.PENDING, pending)
    await subject.delete_listed(JobState.IN_PROGRESS, running)
    subject.tick(11)
    assert await subject.expire() == {}
    assert await subject.claim(10) == []


async def test_a_cancelled_job_is_not_handed_out(subject: Subject) -> None:
    await subject.cancel(*await subject.enqueue(Job(b""), Job(b"", run_after_ms=START_MS + 1)))
    subject.tick(1)
    assert await subject.claim(10) == []
