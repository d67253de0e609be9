"""Small calls joined while one is under way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pinlater.backends.base import AckOutcome, AckRequest, ClaimRequest, JobKey
from pinlater.backends.extended import KeyHolder, Offer, OfferOutcome
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.errors import OutcomeUnknown, Overloaded, QueueNotFound, UnknownError
from pinlater.model import ExtendedJob, Job, JobState, KeyRef, OnDuplicate, parse_descriptor
from pinlater.shards.batching import BatchingShard, BatchLimits
from pinlater.shards.bulkhead import AcquireTimeout, BulkheadSettings, ShardSlow
from pinlater.shards.resilience import ResilientShard
from tests.queues import make_queue
from tests.unit.breaking import Breaking, HeldTime, settled

NOW_MS = 1_790_000_000_000


@asynccontextmanager
async def joining(**bounds: int) -> AsyncIterator[tuple[BatchingShard, Breaking]]:
    store = Breaking(SqliteShard("sqlite://", "1"))
    shard = BatchingShard(store, BatchLimits(**bounds))
    await shard.open()
    await make_queue(shard, "mail", NOW_MS)
    try:
        yield shard, store
    finally:
        for gate in store.gates.values():
            gate.set()
        await shard.close()


def claim_of(number: int, limit: int = 1) -> ClaimRequest:
    return ClaimRequest(f"h:1:1:{number}:me", limit, (1, 2, 3), 60_000, 2**20)


async def enqueues(shard: BatchingShard, *bodies: bytes, queue: str = "mail") -> list[asyncio.Task[list[str]]]:
    tasks = []
    for body in bodies:
        tasks.append(asyncio.create_task(shard.enqueue(queue, [Job(body)], NOW_MS)))
        await settled()
    return tasks


async def test_with_nothing_under_way_each_call_goes_alone() -> None:
    async with joining() as (shard, store):
        for _ in range(3):
            await shard.enqueue("mail", [Job(b"x")], NOW_MS)
        assert store.begun["enqueue"] == 3


async def test_what_comes_meanwhile_leaves_as_one_batch_in_order_and_each_gets_its_own_answer() -> None:
    async with joining() as (shard, store):
        gate = store.hold("enqueue")
        tasks = await enqueues(shard, b"0", b"1", b"2", b"3")
        gate.set()
        answers = await asyncio.gather(*tasks)
        assert [[job.body for job in args[1]] for args in store.sent["enqueue"]] == [[b"0"], [b"1", b"2", b"3"]]
        descriptors = [descriptor for (descriptor,) in answers]
        assert descriptors == sorted(set(descriptors))


async def test_queues_do_not_wait_for_each_other() -> None:
    async with joining() as (shard, store):
        await make_queue(shard, "other", NOW_MS)
        store.hold("enqueue")
        await enqueues(shard, b"0")
        await enqueues(shard, b"1", queue="other")
        assert store.begun["enqueue"] == 2


async def test_a_batch_is_bounded_in_jobs_and_in_bytes() -> None:
    async with joining(max_jobs=2, max_bytes=10) as (shard, store):
        gate = store.hold("enqueue")
        tasks = await enqueues(shard, b"0", b"1", b"2", b"3", b"x" * 8, b"y" * 8)
        gate.set()
        await asyncio.gather(*tasks)
        assert [len(args[1]) for args in store.sent["enqueue"]] == [1, 2, 2, 1]


async def test_a_large_call_does_not_wait() -> None:
    async with joining(bypass_jobs=3) as (shard, store):
        store.hold("enqueue")
        await enqueues(shard, b"0")
        big = asyncio.create_task(shard.enqueue("mail", [Job(b"x")] * 3, NOW_MS))
        await store.until_begun("enqueue", 2)
        store.gates["enqueue"].set()
        assert len(await big) == 3


async def test_large_calls_wait_where_those_under_way_have_all_the_bytes_there_may_be() -> None:
    async with joining(bypass_jobs=2, max_bytes=40) as (shard, store):
        gate = store.hold("enqueue")
        tasks = [
            asyncio.create_task(shard.enqueue("mail", [Job(bytes([65 + number]) * 10)] * 2, NOW_MS))
            for number in range(5)
        ]
        await settled()
        assert store.begun["enqueue"] == 3  # the first, and two large ones
        gate.set()
        assert [len(await task) for task in tasks] == [2] * 5
        assert store.begun["enqueue"] == 4  # the others together
        again = store.hold("enqueue")
        tasks = [asyncio.create_task(shard.enqueue("mail", [Job(b"x" * 10)] * 2, NOW_MS)) for _ in range(3)]
        await settled()
        assert store.begun["enqueue"] == 7  # what went alone has given its bytes back
        again.set()
        await asyncio.gather(*tasks)


async def test_one_caller_too_many_is_refused() -> None:
    async with joining(max_waiting=1) as (shard, store):
        gate = store.hold("enqueue")
        tasks = await enqueues(shard, b"0", b"1")
        with pytest.raises(Overloaded) as refused:
            await shard.enqueue("mail", [Job(b"2")], NOW_MS)
        assert refused.value.limit == "waiting_joined_calls"
        gate.set()
        await asyncio.gather(*tasks)


async def test_a_caller_that_left_before_its_batch_is_not_sent() -> None:
    async with joining() as (shard, store):
        gate = store.hold("enqueue")
        tasks = await enqueues(shard, b"0", b"1", b"2")
        tasks[1].cancel()
        gate.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert await shard.count("mail", JobState.PENDING, (1,), False, NOW_MS) == 2


async def test_each_claim_gets_its_own_jobs_in_order_of_arrival_under_its_own_name() -> None:
    async with joining() as (shard, store):
        await shard.enqueue("mail", [Job(b"%d" % number) for number in range(3)], NOW_MS)
        gate = store.hold("claim")
        tasks = []
        for number in range(4):
            tasks.append(asyncio.create_task(shard.claim("mail", [claim_of(number)], NOW_MS)))
            await settled()
        gate.set()
        answers = await asyncio.gather(*tasks)
        bodies = [[(job.body, job.claim_descriptor) for job in jobs] for (jobs,) in answers]
        assert bodies == [
            [(b"0", "h:1:1:0:me")],
            [(b"1", "h:1:1:1:me")],
            [(b"2", "h:1:1:2:me")],
            [],
        ]
        assert store.begun["claim"] == 2


async def test_what_a_joined_claim_brings_for_a_caller_that_left_is_requeued() -> None:
    async with joining() as (shard, store):
        await shard.enqueue("mail", [Job(b"0"), Job(b"1"), Job(b"2")], NOW_MS)
        gate = store.hold("claim")
        tasks = []
        for number in range(3):
            tasks.append(asyncio.create_task(shard.claim("mail", [claim_of(number)], NOW_MS)))
            await settled()
        store.gates["claim"] = asyncio.Event()
        gate.set()
        await store.until_begun("claim", 2)
        tasks[1].cancel()
        await settled()
        store.gates["claim"].set()
        await asyncio.gather(*tasks, return_exceptions=True)
        await store.until_begun("requeue")
        await shard.drain()
        assert await shard.count("mail", JobState.PENDING, (1,), False, NOW_MS) == 1


async def test_acks_are_joined_and_sent_also_for_a_caller_that_left() -> None:
    async with joining() as (shard, store):
        descriptors = await shard.enqueue("mail", [Job(b"0"), Job(b"1"), Job(b"2")], NOW_MS)
        await shard.claim("mail", [claim_of(1, 3)], NOW_MS)
        requests = [AckRequest(ref.priority, ref.id, True) for ref in map(parse_descriptor, descriptors) if ref]
        gate = store.hold("ack")
        tasks = []
        for request in requests:
            tasks.append(asyncio.create_task(shard.ack("mail", [request], NOW_MS)))
            await settled()
        tasks[1].cancel()
        gate.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert answers[0] == answers[2] == [AckOutcome.SUCCEEDED]
        assert store.begun["ack"] == 2
        assert await shard.count("mail", JobState.SUCCEEDED, (1,), False, NOW_MS) == 3


async def test_a_batch_that_one_member_spoils_is_sent_member_by_member() -> None:
    async with joining() as (shard, store):
        gate = store.hold("enqueue")
        tasks = await enqueues(shard, b"0", b"1", b"2")
        store.failures["enqueue"] = [UnknownError("one of them"), UnknownError("this one")]
        gate.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(answer) for answer in answers] == [list, UnknownError, list]


async def test_after_an_unknown_outcome_no_member_is_sent_again() -> None:
    async with joining() as (shard, store):
        gate = store.hold("enqueue")
        tasks = await enqueues(shard, b"0", b"1", b"2")
        store.losses["enqueue"] = [None, OutcomeUnknown("reset")]
        gate.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        unknown = [answer for answer in answers if isinstance(answer, OutcomeUnknown)]
        assert len(unknown) == len(set(map(id, unknown))) == 2
        assert store.begun["enqueue"] == 2
        assert await shard.count("mail", JobState.PENDING, (1,), False, NOW_MS) == 3


async def test_a_batch_that_found_no_permit_is_not_sent_member_by_member() -> None:
    async with joining() as (shard, store):
        gate = store.hold("enqueue")
        store.failures["enqueue"] = [None, AcquireTimeout("busy")]
        tasks = await enqueues(shard, b"0", b"1", b"2")
        gate.set()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [list, AcquireTimeout, AcquireTimeout]
        assert outcomes[1] is not outcomes[2]
        assert store.begun["enqueue"] == 2


async def test_an_unknown_queue_is_every_member_s_answer() -> None:
    async with joining() as (shard, store):
        gate = store.hold("enqueue")
        tasks = await enqueues(shard, b"0", b"1", b"2", queue="nowhere")
        gate.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(answer) for answer in answers] == [QueueNotFound] * 3
        assert store.begun["enqueue"] == 2


async def test_closing_sends_what_waits() -> None:
    store = Breaking(SqliteShard("sqlite://", "1"))
    shard = BatchingShard(store)
    await shard.open()
    await make_queue(shard, "mail", NOW_MS)
    gate = store.hold("enqueue")
    tasks = await enqueues(shard, b"0", b"1")
    closing = asyncio.create_task(shard.close())
    await settled()
    assert store.begun["close"] == 0
    gate.set()
    assert all(await asyncio.gather(*tasks))
    await closing


@asynccontextmanager
async def guarded_and_joining(deadline_ms: int = 10_000) -> AsyncIterator[tuple[BatchingShard, Breaking, HeldTime]]:
    store = Breaking(SqliteShard("sqlite://", "1"))
    shard = BatchingShard(ResilientShard(store, BulkheadSettings(deadline_ms=deadline_ms)))
    await shard.open()
    await make_queue(shard, "mail", NOW_MS)
    try:
        yield shard, store, HeldTime()
    finally:
        for gate in store.gates.values():
            gate.set()
        await shard.close()


async def test_who_waits_for_a_batch_is_refused_as_soon_as_the_one_under_way_is_past_half_its_deadline() -> None:
    async with guarded_and_joining() as (shard, store, time):
        gate = store.hold("enqueue")
        first, *waiting = await enqueues(shard, b"0", b"1", b"2")
        await time.leap(5)
        for call in [*waiting, *await enqueues(shard, b"3")]:
            with pytest.raises(ShardSlow):
                await call
        gate.set()
        assert len(await first) == 1
        assert store.begun["enqueue"] == 1


async def test_no_caller_waits_for_more_than_one_deadline_however_many_batches_are_slow() -> None:
    async with guarded_and_joining() as (shard, store, time):
        gate = store.hold("enqueue")
        first, joined = await enqueues(shard, b"0", b"1")
        await time.leap(4.9)
        store.hold("enqueue")
        gate.set()
        await first
        await store.until_begun("enqueue", 2)
        await time.leap(5)
        assert not joined.done()
        await time.leap(0.2)
        with pytest.raises(OutcomeUnknown):
            await joined


async def test_a_claim_that_comes_after_its_caller_waited_for_a_whole_deadline_is_requeued() -> None:
    async with guarded_and_joining() as (shard, store, time):
        await shard.enqueue("mail", [Job(b"0"), Job(b"1")], NOW_MS)
        gates = [store.hold("claim")]
        calls = [asyncio.create_task(shard.claim("mail", [claim_of(number)], NOW_MS)) for number in range(2)]
        await store.until_begun("claim")
        await time.leap(4.9)
        gates.append(store.hold("claim"))
        gates[0].set()
        assert len((await calls[0])[0]) == 1
        await store.until_begun("claim", 2)
        await time.leap(5.2)
        with pytest.raises(OutcomeUnknown):
            await calls[1]
        gates[1].set()
        await store.until_begun("requeue")
        await shard.drain()
        assert await shard.count("mail", JobState.PENDING, (1,), False, NOW_MS) == 1


async def test_an_ack_that_was_refused_while_it_waited_is_not_sent_later() -> None:
    async with guarded_and_joining() as (shard, store, time):
        descriptors = await shard.enqueue("mail", [Job(b"0"), Job(b"1")], NOW_MS)
        await shard.claim("mail", [claim_of(1, 2)], NOW_MS)
        requests = [AckRequest(ref.priority, ref.id, True) for ref in map(parse_descriptor, descriptors) if ref]
        gate = store.hold("ack")
        calls = [asyncio.create_task(shard.ack("mail", [request], NOW_MS)) for request in requests]
        await store.until_begun("ack")
        await time.leap(5)
        with pytest.raises(ShardSlow):
            await calls[1]
        gate.set()
        await calls[0]
        await shard.drain()
        assert store.begun["ack"] == 1


# -- extended jobs, and lookups ----------------------------------------------------------------------------------------


async def test_offers_of_several_callers_go_together_and_each_is_answered_for_its_own() -> None:
    async with joining() as (shard, store):
        gate = store.hold("enqueue_extended")
        tasks = []
        for key in ("a", "b", "a", "c"):
            job = ExtendedJob(b"", dedupe_key=key, on_duplicate=OnDuplicate.REJECT)
            tasks.append(asyncio.create_task(shard.enqueue_extended("mail", [Offer(job)], NOW_MS)))
            await settled()
        gate.set()
        answers = [answer for (answer,) in await asyncio.gather(*tasks)]
        stored, rejected = OfferOutcome.STORED, OfferOutcome.REJECTED
        assert [answer.outcome for answer in answers] == [stored, stored, rejected, stored]
        assert answers[2].descriptor == answers[0].descriptor
        assert store.begun["enqueue_extended"] == 2
        assert await shard.find_keys("mail", [KeyRef("b"), KeyRef("d")]) == [KeyHolder(answers[1].descriptor), None]


async def test_offers_that_go_by_other_homes_of_keys_go_apart() -> None:
    async with joining() as (shard, store):
        gate = store.hold("enqueue_extended")
        tasks = []
        for version in ("", "", "1790000000000000-00000000"):
            offer = Offer(ExtendedJob(b"", dedupe_key="a"))
            tasks.append(asyncio.create_task(shard.enqueue_extended("mail", [offer], NOW_MS, version)))
            await settled()
        gate.set()
        await asyncio.gather(*tasks)
        assert store.begun["enqueue_extended"] == 3


async def test_lookups_without_bodies_go_together_and_those_with_bodies_alone() -> None:
    async with joining() as (shard, store):
        descriptors = await shard.enqueue("mail", [Job(b"%d" % number) for number in range(4)], NOW_MS)
        refs = [ref for each in descriptors if (ref := parse_descriptor(each)) is not None]
        keys = [JobKey(ref.priority, ref.id) for ref in refs]
        for with_body, calls in ((False, 2), (True, 4)):
            before = store.begun["lookup"]
            gate = store.hold("lookup")
            tasks = []
            for key in keys:
                look = shard.lookup("mail", [key], with_body=with_body, max_bytes=100, with_result=not with_body)
                tasks.append(asyncio.create_task(look))
                await settled()
            gate.set()
            infos = [info for (info,) in await asyncio.gather(*tasks)]
            assert [info and info.descriptor for info in infos] == descriptors
            assert store.begun["lookup"] - before == calls


async def test_a_joined_lookup_leaves_no_result_out() -> None:
    async with joining() as (shard, store):
        jobs = [Job(b"", attempts_allowed=1)] * 3
        descriptors = await shard.enqueue("mail", jobs, NOW_MS)
        (claimed,) = await shard.claim("mail", [claim_of(1, 3)], NOW_MS)
        refs = [ref for job in claimed if (ref := parse_descriptor(job.descriptor)) is not None]
        keys = [JobKey(ref.priority, ref.id) for ref in refs]
        large = b"x" * (30 * 2**20)
        await shard.ack("mail", [AckRequest(*key, True, result=large) for key in keys], NOW_MS)
        gate = store.hold("lookup")
        tasks = []
        for key in (keys[0], *keys):
            look = shard.lookup("mail", [key], with_body=False, max_bytes=2**20, with_result=True)
            tasks.append(asyncio.create_task(look))
            await settled()
        gate.set()
        found = [info for (info,) in await asyncio.gather(*tasks)]
        assert [len(info.result or b"") for info in found if info is not None] == [len(large)] * 4
        assert len(descriptors) == 3


async def test_joined_lookups_keep_to_what_each_caller_may_get_of_results() -> None:
    async with joining() as (shard, store):
        await shard.enqueue("mail", [Job(b"", attempts_allowed=1)] * 2, NOW_MS)
        (claimed,) = await shard.claim("mail", [claim_of(1, 2)], NOW_MS)
        refs = [ref for job in claimed if (ref := parse_descriptor(job.descriptor)) is not None]
        keys = [JobKey(ref.priority, ref.id) for ref in refs]
        await shard.ack("mail", [AckRequest(*key, True, result=b"x" * 600) for key in keys], NOW_MS)
        gate = store.hold("lookup")
        tasks = []
        for max_bytes in (1000, 1000, 2000):
            look = shard.lookup("mail", keys, with_body=False, max_bytes=max_bytes, with_result=True)
            tasks.append(asyncio.create_task(look))
            await settled()
        gate.set()
        found = [
            [info is not None and info.result is not None for info in infos] for infos in await asyncio.gather(*tasks)
        ]
        assert found == [[True, False], [True, False], [True, True]]
