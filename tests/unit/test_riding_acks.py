"""Acks that ride on a dequeue: with its first claim in one call of the store, where that means the same."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.errors import NothingStored, OutcomeUnknown, PinLaterError, QueueNotFound, RequestInvalid
from pinlater.model import (
    Ack,
    AckOutcome,
    ConnectionRef,
    DequeuedJobs,
    DequeueRequest,
    Job,
    JobFilter,
    JobState,
    RequestContext,
)
from pinlater.service import ServiceSettings
from tests.queues import drop_queue
from tests.unit.breaking import settled, until_quiet
from tests.unit.stand import Stand, acks, stand

SELDOM = ServiceSettings(poll_min_ms=50_000, poll_max_ms=60_000)
LONG_MS = 60_000


async def succeeded(at: Stand) -> int:
    return await at.service.count(JobFilter("mail", JobState.SUCCEEDED))


@pytest.mark.parametrize("wait_ms", [0, LONG_MS])
async def test_one_call_of_the_store_carries_out_the_acks_and_claims(wait_ms: int) -> None:
    async with stand(settings=SELDOM) as at:
        await at.service.enqueue("mail", [Job(b"x"), Job(b"y")])
        (job,) = await at.dequeue(1)
        at.stores[0].begun.clear()
        (after,) = await at.dequeue(1, succeeded=acks([job]), wait_ms=wait_ms)
        assert at.stores[0].begun == {"ack_and_claim": 1}
        assert (after.body, await succeeded(at)) == (b"y", 1)
        assert at.service.metrics.counters["jobs_acked", "mail", 1, "succeeded"] == 1
        assert at.service.metrics.counters["jobs_dequeued", "mail", 1] == 2


async def test_a_job_that_fails_is_claimed_again_by_the_same_call() -> None:
    async with stand() as at:
        await at.service.enqueue("mail", [Job(b"x", attempts_allowed=2)])
        (job,) = await at.dequeue(1)
        (again,) = await at.dequeue(1, failed=acks([job]))
        assert (again.descriptor, again.attempts_remaining) == (job.descriptor, 1)


async def test_an_ack_without_effect_is_told_with_the_jobs() -> None:
    async with stand() as at:
        await at.service.enqueue("mail", [Job(b"x"), Job(b"y")])
        (job,) = await at.dequeue(1)
        await at.service.ack("mail", acks([job]), [])
        jobs = await at.dequeue(1, succeeded=acks([job]))
        assert isinstance(jobs, DequeuedJobs)
        assert (jobs[0].body, list(jobs.ack_outcomes)) == (b"y", [AckOutcome.IGNORED])


@pytest.mark.parametrize("fields", [{"ack_queue": "other"}, {"dry_run": True}])
async def test_acks_go_by_themselves_where_the_claim_is_another_one_or_none(fields: dict[str, object]) -> None:
    async with stand() as at:
        await at.service.create_queue("other")
        await at.service.enqueue("mail", [Job(b"x")])
        (job,) = await at.dequeue(1)
        await at.dequeue(1, succeeded=acks([job]), **fields)
        assert at.stores[0].begun["ack_and_claim"] == 0
        assert await succeeded(at) == (0 if "ack_queue" in fields else 1)


@pytest.mark.parametrize("fields", [{"coverage": 2.0}, {"claim_timeout_ms": 0}])
async def test_an_invalid_dequeue_carries_out_its_acks(fields: dict[str, object]) -> None:
    async with stand() as at:
        await at.service.enqueue("mail", [Job(b"x")])
        (job,) = await at.dequeue(1)
        with pytest.raises(RequestInvalid) as refused:
            await at.dequeue(1, succeeded=acks([job]), **fields)
        assert refused.value.acks_applied is True
        assert await succeeded(at) == 1


async def test_acks_go_by_themselves_where_one_is_invalid_or_the_queue_has_a_limit() -> None:
    async with stand() as at:
        await at.service.enqueue("mail", [Job(b"x"), Job(b"y")])
        one, two = await at.dequeue(2)
        with pytest.raises(RequestInvalid) as refused:
            await at.dequeue(1, succeeded=[Ack("nonsense"), *acks([one])])
        assert refused.value.acks_applied is True
        await at.service.queues.change("mail", {"max_jobs_per_second": "100/s"}, [], False, "me")
        assert await at.dequeue(1, succeeded=acks([two])) == []
        assert at.stores[0].begun["ack_and_claim"] == 0
        assert await succeeded(at) == 2


async def test_acks_go_by_themselves_where_there_are_several_shards() -> None:
    async with stand(2) as at:
        await at.service.enqueue("mail", [Job(b"x"), Job(b"y")])
        (job,) = await at.dequeue(1)
        (after,) = await at.dequeue(1, succeeded=acks([job]))
        assert (after.body, await succeeded(at)) == (b"y", 1)
        assert sum(store.begun["ack_and_claim"] for store in at.stores) == 0


@pytest.mark.parametrize(
    ("error", "expected"), [(NothingStored("no"), NothingStored), (OutcomeUnknown("?"), OutcomeUnknown)]
)
async def test_an_error_says_that_the_acks_may_not_be_applied(
    error: PinLaterError, expected: type[PinLaterError]
) -> None:
    async with stand() as at:
        await at.service.enqueue("mail", [Job(b"x")])
        (job,) = await at.dequeue(1)
        at.stores[0].failures["ack_and_claim"] = [error]
        with pytest.raises(expected) as refused:
            await at.dequeue(1, succeeded=acks([job]))
        assert refused.value.acks_applied is False


async def test_a_queue_that_is_gone_has_ignored_the_acks() -> None:
    async with stand() as at:
        await at.service.enqueue("mail", [Job(b"x")])
        (job,) = await at.dequeue(1)
        await drop_queue(at.stores[0], "mail", at.clock.now_ms())
        with pytest.raises(QueueNotFound) as refused:
            await at.dequeue(1, succeeded=acks([job]))
        assert refused.value.acks_applied is True
        assert at.service.metrics.counters["jobs_acked", "mail", 1, "ignored"] == 1


async def test_a_caller_that_leaves_during_its_first_claim_has_its_acks_and_none_of_the_jobs() -> None:
    async with stand(settings=SELDOM) as at:
        await at.service.enqueue("mail", [Job(b"x"), Job(b"y")])
        (job,) = await at.dequeue(1)
        gate = at.stores[0].hold("ack_and_claim")
        leaving = asyncio.create_task(at.dequeue(1, succeeded=acks([job]), wait_ms=LONG_MS))
        await at.stores[0].until_begun("ack_and_claim")
        leaving.cancel()
        await settled()
        gate.set()
        await until_quiet(*at.stores)
        assert leaving.cancelled()
        assert await succeeded(at) == 1
        (other,) = await at.dequeue(1)
        assert (other.body, other.attempts_remaining) == (b"y", job.attempts_remaining)


async def test_who_finds_nothing_waits_and_gets_what_comes() -> None:
    async with stand(settings=SELDOM) as at:
        await at.service.enqueue("mail", [Job(b"x")])
        (job,) = await at.dequeue(1)
        waiting = asyncio.create_task(at.dequeue(1, succeeded=acks([job]), wait_ms=LONG_MS))
        await at.stores[0].until_begun("ack_and_claim")
        await until_quiet(*at.stores)
        assert await succeeded(at) == 1
        await at.service.enqueue("mail", [Job(b"y")])
        assert [each.body for each in await asyncio.wait_for(waiting, 60)] == [b"y"]


async def test_who_joins_others_that_wait_has_its_acks_before() -> None:
    async with stand(settings=SELDOM) as at:
        await at.service.enqueue("mail", [Job(b"x")])
        (job,) = await at.dequeue(1)
        first = asyncio.create_task(at.dequeue(1, wait_ms=LONG_MS))
        await until_quiet(*at.stores)
        second = asyncio.create_task(at.dequeue(1, succeeded=acks([job]), wait_ms=LONG_MS))
        await until_quiet(*at.stores)
        assert (at.service.waiting, at.stores[0].begun["ack_and_claim"], await succeeded(at)) == (2, 0, 1)
        await at.service.enqueue("mail", [Job(b"1"), Job(b"2")])
        assert [(await each)[0].body for each in (first, second)] == [b"1", b"2"]


async def test_claims_of_one_call_are_unbound_and_bound() -> None:
    async with stand(settings=SELDOM) as at:
        caller = RequestContext("me", connection=ConnectionRef())
        await at.service.enqueue("mail", [Job(b"x"), Job(b"y")])
        request = DequeueRequest("mail", 1, release_on_disconnect=True)
        (job,) = await at.service.dequeue(request, context=caller)
        riding = DequeueRequest("mail", 1, release_on_disconnect=True, succeeded=acks([job]))
        (after,) = await at.service.dequeue(riding, context=caller)
        assert list(at.service.connection_claims) == [after.descriptor]
