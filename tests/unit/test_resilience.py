"""Deadlines, turns and retries around one shard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import uvloop

from pinlater.backends.base import ClaimRequest, JobKey, Shard
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.clock import SystemClock
from pinlater.errors import ErrorCode, NothingStored, OutcomeUnknown, Overloaded, QueueNotFound, StoreConflict
from pinlater.model import MAX_TIME_MS, DequeuedJob, Job, JobState, parse_descriptor
from pinlater.shards.batching import BatchingShard
from pinlater.shards.bulkhead import AcquireTimeout, BulkheadSettings, ShardSlow
from pinlater.shards.decorator import ShardDecorator
from pinlater.shards.resilience import ResilientShard
from tests.queues import make_queue
from tests.unit.breaking import Breaking, HeldClock, HeldTime, settled, until_quiet

NOW_MS = 1_790_000_000_000


def request(name: str = "h:1:1:1:me", limit: int = 10) -> ClaimRequest:
    return ClaimRequest(name, limit, (1, 2, 3), 60_000, 2**30)


@asynccontextmanager
async def guarded(**settings: int) -> AsyncIterator[tuple[ResilientShard, Breaking]]:
    store = Breaking(SqliteShard("sqlite://", "1"))
    shard = ResilientShard(store, BulkheadSettings(retry_base_ms=1, **settings))
    await shard.open()
    await make_queue(shard, "mail", NOW_MS)
    try:
        yield shard, store
    finally:
        for gate in store.gates.values():
            gate.set()
        await shard.close()


async def pending(shard: ResilientShard) -> int:
    return await shard.count("mail", JobState.PENDING, (1, 2, 3), False, NOW_MS)


async def test_a_write_that_is_late_has_an_unknown_outcome_and_is_carried_out_all_the_same() -> None:
    async with guarded() as (shard, store):
        time = HeldTime()
        gate = store.hold("enqueue")
        late = await enqueueing(shard, store)
        await time.leap(10)
        with pytest.raises(OutcomeUnknown):
            await late
        gate.set()
        await shard.drain()
        assert await pending(shard) == 1


async def test_a_read_that_is_late_surely_stored_nothing() -> None:
    async with guarded() as (shard, store):
        time = HeldTime()
        store.hold("count")
        late = asyncio.create_task(pending(shard))
        await store.until_begun("count")
        await time.leap(10)
        with pytest.raises(NothingStored):
            await late


async def test_a_claim_that_comes_late_is_requeued_with_all_attempts() -> None:
    async with guarded() as (shard, store):
        time = HeldTime()
        (descriptor,) = await shard.enqueue("mail", [Job(b"x")], NOW_MS)
        gate = store.hold("claim")
        late = asyncio.create_task(shard.claim("mail", [request()], NOW_MS))
        await store.until_begun("claim")
        await time.leap(10)
        with pytest.raises(OutcomeUnknown):
            await late
        gate.set()
        await store.until_begun("requeue")
        await shard.drain()
        await shard.ping()
        ((job,),) = await shard.claim("mail", [request("h:1:1:2:me")], NOW_MS)
        assert (job.descriptor, job.attempts_remaining) == (descriptor, 2)


async def test_named_jobs_that_are_claimed_for_a_caller_that_is_gone_are_requeued() -> None:
    async with guarded() as (shard, store):
        descriptors = await shard.enqueue("mail", [Job(b"x")] * 2, NOW_MS)
        refs = [ref for each in descriptors if (ref := parse_descriptor(each)) is not None]
        keys = [JobKey(ref.priority, ref.id) for ref in refs]
        gate = store.hold("claim_listed")
        call = asyncio.create_task(shard.claim_listed("mail", [*keys, keys[0]], request(), NOW_MS))
        await store.until_begun("claim_listed")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        gate.set()
        await store.until_begun("requeue")
        await shard.drain()
        assert await pending(shard) == 2


async def test_a_claim_whose_caller_was_cancelled_is_requeued() -> None:
    async with guarded() as (shard, store):
        await shard.enqueue("mail", [Job(b"x")], NOW_MS)
        gate = store.hold("claim")
        call = asyncio.create_task(shard.claim("mail", [request()], NOW_MS))
        await store.until_begun("claim")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        gate.set()
        await store.until_begun("requeue")
        await shard.drain()
        assert await pending(shard) == 1


async def test_a_call_that_found_no_permit_stored_nothing() -> None:
    async with guarded(max_running=1) as (shard, store):
        time = HeldTime()
        gate = store.hold("enqueue")
        calls = []
        for _ in range(4):
            calls.append(asyncio.create_task(shard.enqueue("mail", [Job(b"x")], NOW_MS)))
            await settled()
        for ended in (1, 2):
            await time.leap(4)
            done, gate = gate, store.hold("enqueue")
            done.set()
            await store.until_begun("enqueue", ended + 1)
        await time.leap(2.5)
        with pytest.raises(AcquireTimeout):
            await calls[3]
        with pytest.raises(OutcomeUnknown):
            await calls[2]
        assert store.begun["enqueue"] == 3


async def test_one_caller_too_many_is_refused_and_the_others_are_served_in_order() -> None:
    async with guarded(max_running=1, max_waiting=2) as (shard, store):
        gate = store.hold("enqueue")
        calls = []
        for number in range(3):
            calls.append(asyncio.create_task(shard.enqueue("mail", [Job(b"%d" % number)], NOW_MS)))
            await settled()
        with pytest.raises(Overloaded) as refused:
            await shard.enqueue("mail", [Job(b"z")], NOW_MS)
        assert refused.value.limit == "waiting_store_calls"
        gate.set()
        await asyncio.gather(*calls)
        assert [args[1][0].body for args in store.sent["enqueue"]] == [b"0", b"1", b"2"]


async def test_a_turn_is_handed_on_when_a_waiting_caller_leaves() -> None:
    async with guarded(max_running=1) as (shard, store):
        gate = store.hold("enqueue")
        calls = []
        for _ in range(3):
            calls.append(asyncio.create_task(shard.enqueue("mail", [Job(b"x")], NOW_MS)))
            await settled()
        calls[1].cancel()
        gate.set()
        await asyncio.gather(*calls, return_exceptions=True)
        assert await pending(shard) == 2


async def test_conflicts_are_tried_again_and_only_so_often() -> None:
    async with guarded(max_tries=3) as (shard, store):
        store.failures["enqueue"] = [StoreConflict("deadlock")] * 2
        assert len(await shard.enqueue("mail", [Job(b"x")], NOW_MS)) == 1
        store.failures["enqueue"] = [StoreConflict("deadlock")] * 3
        with pytest.raises(StoreConflict):
            await shard.enqueue("mail", [Job(b"x")], NOW_MS)


async def test_a_write_that_stored_nothing_is_not_tried_again_here_but_a_read_is() -> None:
    async with guarded() as (shard, store):
        store.failures["enqueue"] = [NothingStored("refused")]
        with pytest.raises(NothingStored):
            await shard.enqueue("mail", [Job(b"x")], NOW_MS)
        store.failures["count"] = [NothingStored("refused")]
        assert await pending(shard) == 0


async def test_nothing_is_tried_again_after_an_unknown_outcome() -> None:
    async with guarded() as (shard, store):
        store.losses["enqueue"] = [OutcomeUnknown("reset")]
        with pytest.raises(OutcomeUnknown):
            await shard.enqueue("mail", [Job(b"x")], NOW_MS)
        assert await pending(shard) == 1


async def test_a_read_whose_answer_was_lost_changed_nothing() -> None:
    async with guarded() as (shard, store):
        store.failures["count"] = [OutcomeUnknown("lost")]
        with pytest.raises(NothingStored, match="lost"):
            await pending(shard)
        assert store.begun["count"] == 1


async def test_closing_waits_for_what_is_under_way() -> None:
    store = Breaking(SqliteShard("sqlite://", "1"))
    shard = ResilientShard(store)
    await shard.open()
    await make_queue(shard, "mail", NOW_MS)
    gate = store.hold("enqueue")
    call = asyncio.create_task(shard.enqueue("mail", [Job(b"x")], NOW_MS))
    await store.until_begun("enqueue")
    closing = asyncio.create_task(shard.close())
    await settled()
    assert store.begun["close"] == 0
    gate.set()
    assert len(await call) == 1
    await closing


async def test_a_ping_waits_for_no_turn() -> None:
    async with guarded(max_running=1, max_waiting=0) as (shard, store):
        gate = store.hold("enqueue")
        call = asyncio.create_task(shard.enqueue("mail", [Job(b"x")], NOW_MS))
        await store.until_begun("enqueue")
        assert (await shard.ping()).store_id
        gate.set()
        await call
        assert len(await shard.enqueue("mail", [Job(b"y")], NOW_MS)) == 1


async def test_pings_of_a_busy_store_do_not_raise_the_number_of_calls_under_way() -> None:
    async with guarded(max_running=2) as (shard, store):
        gate = store.hold("enqueue")
        calls = [asyncio.create_task(shard.enqueue("mail", [Job(b"x")], NOW_MS)) for _ in range(6)]
        await store.until_begun("enqueue", 2)
        for _ in range(3):
            await shard.ping()
        await settled()
        assert store.begun["enqueue"] == 2
        gate.set()
        await asyncio.gather(*calls)


async def test_calls_over_many_jobs_take_only_a_few_places() -> None:
    async with guarded(max_running=4, max_bulk=1) as (shard, store):
        gates = [store.hold("count"), store.hold("scan")]
        counts = [asyncio.create_task(pending(shard)) for _ in range(10)]
        await store.until_begun("count")
        await settled()
        assert len(await shard.enqueue("mail", [Job(b"x")], NOW_MS)) == 1
        assert store.begun["count"] == 1
        for gate in gates:
            gate.set()
        await asyncio.gather(*counts)


async def test_opening_again_joins_the_open_under_way() -> None:
    store = Breaking(SqliteShard("sqlite://", "1"))
    shard = ResilientShard(store)
    time = HeldTime()
    gate = store.hold("open")
    late = asyncio.create_task(shard.open())
    await store.until_begun("open")
    await time.leap(10)
    with pytest.raises(OutcomeUnknown):
        await late
    gate.set()
    assert await shard.open()
    assert store.begun["open"] == 1
    await shard.close()


# -- half of the deadline --------------------------------------------------------------------------------------------


async def enqueueing(shard: ResilientShard, store: Breaking, times: int = 1) -> asyncio.Task[list[str]]:
    call = asyncio.create_task(shard.enqueue("mail", [Job(b"x")], NOW_MS))
    await store.until_begun("enqueue", times)
    return call


async def after_a_missed_deadline(shard: ResilientShard, store: Breaking) -> HeldTime:
    """A deadline of 10 s; the time stands still since then."""
    time = HeldTime()
    store.hold("enqueue")
    slow = await enqueueing(shard, store)
    await time.leap(10)
    with pytest.raises(OutcomeUnknown):
        await slow
    return time


async def test_while_a_call_is_past_half_its_deadline_no_other_starts_but_a_ping() -> None:
    async with guarded(deadline_ms=10_000) as (shard, store):
        time = HeldTime()
        gate = store.hold("enqueue")
        slow = await enqueueing(shard, store)
        await time.leap(4.9)
        assert await shard.count_ready("mail", (1,), 1, NOW_MS) == [0]
        await time.leap(0.1)
        for call in (shard.count_ready("mail", (1,), 1, NOW_MS), shard.enqueue("mail", [Job(b"y")], NOW_MS)):
            with pytest.raises(ShardSlow):
                await call
        assert (store.begun["count_ready"], store.begun["enqueue"]) == (1, 1)
        assert (await shard.ping()).store_id
        gate.set()
        assert len(await slow) == 1
        assert await shard.count_ready("mail", (1,), 1, NOW_MS) == [1]


async def test_who_waits_for_a_turn_is_refused_as_soon_as_a_call_is_past_half_its_deadline() -> None:
    async with guarded(deadline_ms=10_000, max_running=1) as (shard, store):
        time = HeldTime()
        gate = store.hold("enqueue")
        slow = await enqueueing(shard, store)
        waiting = asyncio.create_task(shard.enqueue("mail", [Job(b"y")], NOW_MS))
        await time.leap(4)
        assert not waiting.done()
        await time.leap(1)
        with pytest.raises(ShardSlow) as refused:
            await waiting
        assert refused.value.code is ErrorCode.SHARD_CONNECTION_FAILED
        assert refused.value.retryable
        gate.set()
        await slow


async def test_a_second_slow_call_is_noticed_too() -> None:
    async with guarded(deadline_ms=10_000, max_running=2) as (shard, store):
        time = HeldTime()
        gate = store.hold("enqueue")
        first = await enqueueing(shard, store)
        await time.leap(3)
        other_gate = store.hold("enqueue")
        second = await enqueueing(shard, store, 2)
        await time.leap(2.5)
        gate.set()
        await first
        assert await shard.count_ready("mail", (1,), 1, NOW_MS) == [1]
        await time.leap(2.5)
        with pytest.raises(ShardSlow):
            await shard.count_ready("mail", (1,), 1, NOW_MS)
        other_gate.set()
        await second


async def test_after_a_missed_deadline_no_call_starts_until_the_store_answered_a_ping() -> None:
    """Else each of the next callers would wait its whole deadline, until three of them are a verdict."""
    async with guarded(deadline_ms=10_000) as (shard, store):
        await after_a_missed_deadline(shard, store)
        with pytest.raises(ShardSlow):
            await shard.count_ready("mail", (1,), 1, NOW_MS)
        await shard.ping()
        assert await shard.count_ready("mail", (1,), 1, NOW_MS) == [0]


async def test_a_ping_that_is_answered_late_lets_no_call_start_after_a_missed_deadline() -> None:
    async with guarded(deadline_ms=10_000) as (shard, store):
        time = await after_a_missed_deadline(shard, store)
        gate = store.hold("ping")
        ping = asyncio.create_task(shard.ping())
        await time.leap(6)
        gate.set()
        await ping
        with pytest.raises(ShardSlow):
            await shard.count_ready("mail", (1,), 1, NOW_MS)
        await shard.ping()
        assert await shard.count_ready("mail", (1,), 1, NOW_MS) == [0]


async def test_a_ping_that_missed_its_deadline_too_lets_no_call_start_when_it_is_answered() -> None:
    async with guarded(deadline_ms=10_000) as (shard, store):
        late = store.hold_answer("ping")
        ping = asyncio.create_task(shard.ping())
        await store.until_begun("ping")
        await until_quiet(store)
        time = await after_a_missed_deadline(shard, store)
        with pytest.raises(OutcomeUnknown):
            await ping
        late.set()
        await time.leap(0.1)
        with pytest.raises(ShardSlow):
            await shard.count_ready("mail", (1,), 1, NOW_MS)


async def test_after_a_missed_deadline_calls_start_again_a_deadline_later_though_nobody_pings() -> None:
    async with guarded(deadline_ms=10_000) as (shard, store):
        time = await after_a_missed_deadline(shard, store)
        await time.leap(9.9)
        with pytest.raises(ShardSlow):
            await shard.count_ready("mail", (1,), 1, NOW_MS)
        await time.leap(0.1)
        assert await shard.count_ready("mail", (1,), 1, NOW_MS) == [0]


async def test_calls_over_many_jobs_hold_up_only_each_other_and_do_not_pile_up() -> None:
    async with guarded(deadline_ms=10_000, max_bulk=1) as (shard, store):
        time = HeldTime()
        gate = store.hold("count")
        slow = asyncio.create_task(pending(shard))
        await store.until_begun("count")
        waiting = asyncio.create_task(pending(shard))
        await time.leap(5)
        assert len(await shard.enqueue("mail", [Job(b"x")], NOW_MS)) == 1
        for call in (waiting, pending(shard)):
            with pytest.raises(ShardSlow):
                await call
        gate.set()
        assert await slow == 1


# -- what is told of the calls ---------------------------------------------------------------------------------------


class Told:
    def __init__(self, shard: ResilientShard) -> None:
        self.all: list[tuple[str, bool, str]] = []
        shard.bulkhead.report = self

    def __call__(self, name: str, is_late: bool, error: BaseException | None) -> None:
        self.all.append((name, is_late, type(error).__name__ if error else ""))


async def test_each_call_to_the_store_is_told_of_once_when_it_ends() -> None:
    async with guarded(max_tries=2) as (shard, store):
        told = Told(shard)
        await shard.enqueue("mail", [Job(b"x")], NOW_MS)
        store.failures["enqueue"] = [StoreConflict("deadlock")]
        await shard.enqueue("mail", [Job(b"x")], NOW_MS)
        store.failures["enqueue"] = [StoreConflict("deadlock")] * 2
        with pytest.raises(StoreConflict):
            await shard.enqueue("mail", [Job(b"x")], NOW_MS)
        with pytest.raises(QueueNotFound):
            await shard.enqueue("nowhere", [Job(b"x")], NOW_MS)
        assert told.all == [
            ("enqueue", False, ""),
            ("enqueue", False, ""),
            ("enqueue", False, "StoreConflict"),
            ("enqueue", False, "QueueNotFound"),
        ]


async def test_a_slow_answer_is_late_and_a_call_without_one_is_told_of_at_its_deadline_alone() -> None:
    async with guarded(deadline_ms=10_000) as (shard, store):
        told = Told(shard)
        time = HeldTime()
        gate = store.hold("enqueue")
        slow = await enqueueing(shard, store)
        await time.leap(6)
        gate.set()
        await slow
        gate = store.hold("enqueue")
        hung = await enqueueing(shard, store, 2)
        await time.leap(10)
        with pytest.raises(OutcomeUnknown):
            await hung
        gate.set()
        await shard.bulkhead.drain()
        assert told.all == [("enqueue", True, ""), ("enqueue", True, "OutcomeUnknown")]


async def test_pings_those_that_never_began_and_slow_calls_over_many_jobs_are_not_told_of() -> None:
    async with guarded(deadline_ms=10_000, max_running=1, max_waiting=0) as (shard, store):
        told = Told(shard)
        time = HeldTime()
        gate = store.hold("enqueue")
        call = await enqueueing(shard, store)
        await shard.ping()
        with pytest.raises(Overloaded):
            await shard.count_ready("mail", (1,), 1, NOW_MS)
        gate.set()
        await call
        told.all.clear()
        store.hold("count")
        slow = asyncio.create_task(pending(shard))
        await store.until_begun("count")
        await time.leap(10)
        with pytest.raises(NothingStored):
            await slow
        assert told.all == []


# -- the time at which a claim goes ----------------------------------------------------------------------------------


async def test_a_claim_goes_by_the_time_at_which_it_leaves_and_where_that_is_uncertain_begins_at_the_latest() -> None:
    clock = HeldClock(NOW_MS)
    store = Breaking(SqliteShard("sqlite://", "1"))
    shard = ResilientShard(store, BulkheadSettings(max_running=1), clock)
    await shard.open()
    await make_queue(shard, "mail", NOW_MS)
    request = ClaimRequest("c:1:1:1:me", 1, (1,), 30_000, 2**20)
    gate = store.hold("enqueue")
    before = await enqueueing(shard, store)
    waits = asyncio.create_task(shard.claim("mail", [request], clock.now_ms()))
    await settled()
    clock.tick(700)
    clock.uncertainty_ms = 3_000
    gate.set()
    await before
    ((job,),) = await waits
    assert store.sent["claim"][0][2] == NOW_MS + 700
    assert job.claim_expires_at_ms == NOW_MS + 700 + 3_000 + 30_000
    assert request.spare_ms == 0
    (descriptor,) = await shard.enqueue("mail", [Job(b"")], NOW_MS)
    ref = parse_descriptor(descriptor)
    assert ref is not None
    (answer,) = await shard.claim_listed("mail", [JobKey(ref.priority, ref.id)], request, NOW_MS)
    assert answer.job is not None
    assert answer.job.claim_expires_at_ms == job.claim_expires_at_ms
    await shard.claim("mail", [request], MAX_TIME_MS)
    assert store.sent["claim"][1][2] == MAX_TIME_MS  # the overflow shard asks for all there is, as from the end of time
    await shard.close()


class _Noting(ShardDecorator):
    """Notes by how much the now of each claim is ahead of the clock when it comes to the store."""

    def __init__(self, inner: Shard) -> None:
        super().__init__(inner)
        self.ahead_ms: list[int] = []

    async def claim(
        self, queue: str, requests: Sequence[ClaimRequest], now_ms: int, *, enforce_quota: bool = False
    ) -> list[list[DequeuedJob]]:
        self.ahead_ms.append(now_ms - SystemClock().now_ms())
        return await self.inner.claim(queue, requests, now_ms, enforce_quota=enforce_quota)


def test_claims_that_were_joined_are_never_ahead_of_the_clock_on_uvloop() -> None:
    """Its time has whole milliseconds, which change at other moments than those of the clock."""

    async def claims() -> list[int]:
        clock, store = SystemClock(), _Noting(SqliteShard("sqlite://", "1"))
        shard = BatchingShard(ResilientShard(store, None, clock))
        await shard.open()
        await make_queue(shard, "mail", clock.now_ms())
        request = ClaimRequest("c:1:1:1:me", 1, (1,), 30_000, 2**20)

        async def poll() -> None:
            for _ in range(300):
                await shard.claim("mail", [request], clock.now_ms())

        await asyncio.gather(*[poll() for _ in range(4)])
        await shard.close()
        return store.ahead_ms

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        ahead_ms = runner.run(claims())
    assert len(ahead_ms) > 300
    assert max(ahead_ms) <= 0


async def test_a_claim_that_was_joined_goes_by_the_clock_and_not_by_the_time_of_the_loop() -> None:
    clock, store = HeldClock(NOW_MS), Breaking(SqliteShard("sqlite://", "1"))
    shard = BatchingShard(ResilientShard(store, None, clock))
    await shard.open()
    await make_queue(shard, "mail", NOW_MS)
    time = HeldTime()
    request = ClaimRequest("c:1:1:1:me", 1, (1,), 30_000, 2**20)
    gate = store.hold("claim")
    first = asyncio.create_task(shard.claim("mail", [request], NOW_MS))
    await store.until_begun("claim")
    joined = asyncio.create_task(shard.claim("mail", [request], NOW_MS))
    await settled()
    await time.leap(0.001)
    gate.set()
    await asyncio.gather(first, joined)
    assert [args[2] for args in store.sent["claim"]] == [NOW_MS, NOW_MS]
    await shard.close()
