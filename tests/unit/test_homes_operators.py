"""What operators do to ended jobs whose keys live on another shard now."""

from __future__ import annotations

import pytest

from pinlater.backends.base import AckRequest
from pinlater.backends.extended import KeyHolder
from pinlater.errors import EnqueueRejected, ShardConnectionFailed
from pinlater.model import (
    CancelOutcome,
    ExtendedJob,
    JobAction,
    JobChange,
    JobState,
    KeyRef,
    RescheduleJob,
    RescheduleOutcome,
    parse_descriptor,
)
from pinlater.service.descriptors import ClaimTokens
from pinlater.service.service import Service
from pinlater.service.settings import ServiceSettings
from pinlater.shards.keys.homes_record import HomesRecord
from tests.unit.cluster_stand import ClusterStand, Server
from tests.unit.test_homes_change import lose
from tests.unit.test_homes_keyed import (
    HOUR_MS,
    KEYS,
    QUEUE,
    claim,
    drain,
    enqueue,
    in_order,
    named,
    shard_of,
    two_servers,
    upkeep,
)


def service_of(server: Server, **settings: int) -> Service:
    tokens = ClaimTokens("a", "1", 1)
    return Service(server.router, server.time, tokens, ServiceSettings(**settings), queues=server.queues)


async def fail_all(at: ClusterStand, server: Server) -> None:
    for job in await claim(at, server):
        ref = parse_descriptor(job.descriptor)
        assert ref is not None
        handle = server.members.by_id(ref.shard)
        assert handle is not None
        ack = AckRequest(ref.priority, ref.id, succeeded=False, claim_descriptor=job.claim_descriptor, permanent=True)
        await handle.shard.ack(QUEUE, [ack], at.clock.now_ms())


async def test_what_is_stored_of_a_request_that_fails_in_part_counts() -> None:
    async with two_servers(2) as at:
        server = at.servers[0]
        service = service_of(server)
        await server.queues.change(QUEUE, {"max_pending": "60"}, [], False, "me")
        (known,) = await enqueue(server, named(KEYS[:1]))
        home = shard_of(known)
        lose(server, 3 - int(home))
        with pytest.raises(ShardConnectionFailed) as failed:
            await service.enqueue(QUEUE, named())
        descriptors = failed.value.job_descriptors or ()
        stands = [descriptor for descriptor in descriptors if descriptor]
        assert 1 < len(stands) < len(KEYS)
        assert descriptors[0] == known.descriptor
        assert service.metrics.counters["jobs_enqueued", QUEUE, 1] == len(stands) - 1
        assert service.metrics.counters["jobs_deduplicated", QUEUE, "kept"] == 1
        with pytest.raises(EnqueueRejected, match=f"about {len(stands) - 1} pending jobs"):
            await service.enqueue(QUEUE, named([f"new-{key}" for key in KEYS]))


RETRY = JobChange(QUEUE, JobAction.RETRY, JobState.FAILED, limit=1_000)


async def test_a_listed_retry_is_refused_where_the_key_lives_elsewhere_now() -> None:
    async with two_servers(2) as at:
        server = at.servers[0]
        before = [*await enqueue(server, named()), *await enqueue(server, in_order([f"s-{key}" for key in KEYS], 1))]
        away = {each.descriptor for each in before if shard_of(each) == "2"}
        assert 0 < len(away) < len(before)
        await fail_all(at, server)
        await drain(at, "2")
        live = await enqueue(server, named())
        assert {shard_of(each) for each in live} == {"1"}
        changed = await service_of(server).change_jobs(RETRY)
        assert away <= set(changed.refusals)
        assert all("lives on shard 1 now" in changed.refusals[each] for each in away)
        assert changed.changed == len(KEYS) - sum(shard_of(each) == "2" for each in before[len(KEYS) :])
        found = await server.router.find_keys(QUEUE, [KeyRef(key) for key in KEYS])
        assert found == [KeyHolder(each.descriptor) for each in live]


async def test_a_retry_of_all_that_failed_leaves_jobs_whose_keys_live_elsewhere() -> None:
    async with two_servers(2) as at:
        server = at.servers[0]
        before = await enqueue(server, named())
        await fail_all(at, server)
        await drain(at, "2")
        retried = await service_of(server).retry_failed(QUEUE, limit=1_000)
        assert retried == sum(shard_of(each) == "1" for each in before) > 0
        assert {job.descriptor for job in await claim(at, server)} == {
            each.descriptor for each in before if shard_of(each) == "1"
        }


async def test_a_retry_of_all_that_failed_comes_behind_however_many_stay() -> None:
    async with two_servers(2) as at:
        server = at.servers[0]
        keys = [f"key-{number}" for number in range(2_400)]
        before = await enqueue(server, named(keys, run_after_ms=at.clock.now_ms()))
        (last,) = await enqueue(server, [ExtendedJob(b"", expires_at_ms=9 * 10**12, run_after_ms=1)])
        for _ in range(3):
            await fail_all(at, server)
        await drain(at, "2")
        staying = sum(shard_of(each) == "2" for each in before)
        assert staying > 1_000
        service = service_of(server, page_jobs=100)
        assert await service.retry_failed(QUEUE, limit=10_000) == len(keys) - staying + 1
        assert (await service.lookup([last.descriptor]))[last.descriptor].state is JobState.PENDING


async def test_a_retry_by_older_homes_is_decided_anew_by_those_that_the_store_knows() -> None:
    async with two_servers(2) as at:
        one, two = at.servers
        before = await enqueue(one, named())
        await fail_all(at, one)
        await one.queues.override_shard("2", True, "me")
        await at.round()
        for server in at.servers:
            await server.homes_change.look()
        versions = [server.homes.table.version for server in at.servers if server.homes.table is not None]
        assert len(set(versions)) == 2
        unaware = one if versions[0] < versions[1] else two
        changed = await service_of(unaware).change_jobs(RETRY)
        assert set(changed.refusals) == {each.descriptor for each in before if shard_of(each) == "2"}
        assert changed.changed == len(before) - len(changed.refusals)
        assert not changed.missing_shards


async def test_a_retry_is_refused_while_the_homes_of_its_key_change() -> None:
    async with two_servers(2) as at:
        server = at.servers[0]
        before = await enqueue(server, named())
        await fail_all(at, server)
        table = server.homes.table
        assert table is not None
        opening = HomesRecord(("1",), (("1", "2"),), is_opening=True)
        assert await server.homes.replace(table, opening, ["1", "2"], all_of=["1", "2"])
        changed = await service_of(server).change_jobs(RETRY)
        assert set(changed.refusals) == {each.descriptor for each in before if shard_of(each) == "2"}
        assert all("are changing" in why for why in changed.refusals.values())


async def test_a_descriptor_of_a_job_that_was_moved_names_its_copy() -> None:
    async with two_servers(2) as at:
        server = at.servers[0]
        later_ms = at.clock.now_ms() + 24 * HOUR_MS
        before = [each.descriptor for each in await enqueue(server, named(run_after_ms=later_ms))]
        away = [descriptor for descriptor in before if descriptor.split(":")[1] == "s2"]
        assert len(away) > 2
        await drain(at, "2")
        for _ in range(3):
            await upkeep(at)
        service = service_of(server)
        found = await service.lookup(away)
        assert {info.state for info in found.values()} == {JobState.PENDING}
        assert all((info.moved_to or "").split(":")[1] == "s1" for info in found.values())
        sooner_ms = later_ms - HOUR_MS
        changes = [RescheduleJob(descriptor, run_after_ms=sooner_ms) for descriptor in away]
        assert await service.reschedule(QUEUE, changes) == [RescheduleOutcome.RESCHEDULED] * len(away)
        assert {info.run_after_ms for info in (await service.lookup(away)).values()} == {sooner_ms}
        assert await service.cancel(QUEUE, away) == dict.fromkeys(away, CancelOutcome.CANCELLED)
        assert await service.cancel(QUEUE, away) == dict.fromkeys(away, CancelOutcome.ENDED), "their copies are gone"
