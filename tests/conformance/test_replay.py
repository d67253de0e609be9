"""Dead letters that are sent back to where they come from."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from pinlater.errors import HomesChanged
from pinlater.model import JobInfo, JobState
from tests.conformance.crowd import Crowd, at_once
from tests.conformance.extended_subject import newer_homes
from tests.conformance.subject import DAY_MS, Subject, key_of
from tests.conformance.test_dead_letters import copy_letters, dead_job, end, letters_of, with_target
from tests.queues import drop_queue


async def copied_letter(subject: Subject, **fields: Any) -> tuple[Subject, JobInfo]:
    """The queue of dead letters, and one letter in it."""
    dead = await with_target(subject)
    await dead_job(subject, b"\0data", way="permanent ack", **fields)
    await copy_letters(subject)
    (letter,) = await letters_of(dead)
    return dead, letter


async def test_a_letter_that_goes_back_is_a_new_job_of_the_queue_it_came_from(subject: Subject) -> None:
    dead, letter = await copied_letter(subject, priority=2, custom_status="why")
    subject.tick(50)
    (descriptor,) = await dead.replay(letter.descriptor)
    assert descriptor is not None
    info = await subject.info(descriptor)
    assert (info.state, info.priority, info.body) == (JobState.PENDING, 2, b"\0data")
    assert (info.attempts_allowed, info.attempts_remaining, info.crashes) == (9, 9, 0)
    assert info.run_after_ms == info.created_at_ms == info.updated_at_ms == subject.now_ms
    assert (info.custom_status, info.origin, info.moved_to) == (letter.custom_status, letter.descriptor, None)
    assert descriptor.startswith(f"{subject.queue}:s1:p2:")
    assert await dead.find(letter.descriptor) is None
    assert (await subject.claimed()).descriptor == descriptor


async def test_by_older_homes_no_letter_goes_back(subject: Subject) -> None:
    dead, letter = await copied_letter(subject)
    old, new = await newer_homes(subject)
    with pytest.raises(HomesChanged):
        await dead.replay(letter.descriptor, homes_version=old)
    assert await dead.info(letter.descriptor) == letter
    (descriptor,) = await dead.replay(letter.descriptor, homes_version=new)
    assert descriptor is not None


async def test_a_letter_goes_back_with_as_many_attempts_as_are_asked_for(subject: Subject) -> None:
    dead, letter = await copied_letter(subject)
    (descriptor,) = await dead.replay(letter.descriptor, attempts=3)
    info = await subject.info(descriptor or "")
    assert (info.attempts_allowed, info.attempts_remaining) == (3, 3)


async def test_the_attempts_of_the_origin_are_known_when_it_is_gone_and_the_letter_was_changed(
    subject: Subject,
) -> None:
    dead, letter = await copied_letter(subject)
    subject.tick(DAY_MS)
    assert await subject.prune(failed_ttl_ms=0) == {subject.queue: 1}
    await dead.claimed()
    assert await dead.checkpoint(letter.descriptor, attempts_allowed=2, new_body=b"new", prepend_status="x")
    await dead.fail(letter.descriptor, permanent=True)
    (descriptor,) = await dead.replay(letter.descriptor)
    info = await subject.info(descriptor or "")
    assert (info.attempts_allowed, info.attempts_remaining) == (9, 9)
    assert (info.body, info.custom_status) == (b"new", "x" + letter.custom_status)


@pytest.mark.parametrize("state", list(JobState))
async def test_only_letters_that_are_pending_or_failed_go_back(subject: Subject, state: JobState) -> None:
    dead, letter = await copied_letter(subject)
    if state is not JobState.PENDING:
        await dead.claimed()
    if state is JobState.SUCCEEDED:
        await dead.succeed(letter.descriptor)
    if state is JobState.FAILED:
        await dead.fail(letter.descriptor, permanent=True)
    goes = state in (JobState.PENDING, JobState.FAILED)
    before = await dead.info(letter.descriptor)
    (descriptor,) = await dead.replay(letter.descriptor)
    assert (descriptor is not None) is goes
    assert await dead.find(letter.descriptor) == (None if goes else before)
    assert await subject.count(JobState.PENDING) == int(goes)


async def test_a_job_that_is_no_letter_stays(subject: Subject) -> None:
    dead, letter = await copied_letter(subject)
    plain = await dead.job(b"mine")
    assert await dead.replay(plain) == [None]
    (descriptor,) = await dead.replay(letter.descriptor)
    assert descriptor is not None
    assert await subject.replay(descriptor) == [None]
    assert (await subject.info(descriptor)).state is JobState.PENDING
    assert (await dead.info(plain)).state is JobState.PENDING


async def test_a_letter_stays_where_the_queue_it_came_from_is_gone(subject: Subject) -> None:
    dead, letter = await copied_letter(subject)
    await drop_queue(subject.shard, subject.queue, subject.now_ms)
    assert await dead.replay(letter.descriptor) == [None]
    assert await dead.find(letter.descriptor) == letter


async def test_each_letter_of_a_call_is_answered_in_its_place_and_goes_once(subject: Subject) -> None:
    dead = await with_target(subject)
    for body in (b"1", b"2"):
        await dead_job(subject, body)
    await copy_letters(subject)
    one, two = await letters_of(dead)
    unknown = f"{dead.queue}:s1:p1:{key_of(two.descriptor).id + 7}"
    wrong_priority = f"{dead.queue}:s1:p2:{key_of(one.descriptor).id}"
    answers = await dead.replay(two.descriptor, unknown, wrong_priority, one.descriptor, two.descriptor)
    assert answers[1:3] == [None, None]
    assert answers[4] is None
    assert [(await subject.info(each or "")).origin for each in (answers[0], answers[3])] == [
        two.descriptor,
        one.descriptor,
    ]
    assert await dead.count(JobState.PENDING) == 0
    assert await subject.count(JobState.PENDING) == 2


async def test_a_job_that_was_sent_back_can_fail_and_be_a_dead_letter_anew(subject: Subject) -> None:
    dead, letter = await copied_letter(subject)
    (descriptor,) = await dead.replay(letter.descriptor, attempts=1)
    await end(subject, "ack", await subject.claimed())
    assert await copy_letters(subject) == {subject.queue: 1}
    (again,) = await letters_of(dead)
    assert again.origin == descriptor
    assert again.descriptor != letter.descriptor


async def test_a_failed_letter_that_went_back_is_neither_retried_nor_pruned(subject: Subject) -> None:
    dead, letter = await copied_letter(subject)
    await dead.claimed()
    await dead.fail(letter.descriptor, permanent=True)
    await dead.replay(letter.descriptor)
    assert await dead.retry_failed() == 0
    subject.tick(DAY_MS)
    assert dead.queue not in await subject.prune(failed_ttl_ms=0)


async def test_letters_sent_back_at_once_go_once(crowd: Crowd) -> None:
    first = crowd[0]
    dead = await with_target(first)
    for number in range(20):
        await dead_job(first, b"%d" % number)
    await copy_letters(first)
    letters = [letter.descriptor for letter in await letters_of(dead)]
    targets = [Subject(subject.shard, dead.queue) for subject in crowd]
    answers = await at_once(*[partial(target.replay, *letters[place:]) for place, target in enumerate(targets)])
    back = [descriptor for answer in answers for descriptor in answer if descriptor is not None]
    assert len(back) == len(set(back)) == 20
    assert {(await first.info(each)).origin for each in back} == set(letters)
    assert await dead.count(JobState.PENDING) == 0


async def test_a_letter_that_is_claimed_and_sent_back_at_once_has_one_fate(crowd: Crowd) -> None:
    first = crowd[0]
    dead = await with_target(first)
    for number in range(20):
        await dead_job(first, b"%d" % number)
    await copy_letters(first)
    letters = [letter.descriptor for letter in await letters_of(dead)]
    targets = [Subject(subject.shard, dead.queue) for subject in crowd]
    answers = await at_once(
        *[partial(target.claim, 4) for target in targets], *[partial(dead.replay, each) for each in letters]
    )
    claimed = {job.descriptor for jobs in answers[: len(targets)] for job in jobs}
    stayed = {letter for letter, answer in zip(letters, answers[len(targets) :], strict=True) if answer == [None]}
    assert claimed == stayed
