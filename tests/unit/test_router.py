"""Calls spread over several shards."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter

import pytest

from pinlater.backends.base import NO_RULES, AckOutcome, AckRequest, ClaimRequest, ScanPosition
from pinlater.errors import (
    NoHealthyShards,
    NothingStored,
    OutcomeUnknown,
    QueueNotFound,
    ShardConnectionFailed,
)
from pinlater.model import Ack, CancelOutcome, Job, JobFilter, JobInfo, JobState, parse_descriptor
from pinlater.shards.bulkhead import AcquireTimeout, Bulkhead
from pinlater.shards.claim_plan import plan_claims
from pinlater.shards.decorator import ShardDecorator
from pinlater.shards.scan import Place, merge_pages, position_on
from tests.queues import drop_queue
from tests.unit.breaking import settled
from tests.unit.stand import ME, Stand, acks, stand

PENDING = JobFilter("mail", JobState.PENDING)


def shard_of(descriptor: str) -> str:
    ref = parse_descriptor(descriptor)
    assert ref is not None
    return ref.shard


async def on_each(at: Stand, *jobs: Job) -> dict[str, list[str]]:
    """Store these jobs on every shard."""
    return {store.shard_id: await store.inner.enqueue("mail", jobs, at.clock.now_ms()) for store in at.stores}


def guard_of(at: Stand, shard: int = 1) -> Bulkhead:
    wrapped = at.members.all[shard - 1].shard
    assert isinstance(wrapped, ShardDecorator)
    assert wrapped.bulkhead is not None
    return wrapped.bulkhead


def take_out(at: Stand, shard_id: str) -> None:
    member = at.members.by_id(shard_id)
    assert member is not None
    member.health.trip(at.clock.now_ms())


# -- placement -------------------------------------------------------------------------------------------------------


async def test_one_request_lies_on_one_shard_and_many_on_all() -> None:
    async with stand(3) as at:
        placed = Counter()
        for _ in range(60):
            shards = {shard_of(each) for each in await at.service.enqueue("mail", [Job(b"x")] * 3)}
            assert len(shards) == 1
            placed.update(shards)
        assert set(placed) == {"1", "2", "3"}


async def test_no_new_jobs_on_a_shard_that_is_for_dequeue_only() -> None:
    async with stand(2, dequeue_only=[1]) as at:
        await on_each(at, Job(b"old"))
        for _ in range(10):
            assert shard_of((await at.service.enqueue("mail", [Job(b"x")]))[0]) == "2"
        assert {shard_of(job.descriptor) for job in await at.dequeue(20)} == {"1", "2"}


async def test_another_shard_is_tried_where_the_first_surely_stored_nothing() -> None:
    async with stand(2) as at:
        at.stores[0].broken = NothingStored("refused")
        for _ in range(10):
            assert shard_of((await at.service.enqueue("mail", [Job(b"x")]))[0]) == "2"


async def test_an_unknown_outcome_goes_to_the_caller_and_nothing_is_stored_twice() -> None:
    async with stand(2) as at:
        for store in at.stores:
            store.losses["enqueue"] = [OutcomeUnknown("reset")]
        with pytest.raises(OutcomeUnknown) as refused:
            await at.service.enqueue("mail", [Job(b"x")])
        assert refused.value.retryable
        assert await at.service.count(PENDING) == 1


async def test_a_shard_that_lacks_the_queue_is_passed_over_while_another_has_it() -> None:
    async with stand(2) as at:
        await drop_queue(at.stores[0].inner, "mail", at.clock.now_ms())
        for _ in range(5):
            assert shard_of((await at.service.enqueue("mail", [Job(b"x")]))[0]) == "2"
        assert len(await at.dequeue(10)) == 5
        with pytest.raises(QueueNotFound):
            await at.service.enqueue("nowhere", [Job(b"x")])


async def test_no_healthy_shards_only_when_none_is_left() -> None:
    async with stand(2) as at:
        take_out(at, "1")
        assert shard_of((await at.service.enqueue("mail", [Job(b"x")]))[0]) == "2"
        take_out(at, "2")
        for call in (at.service.enqueue("mail", [Job(b"x")]), at.dequeue(), at.service.count(PENDING)):
            with pytest.raises(NoHealthyShards):
                await call


async def test_failures_in_a_row_take_a_shard_out_and_pings_bring_it_back() -> None:
    async with stand(2) as at:
        at.stores[0].failures["enqueue"] = [OutcomeUnknown("reset")] * 99
        for _ in range(30):
            with contextlib.suppress(OutcomeUnknown):
                await at.service.enqueue("mail", [Job(b"x")])
        member = at.members.all[0]
        assert not member.is_healthy
        assert at.stores[0].begun["enqueue"] == 3
        at.stores[0].failures.clear()
        await at.members.check(member)
        assert not member.health.is_probing, "the pause is not over"
        at.clock.tick(1_000)
        for _ in range(3):
            assert not member.is_healthy
            await at.members.check(member)
            at.clock.tick(500)
        assert member.is_healthy


# -- strict priority -------------------------------------------------------------------------------------------------


async def test_no_job_of_a_lower_priority_while_a_higher_one_waits_on_any_shard() -> None:
    async with stand(3) as at:
        await on_each(at, Job(b"low", 3), Job(b"high", 1), Job(b"middle", 2))
        order = []
        for _ in range(9):
            (job,) = await at.dequeue(1)
            order.append(job.priority)
        assert order == [1, 1, 1, 2, 2, 2, 3, 3, 3]


async def test_one_call_takes_over_all_shards_and_never_more_than_its_limit() -> None:
    async with stand(3) as at:
        await on_each(at, Job(b"high", 1), Job(b"low", 2))
        jobs = await at.dequeue(4)
        assert [job.priority for job in jobs] == [1, 1, 1, 2]
        assert len({job.claim_descriptor for job in jobs}) == 1


async def test_an_empty_queue_costs_one_round_trip_per_shard() -> None:
    async with stand(3) as at:
        assert await at.dequeue() == []
        assert [(store.begun["count_ready"], store.begun["claim"]) for store in at.stores] == [(1, 0)] * 3


async def test_one_shard_is_asked_directly() -> None:
    async with stand(1) as at:
        assert await at.dequeue() == []
        assert (at.stores[0].begun["count_ready"], at.stores[0].begun["claim"]) == (0, 1)


async def test_coverage_looks_at_a_share_of_the_shards_at_least_one() -> None:
    async with stand(4) as at:
        await at.dequeue(coverage=0.5)
        assert sum(store.begun["count_ready"] for store in at.stores) == 2
        await at.dequeue(coverage=0.0)
        assert sum(store.begun["claim"] for store in at.stores) == 1


async def test_jobs_that_another_took_after_the_plan_are_no_reason_for_an_empty_answer() -> None:
    async with stand(2) as at:
        await on_each(at, Job(b"x"))
        for store in at.stores:
            store.hold("claim")
        call = asyncio.create_task(at.dequeue(1))
        await settled()
        while not any(store.begun["claim"] for store in at.stores):
            await at.stores[0].until_begun("count_ready")
            await asyncio.sleep(0)
        planned = next(store for store in at.stores if store.begun["claim"])
        thief = ClaimRequest("thief:1:1:1:x", 1, (1,), 60_000, 2**30)
        await planned.inner.claim("mail", [thief], at.clock.now_ms())
        for store in at.stores:
            store.gates["claim"].set()
        (job,) = await call
        assert shard_of(job.descriptor) != planned.shard_id


async def test_a_shard_that_fails_is_absent_from_a_dequeue() -> None:
    async with stand(2) as at:
        await on_each(at, Job(b"x"))
        at.stores[0].broken = NothingStored("refused")
        assert [shard_of(job.descriptor) for job in await at.dequeue()] == ["2"]


async def test_a_dequeue_whose_caller_goes_requeues_what_the_shards_gave() -> None:
    async with stand(2) as at:
        await on_each(at, Job(b"x"))
        gate = at.stores[1].hold("claim")
        call = asyncio.create_task(at.dequeue(2))
        await at.stores[1].until_begun("claim")
        await at.stores[0].until_begun("claim")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        gate.set()
        for store in at.stores:
            await store.until_begun("requeue")
        await at.router.compensator.drain()
        for member in at.members.all:
            await member.shard.drain()  # type: ignore[attr-defined]
        assert await at.service.count(PENDING) == 2


async def test_dequeues_that_come_during_a_look_share_the_next_one() -> None:
    async with stand(2) as at:
        await on_each(at, *[Job(b"x", 2)] * 4)  # of a later priority: no look of before is enough
        gate = at.stores[0].hold("count_ready")
        calls = [asyncio.create_task(at.dequeue(2)) for _ in range(4)]
        await at.stores[0].until_begun("count_ready")
        await settled()
        gate.set()
        answered = await asyncio.gather(*calls)
        assert [len(jobs) for jobs in answered] == [2, 2, 2, 2]
        assert len({job.descriptor for jobs in answered for job in jobs}) == 8
        assert [store.begun["count_ready"] for store in at.stores] == [2, 2]


async def test_a_dequeue_that_shares_a_look_and_goes_has_its_jobs_requeued() -> None:
    async with stand(2) as at:
        await on_each(at, *[Job(b"x")] * 3)
        for store in at.stores:
            store.hold("claim")
        calls = [asyncio.create_task(at.dequeue(2)) for _ in range(3)]
        while not any(store.begun["claim"] for store in at.stores):
            await settled()
        for store in at.stores:
            store.gates["claim"].set()
            store.hold("claim")
        await calls[0]
        while sum(store.begun["claim"] for store in at.stores) < 3:
            await settled()
        calls[1].cancel()
        await settled()
        for store in at.stores:
            store.gates["claim"].set()
        assert len(await calls[2]) == 2
        await at.router.drain()
        assert await at.service.count(PENDING) == 2


async def test_a_shard_with_few_jobs_has_its_turn_beside_one_that_stays_full() -> None:
    async with stand(2) as at:
        few, full = at.stores
        await few.inner.enqueue("mail", [Job(b"few")] * 3, at.clock.now_ms())
        await full.inner.enqueue("mail", [Job(b"many")] * 600, at.clock.now_ms())
        bodies: Counter[bytes] = Counter()
        for _ in range(60):  # by chance the shard with few is never asked first once in 10**18 runs
            bodies.update([job.body for job in await at.dequeue(5)])
        assert bodies == {b"few": 3, b"many": 297}


def test_a_plan_asks_no_further_shard_when_there_is_enough() -> None:
    assert plan_claims([[5], [5], [4]], [5]).shares == [[5], [0], [0]]
    assert plan_claims([[3, 0], [5, 0], [4, 9]], [5, 4, 2]).shares == [[3, 0, 0], [2, 3, 0], [0, 1, 2]]


def test_a_plan_takes_all_of_a_level_before_the_next_and_serves_requests_in_order() -> None:
    assert plan_claims([[3, 0], [1, 9]], [2, 10]).shares == [[2, 1], [0, 9]]
    assert plan_claims([[0, 0], [0, 0]], [5]) == ([[0], [0]], 0)
    assert plan_claims([[5, 5, 5], [5, 5, 5]], [10]).levels == 1


# -- calls that name jobs --------------------------------------------------------------------------------------------


async def test_what_names_jobs_on_a_shard_that_is_out_fails_after_all_the_others_were_done() -> None:
    async with stand(2) as at:
        await on_each(at, Job(b"x"))
        jobs = await at.dequeue()
        take_out(at, "1")
        with pytest.raises(ShardConnectionFailed, match="shard 1"):
            await at.service.ack("mail", acks(jobs), [])
        with pytest.raises(ShardConnectionFailed, match="shard 1"):
            await at.service.lookup([job.descriptor for job in jobs])
        at.members.by_id("1").readmit()  # type: ignore[union-attr]
        found = await at.service.lookup([job.descriptor for job in jobs])
        assert {shard_of(each): info.state.name for each, info in found.items()} == {
            "1": "IN_PROGRESS",
            "2": "SUCCEEDED",
        }


async def test_a_shard_that_was_never_configured_is_not_found() -> None:
    async with stand(2) as at:
        ghost = "mail:s9:p1:1790000000000000"
        assert await at.service.lookup([ghost]) == {}
        await at.service.ack("mail", [Ack(ghost)], [])
        assert await at.service.cancel("mail", [ghost, "text"]) == {
            ghost: CancelOutcome.NOT_FOUND,
            "text": CancelOutcome.NOT_FOUND,
        }


async def test_an_ack_that_may_have_happened_somewhere_says_so() -> None:
    async with stand(2) as at:
        await on_each(at, Job(b"x"))
        jobs = await at.dequeue()
        at.stores[0].losses["ack"] = [OutcomeUnknown("reset")]
        at.stores[1].failures["ack"] = [NothingStored("refused")]
        with pytest.raises(OutcomeUnknown):
            await at.service.ack("mail", acks(jobs), [])


async def test_a_part_that_was_stored_is_never_reported_as_nothing_stored() -> None:
    async with stand(2) as at:
        await on_each(at, Job(b"x"))
        jobs = await at.dequeue()
        at.stores[1].failures["ack"] = [NothingStored("refused")]
        with pytest.raises(ShardConnectionFailed) as refused:
            await at.service.ack("mail", acks(jobs), [])
        assert refused.value.reason != "NOTHING_STORED"


# -- all shards ------------------------------------------------------------------------------------------------------


async def test_a_count_with_a_shard_missing_is_an_error_unless_a_part_is_enough() -> None:
    async with stand(2) as at:
        await on_each(at, Job(b"x"))
        take_out(at, "1")
        with pytest.raises(ShardConnectionFailed, match="shard 1"):
            await at.service.count(PENDING)
        assert await at.service.count(PENDING, allow_partial=True) == 1


async def test_a_scan_names_the_shards_that_are_missing() -> None:
    async with stand(3) as at:
        await on_each(at, Job(b"x"))
        take_out(at, "1")
        at.stores[2].broken = NothingStored("refused")
        page = await at.service.scan(PENDING)
        assert [shard_of(job.descriptor) for job in page.jobs] == ["2"]
        assert sorted(page.missing_shards) == ["1", "3"]


async def test_a_scan_goes_over_all_shards_newest_first_then_by_shard_then_by_id() -> None:
    async with stand(3) as at:
        now_ms = at.clock.now_ms()
        await on_each(at, *[Job(b"x", run_after_ms=now_ms - delay) for delay in (5, 1, 5, 1, 3)])
        seen: list[JobInfo] = []
        continuation = "0"
        while continuation != "-1":
            page = await at.service.scan(PENDING, continuation=continuation, limit=2)
            seen += page.jobs
            continuation = page.continuation
        keys = [(-job.run_after_ms, shard_of(job.descriptor), job.descriptor[-16:]) for job in seen]
        assert keys == sorted(keys)
        assert len(set(keys)) == 15


def test_where_each_shard_goes_on_from_a_place_between_them() -> None:
    after = Place(700, "2", 1_790_000_000_000_000)
    assert position_on("2", after) == ScanPosition(700, 1_790_000_000_000_000)
    assert position_on("1", after) == ScanPosition(700, 2**53 - 1)
    assert position_on("3", after) == ScanPosition(700, 0)
    assert position_on("3", None) is None


def info(shard: str, run_after_ms: int) -> JobInfo:
    return JobInfo(f"mail:s{shard}:p1:{1790000000000000}", JobState.PENDING, 1, 1, 1, "", 0, run_after_ms, 0, body=b"")


def test_nothing_behind_a_page_that_its_bytes_cut_short_is_certain() -> None:
    jobs, ended = merge_pages([[info("1", 9)], [info("2", 8), info("2", 7)]], 10, with_body=True)
    assert [job.run_after_ms for job in jobs] == [9]
    assert not ended
    assert merge_pages([[], []], 10, with_body=True) == ([], True)


async def test_a_retry_over_shards_stops_at_its_limit_and_tells_of_a_missing_one() -> None:
    async with stand(2) as at:
        await on_each(at, Job(b"x"), Job(b"y"))
        jobs = await at.dequeue()
        await at.service.ack("mail", [], [Ack(job.descriptor, permanent=True) for job in jobs], context=ME)
        assert await at.service.retry_failed("mail", limit=3) == 3
        take_out(at, "1")
        with pytest.raises(ShardConnectionFailed, match="shard 1"):
            await at.service.retry_failed("mail", limit=5)


async def test_acks_ride_with_a_claim_of_the_sole_shard_in_use() -> None:
    async with stand(2) as at:
        assert at.router.sole_shard() is None
        take_out(at, "1")
        assert at.router.sole_shard() == "2"
        await at.stores[1].enqueue("mail", [Job(b"x"), Job(b"y")], at.clock.now_ms())
        (job,) = await at.dequeue(1)
        ref = parse_descriptor(job.descriptor)
        assert ref is not None
        asked = at.router.ack_and_claim(
            "mail",
            [AckRequest(ref.priority, ref.id, True)],
            [ClaimRequest("a:1:1:7:me", 5, (1, 2, 3), 60_000, 2**20)],
            at.clock.now_ms(),
            NO_RULES,
        )
        outcomes, ((claimed,),) = await asked
        assert (outcomes, claimed.descriptor != job.descriptor) == ([AckOutcome.SUCCEEDED], True)
        take_out(at, "2")
        assert at.router.sole_shard() is None
        with pytest.raises(NoHealthyShards):
            at.router.ack_and_claim("mail", [], [], at.clock.now_ms(), NO_RULES)


async def test_calls_that_found_no_permit_say_nothing_of_the_store_s_health() -> None:
    async with stand(1, deadline_ms=500) as at:
        calls = guard_of(at)
        calls.free = 0
        shard = at.members.all[0].shard
        lookups = [shard.lookup("mail", [], with_body=False, max_bytes=1) for _ in range(10)]
        ends = await asyncio.gather(*lookups, return_exceptions=True)
        assert [type(each) for each in ends] == [AcquireTimeout] * 10
        calls.free = 16
        assert at.members.all[0].is_healthy


async def test_what_a_shard_gave_goes_back_when_another_one_breaks_as_no_store_should() -> None:
    async with stand(2) as at:
        for store in at.stores:
            await store.enqueue("mail", [Job(b"x")] * 3, at.clock.now_ms())
        at.stores[1].failures["claim"] = [RuntimeError("a driver's own")]
        with pytest.raises(RuntimeError):
            await at.dequeue(10)
        await at.router.compensator.drain()
        assert len(await at.dequeue(10)) == 6


async def test_a_capped_claim_finds_the_jobs_of_the_shards_that_have_a_share_left() -> None:
    async with stand(4) as at:
        now_ms = at.clock.now_ms()
        await on_each(at, Job(b"x"), Job(b"y"))
        for store in at.stores:
            await store.set_quota("mail", 1 if store.shard_id == "4" else 0, 1, now_ms)
        requests = [ClaimRequest("h:1:1:1:me", 3, (1, 2, 3), 60_000, 2**20)]
        ((job,),) = await at.router.claim("mail", requests, now_ms, enforce_quota=True)
        assert shard_of(job.descriptor) == "4"
        requests = [ClaimRequest("h:1:1:2:me", 3, (1, 2, 3), 60_000, 2**20)]
        assert await at.router.claim("mail", requests, now_ms, enforce_quota=True) == [[]]
        assert len((await at.router.claim("mail", requests, now_ms))[0]) == 3
        await drop_queue(at.stores[3].inner, "mail", now_ms)
        assert await at.router.claim("mail", requests, now_ms, enforce_quota=True) == [[]]
