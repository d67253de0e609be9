"""Dead letters: jobs that failed for good are marked in the same step, and then copied once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from pinlater.backends.base import AckOutcome, AckRequest, DeadLetterTarget, EndRules, ExpiryCounts
from pinlater.backends.status_lines import dead_letter_status
from pinlater.model import MAX_STATUS_CHARS, DequeuedJob, Job, JobInfo, JobState
from tests.conformance.crowd import Crowd, at_once
from tests.conformance.subject import DAY_MS, Subject, key_of
from tests.queues import drop_queue, make_queue

TARGET = DeadLetterTarget("dead", 5)
DEAD = EndRules(dead_letters=True)
WAYS = ["ack", "permanent ack", "expiry", "release", "crash budget"]


async def with_target(subject: Subject) -> Subject:
    """The queue for the dead letters of this one."""
    return await subject.beside(TARGET.queue)


async def end(subject: Subject, way: str, job: DequeuedJob) -> None:
    """The job fails for good, under the rules of a queue with a dead-letter queue."""
    if way in ("ack", "permanent ack"):
        request = AckRequest(*key_of(job.descriptor), False, permanent=way == "permanent ack")
        assert await subject.ack(request, rules=DEAD) == [AckOutcome.FAILED]
    elif way == "release":
        assert await subject.expire_disconnected(job, dead_letters=True) == ExpiryCounts(0, 1)
    else:
        subject.tick(11)
        budget = 1 if way == "crash budget" else 0
        assert await subject.expire(budget=budget, dead_letters=True) == {subject.queue: ExpiryCounts(0, 1)}


async def dead_job(subject: Subject, body: bytes = b"body", *, way: str = "ack", **fields: Any) -> str:
    """One job that failed for good and is marked."""
    attempts = 1 if way in ("ack", "expiry", "release") else 9
    descriptor = await subject.job(body, attempts_allowed=attempts, **fields)
    await end(subject, way, await subject.claimed(timeout_ms=10))
    return descriptor


async def copy_letters(subject: Subject, *, limit: int = 100) -> Mapping[str, int]:
    return await subject.dead_letter({subject.queue: TARGET}, limit=limit)


async def letters_of(dead: Subject) -> list[JobInfo]:
    """All that lies in a dead-letter queue, by age."""
    return sorted(await dead.scan(with_body=True, limit=1_000), key=lambda info: info.descriptor)


@pytest.mark.parametrize("way", WAYS)
async def test_a_final_failure_of_any_kind_is_pending_in_the_same_step(subject: Subject, way: str) -> None:
    dead = await with_target(subject)
    descriptor = await dead_job(subject, way=way)
    assert await copy_letters(subject) == {subject.queue: 1}
    (letter,) = await letters_of(dead)
    assert letter.origin == descriptor
    assert (await subject.info(descriptor)).moved_to == letter.descriptor


async def test_a_dead_letter_is_a_new_job_with_the_same_body_and_its_history(subject: Subject) -> None:
    dead = await with_target(subject)
    created_at_ms = subject.now_ms
    descriptor = await dead_job(subject, b"\0\xff", way="crash budget", priority=2, custom_status="why ")
    before = await subject.info(descriptor)
    subject.tick(50)
    assert await copy_letters(subject) == {subject.queue: 1}
    (letter,) = await letters_of(dead)
    assert (letter.state, letter.priority, letter.body) == (JobState.PENDING, 2, b"\0\xff")
    assert (letter.attempts_allowed, letter.attempts_remaining, letter.crashes) == (5, 5, 0)
    assert letter.run_after_ms == letter.created_at_ms == letter.updated_at_ms == subject.now_ms
    line = dead_letter_status(descriptor, created_at_ms, 9, 1, subject.now_ms)
    assert letter.custom_status == line + before.custom_status
    assert (letter.origin, letter.moved_to, letter.claim_descriptor) == (descriptor, None, None)
    assert letter.descriptor.startswith("dead:s1:p2:")
    assert (await dead.claimed()).descriptor == letter.descriptor


async def test_the_original_stays_as_it_was_but_for_where_it_went(subject: Subject) -> None:
    dead = await with_target(subject)
    descriptor = await dead_job(subject)
    before = await subject.info(descriptor)
    assert (before.state, before.origin, before.moved_to) == (JobState.FAILED, None, None)
    subject.tick(50)
    await copy_letters(subject)
    after = await subject.info(descriptor)
    assert (after.updated_at_ms, after.moved_to) == (subject.now_ms, (await letters_of(dead))[0].descriptor)
    after.updated_at_ms, after.moved_to = before.updated_at_ms, None
    assert after == before
    assert [info.moved_to for info in await subject.scan(JobState.FAILED)] != [None]


async def test_the_status_of_a_letter_is_cut_at_its_end(subject: Subject) -> None:
    dead = await with_target(subject)
    descriptor = await dead_job(subject, custom_status="🦆" * MAX_STATUS_CHARS)
    await copy_letters(subject)
    (letter,) = await letters_of(dead)
    line = dead_letter_status(descriptor, subject.now_ms, 1, 0, subject.now_ms)
    assert letter.custom_status == (line + "🦆" * MAX_STATUS_CHARS)[:MAX_STATUS_CHARS]


async def test_a_second_step_copies_nothing_more(subject: Subject) -> None:
    dead = await with_target(subject)
    await dead_job(subject)
    assert await copy_letters(subject) == {subject.queue: 1}
    assert await copy_letters(subject) == {}
    assert await dead.count(JobState.PENDING) == 1


async def test_what_does_not_fail_for_good_is_not_pending(subject: Subject) -> None:
    dead = await with_target(subject)
    await subject.enqueue(*[Job(b"", attempts_allowed=2) for _ in range(4)])
    succeeded, failed, released, _ = await subject.claim(4, timeout_ms=10)
    assert await subject.ack_with(succeeded.descriptor, True, dead_letters=True) is AckOutcome.SUCCEEDED
    assert await subject.ack_with(failed.descriptor, False, dead_letters=True) is AckOutcome.RETRIED
    assert await subject.expire_disconnected(released, dead_letters=True) == ExpiryCounts(1, 0)
    subject.tick(11)
    assert await subject.expire(dead_letters=True) == {subject.queue: ExpiryCounts(1, 0)}
    assert await copy_letters(subject) == {}
    assert await dead.count(JobState.PENDING) == 0


async def test_a_failure_without_a_dead_letter_queue_is_not_pending_later(subject: Subject) -> None:
    await with_target(subject)
    await subject.job_in(JobState.FAILED)
    assert await copy_letters(subject) == {}


async def test_each_queue_goes_by_its_own_rules_at_expiry(subject: Subject) -> None:
    other, _ = await subject.beside("other"), await with_target(subject)
    for each in (subject, other):
        await each.job(attempts_allowed=1)
        await each.claimed(timeout_ms=10)
    subject.tick(11)
    await subject.expire(of={"other": DEAD})
    targets = {subject.queue: TARGET, "other": TARGET}
    assert await subject.dead_letter(targets) == {"other": 1}


async def test_acks_of_one_call_become_pending_one_by_one(subject: Subject) -> None:
    dead = await with_target(subject)
    await subject.enqueue(*[Job(b"%d" % attempts, attempts_allowed=attempts) for attempts in (1, 2, 1)])
    jobs = await subject.claim(3)
    acks = [AckRequest(*key_of(job.descriptor), False) for job in jobs]
    outcomes = await subject.ack(*acks, acks[0], rules=DEAD)
    assert outcomes == [AckOutcome.FAILED, AckOutcome.RETRIED, AckOutcome.FAILED, AckOutcome.IGNORED]
    assert await copy_letters(subject) == {subject.queue: 2}
    assert [letter.origin for letter in await letters_of(dead)] == [jobs[0].descriptor, jobs[2].descriptor]


@pytest.mark.parametrize("way", WAYS)
async def test_a_job_that_waits_to_be_copied_is_kept_although_failed_jobs_are_not(subject: Subject, way: str) -> None:
    await with_target(subject)
    rules: dict[str, Any] = {"keep_failed": False, "dead_letters": True}
    descriptor = await subject.job(attempts_allowed=1)
    job = await subject.claimed(timeout_ms=10)
    if "ack" in way:
        await subject.ack_with(descriptor, False, permanent=way == "permanent ack", **rules)
    elif way == "release":
        await subject.expire_disconnected(job, **rules)
    else:
        subject.tick(11)
        await subject.expire(budget=int(way == "crash budget"), **rules)
    subject.tick(DAY_MS)
    assert await subject.prune(failed_ttl_ms=0) == {}
    assert await copy_letters(subject) == {subject.queue: 1}
    assert (await subject.info(descriptor)).state is JobState.FAILED
    assert await subject.prune(failed_ttl_ms=0) == {subject.queue: 1}
    assert await subject.find(descriptor) is None


async def test_jobs_that_wait_to_be_copied_do_not_hide_those_to_prune(subject: Subject) -> None:
    for _ in range(3):
        await dead_job(subject)
    subject.tick(1)
    descriptor = await subject.job_in(JobState.FAILED)
    subject.tick(101)
    assert await subject.prune(limit=1, failed_ttl_ms=100) == {subject.queue: 1}
    assert await subject.find(descriptor) is None
    assert await subject.prune(limit=1, failed_ttl_ms=100) == {}


async def test_a_failed_job_waits_until_its_queue_has_a_target_that_is_there(subject: Subject) -> None:
    descriptor = await dead_job(subject)
    assert await subject.dead_letter({}) == {}
    assert await copy_letters(subject) == {}
    dead = await with_target(subject)
    assert await subject.dead_letter({"other": TARGET}) == {}
    assert await copy_letters(subject) == {subject.queue: 1}
    assert [letter.origin for letter in await letters_of(dead)] == [descriptor]


async def test_failed_jobs_that_wait_do_not_hide_those_that_can_go(subject: Subject) -> None:
    await with_target(subject)
    without, missing = await subject.beside("without"), await subject.beside("missing")
    for each in (without, missing, subject):
        for _ in range(3):
            await dead_job(each)
    targets = {"missing": DeadLetterTarget("none", 1), subject.queue: TARGET}
    for _ in range(3):
        assert await subject.dead_letter(targets, limit=1) == {subject.queue: 1}
    assert await subject.dead_letter(targets, limit=1) == {}


async def test_copying_works_in_steps_of_at_most_the_limit_over_all_queues(subject: Subject) -> None:
    dead, other = await with_target(subject), await subject.beside("other")
    for each in (subject, other):
        for _ in range(4):
            await dead_job(each)
    moved = {subject.queue: 0, "other": 0}
    while counts := await subject.dead_letter({subject.queue: TARGET, "other": TARGET}, limit=3):
        assert sum(counts.values()) <= 3
        for queue, number in counts.items():
            moved[queue] += number
    assert moved == {subject.queue: 4, "other": 4}
    assert await dead.count(JobState.PENDING) == 8


@pytest.mark.parametrize("listed", [False, True])
async def test_a_job_that_was_retried_is_not_copied(subject: Subject, listed: bool) -> None:
    dead = await with_target(subject)
    descriptor = await dead_job(subject)
    assert await (subject.retry_listed(descriptor) if listed else subject.retry_failed()) == 1
    assert await copy_letters(subject) == {}
    await subject.claimed()
    await subject.fail(descriptor)
    assert await copy_letters(subject) == {}
    assert await dead.count(JobState.PENDING) == 0


async def test_a_job_that_was_retried_and_fails_again_is_a_dead_letter_again(subject: Subject) -> None:
    dead = await with_target(subject)
    descriptor = await dead_job(subject)
    await copy_letters(subject)
    assert await subject.retry_failed(1) == 1
    assert (await subject.info(descriptor)).moved_to is None
    await end(subject, "ack", await subject.claimed())
    assert await copy_letters(subject) == {subject.queue: 1}
    (letter,) = await letters_of(dead)
    assert letter.origin == descriptor
    assert (await subject.info(descriptor)).moved_to == letter.descriptor


@pytest.mark.parametrize("listed", [False, True])
async def test_a_job_that_was_deleted_is_not_copied(subject: Subject, listed: bool) -> None:
    dead = await with_target(subject)
    descriptor, other = await dead_job(subject), await dead_job(subject)
    if listed:
        assert await subject.delete_listed(JobState.FAILED, descriptor, other) == 2
    else:
        assert await subject.delete(JobState.FAILED) == 2
    kept = await dead_job(subject)
    assert await copy_letters(subject, limit=1) == {subject.queue: 1}
    assert [letter.origin for letter in await letters_of(dead)] == [kept]


async def test_the_jobs_of_a_deleted_queue_are_not_copied(subject: Subject) -> None:
    dead = await with_target(subject)
    for _ in range(3):
        await dead_job(subject)
    await drop_queue(subject.shard, subject.queue, subject.now_ms)
    assert await copy_letters(subject) == {}
    await make_queue(subject.shard, subject.queue, subject.now_ms)
    assert await copy_letters(subject) == {}
    kept = await dead_job(subject)
    assert await copy_letters(subject, limit=1) == {subject.queue: 1}
    assert [letter.origin for letter in await letters_of(dead)] == [kept]


async def test_a_letter_that_fails_is_no_letter_again(subject: Subject) -> None:
    dead = await with_target(subject)
    await dead_job(subject)
    await copy_letters(subject)
    (letter,) = await letters_of(dead)
    await dead.claimed()
    assert await dead.fail(letter.descriptor, permanent=True) is AckOutcome.FAILED
    assert await copy_letters(subject) == {}
    assert (await dead.info(letter.descriptor)).origin == letter.origin


async def test_a_letter_is_told_apart_where_the_target_is_emptied(subject: Subject) -> None:
    dead = await with_target(subject)
    descriptor = await dead_job(subject)
    await copy_letters(subject)
    assert await dead.delete(JobState.PENDING) == 1
    assert await copy_letters(subject) == {}
    moved_to = (await subject.info(descriptor)).moved_to
    assert moved_to is not None
    assert await dead.find(moved_to) is None


async def test_steps_at_once_copy_each_job_once(crowd: Crowd) -> None:
    first = crowd[0]
    dead = await with_target(first)
    descriptors = await first.enqueue(*[Job(b"%d" % number, attempts_allowed=1) for number in range(60)])
    await first.claim(60)
    await first.ack(*[AckRequest(*key_of(each), False) for each in descriptors], rules=DEAD)
    moved = 0
    while found := sum(
        sum(counts.values())
        for counts in await at_once(*[partial(copy_letters, subject, limit=7) for subject in crowd for _ in range(2)])
    ):
        moved += found
    letters = await letters_of(dead)
    assert moved == len(letters) == 60
    assert {letter.origin for letter in letters} == set(descriptors)
    assert {(await first.info(each)).moved_to for each in descriptors} == {each.descriptor for each in letters}


async def test_a_copy_against_an_operators_retry_has_one_winner(crowd: Crowd) -> None:
    first = crowd[0]
    dead = await with_target(first)
    descriptors = await first.enqueue(*[Job(b"", attempts_allowed=1) for _ in range(40)])
    await first.claim(40)
    await first.ack(*[AckRequest(*key_of(each), False) for each in descriptors], rules=DEAD)
    await at_once(
        *[partial(copy_letters, subject, limit=5) for subject in crowd for _ in range(2)],
        *[partial(subject.retry_listed, *descriptors[place::4]) for place, subject in enumerate(crowd)],
    )
    while await copy_letters(first):
        pass
    letters = await letters_of(dead)
    assert len({letter.origin for letter in letters}) == len(letters)
    assert await first.count(JobState.PENDING) == 40
    assert await first.count(JobState.FAILED) == 0
