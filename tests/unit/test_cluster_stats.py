"""How many jobs each queue has: counted by the owner of each shard, known to all."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Sequence

import pytest

from pinlater.backends.base import AckRequest, ConfigEntry, LevelCounts
from pinlater.backends.extended import Offer
from pinlater.backends.group_rules import GROUP_RULES_PREFIX
from pinlater.cluster import job_counter, stats
from pinlater.cluster.counts import (
    KIND,
    NAME,
    QueueCounts,
    ShardCounts,
    decode,
    encode,
    encode_ended,
    encode_limited,
    summed,
)
from pinlater.errors import NothingStored, OutcomeUnknown
from pinlater.model import ExtendedJob, Job, JobState, LevelView, QueueStatus, new_version, parse_descriptor
from tests.unit.cluster_stand import LEASE_MS, ClusterStand, Server, cluster_stand

INTERVAL_MS = 2_000
HOUR_MS = 3_600_000
SHARE_OF_SMALL = stats.SHARE_OF_SMALL
NO_JOBS = LevelCounts(0, 0, 0, 0, 0, None)


@pytest.fixture(autouse=True)
def _nothing_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine of the test is."""
    monkeypatch.setattr(stats, "SHARE_OF_SMALL", 1e9)
    monkeypatch.setattr(job_counter, "REST", 0)


def test_what_no_extended_job_is_in_is_published_as_older_servers_read_it() -> None:
    plain, extended = LevelCounts(1, 2, 3, 4, 5, 6), LevelCounts(0, 0, 0, 0, 0, None, 7, 8)
    counts = ShardCounts(1, {"mail": QueueCounts(2, {1: plain}), "keyed": QueueCounts(3, {1: plain, 2: extended})})
    assert decode(encode(counts)) == counts
    _, queues = json.loads(zlib.decompress(encode(counts)))
    assert {queue: [len(level) for level in levels.values()] for queue, (_, levels) in queues.items()} == {
        "mail": [6],
        "keyed": [6, 8],
    }
    assert summed([{1: extended}, {1: plain}]) == {1: LevelCounts(1, 2, 3, 4, 5, 6, 7, 8)}
    assert summed([{1: LevelCounts(0, 0, 0, 0, 0, None)}, {2: extended}]) == {2: extended}


def read_by_the_version_before(body: bytes, ended: bytes) -> dict[str, dict[str, list[int]]]:
    """The levels as servers without `ready_limited` read them: a level has up to nine fields, and a queue two."""
    _, queues = json.loads(zlib.decompress(body))
    ended_ms = json.loads(zlib.decompress(ended))
    assert all(ended_ms.get(queue) is None or isinstance(ended_ms[queue], int) for queue in queues)
    found = {queue: levels for queue, (_, levels) in queues.items()}
    assert all(6 <= len(level) <= 9 for levels in found.values() for level in levels.values())
    return found


def test_limited_jobs_are_known_to_servers_of_this_version_and_nothing_to_those_before() -> None:
    held = LevelCounts(5, 0, 0, 0, 0, 1, ready_limited=4)
    both = LevelCounts(5, 0, 0, 0, 0, 1, replayed=2, ready_limited=3)
    counts = ShardCounts(1, {"mail": QueueCounts(2, {1: held, 2: both}), "calm": QueueCounts(3, {1: NO_JOBS})})
    body, ended, limited = encode(counts), encode_ended(counts), encode_limited(counts)
    assert decode(body, ended, limited) == counts
    mail = read_by_the_version_before(body, ended)["mail"]
    assert mail == {"1": [5, 0, 0, 0, 0, 1], "2": [5, 0, 0, 0, 0, 1, 0, 0, 2]}
    assert json.loads(zlib.decompress(limited)) == {"mail": [2, {"1": 4, "2": 3}]}
    assert decode(body, ended).queues["mail"].levels[1] == held._replace(ready_limited=0)
    assert summed([{1: held}, {1: both}])[1].ready_limited == 7


def test_limited_jobs_count_until_a_server_without_them_counts_again() -> None:
    limited = encode_limited(
        ShardCounts(1, {"mail": QueueCounts(7, {1: LevelCounts(9, 0, 0, 0, 0, 1, ready_limited=4)})})
    )

    def known(at_ms: int, ready: int) -> int:
        body = encode(ShardCounts(1, {"mail": QueueCounts(at_ms, {1: LevelCounts(ready, 0, 0, 0, 0, 1)})}))
        return decode(body, limited=limited).queues["mail"].levels[1].ready_limited

    assert (known(7, 9), known(6, 9), known(6, 3), known(8, 9)) == (4, 4, 3, 0)


async def counted(at: ClusterStand, *, after_ms: int = INTERVAL_MS) -> None:
    """Time passes, and all servers count what is theirs."""
    at.clock.tick(after_ms)
    await at.round()
    for server in at.servers:
        await server.stats.tick()
        await server.stats.drain()


async def servers_with(at: ClusterStand, names: str, *queues: str) -> list[Server]:
    servers = [await at.server(name) for name in names]
    for queue in queues:
        await servers[0].queues.create(queue, "me")
    for server in servers:
        await server.queues.poll()
    await at.round()
    return servers


async def fill(
    at: ClusterStand, queue: str, jobs: int, *, store: int = 0, priority: int = 1, later_ms: int = 0
) -> None:
    run_after_ms = at.clock.now_ms() + later_ms if later_ms else None
    await at.stores[store].enqueue(queue, [Job(b"x", priority, run_after_ms)] * jobs, at.clock.now_ms())


async def known(server: Server, *names: str) -> list[QueueStatus]:
    await server.stats.refresh()
    return server.stats.status(names or None)


def jobs_of(server: Server) -> dict[tuple[object, ...], float]:
    """The gauges that are not zero."""
    return {key[1:]: value for key, value in server.metrics.gauges.items() if key[0] == "queue_jobs" and value}


async def test_every_server_knows_the_sums_over_all_shards() -> None:
    async with cluster_stand(3) as at:
        servers = await servers_with(at, "abc", "mail", "idle")
        for store in range(3):
            await fill(at, "mail", store + 1, store=store)
        at.clock.tick(1_000)
        await fill(at, "mail", 4, store=1, priority=2, later_ms=HOUR_MS)
        await at.claimed(at.stores[2], "mail", 1)
        await counted(at)
        now_ms = at.clock.now_ms()
        for server in servers:
            idle, mail = await known(server)
            assert mail == QueueStatus(
                "mail",
                now_ms,
                [
                    LevelView(1, ready=5, in_progress=1, oldest_ready_ms=now_ms - 1_000 - INTERVAL_MS),
                    LevelView(2, scheduled=4),
                ],
            )
            assert idle == QueueStatus("idle", now_ms, [])
            assert await known(server, "mail", "no_such_queue") == [mail]
            assert (server.stats.pending("mail"), server.stats.pending("idle")) == (9, 0)


async def test_before_anything_was_counted_nothing_is_known() -> None:
    async with cluster_stand() as at:
        (server,) = await servers_with(at, "a", "mail")
        assert await known(server) == [QueueStatus("mail", 0, [])]
        assert server.stats.pending("mail") is None


async def test_each_shard_is_counted_by_its_owner_alone_who_has_its_gauges() -> None:
    async with cluster_stand(4) as at:
        servers = await servers_with(at, "ab", "mail")
        for store in range(4):
            await fill(at, "mail", store + 1, store=store)
        await counted(at)
        for server in servers:
            assert jobs_of(server) == {(shard, "mail", 1, "ready"): int(shard) for shard in server.mine()}
            counted_on = {str(n) for n, store in enumerate(server.reach, 1) if store.begun["stats"]}
            assert counted_on == server.mine()


async def test_ready_jobs_of_paused_groups_are_known_as_limited_everywhere() -> None:
    async with cluster_stand() as at:
        servers = await servers_with(at, "ab", "mail")
        (store,), now_ms = at.stores, at.clock.now_ms()
        await store.enqueue_extended("mail", [Offer(ExtendedJob(b"x", group=group)) for group in "aab"], now_ms)
        rules = json.dumps({"groups": {"a": {"paused": "true", "paused_until": "none"}}, "patterns": []})
        await store.put_config([ConfigEntry(GROUP_RULES_PREFIX + "mail", new_version(now_ms), rules)], now_ms)
        await at.claimed(store, "mail", 1)
        await counted(at)
        for server in servers:
            (mail,) = await known(server)
            assert [(level.ready, level.ready_limited) for level in mail.levels] == [(2, 2)]
        (owner,) = [server for server in servers if server.mine()]
        gauges = owner.metrics.gauges
        assert gauges["queue_jobs", "1", "mail", 1, "ready"] == 2
        assert gauges["queue_ready_limited_jobs", "1", "mail", 1] == 2
        await store.put_config([ConfigEntry(GROUP_RULES_PREFIX + "mail", new_version(now_ms + 1), "{}")], now_ms)
        await counted(at)
        (mail,) = await known(servers[0])
        assert [(level.ready, level.ready_limited) for level in mail.levels] == [(2, 0)]
        assert gauges["queue_ready_limited_jobs", "1", "mail", 1] == 0


async def test_the_gauges_of_a_shard_go_with_it() -> None:
    async with cluster_stand(4) as at:
        servers = await servers_with(at, "ab", "mail")
        for store in range(4):
            await fill(at, "mail", 1, store=store)
        await counted(at)
        leaving, staying = sorted(servers, key=lambda server: len(server.mine()))
        await leaving.membership.drain()
        await counted(at)
        assert not leaving.metrics.gauges
        assert len(jobs_of(staying)) == 4


async def test_gauges_tell_how_long_the_oldest_waits_how_old_the_counts_are_and_what_became_zero() -> None:
    async with cluster_stand() as at:
        (server,) = await servers_with(at, "a", "mail")
        await fill(at, "mail", 2)
        await counted(at, after_ms=7_000)
        gauges = server.metrics.gauges
        assert gauges["queue_oldest_ready_seconds", "1", "mail", 1] == 7
        assert gauges["queue_count_age_seconds", "1"] == 0
        at.clock.tick(1_500)
        await at.round()
        await server.stats.tick()
        assert gauges["queue_count_age_seconds", "1"] == 1.5
        await at.claimed(at.stores[0], "mail", 2)
        await counted(at)
        assert jobs_of(server) == {("1", "mail", 1, "in_progress"): 2}
        assert gauges["queue_jobs", "1", "mail", 1, "ready"] == 0
        assert gauges["queue_oldest_ready_seconds", "1", "mail", 1] == 0
        await server.queues.delete("mail", "me")
        await counted(at)
        assert [key[0] for key in gauges] == ["queue_count_age_seconds", "queue_ended_count_age_seconds"]


async def test_a_shard_is_counted_no_sooner_than_the_interval_says() -> None:
    async with cluster_stand() as at:
        (server,) = await servers_with(at, "a", "mail")
        await fill(at, "mail", 1)
        await counted(at)
        await counted(at, after_ms=INTERVAL_MS - 1)
        assert server.reach[0].begun["stats"] == 1
        await counted(at, after_ms=1)
        assert server.reach[0].begun["stats"] == 2


async def test_what_took_long_is_done_again_only_when_it_is_one_percent_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stats, "SHARE_OF_SMALL", SHARE_OF_SMALL)
    async with cluster_stand() as at:
        (server,) = await servers_with(at, "a", "mail")
        await fill(at, "mail", 1)
        gate = server.reach[0].hold("stats")
        begin = asyncio.get_running_loop().time()
        ticking = asyncio.create_task(server.stats.tick())
        await server.reach[0].until_begun("stats")
        while asyncio.get_running_loop().time() - begin < 0.05:
            await asyncio.sleep(0.01)
        gate.set()
        await ticking
        await server.stats.drain()
        await counted(at, after_ms=4_000)
        assert server.reach[0].begun["stats"] == 1
        await counted(at, after_ms=HOUR_MS)
        assert server.reach[0].begun["stats"] == 2


async def test_a_queue_of_many_pages_is_counted_apart_from_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_counter, "PAGE", 5)
    async with cluster_stand() as at:
        (server,) = await servers_with(at, "a", "huge", "mail")
        await fill(at, "huge", 130)
        await fill(at, "huge", 70, priority=2, later_ms=HOUR_MS)
        await fill(at, "mail", 3)
        at.clock.tick(INTERVAL_MS)
        await at.round()
        await server.stats.tick()
        huge, mail = await known(server)
        assert 0 < sum(level.ready + level.scheduled for level in huge.levels) < 200
        assert mail.levels[0].ready == 3
        for _ in range(2):
            await counted(at, after_ms=HOUR_MS)
        huge, mail = await known(server)
        assert [(level.priority, level.ready, level.scheduled) for level in huge.levels] == [(1, 130, 0), (2, 70, 0)]
        for level in (1, 2):
            await at.stores[0].delete_jobs("huge", 0, level, 190, at.clock.now_ms())  # type: ignore[arg-type]
        await counted(at, after_ms=HOUR_MS)
        await counted(at, after_ms=HOUR_MS)
        assert server.stats.status(["huge"])[0].levels == []
        assert "huge" not in await looks(at, server)  # as it would be among the large ones


async def end(at: ClusterStand, queue: str, jobs: int) -> None:
    """So many ready jobs are claimed, and succeed."""
    refs = [ref for job in await at.claimed(at.stores[0], queue, jobs) if (ref := parse_descriptor(job.descriptor))]
    await at.stores[0].ack(queue, [AckRequest(ref.priority, ref.id, True) for ref in refs], at.clock.now_ms())


def stores_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a count of a large queue takes, its share of the time would let it wait for days."""
    for name in ("SHARE_OF_LIVE", "SHARE", "LEAST_SHARE"):
        monkeypatch.setattr(stats, name, 1e-12)
    monkeypatch.setattr(job_counter, "PAGE", 5)


async def test_a_burst_that_was_drained_is_seen_within_half_a_minute_however_long_counting_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stores_are_slow(monkeypatch)
    async with cluster_stand() as at:
        (server,) = await servers_with(at, "a", "burst", "mail")
        await fill(at, "burst", 50)
        await counted(at)
        await counted(at)
        assert (await known(server, "burst"))[0].levels[0].ready == 50
        counted_at_ms = at.clock.now_ms()
        await end(at, "burst", 50)
        await counted(at, after_ms=stats.MAX_WAIT_MS - 1)
        burst, mail = await known(server)
        assert (burst.levels[0].ready, burst.counted_at_ms) == (50, counted_at_ms)
        assert mail.counted_at_ms == at.clock.now_ms()
        assert server.metrics.gauges["queue_count_age_seconds", "1"] == (stats.MAX_WAIT_MS - 1) / 1000
        await counted(at, after_ms=1)
        (burst,) = await known(server, "burst")
        assert sum(level.ready + level.in_progress for level in burst.levels) == 0
        assert burst.counted_at_ms == at.clock.now_ms()
        await counted(at)
        assert server.metrics.gauges["queue_count_age_seconds", "1"] == 0


async def test_a_count_that_takes_a_large_part_of_the_time_is_not_hurried_and_says_how_old_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stores_are_slow(monkeypatch)
    monkeypatch.setattr(stats, "MOST_OF_LARGE", 1e-12)
    async with cluster_stand() as at:
        (server,) = await servers_with(at, "a", "huge")
        await fill(at, "huge", 50)
        await counted(at)
        await counted(at)
        await fill(at, "huge", 1)
        await counted(at, after_ms=HOUR_MS)
        (huge,) = await known(server)
        assert (huge.levels[0].ready, huge.counted_at_ms) == (50, at.clock.now_ms() - HOUR_MS)
        assert server.metrics.gauges["queue_count_age_seconds", "1"] == HOUR_MS / 1000


async def test_jobs_that_ended_are_counted_more_rarely_than_live_ones_and_say_since_when(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stores_are_slow(monkeypatch)
    async with cluster_stand() as at:
        owner, other = await servers_with(at, "ab", "mail")
        if not owner.mine():
            owner, other = other, owner
        await fill(at, "mail", 20)
        await end(at, "mail", 20)
        await counted(at)
        await counted(at)
        ended_at_ms = at.clock.now_ms()
        await fill(at, "mail", 4)
        await end(at, "mail", 1)
        await counted(at)
        for server in (owner, other):
            (mail,) = await known(server)
            assert (mail.levels[0].ready, mail.levels[0].succeeded) == (3, 20)
            assert (mail.counted_at_ms, mail.ended_counted_at_ms) == (at.clock.now_ms(), ended_at_ms)
        gauges = owner.metrics.gauges
        assert gauges["queue_count_age_seconds", "1"] == 0
        assert gauges["queue_ended_count_age_seconds", "1"] == INTERVAL_MS / 1000


async def test_a_queue_whose_ended_jobs_are_gone_is_counted_at_once_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_counter, "PAGE", 5)
    async with cluster_stand() as at:
        (server,) = await servers_with(at, "a", "mail")
        await fill(at, "mail", 20)
        await end(at, "mail", 18)
        await counted(at)
        await counted(at)
        await at.stores[0].delete_jobs("mail", JobState.SUCCEEDED, 1, 17, at.clock.now_ms())
        for _ in range(2):
            await counted(at, after_ms=HOUR_MS)
        (mail,) = await known(server)
        assert (mail.levels[0].ready, mail.levels[0].succeeded, mail.ended_counted_at_ms) == (2, 1, None)
        assert await looks(at, server) == ["mail"]


def test_an_entry_of_a_server_that_counts_all_at_once_has_one_age() -> None:
    counts = ShardCounts(1, {"mail": QueueCounts(5, {1: LevelCounts(1, 2, 3, 4, 5, 6)}, 3)})
    assert decode(encode(counts), encode_ended(counts)) == counts
    assert json.loads(zlib.decompress(encode(counts))) == [1, {"mail": [5, {"1": [1, 2, 3, 4, 5, 6]}]}]
    assert decode(encode(counts)).queues["mail"].oldest_ms == 5
    assert counts.oldest_ms() == (1, 1)
    assert decode(encode(counts), encode_ended(counts)).queues["mail"].oldest_ms == 3


async def looks(at: ClusterStand, server: Server, *, after_ms: int = INTERVAL_MS) -> list[str]:
    """The queues that one more round looks at."""
    before = len(server.reach[0].sent["stats"])
    await counted(at, after_ms=after_ms)
    return [args[0] for args in server.reach[0].sent["stats"][before:]]


async def test_an_empty_queue_is_looked_at_again_when_jobs_came_or_after_a_while() -> None:
    async with cluster_stand() as at:
        server, other = await servers_with(at, "ab", "mail", "idle", "used", "dead")
        if not server.mine():
            server, other = other, server
        await fill(at, "used", 1)
        assert await looks(at, server, after_ms=HOUR_MS) == ["dead", "idle", "mail", "used"]
        assert await looks(at, server, after_ms=HOUR_MS // 6) == ["dead", "idle", "mail", "used"]
        assert await looks(at, server) == ["used"]
        other.metrics.add(1, "jobs_enqueued", "mail", 1)
        assert await looks(at, server) == ["mail", "used"]
        assert await looks(at, server) == ["used"]
        await server.queues.change("used", {"dead_letter_queue": "dead"}, (), False, "me")
        assert await looks(at, server) == ["dead", "used"]
        await server.queues.take_items("mail", "me")
        assert await looks(at, server) == ["dead", "mail", "used"]
        await server.queues.change("idle", {"dead_letter_queue": "dead"}, (), False, "me")
        assert await looks(at, server) == ["dead", "idle", "mail", "used"]


async def test_a_thousand_idle_queues_are_not_all_looked_at_at_once() -> None:
    async with cluster_stand() as at:
        (server,) = await servers_with(at, "a", "mail")
        server.queues.names = lambda: {f"q{number}" for number in range(1_000)}  # type: ignore[method-assign]
        assert len(await looks(at, server)) == 1_000
        rounds = [len(await looks(at, server, after_ms=job_counter.EMPTY_MS // 4)) for _ in range(12)]
        assert rounds[:3] == [0, 0, 0]
        assert max(rounds) < 500
        assert sum(rounds) >= 1_000


async def test_a_shard_without_the_queue_or_out_of_reach_keeps_the_rest_as_it_was() -> None:
    async with cluster_stand(2) as at:
        (server,) = await servers_with(at, "a", "mail")
        for store in range(2):
            await fill(at, "mail", 2, store=store)
        await counted(at)
        before_ms = at.clock.now_ms()
        for store in range(2):
            await fill(at, "mail", 1, store=store)
        server.reach[0].failures["stats"] = [OutcomeUnknown("no answer")] * 10
        await counted(at)
        (mail,) = await known(server)
        assert (mail.counted_at_ms, mail.levels[0].ready) == (before_ms, 5)
        server.reach[0].failures.clear()
        await counted(at)
        (mail,) = await known(server)
        assert (mail.counted_at_ms, mail.levels[0].ready) == (at.clock.now_ms(), 6)


async def test_what_was_counted_is_still_known_when_no_shard_can_be_used() -> None:
    async with cluster_stand(2) as at:
        servers = await servers_with(at, "ab", "mail")
        await fill(at, "mail", 3, store=1)
        await counted(at)
        for server in servers:
            await known(server)
            for member in server.members.all:
                member.health.trip(at.clock.now_ms())
            at.clock.tick(LEASE_MS)
            (mail,) = await known(server)
            assert mail.levels[0].ready == 3
            assert mail.counted_at_ms < at.clock.now_ms()


async def test_the_notes_are_read_once_a_second_at_most_and_nobody_waits_long_for_them() -> None:
    async with cluster_stand() as at:
        (server,) = await servers_with(at, "a", "mail")
        for _ in range(3):
            await known(server)
        assert [args[0] for args in server.reach[0].sent["kv_list"]].count(KIND) == 1
        at.clock.tick(1_000)
        gate = server.reach[0].hold("kv_list")
        await asyncio.wait_for(asyncio.gather(known(server), known(server)), 60)
        assert [args[0] for args in server.reach[0].sent["kv_list"]].count(KIND) == 2
        gate.set()


async def test_a_note_that_is_no_count_is_left_out() -> None:
    async with cluster_stand() as at:
        (server,) = await servers_with(at, "a", "mail")
        now_ms = at.clock.now_ms()
        for body in (b"", b"x", encode(ShardCounts(0))[:-3]):
            await at.stores[0].kv_put(KIND, NAME, body, now_ms + HOUR_MS, now_ms)
            at.clock.tick(1_000)
            assert await known(server) == [QueueStatus("mail", 0, [])]


async def test_counts_that_cannot_be_put_are_known_to_their_counter() -> None:
    async with cluster_stand() as at:
        (server,) = await servers_with(at, "a", "mail")
        await fill(at, "mail", 1)
        at.clock.tick(INTERVAL_MS)
        await at.round()
        server.reach[0].failures["kv_put"] = [NothingStored("refused")]
        await server.stats.tick()
        assert server.stats.pending("mail") == 1


def test_pages_are_added_up_and_levels_without_jobs_left_out() -> None:
    none = LevelCounts(0, 0, 0, 0, 0, None)
    pages: Sequence[dict[int, LevelCounts]] = [
        {2: LevelCounts(1, 2, 3, 4, 5, 90), 3: none},
        {1: LevelCounts(0, 1, 0, 0, 0, None), 2: LevelCounts(10, 0, 0, 0, 1, 80)},
        {2: none},
    ]
    assert summed(pages) == {1: LevelCounts(0, 1, 0, 0, 0, None), 2: LevelCounts(11, 2, 3, 4, 6, 80)}


def test_a_note_of_a_thousand_queues_is_small_and_comes_back_as_it_was() -> None:
    level = LevelCounts(123_456, 789, 1_000, 10_000_000, 3, 1_790_000_000_000)
    queues = {f"queue_{number}": QueueCounts(5, {1: level, 3: level}) for number in range(1_000)}
    body = encode(ShardCounts(7, queues))
    assert decode(body) == ShardCounts(7, queues)
    assert len(body) < 30_000
