"""One sick shard of several: nobody waits for it beyond one deadline, and after the verdict not at all."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.errors import NothingStored, OutcomeUnknown, PinLaterError, ShardConnectionFailed, StoreConflict
from pinlater.model import Job, parse_descriptor
from pinlater.shards.handle import ShardHandle
from tests.unit.breaking import Breaking, HeldTime, settled
from tests.unit.stand import Stand, acks, stand

DEADLINE_S = 10.0
WITHIN_S = 60.0


def sick(at: Stand) -> tuple[Breaking, ShardHandle]:
    return at.stores[0], at.members.all[0]


def shard_of(descriptor: str) -> str:
    ref = parse_descriptor(descriptor)
    assert ref is not None
    return ref.shard


async def enqueued(at: Stand, time: HeldTime) -> tuple[float, list[str] | PinLaterError]:
    return await time.taken(at.service.enqueue("mail", [Job(b"x")]))


async def out_of_use(member: ShardHandle) -> None:
    async with asyncio.timeout(WITHIN_S):
        while member.is_healthy:
            await asyncio.sleep(0)


async def serves_as_if_alone(at: Stand, time: HeldTime) -> None:
    """After the verdict: every call is answered at once, by the shard that is left."""
    store, _ = sick(at)
    asked = store.begun.total()
    for _ in range(5):
        seconds, outcome = await enqueued(at, time)
        assert (seconds, isinstance(outcome, list)) == (0, True)
        seconds, outcome = await time.taken(at.dequeue(1))
        assert (seconds, isinstance(outcome, list)) == (0, True)
    assert store.begun.total() == asked


async def comes_back(at: Stand) -> None:
    """After the first pause, a second, by pings alone."""
    store, member = sick(at)
    store.heal()
    at.clock.tick(999)
    await at.members.check(member)
    assert not member.health.is_probing
    at.clock.tick(1)
    for _ in range(3):
        assert not member.is_healthy
        await at.members.check(member)
        at.clock.tick(500)
    assert member.is_healthy
    placed = {shard_of((await at.service.enqueue("mail", [Job(b"x")]))[0]) for _ in range(60)}
    assert placed == {"1", "2"}


async def test_a_shard_that_refuses_connections() -> None:
    async with stand(2) as at:
        time = HeldTime(*at.stores)
        store, member = sick(at)
        store.broken = NothingStored("connection refused")
        while not store.begun["enqueue"]:
            seconds, outcome = await enqueued(at, time)
            assert seconds == 0
            assert isinstance(outcome, list)
        await out_of_use(member)
        assert store.begun["enqueue"] == 1, "a ping confirmed the first refusal"
        await serves_as_if_alone(at, time)
        await comes_back(at)


async def test_one_refusal_that_a_ping_does_not_confirm_is_no_verdict() -> None:
    async with stand(2) as at:
        store, member = sick(at)
        pings = store.begun["ping"]
        store.failures["enqueue"] = [NothingStored("out of memory")] * 2
        while len(store.failures["enqueue"]):
            await at.service.enqueue("mail", [Job(b"x")])
        await store.until_begun("ping", pings + 1)
        await store.until_quiet()
        await settled()
        assert member.is_healthy


async def test_a_shard_that_accepts_and_never_answers() -> None:
    async with stand(2) as at:
        time = HeldTime(*at.stores)
        store, member = sick(at)
        store.hold_all()
        calls = [asyncio.create_task(at.service.enqueue("mail", [Job(b"x")])) for _ in range(20)]
        await store.until_begun("enqueue")
        seconds, _ = await time.taken(at.dequeue(1))
        assert seconds <= DEADLINE_S / 2
        assert member.is_healthy
        for _ in range(10):
            seconds, outcome = await enqueued(at, time)
            assert seconds == 0, "no other call starts there"
            assert isinstance(outcome, list)
        await time.leap(DEADLINE_S / 2)
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(outcome, OutcomeUnknown) for outcome in outcomes) == 1
        assert sum(isinstance(outcome, list) for outcome in outcomes) == 19
        for _ in range(3):
            await time.taken(at.members.check(member))
        assert not member.is_healthy
        await serves_as_if_alone(at, time)
        await comes_back(at)


async def test_a_shard_that_answers_slowly() -> None:
    async with stand(2) as at:
        time = HeldTime(*at.stores)
        store, member = sick(at)
        while member.is_healthy:
            gate = store.hold("enqueue")
            slow = asyncio.create_task(member.shard.enqueue("mail", [Job(b"x")], at.clock.now_ms()))
            await time.leap(DEADLINE_S / 2 + 1)
            seconds, outcome = await enqueued(at, time)
            assert seconds == 0
            assert isinstance(outcome, list)
            gate.set()
            assert len(await slow) == 1
            assert store.begun["enqueue"] <= 26
        await serves_as_if_alone(at, time)
        await comes_back(at)


async def test_a_shard_that_dead_locks_all_the_time() -> None:
    async with stand(2) as at:
        time = HeldTime(*at.stores)
        store, member = sick(at)
        store.failures["enqueue"] = [StoreConflict("deadlock")] * 1_000
        while member.is_healthy:
            seconds, outcome = await enqueued(at, time)
            assert seconds < 1
            assert isinstance(outcome, list)
            await at.members.check(member)
            await time.taken(at.dequeue(1))
            assert store.begun["enqueue"] <= 12
        await serves_as_if_alone(at, time)
        await comes_back(at)


async def test_conflicts_that_a_retry_solves_are_no_sickness() -> None:
    async with stand(1) as at:
        store, member = sick(at)
        for _ in range(30):
            store.failures["enqueue"] = [StoreConflict("deadlock")] * 2
            await at.service.enqueue("mail", [Job(b"x")])
        assert member.is_healthy


async def test_calls_that_name_jobs_on_a_shard_that_is_held_up_fail_at_once_after_the_others_were_done() -> None:
    async with stand(2) as at:
        time = HeldTime(*at.stores)
        store, _ = sick(at)
        for each in at.stores:
            await each.inner.enqueue("mail", [Job(b"x")], at.clock.now_ms())
        jobs = await at.dequeue(2)
        assert len(jobs) == 2
        gate = store.hold("cancel")
        slow = asyncio.create_task(at.members.all[0].shard.cancel("mail", [], at.clock.now_ms()))
        await store.until_begun("cancel")
        await time.leap(DEADLINE_S / 2)
        seconds, outcome = await time.taken(at.service.ack("mail", acks(jobs), []))
        assert seconds == 0
        assert isinstance(outcome, ShardConnectionFailed)
        assert at.stores[1].begun["ack"] == 1
        assert store.begun["ack"] == 0
        gate.set()
        await slow


async def test_what_a_slow_shard_brings_after_the_answer_is_requeued() -> None:
    async with stand(2) as at:
        time = HeldTime(*at.stores)
        store, _ = sick(at)
        for each in at.stores:
            await each.inner.enqueue("mail", [Job(b"x")], at.clock.now_ms())
        gate = store.hold("claim")
        seconds, jobs = await time.taken(at.dequeue(2))
        assert seconds == DEADLINE_S / 2
        assert isinstance(jobs, list)
        assert [shard_of(job.descriptor) for job in jobs] == ["2"]
        gate.set()
        await store.until_begun("requeue")
        await at.router.compensator.drain()
        assert [shard_of(job.descriptor) for job in await at.dequeue(2)] == ["1"]


async def test_a_dequeue_waits_for_a_slow_shard_when_no_other_has_answered() -> None:
    async with stand(2) as at:
        time = HeldTime(*at.stores)
        gates = [store.hold("count_ready") for store in at.stores]
        call = asyncio.create_task(at.dequeue(1))
        for store in at.stores:
            await store.until_begun("count_ready")
        await time.leap(DEADLINE_S / 2 + 1)
        assert not call.done()
        gates[1].set()
        assert await call == []


@pytest.mark.parametrize("dequeue_only", [(), (2,)])
async def test_while_no_other_shard_serves_in_its_place_a_shard_is_tried_again_each_second(
    dequeue_only: tuple[int, ...],
) -> None:
    async with stand(2, dequeue_only=dequeue_only) as at:
        _, member = sick(at)
        store, _ = sick(at)
        if not dequeue_only:
            at.members.all[1].eject("it is away too")
        member.eject("it was away")
        for _ in range(5):
            at.clock.tick(1_000)
            store.failures["ping"] = [OutcomeUnknown("reset")]
            await at.members.check(member)
            assert member.view().next_try_ms == at.clock.now_ms() + 1_000
        at.clock.tick(999)
        await at.members.check(member)
        assert not member.health.is_probing
        at.clock.tick(1)
        await at.members.check(member)
        assert member.health.is_probing
        assert member.view().state == "probing"
        assert member.view().next_try_ms == at.clock.now_ms() + 500


async def test_a_probe_that_fails_is_a_longer_pause_up_to_the_bound() -> None:
    async with stand(2) as at:
        store, member = sick(at)
        member.eject("it was away")
        pauses_s = []
        for _ in range(8):
            next_try_ms = member.view().next_try_ms
            assert next_try_ms is not None
            pauses_s.append((next_try_ms - at.clock.now_ms()) // 1_000)
            at.clock.tick(next_try_ms - at.clock.now_ms())
            await at.members.check(member)
            store.failures["ping"] = [OutcomeUnknown("reset")]
            at.clock.tick(500)
            await at.members.check(member)
            assert member.view().state == "out"
            assert member.last_error == "reset"
        assert pauses_s == [1, 2, 4, 8, 16, 32, 60, 60]


async def test_a_shard_that_answers_pings_and_takes_no_job_is_soon_tried_as_rarely_as_one_that_is_gone() -> None:
    async with stand(2) as at:
        time = HeldTime(*at.stores)
        store, member = sick(at)
        store.failures["enqueue"] = [OutcomeUnknown("reset")] * 1_000
        failed = 0
        for _ in range(10):
            asked = store.begun["enqueue"]
            while member.is_healthy:
                await enqueued(at, time)
            failed += store.begun["enqueue"] - asked
            next_try_ms = member.view().next_try_ms
            assert next_try_ms is not None
            at.clock.tick(next_try_ms - at.clock.now_ms())
            for _ in range(3):
                await at.members.check(member)
                at.clock.tick(500)
        assert failed == 30
        member.eject("once more")
        assert member.view().next_try_ms == at.clock.now_ms() + 60_000


async def test_a_shard_that_is_well_again_is_there_when_the_other_one_goes() -> None:
    """With the settings as they come: a fault of some seconds costs no more than about as long again."""
    async with stand(2) as at:
        store, member = sick(at)
        other_store, other = at.stores[1], at.members.all[1]
        store.broken = NothingStored("connection refused")
        for _ in range(3):
            await at.members.check(member)
        assert not member.is_healthy

        async def seconds(count: int) -> None:
            for _ in range(2 * count):
                at.clock.tick(500)
                await at.members.check(member)

        await seconds(5)
        store.heal()
        await seconds(5)
        assert member.is_healthy
        other_store.broken = NothingStored("connection refused")
        for _ in range(3):
            await at.members.check(other)
        assert not other.is_healthy
        assert len(await at.service.enqueue("mail", [Job(b"x")])) == 1
