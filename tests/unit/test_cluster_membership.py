"""Who is alive, and who looks after which shard."""

from __future__ import annotations

import asyncio
import json

from structlog.testing import capture_logs

from pinlater.cluster.lease import KNOWS, MAX_QUEUES, Lease, decode, encode
from pinlater.cluster.membership import KIND, PLACES
from pinlater.errors import OutcomeUnknown, ShardConnectionFailed
from pinlater.model.operator_views import COUNTED
from tests.unit.breaking import HeldClock
from tests.unit.cluster_stand import LEASE_MS, ClusterStand, Server, cluster_stand

BROKEN = OutcomeUnknown("no answer")


async def three(at: ClusterStand, shards: int) -> list[Server]:
    """Three servers that know of each other; every shard has one owner."""
    servers = [await at.server(name) for name in ("a", "b", "c")]
    await at.round()
    owned = [shard for server in servers for shard in sorted(server.mine())]
    assert sorted(owned) == sorted(str(number) for number in range(1, shards + 1))
    return servers


def alive(server: Server) -> list[str]:
    return [lease.name for lease in server.membership.alive()]


async def test_each_shard_has_one_owner_and_all_agree_who_that_is() -> None:
    async with cluster_stand(6) as at:
        servers = await three(at, 6)
        for server in servers:
            assert alive(server) == ["a/1", "b/1", "c/1"]
            for shard in server.mine():
                assert {each.membership.owner(shard) for each in servers} == {server.membership.me.lease_name}


async def test_a_process_that_has_heard_of_nobody_yet_owns_nothing() -> None:
    async with cluster_stand() as at:
        alone = await at.server("a")
        assert alone.mine() == set()
        assert not alone.membership.alive()[0].is_ready
        await at.round(1)
        assert alone.mine() == {"1"}


async def test_what_a_killed_server_owned_moves_when_its_lease_is_over_and_not_before() -> None:
    async with cluster_stand(6) as at:
        killed, *left = await three(at, 6)
        lost = killed.mine()
        before = [server.mine() for server in left]
        assert lost
        at.kill(killed)
        at.clock.tick(LEASE_MS - 1)
        await at.round(1)
        assert [server.mine() for server in left] == before
        at.clock.tick(1)
        assert set().union(*(server.mine() for server in left)) == {str(number) for number in range(1, 7)}
        assert [mine >= was for mine, was in zip([server.mine() for server in left], before, strict=True)] == [True] * 2
        assert killed.mine() == set()


async def test_after_a_clean_stop_the_next_reading_is_enough() -> None:
    async with cluster_stand(6) as at:
        leaving, *left = await three(at, 6)
        await leaving.membership.give_up()
        await leaving.membership.renew()
        assert leaving.mine() == set()
        await at.round(1)
        assert all(alive(server) == ["b/1", "c/1"] for server in left)
        assert set().union(*(server.mine() for server in left)) == {str(number) for number in range(1, 7)}
        for store in at.stores:
            assert set(await store.kv_list(KIND, at.clock.now_ms())) == {"b/1", "c/1"}


async def lease_places(at: ClusterStand) -> set[str]:
    """The shards on which there are leases."""
    now_ms = at.clock.now_ms()
    return {str(number) for number, store in enumerate(at.stores, 1) if await store.kv_list(KIND, now_ms)}


async def test_leases_are_on_some_shards_only_the_same_for_all_and_on_others_when_one_is_out() -> None:
    shards = PLACES + 4
    async with cluster_stand(shards) as at:
        servers = await three(at, shards)
        places = await lease_places(at)
        assert len(places) == PLACES
        out = min(places)
        for server in servers:
            member = server.members.by_id(out)
            assert member is not None
            member.health.trip(at.clock.now_ms())
        at.clock.tick(LEASE_MS)
        await at.round()
        others = await lease_places(at)
        assert len(others) == PLACES
        assert others > places - {out}
        assert all(alive(server) == ["a/1", "b/1", "c/1"] for server in servers)


async def test_processes_that_share_one_place_know_each_other() -> None:
    shards = 2 * PLACES - 1
    async with cluster_stand(shards) as at:
        one = await at.server("a")
        await at.round(1)
        places = await lease_places(at)
        shared, *others = sorted(places)
        other = await at.server("b", shards=[int(each) for each in {*map(str, range(1, shards + 1))} - {*others}])
        await at.round()
        assert {member.shard.shard_id for member in other.membership.places()} & places == {shared}
        assert alive(one) == alive(other) == ["a/1", "b/1"]


async def test_one_that_drains_says_so_at_once_and_owns_nothing() -> None:
    async with cluster_stand(6) as at:
        draining, *left = await three(at, 6)
        await draining.membership.drain()
        assert draining.mine() == set()
        await left[0].membership.renew()
        lease = left[0].membership.alive()[0]
        assert (lease.name, lease.is_ready, lease.trouble, lease.maintains) == ("a/1", False, "draining", ())
        assert left[0].membership.owner("1") != "a/1"


async def test_a_server_that_comes_takes_its_part_from_the_others() -> None:
    async with cluster_stand(8) as at:
        first = await at.server("a")
        await at.round()
        assert len(first.mine()) == 8
        second = await at.server("b")
        await at.round()
        assert first.mine()
        assert second.mine()
        assert first.mine() | second.mine() == {str(number) for number in range(1, 9)}
        assert not first.mine() & second.mine()


async def test_a_server_whose_clock_is_off_says_so_and_goes_by_the_others() -> None:
    async with cluster_stand(4) as at:
        right = await at.server("a")
        for ahead_ms, word in ((1_001, "behind"), (-3_600_000, "ahead of")):
            wrong = await at.server("b", clock=HeldClock(at.clock.now_ms() + ahead_ms))
            await at.round()
            lease = next(lease for lease in right.membership.alive() if lease.name == "b/1")
            assert lease.is_ready
            assert f"the clock of shard 1 is {abs(ahead_ms)} ms {word} this server's" in lease.trouble
            assert f"outvoted: it uses the time of the others, {abs(ahead_ms)} ms {word} its own" in lease.trouble
            assert 0 <= at.clock.now_ms() - wrong.time.now_ms() <= wrong.time.uncertainty_ms <= 5
            assert wrong.mine() | right.mine() == {"1", "2", "3", "4"}
            assert not wrong.mine() & right.mine()
            assert not right.membership.clocks.warning()
            assert alive(wrong) == ["a/1", "b/1"]
            at.servers.remove(wrong)
            await wrong.stop()


async def test_of_one_store_whose_clock_is_off_one_log_line_tells_and_nothing_else_changes() -> None:
    async with cluster_stand(2) as at:
        server = await at.server("a")
        await at.round()
        with capture_logs() as logs:
            for skew_ms in (1_001, 60_000, -1_000):
                server.members.all[0].skew_ms = skew_ms
                server.membership.judge_clocks()
                assert bool(server.time.warning()) == (skew_ms > 1_000)
                assert (server.time.now_ms(), server.time.uncertainty_ms) == (at.clock.now_ms(), 0)
                assert server.mine() == {"1", "2"}
        assert [log["event"] for log in logs] == ["clock_disagrees", "clock_agrees"]


async def test_nobody_is_told_of_the_clock_of_a_shard_that_is_out() -> None:
    async with cluster_stand(2) as at:
        server = await at.server("a")
        server.members.all[0].skew_ms = 60_000
        server.members.all[0].health.trip(at.clock.now_ms())
        await at.round()
        assert not server.time.warning()
        assert server.mine() == {"2"}


async def test_a_shard_that_its_owner_cannot_use_goes_to_one_that_can() -> None:
    async with cluster_stand(6) as at:
        servers = await three(at, 6)
        owner = next(server for server in servers if server.mine())
        shard = min(owner.mine())
        owner.members.all[int(shard) - 1].health.trip(at.clock.now_ms())
        await at.round()
        assert [shard in server.mine() for server in servers].count(True) == 1
        assert shard not in owner.mine()
        assert (
            shard
            in next(
                lease for lease in servers[0].membership.alive() if lease.name == owner.membership.me.lease_name
            ).shards_out
        )


async def test_a_shard_that_one_server_was_not_told_of_yet_belongs_to_the_others() -> None:
    async with cluster_stand(6) as at:
        informed, ignorant = await at.server("a"), await at.server("b")
        untold = ignorant.members.all[1:]
        del ignorant.members.all[1:]
        await at.round()
        assert informed.mine() >= {"2", "3", "4", "5", "6"}
        assert len(informed.mine()) + len(ignorant.mine()) == 6
        ignorant.members.all.extend(untold)


async def test_a_process_that_is_cut_off_from_all_shards_owns_nothing_after_a_lease() -> None:
    async with cluster_stand(2) as at:
        server = await at.server("a")
        await at.round()
        for store in server.reach:
            store.broken = BROKEN
        at.clock.tick(LEASE_MS - 1)
        await at.round(1)
        assert server.membership.owner("1") == "a/1"
        at.clock.tick(1)
        assert server.mine() == set()
        for store in server.reach:
            store.broken = None
        await at.round()
        assert server.mine() == {"1", "2"}


async def test_a_shard_that_does_not_answer_keeps_no_lease_on_the_others_from_being_renewed() -> None:
    async with cluster_stand(2) as at:
        server, other = await at.server("a"), await at.server("b")
        await at.round()
        gate = server.reach[0].hold("kv_put")
        at.clock.tick(LEASE_MS - 1)
        for _ in range(3):
            await asyncio.wait_for(server.membership.renew(), 60)
        assert server.reach[0].begun["kv_put"] == 1 + 2
        at.clock.tick(1)
        await other.membership.renew()
        assert alive(other) == ["a/1", "b/1"]
        gate.set()
        await server.membership.renew()


async def test_giving_up_does_not_wait_long_for_a_shard_that_does_not_answer() -> None:
    async with cluster_stand(2) as at:
        server = await at.server("a")
        await at.round()
        gate = server.reach[0].hold("kv_put")
        await asyncio.wait_for(server.membership.give_up(), 60)
        assert await at.stores[1].kv_list(KIND, at.clock.now_ms()) == {}
        gate.set()


async def test_a_lease_says_what_was_counted_and_what_others_should_know() -> None:
    async with cluster_stand() as at:
        overflow = {"overflow_address": "a:9010", "overflow_jobs": 3}
        server, other = await at.server("a", describe=lambda: overflow), await at.server("b")
        server.metrics.add(5, "jobs_enqueued", "mail", 1)
        server.metrics.add(2, "jobs_enqueued", "mail", 2)
        server.metrics.add(4, "jobs_dequeued", "mail", 1)
        for outcome, jobs in (("succeeded", 2), ("failed", 1), ("retried", 1), ("ignored", 9)):
            server.metrics.add(jobs, "jobs_acked", "mail", 1, outcome)
        await at.round()
        lease = next(lease for lease in other.membership.alive() if lease.name == "a/1")
        assert dict(zip(COUNTED, lease.counters["mail"], strict=True)) == {
            "enqueued": 7,
            "dequeued": 4,
            "succeeded": 2,
            "failed": 1,
            "retried": 1,
        }
        assert lease.more == {
            "overflow_address": "a:9010",
            "overflow_jobs": 3,
            "clocks": {"1": [-1, 1]},
            "knows": list(KNOWS),
        }
        view = lease.view()
        assert (view.server, view.process, view.address, view.overflow_jobs) == ("a", "1", "a:9010", 3)


async def test_of_very_many_queues_the_lease_has_those_where_something_happens() -> None:
    async with cluster_stand() as at:
        server = await at.server("a")
        for number in range(MAX_QUEUES + 100):
            server.metrics.add(number + 1, "jobs_enqueued", f"q{number}", 1)
        await at.round(1)
        (lease,) = server.membership.alive()
        assert len(lease.counters) == MAX_QUEUES
        assert "q0" not in lease.counters
        server.metrics.add(1, "jobs_enqueued", "q0", 1)
        await at.round(1)
        (lease,) = server.membership.alive()
        assert len(lease.counters) == MAX_QUEUES
        assert lease.counters["q0"][0] == 2


async def test_an_entry_that_is_no_lease_is_left_out() -> None:
    async with cluster_stand() as at:
        now_ms = at.clock.now_ms()
        for number, body in enumerate((b"", b"{}", b"[]", b"\xff", b'{"maintains": 7}')):
            await at.stores[0].kv_put(KIND, f"x/{number}", body, now_ms + 1_000, now_ms)
        server = await at.server("a")
        await at.round()
        assert alive(server) == ["a/1"]


def test_a_lease_of_a_version_that_does_not_say_which_shards_are_full_is_understood() -> None:
    lease = Lease(
        server="a", process="1", address="a:1", started_ms=1, renewed_ms=2, renewal=3, is_ready=True, shards_full=("2",)
    )
    assert decode(encode(lease)) == lease
    older = json.loads(encode(lease))
    del older["shards_full"]
    found = decode(json.dumps(older).encode())
    assert found.shards_full == ()
    assert found.view().shards_full == []


def test_a_lease_of_a_newer_version_is_understood() -> None:
    lease = Lease(
        server="a",
        process="1",
        address="",
        started_ms=1,
        renewed_ms=2,
        renewal=3,
        is_ready=True,
        more={"from_the_future": [1]},
    )
    assert decode(encode(lease)) == lease


# -- shards that others have -----------------------------------------------------------------------------------------


async def said_of(server: Server, shard_id: str) -> object:
    """Its answer to a call that names a job there."""
    (answer,) = await server.router.ask_by_shard([(shard_id, lambda shard: shard.kv_list(KIND, 0))])
    return answer


async def test_a_shard_that_only_others_have_cannot_be_reached_from_the_first_moment_on() -> None:
    """Where a shard is added, servers are restarted one by one. What a worker was handed out by a new one, it may ack
    at an old one, which must not take that for an ack of nothing.
    """
    async with cluster_stand(2) as at:
        old = await at.server("old", shards=[1])
        await at.round()
        assert await said_of(old, "2") is None
        new = await at.server("new")
        await new.membership.renew()  # as it does before it serves
        assert isinstance(await said_of(old, "2"), ShardConnectionFailed)
        assert await said_of(old, "3") is None
        await at.round()
        at.kill(new)
        at.clock.tick(LEASE_MS + 1)
        await at.round()
        assert alive(old) == ["old/1"]
        assert isinstance(await said_of(old, "2"), ShardConnectionFailed)


async def test_where_the_leases_cannot_be_read_no_shard_is_taken_for_unknown() -> None:
    async with cluster_stand(2) as at:
        old = await at.server("old", shards=[1])
        await at.round()
        old.reach[0].failures["kv_list"] = [BROKEN]
        assert isinstance(await said_of(old, "2"), ShardConnectionFailed)
        assert await said_of(old, "2") is None
        old.members.all[0].health.trip(at.clock.now_ms())
        assert isinstance(await said_of(old, "2"), ShardConnectionFailed)


async def test_one_look_at_the_leases_serves_all_who_wait_for_it() -> None:
    async with cluster_stand(2) as at:
        old = await at.server("old", shards=[1])
        await at.round()
        before = old.reach[0].begun["kv_list"]
        gate = old.reach[0].hold("kv_list")
        first = asyncio.create_task(said_of(old, "2"))
        await old.reach[0].until_begun("kv_list", before + 1)
        later = [asyncio.create_task(said_of(old, "2")) for _ in range(50)]
        await asyncio.sleep(0)
        new = await at.server("new")
        await new.membership.renew()
        gate.set()
        del old.reach[0].gates["kv_list"]
        await first
        assert all(isinstance(each, ShardConnectionFailed) for each in await asyncio.gather(*later))
        assert old.reach[0].begun["kv_list"] == before + 2
