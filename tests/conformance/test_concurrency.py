"""Callers that collide: every job has one fate, and the callers agree on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from pinlater.backends.base import AckOutcome, ConfigEntry
from pinlater.errors import QueueNotFound
from pinlater.model import CancelOutcome, DequeuedJob, Job, JobState, new_version
from tests.conformance.crowd import Crowd, at_once
from tests.conformance.subject import Subject
from tests.queues import drop_queue, make_queue, names_of, record_of

JOBS = 120


async def stored(crowd: Crowd, **fields: Any) -> list[str]:
    return await crowd[0].enqueue(*[Job(b"%d" % n, 1 + n % 3, **fields) for n in range(JOBS)])


def go_on(crowd: Crowd, ms: int) -> None:
    for subject in crowd:
        subject.tick(ms)


async def test_claimers_never_share_a_job_and_leave_none(crowd: Crowd) -> None:
    descriptors = await stored(crowd)
    taken: list[DequeuedJob] = []
    while claimed := [
        job
        for jobs in await at_once(*[partial(subject.claim, 5) for subject in crowd for _ in range(4)])
        for job in jobs
    ]:
        taken += claimed
    assert Counter(job.descriptor for job in taken) == Counter(descriptors)


async def test_a_claim_beside_others_holds_exactly_what_it_was_given(crowd: Crowd) -> None:
    await stored(crowd)
    answers = await at_once(*[partial(subject.claim, 5) for subject in crowd for _ in range(3)])
    for jobs in answers:
        for job in jobs:
            assert (await crowd[0].info(job.descriptor)).claim_descriptor == job.claim_descriptor


async def test_jobs_enqueued_at_once_have_names_of_their_own(crowd: Crowd) -> None:
    answers = await at_once(*[partial(subject.enqueue, *[Job(b"")] * 10) for subject in crowd for _ in range(5)])
    names = [descriptor for answer in answers for descriptor in answer]
    assert len(set(names)) == len(names)
    go_on(crowd, 60_000)
    assert await crowd[0].count(JobState.PENDING) == len(names)


async def test_of_many_acks_of_one_claim_exactly_one_is_taken(crowd: Crowd) -> None:
    descriptor = await crowd[0].job_in(JobState.IN_PROGRESS, attempts_allowed=5)
    calls: list[Callable[[], Awaitable[AckOutcome]]] = []
    for subject in crowd:
        calls += [partial(subject.succeed, descriptor), partial(subject.fail, descriptor)]
    outcomes = Counter(await at_once(*calls))
    assert outcomes[AckOutcome.IGNORED] == len(calls) - 1


async def test_an_ack_against_expiry_has_one_winner(crowd: Crowd) -> None:
    descriptors = await stored(crowd)
    jobs = await crowd[0].claim(JOBS, timeout_ms=10)
    go_on(crowd, 11)
    acks = [
        partial(crowd[n % len(crowd)].succeed, job.descriptor, claim_descriptor=job.claim_descriptor)
        for n, job in enumerate(jobs)
    ]
    expiries = [partial(subject.expire, limit=20) for subject in crowd for _ in range(2)]
    answers = await at_once(*acks[: JOBS // 2], *expiries, *acks[JOBS // 2 :])
    outcomes = [answer for answer in answers if isinstance(answer, AckOutcome)]
    expired = sum(counts[crowd[0].queue].retried for counts in answers if isinstance(counts, dict) and counts)
    assert outcomes.count(AckOutcome.SUCCEEDED) == await crowd[0].count(JobState.SUCCEEDED)
    assert expired == await crowd[0].count(JobState.PENDING)
    for job, outcome in zip(jobs, outcomes, strict=True):
        info = await crowd[0].info(job.descriptor)
        if outcome is AckOutcome.SUCCEEDED:
            assert (info.state, info.crashes, info.custom_status) == (JobState.SUCCEEDED, 0, "")
        else:
            assert (info.state, info.crashes, info.attempts_remaining) == (JobState.PENDING, 1, 1)
    assert len(descriptors) == len(jobs)


async def test_expiry_at_once_on_several_servers_takes_one_attempt(crowd: Crowd) -> None:
    descriptors = await stored(crowd, attempts_allowed=9)
    await crowd[0].claim(JOBS, timeout_ms=10)
    go_on(crowd, 11)
    answers = await at_once(*[partial(subject.expire, limit=JOBS) for subject in crowd for _ in range(2)])
    assert sum(counts[crowd[0].queue].retried for counts in answers if counts) == JOBS
    for descriptor in descriptors:
        info = await crowd[0].info(descriptor)
        assert (info.attempts_remaining, info.crashes) == (8, 1)


async def test_giving_back_against_expiry_has_one_winner(crowd: Crowd) -> None:
    await stored(crowd, attempts_allowed=9)
    jobs = await crowd[0].claim(JOBS, timeout_ms=10)
    go_on(crowd, 11)
    backs = [partial(crowd[n % len(crowd)].requeue, job) for n, job in enumerate(jobs)]
    answers = await at_once(*backs, *[partial(subject.expire, limit=30) for subject in crowd])
    for job, back in zip(jobs, answers, strict=False):
        info = await crowd[0].info(job.descriptor)
        if back:
            assert (info.state, info.attempts_remaining, info.crashes) == (JobState.PENDING, 9, 0)
        else:
            assert (info.state, info.attempts_remaining, info.crashes) == (JobState.PENDING, 8, 1)


async def test_taking_back_what_nobody_received_against_expiry_has_one_winner(crowd: Crowd) -> None:
    await stored(crowd, attempts_allowed=9)
    jobs = await crowd[0].claim(JOBS, timeout_ms=10)
    go_on(crowd, 11)
    backs = [partial(crowd[n % len(crowd)].requeue_undelivered, job) for n, job in enumerate(jobs)]
    answers = await at_once(*backs, *[partial(subject.expire, limit=30) for subject in crowd])
    for job, back in zip(jobs, answers, strict=False):
        info = await crowd[0].info(job.descriptor)
        expected = (JobState.PENDING, 9, 0) if back else (JobState.PENDING, 8, 1)
        assert (info.state, info.attempts_remaining, info.crashes) == expected


async def test_a_checkpoint_against_expiry_has_one_winner(crowd: Crowd) -> None:
    await stored(crowd)
    jobs = await crowd[0].claim(JOBS, timeout_ms=10)
    go_on(crowd, 11)
    beats = [partial(crowd[n % len(crowd)].checkpoint, job.descriptor) for n, job in enumerate(jobs)]
    answers = await at_once(*beats, *[partial(subject.expire, limit=30) for subject in crowd])
    for job, kept in zip(jobs, answers, strict=False):
        info = await crowd[0].info(job.descriptor)
        assert info.state is (JobState.IN_PROGRESS if kept else JobState.PENDING)


async def test_a_checkpoint_against_a_release_has_one_winner(crowd: Crowd) -> None:
    await stored(crowd)
    claimed_at_ms = crowd[0].now_ms
    jobs = await crowd[0].claim(JOBS)
    go_on(crowd, 1)
    calls: list[Callable[[], Awaitable[Any]]] = []
    for n, job in enumerate(jobs):
        calls += [
            partial(crowd[n % len(crowd)].checkpoint, job.descriptor),
            partial(crowd[(n + 1) % len(crowd)].expire_disconnected, job, last_seen_ms=claimed_at_ms),
        ]
    answers = await at_once(*calls)
    for job, kept, released in zip(jobs, answers[::2], answers[1::2], strict=True):
        assert sum(released) == (0 if kept else 1)
        assert ((await crowd[0].info(job.descriptor)).state is JobState.IN_PROGRESS) is kept


async def test_a_claim_against_a_cancel_has_one_winner(crowd: Crowd) -> None:
    descriptors = await stored(crowd)
    cancels = [partial(crowd[n % len(crowd)].cancel, each) for n, each in enumerate(descriptors)]
    claims = [partial(subject.claim, 10) for subject in crowd for _ in range(3)]
    answers = await at_once(*cancels, *claims)
    fates = [answer[0] for answer in answers[: len(cancels)]]
    claimed = {job.descriptor for jobs in answers[len(cancels) :] for job in jobs}
    for descriptor, fate in zip(descriptors, fates, strict=True):
        assert (fate is CancelOutcome.CANCELLED) is (await crowd[0].find(descriptor) is None)
        assert (fate is not CancelOutcome.CANCELLED) or descriptor not in claimed


async def test_pruning_against_an_operators_retry_has_one_winner(crowd: Crowd) -> None:
    descriptors = await crowd[0].enqueue(*[Job(b"", attempts_allowed=1)] * 60)
    await crowd[0].claim(60)
    for descriptor in descriptors:
        await crowd[0].fail(descriptor)
    go_on(crowd, 10)
    answers = await at_once(
        *[partial(subject.prune, limit=7, failed_ttl_ms=1) for subject in crowd],
        *[partial(subject.retry_failed, limit=7) for subject in crowd],
    )
    collected = sum(sum(counts.values()) for counts in answers[: len(crowd)])
    retried = sum(answers[len(crowd) :])
    assert await crowd[0].count(JobState.PENDING) == retried
    assert await crowd[0].count(JobState.FAILED) == 60 - collected - retried
    assert [await crowd[0].find(each) for each in descriptors].count(None) == collected


async def _or_none(call: Callable[[], Awaitable[Any]]) -> Any:
    try:
        return await call()
    except QueueNotFound:
        return None


async def test_a_queue_deleted_and_made_while_jobs_arrive_shows_only_its_own(crowd: Crowd) -> None:
    first, rest = crowd[0], crowd
    for _ in range(5):
        calls: list[Callable[[], Awaitable[Any]]] = []
        for subject in rest:
            calls += [partial(_or_none, partial(subject.enqueue, Job(b"a"), Job(b"b"))) for _ in range(5)]
            calls += [partial(_or_none, partial(subject.claim, 3))]
        calls.insert(7, partial(drop_queue, first.shard, first.queue, first.now_ms))
        calls.insert(14, partial(make_queue, first.shard, first.queue, first.now_ms))
        await at_once(*calls)
        await make_queue(first.shard, first.queue, first.now_ms)
        await assert_counts_agree(first)
    await drop_queue(first.shard, first.queue, first.now_ms)
    await make_queue(first.shard, first.queue, first.now_ms)
    for state in JobState:
        assert await first.count(state) == 0
    assert await first.claim(9) == []


async def assert_counts_agree(subject: Subject) -> None:
    """What is counted is what is scanned, and all of it can be looked up."""
    for state in JobState:
        scanned = await subject.scan(state, limit=1_000)
        assert await subject.count(state) == len(scanned)
        for info in scanned:
            assert (await subject.info(info.descriptor)).state is state


async def test_a_queue_made_at_once_by_many_is_new_once(crowd: Crowd) -> None:
    record = ConfigEntry("fresh", new_version(crowd[0].now_ms))
    answers = await at_once(*[partial(each.shard.put_config, [record], each.now_ms) for each in crowd])
    assert answers.count([True]) == 1
    assert answers.count([False]) == len(crowd) - 1


async def test_a_queue_deleted_at_once_by_many_is_deleted_once(crowd: Crowd) -> None:
    await stored(crowd)
    before = await record_of(crowd[0].shard, crowd[0].queue)
    assert before is not None
    version = new_version(crowd[0].now_ms, before.version)
    mark = ConfigEntry(before.name, version, "{}", version)
    answers = await at_once(*[partial(each.shard.put_config, [mark], each.now_ms) for each in crowd])
    assert answers.count([True]) == 1
    assert await names_of(crowd[0].shard) == set()
