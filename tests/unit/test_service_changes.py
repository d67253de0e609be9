"""Changes to all jobs that match a filter, in slices."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from pinlater.backends.base import DeadLetterTarget
from pinlater.errors import (
    ContinuationInvalid,
    NothingStored,
    PinLaterError,
    PriorityNotSupported,
    QueueNotFound,
    RequestInvalid,
)
from pinlater.model import (
    CONTINUATION_END,
    MAX_TIME_MS,
    Ack,
    DequeueRequest,
    Job,
    JobAction,
    JobChange,
    JobFilter,
    JobsChanged,
    JobState,
)
from pinlater.service import ServiceSettings
from tests.unit.stand import ME, NEVER_MS, Stand, stand

PAGES = ServiceSettings(page_jobs=50)
RETRY = JobChange("mail", JobAction.RETRY)
DELETE = JobChange("mail", JobAction.DELETE, JobState.PENDING)
CANCEL = JobChange("mail", JobAction.CANCEL)
REPLAY = JobChange("dead", JobAction.REPLAY)


async def fill(at: Stand, amount: int, queue: str = "mail", calls_of: int = 100, **fields: Any) -> None:
    """Jobs whose bodies are their numbers; every tenth is urgent, half of them are for later.

    All jobs of one call are on one shard, chosen at random: small calls bring some to every shard.
    """
    for start in range(0, amount, calls_of):
        jobs = [
            Job(
                b"number %05d" % number,
                priority=1 if number % 10 == 0 else 2,
                run_after_ms=at.clock.now_ms() + 60_000 + number if number % 2 else None,
                **fields,
            )
            for number in range(start, min(start + calls_of, amount))
        ]
        await at.service.enqueue(queue, jobs)


async def fail_all(at: Stand, queue: str = "mail") -> int:
    """Hand out all jobs that are due, and let them fail for good."""
    failed = 0
    while jobs := await at.service.dequeue(DequeueRequest(queue, 500), context=ME):
        await at.service.ack(queue, [], [Ack(job.descriptor, permanent=True) for job in jobs])
        failed += len(jobs)
    return failed


async def amount(at: Stand, state: JobState, queue: str = "mail") -> int:
    return sum([await at.service.count(JobFilter(queue, state, future=future)) for future in (False, True)])


async def to_the_end(at: Stand, change: JobChange) -> list[JobsChanged]:
    """Slice after slice."""
    slices = []
    while True:
        done = await at.service.change_jobs(change, context=ME)
        slices.append(done)
        assert len(slices) < 1_000
        if done.continuation == CONTINUATION_END:
            return slices
        change = replace(change, continuation=done.continuation)


async def test_thousands_are_retried_in_slices_and_each_once() -> None:
    async with stand(3, settings=PAGES) as at:
        await fill(at, 2_000)
        at.clock.tick(600_000)
        assert await fail_all(at) == 2_000
        at.clock.tick(1)
        slices = await to_the_end(at, replace(RETRY, limit=300))
        assert [done.changed for done in slices][:6] == [300] * 6
        assert sum(done.changed for done in slices) == sum(done.looked_at for done in slices) == 2_000
        assert (await amount(at, JobState.FAILED), await amount(at, JobState.PENDING)) == (0, 2_000)
        (info,) = (await at.service.scan(JobFilter("mail", JobState.PENDING), limit=1)).jobs
        assert (info.attempts_remaining, info.run_after_ms) == (2, at.clock.now_ms())


async def test_what_is_retried_and_fails_again_meanwhile_is_not_retried_twice() -> None:
    async with stand(2, settings=PAGES) as at:
        await fill(at, 400)
        at.clock.tick(600_000)
        await fail_all(at)
        at.clock.tick(10)
        change, retried = replace(RETRY, limit=60), 0
        for _ in range(100):
            done = await at.service.change_jobs(change)
            retried += done.changed
            if done.continuation == CONTINUATION_END:
                break
            change = replace(change, continuation=done.continuation)
            at.clock.tick(10)
            await fail_all(at)
        assert retried == 400


async def test_jobs_that_come_while_others_are_deleted_stay() -> None:
    async with stand(2, settings=PAGES) as at:
        await fill(at, 500)
        change, deleted = replace(DELETE, limit=70), 0
        while True:
            done = await at.service.change_jobs(change)
            deleted += done.changed
            if done.continuation == CONTINUATION_END:
                break
            change = replace(change, continuation=done.continuation)
            at.clock.tick(1)
            await at.service.enqueue("mail", [Job(b"new"), Job(b"new and later", run_after_ms=MAX_TIME_MS)])
        assert deleted == 500
        assert await amount(at, JobState.PENDING) == 2 * 7


@pytest.mark.parametrize("limit", [1_000_000, 77])
async def test_a_filter_means_what_it_says(limit: int) -> None:
    async with stand(2, settings=PAGES) as at:
        await fill(at, 200)
        at.clock.tick(1_000)
        middle_ms = at.clock.now_ms()
        await fill(at, 200)
        at.clock.tick(1_000)

        async def counted(change: JobChange) -> int:
            slices = await to_the_end(at, replace(change, dry_run=True, limit=limit))
            return sum(done.changed for done in slices)

        assert await counted(CANCEL) == 400
        assert await counted(replace(CANCEL, priority=1)) == 40
        assert await counted(replace(CANCEL, created_before_ms=middle_ms)) == 200
        assert await counted(replace(CANCEL, created_after_ms=middle_ms)) == 200
        assert await counted(replace(CANCEL, created_after_ms=middle_ms, created_before_ms=middle_ms)) == 0
        assert await counted(replace(CANCEL, body_regex="number 001..")) == 200
        assert await counted(replace(CANCEL, body_regex="00[05]$", priority=1)) == 2
        assert await counted(RETRY) == 0
        assert await amount(at, JobState.PENDING) == 400
        slices = await to_the_end(at, replace(CANCEL, body_regex="number 001..", created_before_ms=middle_ms))
        assert sum(done.changed for done in slices) == 100
        slices = await to_the_end(at, replace(DELETE, priority=1))
        assert sum(done.changed for done in slices) == 30
        assert await amount(at, JobState.PENDING) == 270


async def test_a_dry_run_counts_and_shows_ten() -> None:
    async with stand(2, settings=PAGES) as at:
        await fill(at, 100)
        done = await at.service.change_jobs(replace(CANCEL, dry_run=True, body_regex="number"))
        assert (done.changed, done.looked_at, len(done.samples)) == (100, 100, 10)
        assert done.samples[0].body is None
        assert len({sample.descriptor for sample in done.samples}) == 10
        assert await amount(at, JobState.PENDING) == 100
        assert (await at.service.change_jobs(CANCEL)).samples == []


async def test_only_pending_jobs_are_cancelled_and_jobs_of_a_state_deleted() -> None:
    async with stand(settings=PAGES) as at:
        await fill(at, 40)
        (held, *others) = await at.dequeue(20)
        await at.service.ack("mail", [Ack(job.descriptor) for job in others], [])
        assert (await at.service.change_jobs(CANCEL)).changed == 20
        assert (await at.service.change_jobs(replace(DELETE, state=JobState.SUCCEEDED))).changed == 19
        assert (await at.service.change_jobs(replace(DELETE, state=JobState.FAILED))).changed == 0
        assert list(await at.service.lookup([held.descriptor])) == [held.descriptor]


async def test_retried_jobs_get_what_is_asked_for() -> None:
    async with stand() as at:
        await at.service.enqueue("mail", [Job(b"x", attempts_allowed=4)] * 2)
        await fail_all(at)
        assert (await at.service.change_jobs(replace(RETRY, limit=1))).changed == 1
        (info,) = (await at.service.scan(JobFilter("mail", JobState.PENDING))).jobs
        assert info.attempts_remaining == 4
        later_ms = at.clock.now_ms() + 5_000
        done = await at.service.change_jobs(replace(RETRY, attempts=1, run_after_ms=later_ms))
        assert done.changed == 1
        (info,) = (await at.service.scan(JobFilter("mail", JobState.PENDING, future=True))).jobs
        assert (info.attempts_remaining, info.run_after_ms) == (1, later_ms)


async def test_dead_letters_are_sent_back_and_other_jobs_stay() -> None:
    async with stand(2, settings=PAGES) as at:
        await at.service.create_queue("dead")
        await at.service.queues.change("mail", {"dead_letter_queue": "dead"}, [], False, "me")
        await fill(at, 100, attempts_allowed=3)
        at.clock.tick(600_000)
        await fail_all(at)
        assert at.service.queues.dead_letter_targets() == {"mail": DeadLetterTarget("dead", 2)}
        for store in at.stores:
            await store.dead_letter(1_000, at.clock.now_ms(), at.service.queues.dead_letter_targets())
        await at.service.enqueue("dead", [Job(b"no dead letter", run_after_ms=MAX_TIME_MS)])
        at.clock.tick(1)
        jobs = await at.service.dequeue(DequeueRequest("dead", 30))
        await at.service.ack("dead", [], [Ack(job.descriptor, permanent=True) for job in jobs[:15]])
        at.clock.tick(1)
        dry = await at.service.change_jobs(replace(REPLAY, dry_run=True))
        assert dry.changed == 100 - 15
        slices = await to_the_end(at, replace(REPLAY, limit=30))
        assert sum(done.changed for done in slices) == dry.changed
        assert await amount(at, JobState.PENDING) == dry.changed
        (info, *_) = (await at.service.scan(JobFilter("mail", JobState.PENDING))).jobs
        assert (info.attempts_remaining, info.origin is not None) == (3, True)


async def test_who_waits_gets_a_job_that_is_retried() -> None:
    async with stand(settings=ServiceSettings(poll_min_ms=NEVER_MS, poll_max_ms=NEVER_MS)) as at:
        await at.service.enqueue("mail", [Job(b"x")])
        await fail_all(at)
        waiting = asyncio.create_task(at.dequeue(1, wait_ms=60_000))
        while not at.service.waiting:
            await asyncio.sleep(0)
        assert (await at.service.change_jobs(RETRY)).changed == 1
        assert [job.body for job in await asyncio.wait_for(waiting, 60)] == [b"x"]


# -- continuations


async def test_a_continuation_is_good_for_the_same_change_only() -> None:
    async with stand(2, settings=PAGES) as at:
        await fill(at, 300)
        change = replace(CANCEL, limit=10)
        done = await at.service.change_jobs(change)
        going_on = replace(change, continuation=done.continuation)
        for other in (
            replace(going_on, priority=1),
            replace(going_on, state=JobState.PENDING),
            replace(going_on, body_regex="x"),
            replace(going_on, created_before_ms=5),
            replace(going_on, created_after_ms=5),
            replace(going_on, dry_run=True),
            replace(going_on, action=JobAction.DELETE, state=JobState.PENDING),
            replace(going_on, continuation=done.continuation[:-1]),
            replace(going_on, continuation=done.continuation[1:]),
            replace(going_on, continuation="9" + done.continuation[1:]),
            replace(going_on, continuation=CONTINUATION_END),
            replace(going_on, continuation=""),
        ):
            with pytest.raises(ContinuationInvalid):
                await at.service.change_jobs(other)
        await at.service.create_queue("other")
        with pytest.raises(ContinuationInvalid):
            await at.service.change_jobs(replace(going_on, queue="other"))
        page = await at.service.scan(JobFilter("mail", JobState.PENDING), limit=5)
        with pytest.raises(ContinuationInvalid):
            await at.service.change_jobs(replace(change, continuation=page.continuation))
        assert (await at.service.change_jobs(replace(going_on, limit=20))).changed == 20


@pytest.mark.parametrize(
    ("change", "continuation"),
    [
        (CANCEL, "1.-.1790000000000.0235ede4af01836c"),
        (REPLAY, "3.-.1790000000000.048d913f14d446db"),
        (replace(DELETE, state=JobState.FAILED, priority=2, body_regex="x"), "1.-.1790000000000.a566d0227d0bd910"),
    ],
)
async def test_a_continuation_of_a_server_of_before_goes_on(change: JobChange, continuation: str) -> None:
    """As 7ab42ca0 wrote them: a rolling restart ends no change that is under way."""
    async with stand() as at:
        await at.service.create_queue(change.queue)
        assert (
            await at.service.change_jobs(replace(change, continuation=continuation))
        ).continuation == CONTINUATION_END


async def test_a_call_that_has_no_time_left_does_one_page_and_goes_on() -> None:
    async with stand(settings=ServiceSettings(page_jobs=10, long_call_ms=0)) as at:
        await fill(at, 100)
        slices = await to_the_end(at, replace(CANCEL, body_regex="number"))
        assert max(done.looked_at for done in slices) <= 11
        assert sum(done.changed for done in slices) == 100


# -- what may not be asked for


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (replace(RETRY, queue="nowhere"), QueueNotFound, "nowhere"),
        (replace(RETRY, queue="a b"), QueueNotFound, "a b"),
        (replace(RETRY, state=JobState.PENDING), RequestInvalid, "allowed: FAILED 3"),
        (replace(CANCEL, state=JobState.IN_PROGRESS), RequestInvalid, "allowed: PENDING 0"),
        (replace(DELETE, state=None), RequestInvalid, "jobState for DELETE is None"),
        (replace(REPLAY, queue="mail", state=JobState.SUCCEEDED), RequestInvalid, "PENDING 0 or FAILED 3"),
        (replace(RETRY, action=7), RequestInvalid, "RETRY 0, DELETE 1"),  # type: ignore[arg-type]
        (replace(RETRY, priority=4), PriorityNotSupported, "priority 4"),
        (replace(RETRY, limit=0), RequestInvalid, "limit is 0"),
        (replace(RETRY, attempts=0), RequestInvalid, "attempts is 0"),
        (replace(CANCEL, attempts=1), RequestInvalid, "nothing, but for RETRY and REPLAY"),
        (replace(CANCEL, run_after_ms=1), RequestInvalid, "nothing, but for RETRY"),
        (replace(RETRY, run_after_ms=-1), RequestInvalid, "runAfterMillis"),
        (replace(RETRY, created_before_ms=-1), RequestInvalid, "createdBeforeMillis"),
        (replace(RETRY, created_after_ms=MAX_TIME_MS + 1), RequestInvalid, "createdAfterMillis"),
        (replace(RETRY, body_regex="("), RequestInvalid, "bodyRegexToMatch"),
    ],
)
async def test_what_is_wrong_is_named(change: JobChange, error: type[PinLaterError], says: str) -> None:
    async with stand() as at:
        with pytest.raises(error) as refused:
            await at.service.change_jobs(change)
        assert says in refused.value.message


async def test_a_shard_that_is_out_or_fails_is_named_and_the_others_are_done() -> None:
    async with stand(3, settings=PAGES) as at:
        await fill(at, 1_000, calls_of=10)
        at.stores[2].broken = NothingStored("away")
        for member in at.members.all[2:]:
            member.health.trip(at.clock.now_ms())
        at.stores[1].failures["cancel"] = [NothingStored("no")]
        slices = await to_the_end(at, replace(CANCEL, limit=1_000_000))
        assert {shard for done in slices for shard in done.missing_shards} == {"2", "3"}
        assert await at.service.count(JobFilter("mail", JobState.PENDING), allow_partial=True) < 100
