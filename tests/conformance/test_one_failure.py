"""One failure, one place: a job that failed and its dead letter never both run again, whoever retries and replays."""

from __future__ import annotations

from functools import partial

import pytest

from pinlater.backends.base import ClaimRequest, LevelCounts
from pinlater.backends.extended import RescheduleRequest
from pinlater.model import AckOutcome, AttemptOutcome, CancelOutcome, ClaimOutcome, JobInfo, JobState, RescheduleOutcome
from tests.conformance.crowd import Crowd, at_once
from tests.conformance.extended_subject import store
from tests.conformance.stats_pages import NO_JOBS, whole_stats
from tests.conformance.subject import ALL, DAY_MS, Subject, key_of
from tests.conformance.test_dead_letters import TARGET, copy_letters, dead_job, end, letters_of, with_target

ELSEWHERE = "dead:s9:p1:1790000000000000"


async def failed_with_letter(subject: Subject) -> tuple[Subject, str, JobInfo]:
    """The queue of dead letters, a job that failed, and its letter."""
    dead = await with_target(subject)
    descriptor = await dead_job(subject)
    await copy_letters(subject)
    (letter,) = await letters_of(dead)
    return dead, descriptor, letter


async def retry(subject: Subject, descriptor: str, *, listed: bool) -> int:
    return await (subject.retry_listed(descriptor) if listed else subject.retry_failed())


async def bring(dead: Subject, letter: JobInfo, state: str) -> None:
    """The letter, which is PENDING, is in that state."""
    if state == "PENDING":
        return
    job = await dead.claimed()
    if state == "CANCELLED":
        await dead.shard.cancel(dead.queue, [key_of(letter.descriptor)], dead.now_ms, "somebody")
    if state in ("FAILED", "CANCELLED"):
        await dead.fail(letter.descriptor, permanent=True)
    elif state == "ABOUT TO HAVE ITS OWN":
        await end(dead, "permanent ack", job)
    elif state == "WITH ITS OWN":
        await end(dead, "permanent ack", job)
        await dead.beside("more")
        assert await dead.dead_letter({dead.queue: TARGET._replace(queue="more")}) == {dead.queue: 1}
    elif state == "SUCCEEDED":
        await dead.succeed(letter.descriptor)
    elif state == "MOVED":
        assert await dead.move(job, ELSEWHERE)


GOES = ["PENDING", "FAILED", "CANCELLED", "ABOUT TO HAVE ITS OWN"]
HOLDS = ["IN PROGRESS", "SUCCEEDED", "WITH ITS OWN", "MOVED"]


# -- retry, and then replay --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("state", GOES)
async def test_a_retry_takes_the_dead_letter_with_it(subject: Subject, state: str, listed: bool) -> None:
    dead, descriptor, letter = await failed_with_letter(subject)
    await bring(dead, letter, state)
    assert await retry(subject, descriptor, listed=listed) == 1
    assert await dead.find(letter.descriptor) is None
    assert await dead.replay(letter.descriptor) == [None]
    info = await subject.info(descriptor)
    assert (info.state, info.moved_to, info.replayed_to) == (JobState.PENDING, None, None)
    assert await whole_stats(dead.shard, dead.queue, (1,), dead.now_ms, 100) in ({}, {1: NO_JOBS})
    assert (await subject.claimed()).descriptor == descriptor
    assert await dead.dead_letter({dead.queue: TARGET._replace(queue=subject.queue)}) == {}


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("state", HOLDS)
async def test_a_job_whose_letter_runs_or_succeeded_stays_as_it_is(subject: Subject, state: str, listed: bool) -> None:
    dead, descriptor, letter = await failed_with_letter(subject)
    await bring(dead, letter, state)
    before, its_letter = await subject.info(descriptor), await dead.info(letter.descriptor)
    subject.tick(5)
    assert await retry(subject, descriptor, listed=listed) == 0
    assert await subject.info(descriptor) == before
    assert await dead.info(letter.descriptor) == its_letter


async def test_a_job_whose_letter_was_replayed_in_its_turn_stays(subject: Subject) -> None:
    dead, descriptor, letter = await failed_with_letter(subject)
    await bring(dead, letter, "WITH ITS OWN")
    more = await dead.beside("more")
    (own,) = await letters_of(more)
    assert await more.replay(own.descriptor) != [None]
    assert (await dead.info(letter.descriptor)).replayed_to is not None
    assert await subject.retry_listed(descriptor) == 0
    assert await dead.replay(letter.descriptor) == [None]


async def test_a_letter_that_went_to_another_shard_is_never_taken_for_deleted(subject: Subject) -> None:
    dead, descriptor, letter = await failed_with_letter(subject)
    await bring(dead, letter, "MOVED")
    assert (await subject.info(descriptor)).moved_to == ELSEWHERE
    subject.tick(DAY_MS)
    assert await subject.prune(succeeded_ttl_ms=0, failed_ttl_ms=10**12) == {dead.queue: 1}
    assert await subject.retry_failed() == await subject.retry_listed(descriptor) == 0


@pytest.mark.parametrize("listed", [False, True])
async def test_a_letter_that_was_deleted_by_hand_holds_up_nothing(subject: Subject, listed: bool) -> None:
    dead, descriptor, letter = await failed_with_letter(subject)
    assert await dead.delete_listed(JobState.PENDING, letter.descriptor) == 1
    assert await retry(subject, descriptor, listed=listed) == 1
    assert (await subject.info(descriptor)).moved_to is None


async def test_jobs_that_stay_for_their_letters_take_nothing_of_the_limit(subject: Subject) -> None:
    dead = await with_target(subject)
    held, free = await dead_job(subject), await dead_job(subject)
    await copy_letters(subject)
    letters = {letter.origin: letter for letter in await letters_of(dead)}
    assert [job.descriptor for job in await dead.claim(1)] == [letters[held].descriptor]
    assert await subject.retry_failed(limit=1) == 1
    assert (await subject.info(free)).state is JobState.PENDING
    assert (await subject.info(held)).moved_to == letters[held].descriptor
    assert [each.descriptor for each in await dead.scan(JobState.PENDING)] == []


@pytest.mark.parametrize("listed", [False, True])
async def test_a_job_that_stays_for_its_key_keeps_its_letter(subject: Subject, listed: bool) -> None:
    dead = await with_target(subject)
    descriptor = await store(subject, dedupe_key="d", attempts_allowed=1)
    await end(subject, "ack", await subject.claimed())
    await copy_letters(subject)
    (letter,) = await letters_of(dead)
    live = await store(subject, dedupe_key="d")
    assert await retry(subject, descriptor, listed=listed) == 0
    assert await dead.info(letter.descriptor) == letter
    assert (await subject.info(descriptor)).moved_to == letter.descriptor
    assert await subject.cancel(live) == [CancelOutcome.CANCELLED]
    assert await retry(subject, descriptor, listed=listed) == 1
    assert await dead.find(letter.descriptor) is None


async def test_only_the_letters_of_jobs_that_are_retried_go(subject: Subject) -> None:
    dead = await with_target(subject)
    one, two = await dead_job(subject), await dead_job(subject)
    await copy_letters(subject)
    assert await subject.retry_listed(one) == 1
    assert [letter.origin for letter in await letters_of(dead)] == [two]


# -- replay, and then retry --------------------------------------------------------------------------------------------


async def test_a_job_whose_letter_goes_back_says_as_what(subject: Subject) -> None:
    dead, descriptor, letter = await failed_with_letter(subject)
    before = await subject.info(descriptor)
    subject.tick(50)
    (new,) = await dead.replay(letter.descriptor)
    after = await subject.info(descriptor)
    assert (after.state, after.replayed_to, after.moved_to) == (JobState.FAILED, new, None)
    assert (after.updated_at_ms, after.finished_at_ms) == (subject.now_ms, before.finished_at_ms)
    before.moved_to, before.replayed_to, before.updated_at_ms = None, new, subject.now_ms
    assert after == before
    assert [each.replayed_to for each in await subject.scan(JobState.FAILED)] == [new]


async def test_a_replayed_job_is_left_out_of_every_retry(subject: Subject) -> None:
    dead, descriptor, letter = await failed_with_letter(subject)
    (new,) = await dead.replay(letter.descriptor)
    before = await subject.info(descriptor)
    assert await subject.retry_failed() == await subject.retry_listed(descriptor) == 0
    assert await subject.info(descriptor) == before
    assert [job.descriptor for job in await subject.claim(9)] == [new]


async def test_a_replayed_job_is_counted_apart_and_as_failed_where_states_are_the_wires(subject: Subject) -> None:
    dead, _, letter = await failed_with_letter(subject)
    await subject.job_in(JobState.FAILED)
    await dead.replay(letter.descriptor)
    counts = LevelCounts(1, 0, 0, 0, 1, subject.now_ms, replayed=1)
    for limit in (1, 100):
        levels = await whole_stats(subject.shard, subject.queue, ALL, subject.now_ms, limit)
        assert levels[1] == counts
        assert levels[1].jobs == 3
    assert await subject.count(JobState.FAILED) == 2


async def test_a_replayed_job_is_pruned_as_one_that_failed(subject: Subject) -> None:
    dead, descriptor, letter = await failed_with_letter(subject)
    finished_at_ms = (await subject.info(descriptor)).finished_at_ms
    assert finished_at_ms is not None
    subject.tick(50)
    await dead.replay(letter.descriptor)
    subject.now_ms = finished_at_ms + DAY_MS
    assert await subject.prune(succeeded_ttl_ms=0, failed_ttl_ms=DAY_MS) == {}
    subject.tick(1)
    assert await subject.prune(succeeded_ttl_ms=10**12, failed_ttl_ms=DAY_MS) == {subject.queue: 1}
    assert await subject.find(descriptor) is None
    assert await subject.prune(succeeded_ttl_ms=0, failed_ttl_ms=0) == {}
    levels = await whole_stats(subject.shard, subject.queue, (1,), subject.now_ms, 100)
    assert levels[1].replayed == 0


@pytest.mark.parametrize("listed", [False, True])
async def test_a_replayed_job_is_deleted_as_one_that_failed(subject: Subject, listed: bool) -> None:
    dead, descriptor, letter = await failed_with_letter(subject)
    await dead.replay(letter.descriptor)
    if listed:
        assert await subject.delete_listed(JobState.FAILED, descriptor) == 1
    else:
        assert await subject.delete(JobState.FAILED) == 1
    assert await subject.find(descriptor) is None
    subject.tick(DAY_MS)
    assert await subject.prune(failed_ttl_ms=0) == {}


async def test_a_replayed_job_keeps_what_its_attempts_were(subject: Subject) -> None:
    dead, descriptor, letter = await failed_with_letter(subject)
    before = await subject.shard.read_trails(subject.queue, [key_of(descriptor)])
    assert before[0] is not None
    assert [each.outcome for each in before[0].attempts] == [AttemptOutcome.FAILED]
    await dead.replay(letter.descriptor)
    assert await subject.shard.read_trails(subject.queue, [key_of(descriptor)]) == before


async def test_a_replayed_job_has_ended_for_every_call(subject: Subject) -> None:
    dead, descriptor, letter = await failed_with_letter(subject)
    await dead.replay(letter.descriptor)
    before, key = await subject.info(descriptor), key_of(descriptor)
    request = ClaimRequest("host:1:2:3", 9, (1,), 1_000, 1_000)
    claimed = await subject.shard.claim_listed(subject.queue, [key], request, subject.now_ms)
    assert [each.outcome for each in claimed] == [ClaimOutcome.ENDED]
    assert await subject.cancel(descriptor) == [CancelOutcome.ENDED]
    requests = [RescheduleRequest(*key, run_after_ms=1)]
    assert await subject.shard.reschedule(subject.queue, requests, subject.now_ms) == [RescheduleOutcome.ENDED]
    assert await subject.succeed(descriptor) is AckOutcome.IGNORED
    assert await subject.info(descriptor) == before


async def test_without_marks_the_job_stays_as_servers_before_know_it(subject: Subject) -> None:
    dead, descriptor, letter = await failed_with_letter(subject)
    before = await subject.info(descriptor)
    assert await dead.replay(letter.descriptor, marks_originals=False) != [None]
    assert await subject.info(descriptor) == before
    assert await subject.retry_failed() == 1


async def test_a_job_that_was_replayed_is_replayed_no_second_time(subject: Subject) -> None:
    dead, descriptor, letter = await failed_with_letter(subject)
    (new,) = await dead.replay(letter.descriptor, attempts=1)
    await end(subject, "ack", await subject.claimed())
    await copy_letters(subject)
    (second,) = await letters_of(dead)
    (newest,) = await dead.replay(second.descriptor)
    assert (await subject.info(descriptor)).replayed_to == new
    assert (await subject.info(new or "")).replayed_to == newest


# -- both at once ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listed", [False, True])
async def test_a_retry_and_a_replay_at_once_run_each_failure_once(crowd: Crowd, listed: bool) -> None:
    first = crowd[0]
    dead = await with_target(first)
    jobs = [await dead_job(first, b"%d" % number) for number in range(16)]
    await copy_letters(first)
    letters = [letter.descriptor for letter in await letters_of(dead)]
    targets = [Subject(subject.shard, dead.queue) for subject in crowd]
    calls = []
    for place, (subject, target) in enumerate(zip(crowd, targets, strict=True)):
        some = slice(4 * place, None)
        calls.append(partial(subject.retry_listed, *jobs[some]) if listed else partial(subject.retry_failed, limit=6))
        calls.append(partial(target.replay, *letters[some]))
    await at_once(*calls)
    await dead.replay(*letters)
    await first.retry_failed()
    assert await dead.count(JobState.PENDING) == 0
    bodies = sorted(int(each.body or b"") for each in await first.scan(with_body=True, limit=100))
    assert bodies == list(range(16))
    replayed = [each for each in [await first.info(job) for job in jobs] if each.replayed_to is not None]
    assert {(await first.info(each.replayed_to or "")).body for each in replayed} == {each.body for each in replayed}


async def test_a_letter_that_is_claimed_while_its_job_is_retried_has_one_fate(crowd: Crowd) -> None:
    first = crowd[0]
    dead = await with_target(first)
    jobs = [await dead_job(first, b"%d" % number) for number in range(16)]
    await copy_letters(first)
    targets = [Subject(subject.shard, dead.queue) for subject in crowd]
    answers = await at_once(
        *[partial(target.claim, 4) for target in targets], *[partial(first.retry_listed, each) for each in jobs]
    )
    claimed = {job.body for claims in answers[: len(targets)] for job in claims}
    retried = {b"%d" % number for number, count in enumerate(answers[len(targets) :]) if count}
    assert claimed.isdisjoint(retried)
    assert {each.body for each in await first.scan(with_body=True, limit=100)} == retried
