"""Queues: made once, gone at once, and never seen again under their old jobs' names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from pinlater.backends.base import (
    AckOutcome,
    AckRequest,
    CheckpointRequest,
    ClaimKey,
    JobKey,
    ScanPosition,
    Shard,
    SilentClaim,
)
from pinlater.errors import QueueNotFound
from pinlater.model import CancelOutcome, Job, JobState
from tests.conformance.subject import NO_BOUND, NONE_EXPIRED, START_MS, TIMEOUT_MS, Subject, key_of
from tests.queues import drop_queue, make_queue, names_of

NOW = START_MS
KEY = JobKey(1, START_MS * 1000)
CLAIM = ClaimKey(*KEY, "host:1:2:3:worker")

REFUSED: dict[str, Callable[[Shard], Awaitable[object]]] = {
    "enqueue": lambda shard: shard.enqueue("none", [Job(b"x")], NOW),
    "ready": lambda shard: shard.count_ready("none", [1], 1, NOW),
    "claim": lambda shard: shard.claim("none", [Subject(shard).request()], NOW),
    "ack and claim": lambda shard: shard.ack_and_claim(
        "none", [AckRequest(*KEY, True)], [Subject(shard).request()], NOW
    ),
    "peek": lambda shard: shard.peek("none", [1], 1, NO_BOUND, NOW),
    "count": lambda shard: shard.count("none", JobState.PENDING, [1], False, NOW),
    "scan": lambda shard: Subject(shard, "none").scan(),
    "scan on": lambda shard: Subject(shard, "none").scan(after=ScanPosition(NOW, KEY.id)),
    "retry": lambda shard: shard.retry_failed("none", 1, 1, None, 1, NOW),
    "delete": lambda shard: shard.delete_jobs("none", JobState.PENDING, 1, 1, NOW),
    "delete listed": lambda shard: shard.delete_listed("none", JobState.PENDING, [KEY], NOW),
    "retry listed": lambda shard: shard.retry_listed("none", [KEY], 1, None, NOW),
    "replay": lambda shard: shard.replay("none", [KEY], NOW, None),
    "capped claim": lambda shard: Subject(shard, "none").claim_within_quota(),
    "quota": lambda shard: shard.set_quota("none", 1, 1, NOW),
    "stats": lambda shard: shard.stats("none", [1], NOW, None, 10),
}


async def test_a_queue_is_new_only_once(subject: Subject) -> None:
    assert await make_queue(subject.shard, "other", NOW)
    assert not await make_queue(subject.shard, "other", NOW)
    assert await names_of(subject.shard) == {subject.queue, "other"}


async def test_making_a_queue_again_keeps_its_jobs(subject: Subject) -> None:
    descriptor = await subject.job()
    assert not await make_queue(subject.shard, subject.queue, NOW)
    assert (await subject.claimed()).descriptor == descriptor


async def test_a_shard_without_queues_has_no_names(shard: Shard) -> None:
    assert await names_of(shard) == set()


async def test_deleting_an_unknown_queue_says_so(subject: Subject) -> None:
    assert not await drop_queue(subject.shard, "none", NOW)


@pytest.mark.parametrize("call", list(REFUSED.values()), ids=list(REFUSED))
async def test_an_unknown_queue_is_refused_by(shard: Shard, call: Callable[[Shard], Awaitable[object]]) -> None:
    with pytest.raises(QueueNotFound):
        await call(shard)


@pytest.mark.parametrize("call", list(REFUSED.values()), ids=list(REFUSED))
async def test_a_deleted_queue_is_refused_by(shard: Shard, call: Callable[[Shard], Awaitable[object]]) -> None:
    await make_queue(shard, "none", NOW)
    await shard.enqueue("none", [Job(b"x")], NOW)
    assert await drop_queue(shard, "none", NOW)
    with pytest.raises(QueueNotFound):
        await call(shard)


async def test_what_names_jobs_of_an_unknown_queue_changes_nothing_without_an_error(shard: Shard) -> None:
    assert await shard.ack("none", [AckRequest(*KEY, True)] * 2, NOW) == [AckOutcome.IGNORED] * 2
    assert await shard.checkpoint("none", [CheckpointRequest(*KEY, "worker")], NOW) == [False]
    assert await shard.requeue("none", [CLAIM], NOW) == 0
    assert await shard.expire_disconnected("none", [SilentClaim(*CLAIM, NOW)], NOW) == NONE_EXPIRED
    assert await shard.cancel("none", [KEY] * 2, NOW) == [CancelOutcome.NOT_FOUND] * 2
    assert await shard.lookup("none", [KEY] * 2, with_body=True, max_bytes=NO_BOUND) == [None, None]
    assert await shard.mark_moved("none", [(CLAIM, "none:s2:p1:1790000000000000")], NOW) == [False]


async def test_a_deleted_queue_is_gone_at_once_with_jobs_in_all_states(subject: Subject) -> None:
    descriptors = {state: await subject.job_in(state) for state in reversed(JobState)}
    running = await subject.info(descriptors[JobState.IN_PROGRESS])
    assert await drop_queue(subject.shard, subject.queue, NOW)
    assert await names_of(subject.shard) == set()
    for descriptor in descriptors.values():
        assert await subject.find(descriptor) is None
    claim = running.claim_descriptor or ""
    assert await subject.succeed(running.descriptor, claim_descriptor=claim) is AckOutcome.IGNORED
    assert not await subject.checkpoint(running.descriptor)
    assert await subject.cancel(descriptors[JobState.PENDING]) == [CancelOutcome.NOT_FOUND]


async def test_a_queue_made_anew_starts_empty_and_knows_no_old_job(subject: Subject) -> None:
    descriptors = {state: await subject.job_in(state) for state in reversed(JobState)}
    await drop_queue(subject.shard, subject.queue, NOW)
    assert await make_queue(subject.shard, subject.queue, NOW)
    for state, descriptor in descriptors.items():
        assert await subject.count(state) == await subject.count(state, future=True) == 0
        assert await subject.scan(state) == []
        assert await subject.find(descriptor) is None
        assert await subject.succeed(descriptor) is AckOutcome.IGNORED
    assert await subject.claim(10) == []
    assert await subject.retry_failed() == 0


async def test_a_queue_made_anew_gives_its_jobs_names_that_were_never_used(subject: Subject) -> None:
    before = await subject.enqueue(*[Job(b"")] * 5)
    await drop_queue(subject.shard, subject.queue, NOW)
    await make_queue(subject.shard, subject.queue, NOW)
    assert not set(before) & set(await subject.enqueue(*[Job(b"")] * 5))


async def test_leftovers_of_a_deleted_queue_neither_expire_nor_are_pruned_in_its_name(subject: Subject) -> None:
    for state in (JobState.SUCCEEDED, JobState.IN_PROGRESS, JobState.PENDING):
        await subject.job_in(state)
    await drop_queue(subject.shard, subject.queue, NOW)
    await make_queue(subject.shard, subject.queue, NOW)
    kept = await subject.job()
    subject.tick(10 * TIMEOUT_MS)
    assert await subject.expire() == {}
    steps = 0
    while counts := await subject.prune(limit=1, succeeded_ttl_ms=0, failed_ttl_ms=0):
        assert set(counts) == {""}
        assert counts[""] <= 2  # one that is due by its time, and one of what the queue left
        steps += 1
        assert steps <= 5
    assert (await subject.claimed()).descriptor == kept


async def test_leftovers_are_freed_in_slices_beside_what_is_due(subject: Subject) -> None:
    await make_queue(subject.shard, "doomed", NOW)
    await subject.shard.enqueue("doomed", [Job(b"")] * 10, NOW)
    await subject.job_in(JobState.SUCCEEDED)
    await drop_queue(subject.shard, "doomed", NOW)
    subject.tick(10)
    collected = 0
    for _ in range(20):
        counts = await subject.prune(limit=4, succeeded_ttl_ms=0, failed_ttl_ms=0)
        assert all(number <= 4 for number in counts.values())
        collected += counts.get(subject.queue, 0)
        if not counts:
            break
    else:
        pytest.fail("collecting never came to an end")
    assert collected == 1


async def test_queues_share_nothing(subject: Subject) -> None:
    other = Subject(subject.shard, "other")
    await make_queue(subject.shard, "other", NOW)
    mine, theirs = await subject.job(b"mine"), await other.job(b"theirs")
    assert [job.body for job in await subject.claim(9)] == [b"mine"]
    assert await subject.find(theirs) is None
    assert await other.find(mine) is None
    assert await other.succeed(mine) is AckOutcome.IGNORED
    await drop_queue(subject.shard, subject.queue, NOW)
    assert [job.body for job in await other.claim(9)] == [b"theirs"]


async def test_an_operator_changes_jobs_of_that_queue_only(subject: Subject) -> None:
    other = Subject(subject.shard, "other")
    await make_queue(subject.shard, "other", NOW)
    theirs = await other.job_in(JobState.FAILED)
    assert await subject.retry_failed() == 0
    assert await subject.delete(JobState.FAILED) == 0
    assert await subject.delete_listed(JobState.FAILED, theirs) == 0
    assert (await other.info(theirs)).state is JobState.FAILED


async def test_queue_names_that_differ_only_in_case_are_different_queues(subject: Subject) -> None:
    shouting = Subject(subject.shard, subject.queue.upper())
    with pytest.raises(QueueNotFound):
        await shouting.job()
    assert await make_queue(subject.shard, shouting.queue, NOW)
    descriptor = await shouting.job()
    assert await subject.count(JobState.PENDING) == 0
    assert key_of(descriptor) == key_of((await shouting.claimed()).descriptor)
    assert await names_of(subject.shard) == {subject.queue, shouting.queue}


async def test_a_queue_name_may_have_sixty_four_characters(shard: Shard) -> None:
    long = Subject(shard, "q_" * 32)
    assert await make_queue(shard, long.queue, NOW)
    assert (await long.job()).startswith(long.queue + ":s1:p1:")
    assert len(await long.claim(9)) == 1


async def test_an_unknown_queue_stores_none_of_the_jobs(shard: Shard) -> None:
    with pytest.raises(QueueNotFound):
        await shard.enqueue("late", [Job(b"x")] * 3, NOW)
    late = Subject(shard, "late")
    await make_queue(shard, "late", NOW)
    assert await late.count(JobState.PENDING) == 0
