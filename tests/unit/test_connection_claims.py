"""Claims that are bound to connections, with the time and the connections in hand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from pinlater.errors import NothingStored, OutcomeUnknown, Overloaded, ShardConnectionFailed
from pinlater.model import (
    Ack,
    Checkpoint,
    ConnectionRef,
    DequeuedJob,
    DequeueRequest,
    Job,
    JobInfo,
    JobState,
    RequestContext,
)
from pinlater.service import Service, ServiceSettings, connection_claims
from pinlater.service.descriptors import ClaimTokens, bound_timeout
from tests.unit.breaking import HeldTime, settled
from tests.unit.several import several
from tests.unit.stand import ME, Stand, stand

LONG = ServiceSettings(release_grace_ms=600_000, poll_min_ms=50_000, poll_max_ms=60_000)
"""No grace ends, and nobody polls for what was not reported, within a test."""

LEASE_MS = 300_000


def by(connection: ConnectionRef) -> RequestContext:
    return RequestContext("me", connection=connection)


async def take(service: Service, connection: ConnectionRef, limit: int = 10, **fields: object) -> list[DequeuedJob]:
    """By way of a connection, and bound to it."""
    request = DequeueRequest("mail", limit, release_on_disconnect=True, **fields)  # type: ignore[arg-type]
    return await service.dequeue(request, context=by(connection))


async def take_one(service: Service, connection: ConnectionRef) -> DequeuedJob:
    await service.enqueue("mail", [Job(b"", attempts_allowed=3)])
    (job,) = await take(service, connection, 1)
    return job


async def beat(
    service: Service,
    connection: ConnectionRef,
    job: DequeuedJob,
    *,
    named: bool = True,
    **fields: object,
) -> None:
    """A checkpoint by way of a connection; `named` with its claim."""
    claim = job.claim_descriptor if named else ""
    await service.checkpoint(
        "mail",
        [Checkpoint(job.descriptor, claim_descriptor=claim, **fields)],  # type: ignore[arg-type]
        context=by(connection),
    )


async def end_grace(service: Service, connection: ConnectionRef) -> None:
    """The grace of a connection that broke is over; returns when what is to be released was."""
    await service.connection_claims.end_grace(connection)


async def lose(service: Service, connection: ConnectionRef) -> None:
    """The connection breaks, and the grace ends."""
    service.disconnected(connection)
    await end_grace(service, connection)


async def info(service: Service, job: DequeuedJob | str) -> JobInfo:
    descriptor = job if isinstance(job, str) else job.descriptor
    return (await service.lookup([descriptor]))[descriptor]


async def is_held(service: Service, job: DequeuedJob) -> bool:
    now = await info(service, job)
    return now.state is JobState.IN_PROGRESS and now.claim_descriptor == job.claim_descriptor


async def test_a_claim_is_released_when_its_connection_broke_and_the_grace_is_over() -> None:
    async with stand(settings=LONG) as at:
        connection = ConnectionRef()
        job = await take_one(at.service, connection)
        at.clock.tick(5_000)
        at.service.disconnected(connection)
        await settled()
        assert await is_held(at.service, job)
        await end_grace(at.service, connection)
        now = await info(at.service, job)
        assert (now.state, now.attempts_remaining, now.crashes) == (JobState.PENDING, 2, 1)
        line = f"[claim released at {at.clock.now_ms()}: its connection broke, attempts remaining 2]\n"
        assert now.custom_status == line
        assert at.service.bound_claims == 0
        assert counted(at, "retried") == 1


def counted(at: Stand, outcome: str) -> float:
    (count,) = dict(at.service.metrics.snapshot()).get(("claims_released", "mail", outcome), [0])
    return count


async def test_the_grace_ends_by_itself_and_sooner_where_the_connection_was_silent_before() -> None:
    async with stand(settings=ServiceSettings(release_grace_ms=1_000)) as at:
        connection = ConnectionRef()
        job = await take_one(at.service, connection)
        at.service.disconnected(connection, idle_ms=1_000)
        async with asyncio.timeout(60):
            while await is_held(at.service, job):
                await asyncio.sleep(0)


async def test_a_claim_that_was_not_asked_to_be_bound_is_not() -> None:
    async with stand(settings=LONG) as at:
        await at.service.enqueue("mail", [Job(b""), Job(b"")])
        connection = ConnectionRef()
        (plain,) = await at.service.dequeue(DequeueRequest("mail", 1), context=by(connection))
        (unconnected,) = await at.dequeue(1, release_on_disconnect=True)
        assert bound_timeout(plain.claim_descriptor) is bound_timeout(unconnected.claim_descriptor) is None
        await beat(at.service, connection, plain)
        assert not connection.claims


async def test_a_dry_run_binds_nothing() -> None:
    async with stand(settings=LONG) as at:
        await at.service.enqueue("mail", [Job(b"")])
        connection = ConnectionRef()
        assert len(await take(at.service, connection, dry_run=True)) == 1
        assert not connection.claims


async def test_a_claim_says_that_it_is_bound_and_for_how_long_it_lives() -> None:
    async with stand(settings=LONG) as at:
        await at.service.enqueue("mail", [Job(b""), Job(b"")])
        (one,) = await take(at.service, ConnectionRef(), 1)
        (two,) = await take(at.service, ConnectionRef(), 1, claim_timeout_ms=30_000)
        assert (bound_timeout(one.claim_descriptor), bound_timeout(two.claim_descriptor)) == (LEASE_MS, 30_000)
        assert one.claim_descriptor.split(":")[-1] == "me"


def test_texts_that_are_no_marked_claims_bind_nothing() -> None:
    names = ClaimTokens("a", 1, 5)
    assert [bound_timeout(each) for each in ("", "a:b:c:4r5", names.next("r5"), "a:b:c:4r:d", "a:b:c:4rx:d")] == [
        None
    ] * 5
    assert bound_timeout(f"a:b:c:4r{'9' * 5_000}:d") is None
    assert bound_timeout(names.next("a:4r5:b", 77)) == 77


async def test_a_checkpoint_binds_the_claim_to_the_connection_it_came_by() -> None:
    async with stand(settings=LONG) as at:
        first, second = ConnectionRef(), ConnectionRef()
        job = await take_one(at.service, first)
        at.service.disconnected(first)
        at.clock.tick(1_000)
        await beat(at.service, second, job)
        await end_grace(at.service, first)
        assert await is_held(at.service, job)
        await lose(at.service, second)
        assert (await info(at.service, job)).state is JobState.PENDING


async def test_a_checkpoint_that_does_not_name_the_claim_binds_it_where_it_is_known() -> None:
    async with stand(settings=LONG) as at:
        first, second = ConnectionRef(), ConnectionRef()
        job = await take_one(at.service, first)
        at.clock.tick(1_000)
        await beat(at.service, second, job, named=False)
        await lose_nothing(at.service, first)
        await lose(at.service, second)
        assert (await info(at.service, job)).state is JobState.PENDING


async def lose_nothing(service: Service, connection: ConnectionRef) -> None:
    """The connection breaks, and holds nothing."""
    service.disconnected(connection)
    assert not service.connection_claims.in_grace


async def test_a_checkpoint_by_a_caller_without_a_connection_leaves_the_claim_to_its_time_out() -> None:
    async with stand(settings=LONG) as at:
        connection = ConnectionRef()
        job = await take_one(at.service, connection)
        await at.service.checkpoint(
            "mail", [Checkpoint(job.descriptor, claim_descriptor=job.claim_descriptor)], context=ME
        )
        await lose_nothing(at.service, connection)


async def test_another_server_that_renewed_the_claim_is_the_one_that_releases_it() -> None:
    async with several(shards=1, settings=LONG) as (one, two):
        await one.service.create_queue("mail")
        await two.queues.poll()
        first, second = ConnectionRef(), ConnectionRef()
        job = await take_one(one.service, first)
        one.clock.tick(1_000)
        await beat(two.service, second, job)
        await lose(one.service, first)
        assert await is_held(one.service, job)
        await lose(two.service, second)
        assert (await info(one.service, job)).state is JobState.PENDING


async def test_a_server_whose_clock_is_behind_releases_what_it_renewed_after_the_last_change() -> None:
    """Its checkpoint came last; what it knows until the next is what a late copy of an older one would be."""
    async with several(shards=1, settings=LONG) as (one, two):
        await one.service.create_queue("mail")
        await two.queues.poll()
        first, second, third = ConnectionRef(), ConnectionRef(), ConnectionRef()
        job = await take_one(one.service, first)
        one.clock.tick(-500)
        await beat(two.service, second, job)
        await lose(one.service, first)
        assert await is_held(one.service, job)
        await lose(two.service, second)
        assert await is_held(one.service, job)
        one.clock.tick(600)
        await beat(two.service, third, job)
        await lose(two.service, third)
        assert (await info(one.service, job)).state is JobState.PENDING


async def test_a_checkpoint_without_the_claim_on_another_server_leaves_it_to_the_time_out() -> None:
    async with several(shards=1, settings=LONG) as (one, two):
        await one.service.create_queue("mail")
        await two.queues.poll()
        first, second = ConnectionRef(), ConnectionRef()
        job = await take_one(one.service, first)
        one.clock.tick(1_000)
        await beat(two.service, second, job, named=False)
        assert not second.claims
        await lose(one.service, first)
        assert await is_held(one.service, job)


@pytest.mark.parametrize("how", ["success", "failure", "riding", "requeued", "to pending"])
async def test_what_ends_a_claim_ends_its_binding(how: str) -> None:
    async with stand(settings=LONG) as at:
        connection = ConnectionRef()
        await at.service.enqueue("mail", [Job(b"")] * 3)
        jobs = await take(at.service, connection)
        acks = [Ack(job.descriptor) for job in jobs]
        if how == "success":
            await at.service.ack("mail", acks, [])
        elif how == "failure":
            await at.service.ack("mail", [], acks)
        elif how == "riding":
            await at.dequeue(succeeded=acks)
        elif how == "requeued":
            await at.service.requeue(jobs)
        else:
            for job in jobs:
                await beat(at.service, connection, job, move_to_pending=True)
        assert at.service.bound_claims == 0
        await lose_nothing(at.service, connection)


async def test_an_ack_of_another_claim_leaves_the_binding() -> None:
    async with stand(settings=LONG) as at:
        connection = ConnectionRef()
        job = await take_one(at.service, connection)
        await at.service.ack("mail", [Ack(job.descriptor, claim_descriptor="a:1:2:3:me")], [])
        await at.service.requeue([DequeuedJob(job.descriptor, b"", 1, 1, 1, 1, 1, "a:1:2:3:me")])
        assert at.service.bound_claims == 1


async def test_an_ack_that_could_not_be_carried_out_leaves_the_binding_and_one_that_was_is_never_released() -> None:
    async with stand(settings=LONG) as at:
        connection = ConnectionRef()
        job = await take_one(at.service, connection)
        at.stores[0].failures["ack"] = [NothingStored("no")] * 3
        with pytest.raises(NothingStored):
            await at.service.ack("mail", [Ack(job.descriptor)], [])
        assert at.service.bound_claims == 1
        at.stores[0].failures.clear()
        at.stores[0].losses["ack"] = [OutcomeUnknown("who knows")]
        with pytest.raises(OutcomeUnknown):
            await at.service.ack("mail", [Ack(job.descriptor)], [])
        await lose(at.service, connection)
        assert (await info(at.service, job)).state is JobState.SUCCEEDED


async def test_a_job_that_was_claimed_anew_meanwhile_keeps_its_binding_when_the_old_ack_returns() -> None:
    async with stand(settings=LONG) as at:
        old, new = ConnectionRef(), ConnectionRef()
        job = await take_one(at.service, old)
        at.stores[0].losses["ack"] = [None]
        gate = at.stores[0].hold("ack")
        acking = asyncio.create_task(at.service.ack("mail", [], [Ack(job.descriptor)]))
        await at.stores[0].until_begun("ack")
        at.clock.tick(1)
        await at.service.requeue([job])
        (again,) = await take(at.service, new, 1)
        gate.set()
        await acking
        assert list(new.claims) == [again.descriptor]


@pytest.mark.parametrize("budget", [0, 1])
async def test_a_job_that_used_up_its_crashes_fails(budget: int) -> None:
    async with stand(settings=LONG) as at:
        await at.service.queues.change("mail", {"crash_budget": str(budget)}, [], False, "me")
        connection = ConnectionRef()
        job = await take_one(at.service, connection)
        await lose(at.service, connection)
        now = await info(at.service, job)
        assert now.state is (JobState.FAILED if budget else JobState.PENDING)
        assert (counted(at, "retried"), counted(at, "failed")) == ((0, 1) if budget else (1, 0))


async def test_a_dequeue_that_waits_gets_what_was_released() -> None:
    async with stand(settings=LONG) as at:
        dying, waiting = ConnectionRef(), ConnectionRef()
        job = await take_one(at.service, dying)
        task = asyncio.create_task(take(at.service, waiting, wait_ms=50_000))
        await settled()
        await lose(at.service, dying)
        (again,) = await asyncio.wait_for(task, 60)
        assert again.descriptor == job.descriptor
        assert bound_timeout(again.claim_descriptor) == LEASE_MS
        assert list(waiting.claims) == [job.descriptor]


async def test_a_released_claim_makes_room_under_the_maximum_in_progress() -> None:
    async with stand(settings=LONG) as at:
        await at.service.queues.change("mail", {"max_in_progress": "1"}, [], False, "me")
        store = at.stores[0]
        await store.set_quota("mail", 1, 1, at.clock.now_ms())
        time = HeldTime(store)
        dying = ConnectionRef()
        await at.service.enqueue("mail", [Job(b"", attempts_allowed=1)])
        (job,) = await take(at.service, dying)
        await at.service.enqueue("mail", [Job(b"next")])
        task = asyncio.create_task(at.dequeue(wait_ms=60_000))
        await settled()
        await time.leap(51)  # to its next look, which finds the job, and no room
        await lose(at.service, dying)
        (next_job,) = await asyncio.wait_for(task, 60)
        assert next_job.body == b"next"
        assert (await info(at.service, job)).state is JobState.FAILED


async def test_a_connection_that_left_without_breaking_releases_nothing() -> None:
    async with stand(settings=LONG) as at:
        connection, other = ConnectionRef(), ConnectionRef()
        job = await take_one(at.service, connection)
        at.service.unbind(connection)
        assert at.service.bound_claims == 0
        await beat(at.service, other, job)
        assert list(other.claims) == [job.descriptor]


async def test_a_checkpoint_that_returns_when_its_connection_is_gone_is_of_a_broken_one() -> None:
    async with stand(settings=LONG) as at:
        second = ConnectionRef()
        job = await take_one(at.service, ConnectionRef())
        at.clock.tick(1_000)
        gate = at.stores[0].hold("checkpoint")
        beating = asyncio.create_task(beat(at.service, second, job))
        await at.stores[0].until_begun("checkpoint")
        second.is_broken = True
        gate.set()
        await beating
        assert await is_held(at.service, job)
        await end_grace(at.service, second)
        assert (await info(at.service, job)).state is JobState.PENDING


async def test_of_two_checkpoints_the_later_one_binds_whichever_returns_first() -> None:
    async with stand(settings=LONG) as at:
        first, second = ConnectionRef(), ConnectionRef()
        job = await take_one(at.service, ConnectionRef())
        at.clock.tick(1_000)
        gate = at.stores[0].hold("checkpoint")
        early = asyncio.create_task(beat(at.service, first, job))
        await at.stores[0].until_begun("checkpoint")
        del at.stores[0].gates["checkpoint"]
        at.clock.tick(1_000)
        await beat(at.service, second, job)
        assert list(second.claims) == [job.descriptor]
        gate.set()
        await early
        assert list(second.claims) == [job.descriptor]
        assert not first.claims


async def test_claims_that_waited_for_each_other_are_known_by_the_time_the_store_was_told() -> None:
    async with stand(settings=LONG) as at:
        connection = ConnectionRef()
        await at.service.enqueue("mail", [Job(b"")] * 3)
        gate = at.stores[0].hold("claim")
        tasks = [asyncio.create_task(take(at.service, connection, 1)) for _ in range(3)]
        await at.stores[0].until_begun("claim")
        at.clock.tick(5)
        gate.set()
        jobs = [job for (job,) in await asyncio.gather(*tasks)]
        for job in jobs:
            assert connection.claims[job.descriptor].last_seen_ms == (await info(at.service, job)).updated_at_ms
        await lose(at.service, connection)
        assert counted(at, "retried") == 3


async def test_many_claims_are_released_in_several_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_claims, "CLAIMS_PER_CALL", 2)
    async with stand(2, settings=LONG) as at:
        connection = ConnectionRef()
        for _ in range(8):
            await at.service.enqueue("mail", [Job(b"")])
        assert len(await take(at.service, connection)) == 8
        await lose(at.service, connection)
        sizes = [len(args[1]) for store in at.stores for args in store.sent["expire_disconnected"]]
        assert max(sizes) == 2
        assert counted(at, "retried") == sum(sizes) == 8


async def test_a_shard_that_fails_is_tried_again_and_left_to_the_time_outs_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_claims, "FIRST_PAUSE_S", 0)
    async with stand(settings=LONG) as at:
        connection, other = ConnectionRef(), ConnectionRef()
        job = await take_one(at.service, connection)
        at.stores[0].failures["expire_disconnected"] = refusals(connection_claims.TRIES - 1)
        await lose(at.service, connection)
        assert counted(at, "retried") == 1

        (job,) = await take(at.service, other)
        at.stores[0].broken = ShardConnectionFailed("away")
        await lose(at.service, other)
        at.stores[0].broken = None
        assert await is_held(at.service, job)
        assert at.service.bound_claims == 0


def refusals(tries: int) -> Sequence[Exception]:
    return [Overloaded("too much to do") for _ in range(tries)]


async def test_bindings_of_claims_that_must_have_expired_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their jobs were acked by way of another process, so nobody told this one."""
    monkeypatch.setattr(connection_claims, "SWEEP_FROM", 10)
    async with stand(settings=LONG) as at:
        connection = ConnectionRef()
        for _ in range(10):
            await at.service.enqueue("mail", [Job(b"")] * 10)
            await take(at.service, connection)
            at.clock.tick(LEASE_MS // 2)
        assert at.service.bound_claims <= 2 * 30
        assert set(connection.claims) == set(at.service.connection_claims)


async def test_a_binding_lasts_as_long_as_the_claim_that_a_checkpoint_keeps_until_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_claims, "SWEEP_FROM", 10)
    async with stand(settings=LONG) as at:
        connection, other = ConnectionRef(), ConnectionRef()
        kept, plain = await take_one(at.service, connection), await take_one(at.service, connection)
        await beat(at.service, connection, kept, run_after_ms=at.clock.now_ms() + 10 * LEASE_MS)
        at.clock.tick(2 * LEASE_MS)
        await at.service.enqueue("mail", [Job(b"")] * 10)
        await take(at.service, other)
        assert set(connection.claims) == {kept.descriptor}
        assert plain.descriptor not in set(at.service.connection_claims)
        await lose(at.service, connection)
        assert (await at.service.lookup([kept.descriptor]))[kept.descriptor].crashes == 1


async def test_of_too_many_bindings_those_renewed_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_claims, "SWEEP_FROM", 10)
    monkeypatch.setattr(connection_claims, "MAX_KEPT", 20)
    async with stand(settings=LONG) as at:
        connection = ConnectionRef()
        await at.service.enqueue("mail", [Job(b"")] * 70)
        (first,) = await take(at.service, connection, 1)
        for _ in range(6):
            jobs = await take(at.service, connection, 10)
            at.clock.tick(1)
            kept = [Checkpoint(first.descriptor, claim_descriptor=first.claim_descriptor)]
            await at.service.checkpoint("mail", kept, context=by(connection))
            assert at.service.bound_claims <= 2 * 20
            assert {first.descriptor, *(job.descriptor for job in jobs[1:])} <= set(at.service.connection_claims)
        assert set(connection.claims) == set(at.service.connection_claims)


async def test_a_service_that_closes_releases_nothing_more() -> None:
    async with stand(settings=LONG) as at:
        in_grace, being_released = ConnectionRef(), ConnectionRef()
        await take_one(at.service, in_grace)
        await take_one(at.service, being_released)
        at.service.disconnected(in_grace)
        at.stores[0].broken = NothingStored("away")
        at.service.disconnected(being_released)
        releasing_it = asyncio.create_task(at.service.connection_claims.end_grace(being_released))
        await settled()
        assert at.service.connection_claims.releases == 1
    await releasing_it
    assert at.service.connection_claims.in_grace == at.service.connection_claims.releases == 0
