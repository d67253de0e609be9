"""Which jobs a claim hands out, in which order, and how many (decisions 3 and 4)."""

from __future__ import annotations

import asyncio

from pinlater.backends.base import SLICE_BYTES
from pinlater.model import MAX_TIME_MS, Job, JobState
from tests.conformance.bindings import Binding
from tests.conformance.subject import NO_BOUND, START_MS, Subject, key_of


async def test_higher_priorities_come_first_whatever_their_age(subject: Subject) -> None:
    low, middle, high = await subject.enqueue(Job(b"3", 3), Job(b"2", 2), Job(b"1", 1))
    assert [job.descriptor for job in await subject.claim(3)] == [high, middle, low]


async def test_within_a_priority_the_earlier_run_after_comes_first(subject: Subject) -> None:
    late, early = await subject.enqueue(Job(b"", run_after_ms=START_MS - 1), Job(b"", run_after_ms=START_MS - 2))
    assert [job.descriptor for job in await subject.claim(2)] == [early, late]


async def test_jobs_with_equal_run_after_come_by_age(subject: Subject) -> None:
    descriptors = await subject.enqueue(*[Job(b"", run_after_ms=5) for _ in range(30)])
    claimed = [(await subject.claimed()).descriptor for _ in range(10)] + [
        job.descriptor for job in await subject.claim(20)
    ]
    assert claimed == descriptors


async def test_a_retried_job_takes_its_place_by_its_new_time(subject: Subject) -> None:
    first, second = await subject.enqueue(Job(b"1"), Job(b"2"))
    subject.tick(10)
    await subject.claimed()
    await subject.fail(first)
    assert [job.descriptor for job in await subject.claim(2)] == [second, first]


async def test_a_job_requeued_keeps_its_place(subject: Subject) -> None:
    first, second = await subject.enqueue(Job(b"1"), Job(b"2"))
    subject.tick(10)
    await subject.requeue(await subject.claimed())
    assert [job.descriptor for job in await subject.claim(2)] == [first, second]


async def test_only_the_priorities_asked_for_are_handed_out(subject: Subject) -> None:
    await subject.enqueue(Job(b"1", 1), Job(b"2", 2), Job(b"3", 3))
    assert [job.body for job in await subject.claim(10, priorities=(2,))] == [b"2"]
    assert [job.body for job in await subject.claim(10, priorities=(3,))] == [b"3"]
    assert [job.body for job in await subject.claim(10, priorities=(1, 2))] == [b"1"]


async def test_never_more_than_the_limit_over_all_priorities(subject: Subject) -> None:
    await subject.enqueue(*[Job(b"", priority) for priority in (1, 2, 3) for _ in range(4)])
    assert [job.priority for job in await subject.claim(6)] == [1, 1, 1, 1, 2, 2]
    assert await subject.count(JobState.IN_PROGRESS) == 6


async def test_a_claim_on_an_empty_queue_hands_out_nothing(subject: Subject) -> None:
    assert await subject.claim(10) == []


async def test_a_job_in_progress_is_not_handed_out_again(subject: Subject) -> None:
    await subject.job_in(JobState.IN_PROGRESS)
    pending = await subject.job()
    assert [job.descriptor for job in await subject.claim(10)] == [pending]
    assert await subject.claim(10) == []


async def test_a_job_is_handed_out_at_exactly_its_time_and_not_a_millisecond_before(subject: Subject) -> None:
    await subject.job(run_after_ms=START_MS + 1_000)
    subject.tick(999)
    assert await subject.claim() == await subject.shard.peek(subject.queue, (1,), 1, NO_BOUND, subject.now_ms) == []
    subject.tick(1)
    assert len(await subject.claim()) == 1


async def test_run_after_may_be_the_first_and_the_last_moment_there_is(subject: Subject) -> None:
    first, last = await subject.enqueue(Job(b"", run_after_ms=0), Job(b"", run_after_ms=MAX_TIME_MS))
    assert (await subject.info(first)).run_after_ms == 0
    assert (await subject.info(last)).run_after_ms == MAX_TIME_MS
    assert [(job.descriptor, job.run_after_ms) for job in await subject.claim(10)] == [(first, 0)]
    subject.now_ms = MAX_TIME_MS - 1
    assert await subject.claim(10) == []
    subject.now_ms = MAX_TIME_MS
    assert [job.descriptor for job in await subject.claim(10, timeout_ms=1)] == [last]


async def test_times_are_exact_to_the_millisecond_however_large(subject: Subject) -> None:
    times = [MAX_TIME_MS - 1, MAX_TIME_MS, MAX_TIME_MS - 2]
    descriptors = await subject.enqueue(*[Job(b"", run_after_ms=time) for time in times])
    assert [(await subject.info(each)).run_after_ms for each in descriptors] == times


async def test_several_requests_in_a_call_are_served_in_turn_and_share_no_job(subject: Subject) -> None:
    descriptors = await subject.enqueue(*[Job(b"") for _ in range(5)])
    requests = [subject.request(2), subject.request(2, timeout_ms=7), subject.request(2), subject.request(2)]
    answers = await subject.shard.claim(subject.queue, requests, subject.now_ms)
    assert [[job.descriptor for job in jobs] for jobs in answers] == [
        descriptors[:2],
        descriptors[2:4],
        descriptors[4:],
        [],
    ]
    for request, jobs in zip(requests, answers, strict=True):
        for job in jobs:
            assert job.claim_descriptor == request.claim_descriptor
            assert job.claim_expires_at_ms == subject.now_ms + request.claim_timeout_ms
            info = await subject.info(job.descriptor)
            assert info.claim_descriptor == request.claim_descriptor
            assert info.claim_expires_at_ms == job.claim_expires_at_ms


async def test_each_request_of_a_call_has_its_own_priorities(subject: Subject) -> None:
    await subject.enqueue(Job(b"1", 1), Job(b"2", 2), Job(b"3", 3))
    requests = [subject.request(9, priorities=(3,)), subject.request(9, priorities=(2, 3)), subject.request(9)]
    answers = await subject.shard.claim(subject.queue, requests, subject.now_ms)
    assert [[job.body for job in jobs] for jobs in answers] == [[b"3"], [b"2"], [b"1"]]


async def test_bodies_handed_out_stay_within_the_bound_and_the_rest_stays_pending(subject: Subject) -> None:
    await subject.enqueue(*[Job(bytes(10)) for _ in range(3)])
    assert len(await subject.claim(3, max_bytes=29)) == 2
    assert await subject.count(JobState.PENDING) == 1
    assert len(await subject.claim(3, max_bytes=29)) == 1


async def test_bodies_that_fill_the_bound_exactly_fit(subject: Subject) -> None:
    await subject.enqueue(*[Job(bytes(10)) for _ in range(3)])
    assert len(await subject.claim(3, max_bytes=30)) == 3


async def test_one_job_is_handed_out_however_large_it_is(subject: Subject) -> None:
    await subject.enqueue(Job(bytes(100)), Job(b"x"))
    assert [len(job.body) for job in await subject.claim(2, max_bytes=1)] == [100]


async def test_a_small_job_does_not_overtake_a_large_one_that_does_not_fit(subject: Subject) -> None:
    await subject.enqueue(Job(bytes(10), 1), Job(bytes(10), 1), Job(b"", 1), Job(b"", 2))
    assert [len(job.body) for job in await subject.claim(4, max_bytes=15)] == [10]


async def test_each_request_of_a_call_has_its_own_bound_of_bytes(subject: Subject) -> None:
    await subject.enqueue(*[Job(bytes(10)) for _ in range(4)])
    requests = [subject.request(4, max_bytes=15), subject.request(4, max_bytes=25), subject.request(4, max_bytes=5)]
    answers = await subject.shard.claim(subject.queue, requests, subject.now_ms)
    assert [len(jobs) for jobs in answers] == [1, 2, 1]


async def test_once_a_slice_of_bodies_is_handed_out_no_further_request_is_looked_at(subject: Subject) -> None:
    await subject.enqueue(*[Job(bytes(SLICE_BYTES // 3 + 1)) for _ in range(7)])
    requests = [subject.request(1), subject.request(1), subject.request(1), subject.request(1), subject.request(9)]
    answers = await subject.shard.claim(subject.queue, requests, subject.now_ms)
    assert [len(jobs) for jobs in answers] == [1, 1, 1]
    assert await subject.count(JobState.PENDING) == 4
    answers = await subject.shard.claim(subject.queue, requests[3:], subject.now_ms)
    assert [len(jobs) for jobs in answers] == [1, 3]


async def test_a_peek_shows_what_a_claim_would_hand_out_and_changes_nothing(subject: Subject) -> None:
    descriptors = await subject.enqueue(Job(b"2", 2), Job(b"1", 1), Job(b"later", run_after_ms=subject.now_ms + 1))
    before = [await subject.info(each) for each in descriptors]
    seen = await subject.shard.peek(subject.queue, (1, 2, 3), 5, NO_BOUND, subject.now_ms)
    assert [(job.descriptor, job.body) for job in seen] == [(descriptors[1], b"1"), (descriptors[0], b"2")]
    assert {(job.claim_descriptor, job.claim_expires_at_ms) for job in seen} == {("", 0)}
    assert [await subject.info(each) for each in descriptors] == before


async def test_a_peek_keeps_its_bounds(subject: Subject) -> None:
    await subject.enqueue(*[Job(bytes(10), priority) for priority in (1, 1, 1, 2)])
    peek = subject.shard.peek
    assert len(await peek(subject.queue, (1, 2), 2, NO_BOUND, subject.now_ms)) == 2
    assert len(await peek(subject.queue, (1, 2), 9, 25, subject.now_ms)) == 2
    assert len(await peek(subject.queue, (1, 2), 9, 1, subject.now_ms)) == 1
    assert [job.priority for job in await peek(subject.queue, (2,), 9, NO_BOUND, subject.now_ms)] == [2]


async def test_ready_counts_eligible_jobs_per_priority_up_to_the_limit(subject: Subject) -> None:
    await subject.enqueue(*[Job(b"", 1)] * 5, Job(b"", 3), Job(b"", 3, run_after_ms=subject.now_ms + 1))
    ready = subject.shard.count_ready
    assert await ready(subject.queue, (1, 2, 3), 3, subject.now_ms) == [3, 0, 1]
    assert await ready(subject.queue, (3, 1), 9, subject.now_ms) == [1, 5]
    assert await ready(subject.queue, (3,), 9, subject.now_ms + 1) == [2]
    await subject.claim(5)
    assert await ready(subject.queue, (1, 2, 3), 9, subject.now_ms) == [0, 0, 1]


async def test_thousands_of_jobs_go_through_one_call_of_each_kind(
    subject: Subject, binding: Binding, depth: str
) -> None:
    many = binding.many_jobs // (10 if depth == "tiered" else 1)  # each has a file there
    descriptors = await subject.enqueue(*[Job(b"%d" % n) for n in range(many)])
    assert len(set(descriptors)) == many
    jobs = await subject.claim(many)
    assert [job.descriptor for job in jobs] == descriptors
    assert [job.body for job in jobs] == [b"%d" % n for n in range(many)]
    keys = [key_of(each) for each in descriptors]
    found = await subject.shard.lookup(subject.queue, keys, with_body=False, max_bytes=NO_BOUND)
    assert {info.state for info in found if info is not None} == {JobState.IN_PROGRESS}
    assert await subject.ack_all(descriptors) == many
    assert await subject.count(JobState.SUCCEEDED) == many


async def test_a_claim_begun_right_behind_an_enqueue_sees_its_jobs_where_the_store_keeps_order(
    subject: Subject,
) -> None:
    for number in range(20):
        body = b"%d" % number
        descriptor, claimed = await asyncio.gather(subject.job(body), subject.claim())
        if subject.shard.keeps_order:
            assert [job.body for job in claimed] == [body]
        elif not claimed:
            claimed = await subject.claim()
        assert [job.descriptor for job in claimed] == [descriptor]
