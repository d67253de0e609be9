"""Jobs with keys while their homes change: once, in order, and nowhere twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from pinlater.backends.base import AckRequest, ClaimRequest
from pinlater.backends.extended import KeyHolder, Offered, OfferOutcome
from pinlater.errors import HomeMoving, HomeOut, ShardConnectionFailed
from pinlater.model import DequeuedJob, ExtendedJob, JobState, KeyRef, parse_descriptor
from pinlater.shards.keys.homes_record import HOMES, HomesRecord
from tests.unit.cluster_stand import EVERYTHING, ClusterStand, Server, cluster_stand
from tests.unit.test_homes_change import known, lose

QUEUE = "mail"
KEYS = [f"key-{number}" for number in range(60)]
HOUR_MS = 3_600_000


@asynccontextmanager
async def two_servers(shards: int, *, begun_with: Sequence[int] | None = None) -> AsyncIterator[ClusterStand]:
    """Keys live on the shards given; both servers have all of them by then."""
    async with cluster_stand(shards) as at:
        first = await at.server("first", shards=begun_with)
        await first.queues.create(QUEUE, "me")
        await first.homes.begin()
        if begun_with is not None:
            at.kill(first)
        else:
            await at.server("second")
        if begun_with is not None:
            for name in ("a", "b"):
                await at.server(name)
        for server in at.servers:
            await server.queues.poll()
        yield at


async def enqueue(server: Server, jobs: Sequence[ExtendedJob]) -> list[Offered]:
    return await server.router.enqueue_extended(QUEUE, jobs, server.time.now_ms())


def named(keys: Sequence[str] = KEYS, **fields: object) -> list[ExtendedJob]:
    return [ExtendedJob(key.encode(), dedupe_key=key, **fields) for key in keys]  # type: ignore[arg-type]


def in_order(keys: Sequence[str], number: int, **fields: object) -> list[ExtendedJob]:
    return [
        ExtendedJob(f"{key} {number}".encode(), serialize_key=key, dedupe_key=f"{number}", **fields)  # type: ignore[arg-type]
        for key in keys
    ]


def shard_of(offered: Offered) -> str:
    ref = parse_descriptor(offered.descriptor)
    assert ref is not None
    return ref.shard


async def claim(at: ClusterStand, server: Server, limit: int = 1_000) -> list[DequeuedJob]:
    request = ClaimRequest(f"w:1:1:{at.clock.now_ms()}:me", limit, (1, 2, 3), 60_000, EVERYTHING)
    return [job for jobs in await server.router.claim(QUEUE, [request], at.clock.now_ms()) for job in jobs]


async def finish(at: ClusterStand, server: Server, jobs: Sequence[DequeuedJob]) -> None:
    for job in jobs:
        ref = parse_descriptor(job.descriptor)
        assert ref is not None
        handle = server.members.by_id(ref.shard)
        assert handle is not None
        ack = AckRequest(ref.priority, ref.id, succeeded=True, claim_descriptor=job.claim_descriptor)
        await handle.shard.ack(QUEUE, [ack], at.clock.now_ms())


async def upkeep(at: ClusterStand, tasks: Sequence[str] = ("barriers", "windows", "empty")) -> None:
    """Of all shards, by whoever owns each."""
    at.clock.tick(2_000)
    await at.round()
    for server in at.servers:
        for task in tasks:
            for member in server.members.all:
                await server.maintenance.run(task, member.shard.shard_id)


async def drain(at: ClusterStand, shard_id: str) -> None:
    await at.servers[0].queues.override_shard(shard_id, True, "me")
    await at.look_at_homes(3)
    for server in at.servers:
        assert shard_id not in known(server).members


async def test_a_key_is_one_job_whoever_enqueues_it_before_and_after_a_shard_comes() -> None:
    async with two_servers(3, begun_with=[1, 2]) as at:
        one, two = at.servers
        before = await enqueue(one, named())
        await at.look_at_homes(2)
        assert known(one).members == known(two).members == ("1", "2", "3")
        after = await enqueue(two, named())
        assert [each.outcome for each in after] == [OfferOutcome.KEPT] * len(KEYS)
        assert [each.descriptor for each in after] == [each.descriptor for each in before]
        fresh = await enqueue(two, named([f"new-{key}" for key in KEYS]))
        assert {shard_of(each) for each in fresh} == {"1", "2", "3"}
        found = await one.router.find_keys(QUEUE, [KeyRef(key) for key in KEYS])
        assert found == [KeyHolder(each.descriptor) for each in before]


async def test_a_server_that_names_old_homes_is_told_and_tries_again() -> None:
    async with two_servers(2) as at:
        one, two = at.servers
        await enqueue(one, named())
        await enqueue(two, named())
        await one.queues.override_shard("2", True, "me")
        await at.round()
        for server in at.servers:
            await server.homes_change.look()
        versions = {server.homes.table.version for server in at.servers if server.homes.table is not None}
        assert len(versions) == 2  # one does not know yet
        jobs = named([f"new-{key}" for key in KEYS])
        offered = [*await enqueue(one, jobs), *await enqueue(two, jobs)]
        assert {shard_of(each) for each in offered} == {"1"}
        assert [each.outcome for each in offered[len(KEYS) :]] == [OfferOutcome.KEPT] * len(KEYS)


async def test_keys_that_move_wait_while_a_change_is_opening_and_others_go_on() -> None:
    async with two_servers(2) as at:
        server = at.servers[0]
        await server.queues.override_shard("2", True, "me")
        opening = HomesRecord(("1",), (("1", "2"),), is_opening=True)
        table = server.homes.table
        assert table is not None
        assert await server.homes.replace(table, opening, ["1", "2"], all_of=["1", "2"])
        stored = moving = 0
        for job in named():
            try:
                (offered,) = await enqueue(server, [job])
            except HomeMoving:
                moving += 1
            else:
                assert shard_of(offered) == "1"
                stored += 1
        assert stored
        assert moving
        with pytest.raises(Exception, match="changing") as told:
            await enqueue(server, named())
        assert sum(descriptor != "" for descriptor in told.value.job_descriptors) == stored  # type: ignore[attr-defined]
        await at.look_at_homes(2)
        assert [shard_of(each) for each in await enqueue(server, named())] == ["1"] * len(KEYS)


async def test_a_home_that_is_out_refuses_its_keys_and_no_others() -> None:
    async with two_servers(2) as at:
        server = at.servers[0]
        before = {key: shard_of(each) for key, each in zip(KEYS, await enqueue(server, named()), strict=True)}
        lose(server, 2)
        for key, shard_id in before.items():
            if shard_id == "1":
                assert (await enqueue(server, named([key])))[0].outcome is OfferOutcome.KEPT
            else:
                with pytest.raises(HomeOut, match="shard 2"):
                    await enqueue(server, named([key]))


async def test_the_jobs_of_a_serialize_key_stay_in_order_over_a_drain() -> None:
    async with two_servers(2) as at:
        one, two = at.servers
        await enqueue(one, in_order(KEYS, 1))
        await enqueue(two, in_order(KEYS, 2))
        first = {job.body for job in await claim(at, one, 10)}
        await drain(at, "2")
        third = await enqueue(two, in_order(KEYS, 3))
        assert {each.outcome for each in third} == {OfferOutcome.STORED}
        assert {shard_of(each) for each in third} == {"1"}
        again = await enqueue(one, in_order(KEYS, 2))
        assert {each.outcome for each in again} == {OfferOutcome.KEPT}
        log: dict[str, list[str]] = {}
        at.clock.tick(61_000)
        for server in at.servers:
            await at.round()
            for member in server.members.all:
                await server.maintenance.run("expire", member.shard.shard_id)
        for _ in range(12):
            jobs = await claim(at, one)
            keys = [job.body.decode().split()[0] for job in jobs]
            assert len(keys) == len(set(keys))
            for job in jobs:
                key, number = job.body.decode().split()
                log.setdefault(key, []).append(number)
            await finish(at, one, jobs)
            await upkeep(at)
        assert first
        assert log == {key: ["1", "2", "3"] for key in KEYS}
        assert await at.stores[0].list_barriers(10) == []


async def chain_on_both(at: ClusterStand) -> str:
    """A serialize key whose first job is on shard 2 and whose second one waits on shard 1, while 2 is its home again
    and 1 is drained.
    """
    server = at.servers[0]
    first = await enqueue(server, in_order(KEYS[:10], 1))
    key = next(key for key, each in zip(KEYS, first, strict=False) if shard_of(each) == "2")
    await drain(at, "2")
    (second,) = await enqueue(server, in_order([key], 2))
    assert shard_of(second) == "1"
    await server.queues.override_shard("2", False, "me")
    await at.look_at_homes(3)
    await drain(at, "1")
    return key


async def test_a_chain_that_comes_home_to_older_jobs_of_it_is_not_overtaken_by_newer_ones() -> None:
    """One that is on two shards already gets no third part behind those: the newest jobs would be in its first part."""
    async with two_servers(2) as at:
        server = at.servers[0]
        key = await chain_on_both(at)
        with pytest.raises(HomeMoving):
            await enqueue(server, in_order([key], 3))
        done = []
        for number in (1, 2, 3):
            jobs = [job for job in await claim(at, server) if job.body.startswith(f"{key} ".encode())]
            done += [job.body for job in jobs]
            await finish(at, server, jobs)
            await upkeep(at, ("barriers",))
            if number < 3:
                await enqueue(server, in_order([key], 3 + number))
        assert done == [f"{key} {number}".encode() for number in (1, 2, 4)]


async def test_two_parts_of_a_chain_never_wait_for_each_other() -> None:
    """The older part has ended when its shard is home again, but the barrier of the other part still stands."""
    async with two_servers(2) as at:
        server = at.servers[0]
        key = await chain_on_both(at)
        await finish(at, server, await claim(at, server))
        with pytest.raises(HomeMoving):
            await enqueue(server, in_order([key], 3))
        await upkeep(at, ("barriers",))
        (third,) = await enqueue(server, in_order([key], 3))
        assert shard_of(third) == "2"
        for number in (2, 3):
            (job,) = await claim(at, server)
            assert job.body == f"{key} {number}".encode()
            await finish(at, server, [job])
            await upkeep(at, ("barriers",))


async def test_jobs_go_to_the_newest_part_of_their_chain_also_when_the_shard_of_the_older_one_takes_jobs_again() -> (
    None
):
    async with two_servers(2) as at:
        server = at.servers[0]
        first = await enqueue(server, in_order(KEYS[:10], 1))
        key = next(key for key, each in zip(KEYS, first, strict=False) if shard_of(each) == "2")
        await drain(at, "2")
        await enqueue(server, in_order([key], 2))
        await finish(at, server, await claim(at, server))
        await upkeep(at, ("barriers",))
        await server.queues.override_shard("2", False, "me")
        await at.look_at_homes(3)
        await drain(at, "1")
        third = await enqueue(server, in_order([key], 3))
        await server.queues.override_shard("1", False, "me")
        await at.look_at_homes(3)
        fourth = await enqueue(server, [ExtendedJob(f"{key} 4".encode(), serialize_key=key)])
        assert [shard_of(each) for each in (*third, *fourth)] == ["2", "2"]
        for number in (2, 3, 4):
            (job,) = await claim(at, server)
            assert job.body == f"{key} {number}".encode()
            await finish(at, server, [job])
            await upkeep(at, ("barriers",))


async def test_a_dedupe_key_is_found_at_whichever_part_of_its_chain_it_stands() -> None:
    """Its home has been on three shards, and each has a part of the chain."""
    async with two_servers(4) as at:
        server = at.servers[0]
        kept = [ExtendedJob(b"kept", dedupe_key="one", serialize_key=key) for key in KEYS]
        first = await enqueue(server, kept)
        for number in range(6):
            shard_id = str(number % 3 + 1)
            await drain(at, shard_id)
            with suppress(HomeMoving, ShardConnectionFailed):  # of keys whose home has an older part
                await enqueue(server, in_order(KEYS, number))
            if number % 2:
                await server.queues.override_shard(shard_id, False, "me")
                await at.look_at_homes(3)
            again = await enqueue(server, kept)
            assert [each.descriptor for each in again] == [each.descriptor for each in first]
            assert {each.outcome for each in again} == {OfferOutcome.KEPT}


async def test_windows_go_with_their_keys_and_the_history_ends() -> None:
    async with two_servers(2) as at:
        one, two = at.servers
        before = await enqueue(one, named(dedupe_for_ms=HOUR_MS))
        await finish(at, one, await claim(at, one))
        await drain(at, "2")
        await upkeep(at)
        assert await at.stores[1].list_windows(10, "", at.clock.now_ms()) == []
        assert list(await at.stores[1].key_slots()) == []
        at.clock.tick(10_000)
        await at.look_at_homes(2)
        assert known(one) == known(two) == HomesRecord(("1",))
        assert await enqueue(two, named()) == [Offered(OfferOutcome.KEPT, each.descriptor) for each in before]
        at.clock.tick(HOUR_MS)
        assert {each.outcome for each in await enqueue(two, named())} == {OfferOutcome.STORED}


async def test_keys_whose_jobs_have_ended_hold_no_shard_up() -> None:
    async with two_servers(2) as at:
        one, two = at.servers
        await enqueue(one, named())
        await enqueue(one, [ExtendedJob(b"", send_id=f"{key}/1") for key in KEYS])
        await finish(at, one, await claim(at, one))
        await drain(at, "2")
        await upkeep(at)
        at.clock.tick(10_000)
        await at.look_at_homes(2)
        status = await two.cluster.status()
        assert [(view.is_home, view.has_windows_left) for view in status.shards] == [(True, False), (False, False)]
        again = await enqueue(two, [ExtendedJob(b"", send_id=f"{key}/1") for key in KEYS])
        assert {each.outcome for each in again} == {OfferOutcome.STORED}  # the first answer, once more
        assert await claim(at, two) == []
        assert {shard_of(each) for each in await enqueue(two, named())} == {"1"}


async def test_jobs_that_are_not_due_soon_leave_a_shard_that_is_drained() -> None:
    async with two_servers(2) as at:
        one, two = at.servers
        later_ms = at.clock.now_ms() + 24 * HOUR_MS
        keyed = named(run_after_ms=later_ms, dedupe_for_ms=HOUR_MS, claim_timeout_ms=7_000)
        before = await enqueue(one, keyed)
        ordered = await enqueue(one, [ExtendedJob(b"s", serialize_key=key, run_after_ms=later_ms) for key in KEYS])
        assert {shard_of(each) for each in (*before, *ordered)} == {"1", "2"}
        await drain(at, "2")
        for _ in range(3):
            await upkeep(at)
        found = await two.router.find_keys(QUEUE, [KeyRef(key) for key in KEYS])
        assert {holder.descriptor.split(":")[1] for holder in found if holder} == {"s1"}
        assert None not in found
        store = at.stores[1]
        assert await store.count(QUEUE, JobState.PENDING, (1, 2, 3), True, at.clock.now_ms()) == 0
        assert await store.count(QUEUE, JobState.IN_PROGRESS, (1, 2, 3), True, at.clock.now_ms()) == 0
        again = await enqueue(two, keyed)
        assert {each.outcome for each in again} == {OfferOutcome.KEPT}
        at.clock.tick(25 * HOUR_MS)
        await upkeep(at)
        bodies = sorted(job.body for job in await claim(at, one))
        assert bodies == sorted([key.encode() for key in KEYS] + [b"s"] * len(KEYS))


@pytest.mark.parametrize("later_ms", [0, 24 * HOUR_MS])
async def test_a_resend_of_a_job_with_a_send_id_alone_is_known_before_and_after_a_drain(later_ms: int) -> None:
    async with two_servers(2) as at:
        server, other = at.servers
        run_after_ms = at.clock.now_ms() + later_ms
        jobs = [ExtendedJob(key.encode(), send_id=f"send {key}", run_after_ms=run_after_ms) for key in KEYS]
        first = [(await enqueue(server, [job]))[0] for job in jobs]
        assert {shard_of(each) for each in first} == {"1", "2"}
        await drain(at, "2")
        for _ in range(3):
            await upkeep(at)
            again = [(await enqueue(other, [job]))[0] for job in jobs]
            assert [each[:2] for each in again] == [each[:2] for each in first]
        at.clock.tick(later_ms)
        assert sorted(job.body for job in await claim(at, server)) == sorted(job.body for job in jobs)


@pytest.mark.parametrize("serialize_key", ["", "chain"])
async def test_a_send_id_counts_at_its_new_home_while_its_dedupe_key_lives_at_the_former_one(
    serialize_key: str,
) -> None:
    async with two_servers(2) as at:
        server, other = at.servers
        jobs = named(serialize_key=serialize_key)
        sent = [replace(job, send_id=f"send {job.dedupe_key}") for job in jobs]
        first = [(await enqueue(server, [job]))[0] for job in sent]
        for _ in sent:  # those of a chain come one by one
            await finish(at, server, await claim(at, server))
        later = await enqueue(server, jobs)
        assert {each.outcome for each in later} == {OfferOutcome.STORED}
        for shard_id in {shard_of(each) for each in later}:
            if shard_id == "2" or serialize_key:
                await drain(at, shard_id)
        for _ in range(3):
            again = [(await enqueue(other, [job]))[0] for job in sent]
            assert [each[:2] for each in again] == [each[:2] for each in first]
            await upkeep(at, ("windows",))


async def test_a_shard_that_was_given_up_has_no_keys_any_more() -> None:
    async with two_servers(3) as at:
        one = at.servers[0]
        await enqueue(one, named())
        for server in at.servers:
            lose(server, 3)
        await one.queues.override_shard("3", True, "me", give_up=True)
        await at.look_at_homes(3)
        offered = await enqueue(one, named())
        assert {shard_of(each) for each in offered} == {"1", "2"}
        assert {each.outcome for each in offered} == {OfferOutcome.KEPT, OfferOutcome.STORED}
        assert HOMES in one.queues.entries.latest
