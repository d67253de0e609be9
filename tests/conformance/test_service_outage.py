"""A shard that is out is absent for new work, and an error for what names a job on it (decisions 8, 10 and 12)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from pinlater.errors import NoHealthyShards, OutcomeUnknown, ShardConnectionFailed
from pinlater.model import (
    CONTINUATION_END,
    CONTINUATION_START,
    Ack,
    Checkpoint,
    DequeueRequest,
    ExtendedJob,
    Job,
    JobState,
)
from tests.conformance.outage import OUT, Outage, eventually, shard_of
from tests.conformance.served import QUEUE


async def test_new_jobs_go_to_the_shards_that_answer(outage: Outage) -> None:
    await outage.eject()
    assert {shard_of(each) for each in await outage.spread()} == {"1"}


async def test_a_dequeue_hands_out_what_the_others_hold(outage: Outage) -> None:
    stays, _ = await outage.jobs_on_both()
    await outage.eject()
    assert sorted(job.descriptor for job in await outage.dequeue(100)) == sorted(stays)


async def test_an_ack_for_a_shard_that_is_out_is_an_error_after_all_others_are_done(outage: Outage) -> None:
    stays, goes = await outage.jobs_on_both()
    await outage.dequeue(100)
    await outage.eject()
    with pytest.raises(ShardConnectionFailed):
        await outage.api.ack(QUEUE, [Ack(each) for each in [*goes, *stays]], [])
    for each in stays:
        assert (await outage.info(each)).state is JobState.SUCCEEDED
    await outage.come_back()
    for each in goes:
        assert (await outage.info(each)).state is JobState.IN_PROGRESS


async def test_a_riding_ack_for_a_shard_that_is_out_refuses_the_dequeue(outage: Outage) -> None:
    stays, goes = await outage.jobs_on_both()
    await outage.dequeue(100)
    await outage.enqueue(Job(b"next"))
    await outage.eject()
    before = await outage.api.count(outage.filter(JobState.PENDING), allow_partial=True)
    with pytest.raises(ShardConnectionFailed) as refused:
        await outage.api.dequeue(DequeueRequest(QUEUE, 1, succeeded=[Ack(goes[0]), Ack(stays[0])]))
    assert refused.value.acks_applied is False
    assert (await outage.info(stays[0])).state is JobState.SUCCEEDED
    assert await outage.api.count(outage.filter(JobState.PENDING), allow_partial=True) == before


async def test_what_names_jobs_on_a_shard_that_is_out_is_an_error_after_all_others_are_done(outage: Outage) -> None:
    stays, goes = await outage.jobs_on_both()
    await outage.eject()
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: outage.api.lookup([goes[0], stays[0]]),
        lambda: outage.api.checkpoint(QUEUE, [Checkpoint(goes[0]), Checkpoint(stays[0])]),
        lambda: outage.api.cancel(QUEUE, [goes[0], stays[0]]),
    ]
    for call in calls:
        with pytest.raises(ShardConnectionFailed):
            await call()
    assert await outage.api.lookup([stays[0]]) == {}, "the cancel reached the shard that answers"
    assert set(await outage.api.lookup(stays)) == set(stays[1:])


async def test_a_count_with_a_shard_missing_is_an_error_unless_partial_counts_are_asked_for(outage: Outage) -> None:
    stays, _ = await outage.jobs_on_both()
    await outage.eject()
    pending = outage.filter(JobState.PENDING)
    with pytest.raises(ShardConnectionFailed):
        await outage.api.count(pending)
    assert await outage.api.count(pending, allow_partial=True) == len(stays)


async def test_groups_are_taken_off_on_the_shards_that_answer_and_the_others_are_named(outage: Outage) -> None:
    if not all(member.shard.has_groups for member in outage.members.all):
        pytest.skip("the store has no groups")
    jobs = [(await outage.enqueue(ExtendedJob(b"x", group="a")))[0] for _ in range(20)]
    stays = [each for each in jobs if shard_of(each) != OUT]
    assert len(stays) not in (0, 20)
    await outage.eject()
    found, continuation = 0, CONTINUATION_START
    missing: set[str] = set()
    while continuation != CONTINUATION_END:
        step = await outage.api.clear_groups(QUEUE, outage.password, continuation=continuation)
        found, continuation = found + step.jobs, step.continuation
        missing.update(step.missing_shards)
    assert (found, missing) == (len(stays), {OUT})
    await outage.come_back()
    assert {each.group for each in (await outage.api.lookup(stays)).values()} == {None}
    again = await outage.api.clear_groups(QUEUE, outage.password, dry_run=True)
    assert again.missing_shards == []


async def test_a_scan_goes_on_and_names_the_missing_shards(outage: Outage) -> None:
    stays, _ = await outage.jobs_on_both()
    whole = await outage.api.scan(outage.filter(JobState.PENDING))
    assert whole.missing_shards == []
    await outage.eject()
    page = await outage.api.scan(outage.filter(JobState.PENDING))
    assert page.missing_shards == [OUT]
    assert sorted(info.descriptor for info in page.jobs) == sorted(stays)


async def test_only_when_no_shard_is_left_there_is_no_healthy_one(schema_lock: Outage) -> None:
    descriptor = await schema_lock.enqueue_one()
    await schema_lock.eject()
    calls: list[Callable[[], Awaitable[object]]] = [
        schema_lock.enqueue_one,
        lambda: schema_lock.dequeue(1),
        lambda: schema_lock.api.count(schema_lock.filter(JobState.PENDING)),
        lambda: schema_lock.api.lookup([descriptor]),
    ]
    for call in calls:
        with pytest.raises(NoHealthyShards, match=r"shard \w+ cannot be used now: \w+"):
            await call()


async def test_a_shard_that_is_back_serves_its_jobs_again(outage: Outage) -> None:
    stays, goes = await outage.jobs_on_both()
    await outage.eject()
    await outage.come_back()
    assert sorted(job.descriptor for job in await outage.dequeue(100)) == sorted([*stays, *goes])
    await outage.api.ack(QUEUE, [Ack(each) for each in goes], [])
    assert await outage.count(JobState.SUCCEEDED) == len(goes)


async def test_an_enqueue_with_an_unknown_outcome_says_so_and_is_not_sent_again(schema_lock: Outage) -> None:
    schema_lock.proxy.black_hole(answers_only=True)
    with pytest.raises(OutcomeUnknown) as unknown:
        await schema_lock.enqueue_one()
    assert unknown.value.retryable
    await schema_lock.come_back()

    async def is_stored_once() -> bool:
        """The store may carry it out after the first look."""
        counts = [await schema_lock.count(JobState.PENDING, future=future) for future in (False, True)]
        return sum(counts) == 1

    await eventually(is_stored_once)


async def test_jobs_claimed_for_a_caller_that_was_told_of_an_error_are_requeued_with_all_attempts(
    schema_lock: Outage,
) -> None:
    descriptor = await schema_lock.enqueue_one()
    schema_lock.proxy.black_hole(answers_only=True)
    with pytest.raises(ShardConnectionFailed):
        await schema_lock.dequeue(1)
    await schema_lock.come_back()

    async def is_back() -> bool:
        """The store may carry the claim out after the first look."""
        info = await schema_lock.info(descriptor)
        return info.state is JobState.PENDING and info.claim_descriptor is None

    await eventually(is_back)
    assert (await schema_lock.info(descriptor)).attempts_remaining == 2
