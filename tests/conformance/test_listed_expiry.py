"""Queues whose expired claims are listed, and ended one by one by whoever has to know of them first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from pinlater.backends.base import NO_RULES, EndRules, ExpiredClaim, ExpiryCounts, ExpiryRequest
from pinlater.backends.extended import HeartbeatRequest
from pinlater.backends.status_lines import crash_budget_status, expired_status, released_status
from pinlater.model import MAX_TIME_MS, AckOutcome, DequeuedJob, Job, JobState
from tests.conformance.extended_subject import stop, store
from tests.conformance.subject import Subject, claim_key_of, key_of
from tests.queues import drop_queue

LISTED = EndRules(lists_expired=True)


async def listed(subject: Subject, *queues: str, limit: int = 100) -> Mapping[str, Sequence[ExpiredClaim]]:
    return await subject.shard.expired_claims(queues or [subject.queue], limit, subject.now_ms)


async def ids_listed(subject: Subject, limit: int = 100) -> list[int]:
    return [claim.id for claim in (await listed(subject, limit=limit)).get(subject.queue, [])]


def request_of(claim: ExpiredClaim, delay_ms: int = 0) -> ExpiryRequest:
    return ExpiryRequest(*claim[:4], delay_ms)


async def end_listed(
    subject: Subject, *claims: ExpiryRequest, rules: EndRules = NO_RULES, queue: str = ""
) -> list[AckOutcome]:
    return await subject.shard.expire_listed(queue or subject.queue, claims, subject.now_ms, rules)


async def expired_job(subject: Subject, **fields: int | str) -> DequeuedJob:
    """One whose claim is over since 1 ms."""
    await subject.job(**fields)
    job = await subject.claimed(timeout_ms=1_000)
    subject.tick(1_001)
    return job


async def test_a_queue_that_lists_its_claims_keeps_them_from_expiring(subject: Subject) -> None:
    job = await expired_job(subject)
    other = await subject.beside("other")
    await expired_job(other)
    assert await subject.expire(of={subject.queue: LISTED}) == {"other": ExpiryCounts(1, 0)}
    assert (await subject.info(job.descriptor)).state is JobState.IN_PROGRESS
    assert await subject.expire(of={subject.queue: LISTED}) == {}
    assert await subject.expire() == {subject.queue: ExpiryCounts(1, 0)}


async def test_many_claims_that_are_left_alone_take_nothing_of_the_limit(subject: Subject) -> None:
    """Whether they are of one queue or of several, and come before others or behind them."""
    rules = {}
    for number in range(5):
        own = await subject.beside(f"listed{number}")
        await own.enqueue(*[Job(b"")] * 3)
        await own.claim(3, timeout_ms=100 + number)
        rules[own.queue] = LISTED
    await subject.enqueue(*[Job(b"")] * 4)
    await subject.claim(4, timeout_ms=102)
    subject.tick(1_000)
    counts = [await subject.expire(limit=3, of=rules) for _ in range(3)]
    assert counts == [{subject.queue: ExpiryCounts(3, 0)}, {subject.queue: ExpiryCounts(1, 0)}, {}]


async def test_a_claim_is_listed_once_its_time_is_over_until_it_has_ended(subject: Subject) -> None:
    descriptor = await subject.job(attempts_allowed=4)
    job = await subject.claimed(timeout_ms=1_000)
    subject.tick(1_000)
    assert await listed(subject) == {}
    subject.tick(1)
    claim = ExpiredClaim(*claim_key_of(job), subject.now_ms - 1, 4, 4, 0, False)
    before = await subject.info(descriptor)
    for _ in range(2):
        assert await listed(subject) == {subject.queue: [claim]}
    assert await subject.info(descriptor) == before
    await subject.succeed(descriptor)
    assert await listed(subject) == {}


async def test_a_claim_that_ends_now_is_not_listed_beside_one_that_has(subject: Subject) -> None:
    await subject.enqueue(Job(b"1"), Job(b"2"))
    over = await subject.claimed(timeout_ms=99)
    await subject.claimed(timeout_ms=100)
    subject.tick(100)
    assert await ids_listed(subject) == [key_of(over.descriptor).id]


async def test_behind_claims_that_are_left_alone_none_expires_before_its_time(subject: Subject) -> None:
    other = await subject.beside("listed")
    await other.job()
    await other.claimed(timeout_ms=99)
    await subject.job()
    await subject.claimed(timeout_ms=100)
    subject.tick(100)
    rules = {"listed": LISTED}
    assert await subject.expire(limit=1, of=rules) == {}
    subject.tick(1)
    assert await subject.expire(limit=1, of=rules) == {subject.queue: ExpiryCounts(1, 0)}


async def test_what_is_listed_says_what_is_left_of_the_job(subject: Subject) -> None:
    descriptor = await store(subject, attempts_allowed=5, priority=3)
    for _ in range(2):
        await subject.claimed(timeout_ms=10)
        subject.tick(11)
        await subject.expire()
    await subject.claimed(timeout_ms=10)
    await subject.checkpoint(descriptor, attempts_allowed=7)
    subject.tick(11)
    await stop(subject, descriptor)
    (claim,) = (await listed(subject))[subject.queue]
    assert claim.priority == 3
    assert (claim.attempts_allowed, claim.attempts_remaining, claim.crashes, claim.is_to_stop) == (7, 7, 2, True)


async def test_the_oldest_of_each_queue_come_first_up_to_the_limit(subject: Subject) -> None:
    other, third = await subject.beside("other"), await subject.beside("third")
    ids: dict[str, list[int]] = {}
    for own in (subject, other, third):
        for timeout_ms in (30, 10, 20):
            descriptor = await own.job()
            await own.claimed(timeout_ms=timeout_ms)
            ids.setdefault(own.queue, []).append(key_of(descriptor).id)
    subject.tick(100)
    await third.job()
    await third.claimed(timeout_ms=100)
    found = await listed(subject, subject.queue, "other", "not there")
    assert {queue: [claim.id for claim in claims] for queue, claims in found.items()} == {
        queue: [own[1], own[2], own[0]] for queue, own in ids.items() if queue != "third"
    }
    assert await ids_listed(subject, limit=2) == [ids[subject.queue][1], ids[subject.queue][2]]
    some = await listed(subject, subject.queue, "other", limit=4)
    assert sum(map(len, some.values())) == 4
    assert await subject.shard.expired_claims([], 10, subject.now_ms) == {}


async def test_a_queue_is_listed_again_whatever_became_of_its_earliest_claim(subject: Subject) -> None:
    await subject.enqueue(Job(b"quick"), Job(b"slow"))
    quick, slow = await subject.claimed(timeout_ms=100), await subject.claimed(timeout_ms=500)
    await subject.succeed(quick.descriptor)
    subject.tick(200)
    assert await listed(subject) == {}
    subject.tick(301)
    assert await ids_listed(subject) == [key_of(slow.descriptor).id]


async def test_a_claim_ends_as_expired_after_a_delay_of_its_own(subject: Subject) -> None:
    first, second = await subject.enqueue(*[Job(b"", custom_status="before ", attempts_allowed=3)] * 2)
    await subject.claim(2, timeout_ms=10)
    subject.tick(11)
    one, two = (await listed(subject))[subject.queue]
    assert await end_listed(subject, request_of(one, 500), request_of(two)) == [AckOutcome.RETRIED] * 2
    info = await subject.info(first)
    assert (info.state, info.run_after_ms, info.updated_at_ms) == (
        JobState.PENDING,
        subject.now_ms + 500,
        subject.now_ms,
    )
    assert (info.attempts_remaining, info.crashes) == (2, 1)
    assert info.custom_status == "before " + expired_status(subject.now_ms, 2)
    assert (info.claim_descriptor, info.claim_expires_at_ms) == (None, None)
    assert [job.descriptor for job in await subject.claim(9)] == [second]
    subject.tick(500)
    assert [job.descriptor for job in await subject.claim(9)] == [first]
    assert await listed(subject) == {}


async def test_a_delay_ends_at_the_end_of_time(subject: Subject) -> None:
    job = await expired_job(subject, attempts_allowed=2)
    (claim,) = (await listed(subject))[subject.queue]
    assert await end_listed(subject, request_of(claim, MAX_TIME_MS)) == [AckOutcome.RETRIED]
    assert (await subject.info(job.descriptor)).run_after_ms == MAX_TIME_MS


async def test_the_last_attempt_that_ends_so_is_a_failure(subject: Subject) -> None:
    job = await expired_job(subject, attempts_allowed=1)
    (claim,) = (await listed(subject))[subject.queue]
    assert await end_listed(subject, request_of(claim, 500)) == [AckOutcome.FAILED]
    info = await subject.info(job.descriptor)
    assert (info.state, info.finished_at_ms) == (JobState.FAILED, subject.now_ms)
    assert info.custom_status == expired_status(subject.now_ms, 0)


async def test_the_crash_budget_and_the_dead_letters_count_as_at_any_expiry(subject: Subject) -> None:
    job = await expired_job(subject, attempts_allowed=5)
    (claim,) = (await listed(subject))[subject.queue]
    rules = EndRules(1, keep_failed=False, dead_letters=True)
    assert await end_listed(subject, request_of(claim), rules=rules) == [AckOutcome.FAILED]
    info = await subject.info(job.descriptor)
    assert info.custom_status == expired_status(subject.now_ms, 0) + crash_budget_status(1)
    assert await subject.prune(failed_ttl_ms=-1) == {}


async def test_a_job_that_is_to_stop_ends_as_cancelled(subject: Subject) -> None:
    job = await expired_job(subject, attempts_allowed=5)
    await stop(subject, job.descriptor)
    (claim,) = (await listed(subject))[subject.queue]
    assert await end_listed(subject, request_of(claim, 5)) == [AckOutcome.CANCELLED]
    info = await subject.info(job.descriptor)
    assert (info.cancelled, info.attempts_remaining, info.crashes) == (True, 0, 1)


async def test_an_end_frees_the_next_of_its_serialize_key(subject: Subject) -> None:
    first, second = [await store(subject, serialize_key="k", attempts_allowed=1) for _ in range(2)]
    await subject.claimed(timeout_ms=10)
    subject.tick(11)
    (claim,) = (await listed(subject))[subject.queue]
    assert await end_listed(subject, request_of(claim)) == [AckOutcome.FAILED]
    assert [job.descriptor for job in await subject.claim(9)] == [second]
    assert (await subject.info(first)).state is JobState.FAILED


@pytest.mark.parametrize("renew", ["heartbeat", "checkpoint"])
async def test_a_claim_that_was_renewed_since_stays(subject: Subject, renew: str) -> None:
    job = await expired_job(subject)
    (claim,) = (await listed(subject))[subject.queue]
    if renew == "heartbeat":
        beats = [HeartbeatRequest(*claim_key_of(job))]
        await subject.shard.heartbeat(subject.queue, beats, subject.now_ms)
    else:
        await subject.checkpoint(job.descriptor)
    before = await subject.info(job.descriptor)
    assert await end_listed(subject, request_of(claim)) == [AckOutcome.IGNORED]
    assert await subject.info(job.descriptor) == before
    assert await listed(subject) == {}


async def test_what_is_not_under_that_claim_is_ignored(subject: Subject) -> None:
    job = await expired_job(subject, priority=2)
    await subject.beside("other")
    (claim,) = (await listed(subject))[subject.queue]
    right = request_of(claim)
    wrong = (
        right._replace(priority=1),
        right._replace(id=right.id + 1),
        right._replace(claim_descriptor=right.claim_descriptor + "x"),
        right._replace(expires_at_ms=right.expires_at_ms + 1),
    )
    before = await subject.info(job.descriptor)
    assert await end_listed(subject, *wrong) == [AckOutcome.IGNORED] * 4
    assert await end_listed(subject, right, queue="other") == [AckOutcome.IGNORED]
    assert await end_listed(subject, right, queue="gone") == [AckOutcome.IGNORED]
    assert await end_listed(subject) == []
    assert await subject.info(job.descriptor) == before
    assert await end_listed(subject, wrong[0], right, right) == [
        AckOutcome.IGNORED,
        AckOutcome.RETRIED,
        AckOutcome.IGNORED,
    ]
    assert (await subject.info(job.descriptor)).crashes == 1
    assert await end_listed(subject, right) == [AckOutcome.IGNORED]


async def test_of_a_job_named_twice_the_first_that_applies_counts(subject: Subject) -> None:
    job = await expired_job(subject)
    (claim,) = (await listed(subject))[subject.queue]
    right = request_of(claim, 7)
    requests = (right._replace(expires_at_ms=5, retry_delay_ms=3), right, right._replace(retry_delay_ms=9))
    assert await end_listed(subject, *requests) == [AckOutcome.IGNORED, AckOutcome.RETRIED, AckOutcome.IGNORED]
    assert (await subject.info(job.descriptor)).run_after_ms == subject.now_ms + 7


async def test_any_other_end_counts_while_a_claim_is_listed(subject: Subject) -> None:
    """Nobody has expired it yet."""
    descriptors = await subject.enqueue(*[Job(b"", attempts_allowed=3)] * 3)
    succeeded, failed, released = await subject.claim(3, timeout_ms=10)
    subject.tick(11)
    claims = (await listed(subject))[subject.queue]
    ack = {"claim_descriptor": succeeded.claim_descriptor}
    assert await subject.succeed(succeeded.descriptor, **ack) is AckOutcome.SUCCEEDED
    assert await subject.fail(failed.descriptor, **ack, retry_delay_ms=5) is AckOutcome.RETRIED
    assert await subject.expire_disconnected(released) == ExpiryCounts(1, 0)
    assert await end_listed(subject, *map(request_of, claims)) == [AckOutcome.IGNORED] * 3
    assert (await subject.info(descriptors[2])).custom_status == released_status(subject.now_ms, 2)


async def test_a_deleted_queue_lists_nothing(subject: Subject) -> None:
    await expired_job(subject)
    await drop_queue(subject.shard, subject.queue, subject.now_ms)
    assert await listed(subject) == {}


async def test_claims_in_great_number_are_listed_and_end(subject: Subject) -> None:
    """More than one statement or call of a script takes."""
    await subject.enqueue(*[Job(b"", attempts_allowed=1)] * 700)
    await subject.claim(700, timeout_ms=10)
    subject.tick(11)
    claims = (await listed(subject, limit=1_000))[subject.queue]
    assert await end_listed(subject, *map(request_of, claims)) == [AckOutcome.FAILED] * 700
    assert await subject.count(JobState.FAILED) == 700
