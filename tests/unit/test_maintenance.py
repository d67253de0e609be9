"""What runs in the background for the shards that are a server's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from structlog.testing import capture_logs

from pinlater.backends.base import AckRequest, Shard
from pinlater.backends.extended import Offer
from pinlater.errors import OutcomeUnknown
from pinlater.model import ExtendedJob, Job, JobState, parse_descriptor
from tests.unit.cluster_stand import LEASE_MS, ClusterStand, Server, cluster_stand

FAST = 10
MINUTE_MS = 60_000
DAY_MS = 86_400_000
STATES = (JobState.PENDING, JobState.IN_PROGRESS, JobState.SUCCEEDED, JobState.FAILED)


async def one(at: ClusterStand, **settings: int) -> Server:
    """A server that owns all shards and has the queue `mail`."""
    server = await at.server("a", **settings)
    await at.round()
    await server.queues.create("mail", "me")
    return server


@asynccontextmanager
async def running(server: Server) -> AsyncIterator[None]:
    """With what is periodic under way."""
    server.maintenance.start()
    server.periodic.start()
    try:
        yield
    finally:
        await server.periodic.close()


async def expired(at: ClusterStand, jobs: int, *, store: int = 0, attempts: int = 2) -> None:
    """So many jobs whose claims are over."""
    shard = at.stores[store]
    await shard.enqueue("mail", [Job(b"x", attempts_allowed=attempts)] * jobs, at.clock.now_ms())
    assert len(await at.claimed(shard, "mail", jobs)) == jobs
    at.clock.tick(MINUTE_MS + 6)


async def ended(at: ClusterStand, *, succeeded: Sequence[bool]) -> None:
    """Jobs that ended now, well or for good."""
    shard = at.stores[0]
    await shard.enqueue("mail", [Job(b"x")] * len(succeeded), at.clock.now_ms())
    acks = []
    for job, is_good in zip(await at.claimed(shard, "mail", len(succeeded)), succeeded, strict=True):
        ref = parse_descriptor(job.descriptor)
        assert ref is not None
        acks.append(AckRequest(ref.priority, ref.id, is_good, permanent=not is_good))
    server = at.servers[0]
    await shard.ack("mail", acks, at.clock.now_ms(), server.queues.end_rules().get("mail"))


async def counts(at: ClusterStand, shard: Shard, queue: str = "mail") -> list[int]:
    """Jobs by state."""
    return [await shard.count(queue, state, (1, 2, 3), False, at.clock.now_ms()) for state in STATES]


# -- the tasks -------------------------------------------------------------------------------------------------------


async def test_expired_claims_go_back_in_steps_until_none_is_left_and_everybody_is_told_of_it() -> None:
    async with cluster_stand() as at:
        server = await one(at, step_limit=3)
        await expired(at, 7)
        await server.membership.renew()
        with capture_logs() as logs:
            await server.maintenance.run("expire", "1")
        assert await counts(at, at.stores[0]) == [7, 0, 0, 0]
        assert server.woken == [("mail", 3), ("mail", 3), ("mail", 1)]
        assert server.reach[0].begun["expire_claims"] == 4
        assert server.metrics.counters["claims_expired", "mail", "retried"] == 7
        (line,) = [log for log in logs if log["event"] == "claims_expired"]
        assert (line["shard"], line["retried"], line["queues"]) == ("1", 7, {"mail": {"retried": 7}})


async def test_the_rules_of_each_queue_are_applied() -> None:
    async with cluster_stand() as at:
        server = await one(at)
        await server.queues.change("mail", {"crash_budget": "1"}, (), False, "me")
        await expired(at, 2, attempts=9)
        await server.membership.renew()
        await server.maintenance.run("expire", "1")
        assert await counts(at, at.stores[0]) == [0, 0, 0, 2]
        assert server.metrics.counters["claims_expired", "mail", "failed"] == 2
        assert server.woken == []


async def test_ended_jobs_are_removed_when_their_time_is_over_each_queue_and_state_by_its_own() -> None:
    async with cluster_stand() as at:
        server = await one(at)
        await server.queues.change("mail", {"succeeded_ttl": "1s", "failed_ttl": "2s"}, (), False, "me")
        await ended(at, succeeded=(True, False))
        at.clock.tick(1_001)
        await server.membership.renew()
        await server.maintenance.run("prune", "1")
        assert await counts(at, at.stores[0]) == [0, 0, 0, 1]
        assert server.metrics.counters["jobs_collected", "mail"] == 1


async def test_dead_letters_are_moved_and_who_waits_for_them_is_told_of_it() -> None:
    async with cluster_stand() as at:
        server = await one(at)
        await server.maintenance.run("dead_letter", "1")
        assert server.reach[0].begun["dead_letter"] == 0
        await server.queues.create("dead", "me")
        await server.queues.change("mail", {"dead_letter_queue": "dead"}, (), False, "me")
        await ended(at, succeeded=(False, False, True))
        with capture_logs() as logs:
            await server.maintenance.run("dead_letter", "1")
        assert await counts(at, at.stores[0], "dead") == [2, 0, 0, 0]
        assert server.woken == [("dead", 2)]
        assert server.metrics.counters["jobs_buried", "mail"] == 2
        assert server.metrics.counters["letters_stored", "dead"] == 2
        assert [log["moved"] for log in logs if log["event"] == "jobs_buried"] == [2]


async def test_what_a_deleted_queue_left_is_removed_and_its_mark_after_thirty_days() -> None:
    async with cluster_stand() as at:
        server = await one(at)
        await at.stores[0].enqueue("mail", [Job(b"x")] * 3, at.clock.now_ms())
        await server.queues.delete("mail", "me")
        with capture_logs() as logs:
            await server.maintenance.run("prune", "1")
        line = next(log for log in logs if log["event"] == "jobs_collected")
        assert line["leftovers_removed"] >= 3
        assert not [key for key in server.metrics.counters if key[0] == "jobs_collected"]

        async def marks() -> list[str]:
            await server.membership.renew()
            await server.maintenance.run("prune", "1")
            return [record.name for record in (await at.stores[0].list_config(0, 100)).entries]

        at.clock.tick(29 * DAY_MS)
        assert await marks() == ["mail"]
        at.clock.tick(2 * DAY_MS)
        assert await marks() == []


async def test_nothing_due_costs_one_call_and_no_line_in_the_log() -> None:
    async with cluster_stand() as at:
        server = await one(at)
        with capture_logs() as logs:
            for task in ("expire", "prune"):
                await server.maintenance.run(task, "1")
        assert server.reach[0].begun["expire_claims"] == server.reach[0].begun["prune"] == 1
        assert logs == []


async def test_many_queues_are_one_line_in_the_log() -> None:
    async with cluster_stand() as at:
        server = await one(at)
        for number in range(12):
            await server.queues.create(f"q{number}", "me")
            await at.stores[0].enqueue(f"q{number}", [Job(b"x")], at.clock.now_ms())
            await at.claimed(at.stores[0], f"q{number}", 1)
        at.clock.tick(MINUTE_MS + 6)
        await server.membership.renew()
        with capture_logs() as logs:
            await server.maintenance.run("expire", "1")
        (line,) = [log for log in logs if log["event"] == "claims_expired"]
        assert (line["retried"], line["queues"]) == (12, 12)


# -- whose shard it is -----------------------------------------------------------------------------------------------


async def tried(servers: Sequence[Server], shards: int) -> list[list[str]]:
    """The shards on which each of these does something when all tasks are due."""
    found = []
    for server in servers:
        begun = []
        for store, shard_id in zip(server.reach, map(str, range(1, shards + 1)), strict=True):
            before = store.begun["expire_claims"]
            await server.maintenance.run("expire", shard_id)
            if store.begun["expire_claims"] > before:
                begun.append(shard_id)
        found.append(begun)
    return found


async def test_each_shard_is_looked_after_by_its_owner_alone_until_that_is_gone() -> None:
    async with cluster_stand(6) as at:
        servers = [await at.server(name) for name in ("a", "b", "c")]
        await at.round()
        begun = await tried(servers, 6)
        assert sorted(shard for each in begun for shard in each) == list("123456")
        assert begun == [sorted(server.mine()) for server in servers]
        at.kill(servers[0])
        at.clock.tick(LEASE_MS)
        await at.round()
        begun = await tried(servers[1:], 6)
        assert sorted(shard for each in begun for shard in each) == list("123456")


async def test_two_owners_at_once_end_each_claim_once() -> None:
    async with cluster_stand() as at:
        servers = [await one(at), await at.server("b")]
        await expired(at, 500)
        for server in servers:
            await server.membership.renew()
            server.membership.owner = lambda shard_id, me=server.membership.me.lease_name: me  # type: ignore[method-assign, misc]
        await asyncio.gather(*[server.maintenance.run("expire", "1") for server in servers])
        assert await counts(at, at.stores[0]) == [500, 0, 0, 0]
        assert sum(server.metrics.counters["claims_expired", "mail", "retried"] for server in servers) == 500


async def test_a_shard_that_is_out_is_left_alone() -> None:
    async with cluster_stand(2) as at:
        server = await one(at)
        server.members.all[0].health.trip(at.clock.now_ms())
        assert await tried([server], 2) == [["2"]]


async def test_while_clocks_differ_claims_expire_by_the_earliest_and_jobs_are_pruned_by_it() -> None:
    async with cluster_stand() as at:
        server = await one(at)
        await expired(at, 3)
        server.members.all[0].skew_ms = -600_000
        await server.membership.renew()
        assert 600_000 <= server.time.uncertainty_ms <= 600_001
        assert await tried([server], 1) == [["1"]]
        assert server.woken == []
        server.members.all[0].skew_ms = 600_000
        server.membership.judge_clocks()
        await server.maintenance.run("expire", "1")
        assert server.woken == [("mail", 3)]


async def test_a_run_ends_when_the_shard_is_lost_meanwhile() -> None:
    async with cluster_stand() as at:
        server = await one(at, step_limit=1)
        await expired(at, 5)
        await server.membership.renew()
        gate = server.reach[0].hold("expire_claims")
        run = asyncio.create_task(server.maintenance.run("expire", "1"))
        await server.reach[0].until_begun("expire_claims")
        await server.membership.drain()
        gate.set()
        await run
        assert server.reach[0].begun["expire_claims"] == 1


# -- the schedule ----------------------------------------------------------------------------------------------------


async def test_all_tasks_run_on_every_shard_again_and_again_also_after_an_error() -> None:
    async with cluster_stand(2) as at:
        server = await one(at, interval_ms=FAST)
        await server.queues.create("dead", "me")
        await server.queues.change("mail", {"dead_letter_queue": "dead"}, (), False, "me")
        server.reach[0].failures["expire_claims"] = [OutcomeUnknown("no answer"), ValueError("a surprise")]
        async with running(server), asyncio.timeout(60):
            for store in server.reach:
                for task in ("expire_claims", "dead_letter", "prune"):
                    await store.until_begun(task, 4)


async def test_jobs_that_were_not_handed_out_in_time_end_as_failed() -> None:
    async with cluster_stand() as at:
        server = await one(at, interval_ms=FAST)
        shard, now_ms = at.stores[0], at.clock.now_ms()
        jobs = [ExtendedJob(b"", expires_at_ms=now_ms + 1 + number % 2 * MINUTE_MS) for number in range(10)]
        await shard.enqueue_extended("mail", [Offer(job) for job in jobs], now_ms)
        at.clock.tick(2)
        await server.membership.renew()
        with capture_logs() as logs:
            await server.maintenance.run("expire_jobs", "1")
        failed = await shard.count("mail", JobState.FAILED, (1,), False, at.clock.now_ms())
        assert (failed, server.metrics.counters["jobs_expired", "mail"]) == (5, 5)
        (line,) = [log for log in logs if log["event"] == "jobs_expired"]
        assert line["queues"] == {"mail": {"expired": 5}}


async def test_a_shard_that_is_added_is_looked_after_and_one_that_is_removed_no_more() -> None:
    async with cluster_stand(2) as at:
        server = await one(at, interval_ms=FAST)
        first, second = server.members.all
        server.members.all.remove(second)
        async with running(server), asyncio.timeout(60):
            await server.reach[0].until_begun("prune", 3)
            assert server.reach[1].begun["prune"] == 0
            server.members.all.append(second)
            server.members.all.remove(first)
            await server.reach[1].until_begun("prune", 3)
            assert server.periodic.names() == {
                "maintenance",
                "expire 2",
                "expire_jobs 2",
                "dead_letter 2",
                "prune 2",
                "windows 2",
                "barriers 2",
                "empty 2",
            }
        server.members.all.insert(0, first)


async def test_nothing_runs_for_the_shards_of_others() -> None:
    async with cluster_stand(6) as at:
        server, other = await one(at, interval_ms=FAST), await at.server("b")
        await at.round()
        assert server.mine()
        assert other.mine()
        async with running(server), asyncio.timeout(60):
            for shard_id in server.mine():
                await server.reach[int(shard_id) - 1].until_begun("prune", 2)
            scheduled = {name.rpartition(" ")[2] for name in server.periodic.names() - {"maintenance"}}
        assert scheduled == server.mine()


async def test_closing_waits_for_the_step_under_way_and_begins_no_other() -> None:
    async with cluster_stand() as at:
        server = await one(at, interval_ms=FAST, step_limit=1)
        await expired(at, 5)
        await server.membership.renew()
        gate = server.reach[0].hold("expire_claims")
        async with running(server):
            await asyncio.wait_for(server.reach[0].until_begun("expire_claims"), 60)
            closing = asyncio.create_task(server.periodic.close())
            for _ in range(5):
                await asyncio.sleep(0)
            assert not closing.done()
            gate.set()
            await closing
        assert server.reach[0].begun["expire_claims"] == 1
