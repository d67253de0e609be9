"""What a server tells operators of its cluster, and how much happens per second in it."""

from __future__ import annotations

import pytest

from pinlater.cluster.lease import MAX_QUEUES, Lease
from pinlater.cluster.status import flags, pause
from pinlater.cluster.throughput import KEPT_MS, CounterBook, QueueCounters, Throughput
from pinlater.metrics import Metrics
from pinlater.model import Job, PauseView
from pinlater.queues.settings import QueueSettings
from tests.unit.cluster_stand import LEASE_MS, ClusterStand, Server, cluster_stand

START_MS = 1_790_000_000_000
LONG_AGO_MS = START_MS - 3_600_000


def lease(name: str, after_ms: int, enqueued: int, *, started_ms: int = LONG_AGO_MS, queue: str = "mail") -> Lease:
    return Lease(
        server=name,
        process="1",
        address="",
        started_ms=started_ms,
        renewed_ms=START_MS + after_ms,
        renewal=after_ms,
        is_ready=True,
        counters={queue: (enqueued, 0, 0, 0, 0)} if enqueued else {},
    )


def enqueued(rates: Throughput, queue: str = "mail") -> float | None:
    return rates.per_second().get(queue, {}).get("enqueued")


# -- rates -----------------------------------------------------------------------------------------------------------


def test_a_rate_is_what_came_in_the_time_between_two_leases_over_all_processes() -> None:
    rates = Throughput()
    rates.update([lease("a", 0, 1_000), lease("b", 100, 5_000)])
    assert enqueued(rates) is None
    rates.update([lease("a", 2_000, 1_100), lease("b", 2_100, 5_300)])
    assert enqueued(rates) == 50 + 150
    rates.update([lease("a", 4_000, 1_300), lease("b", 2_100, 5_300)])
    assert enqueued(rates) == 75 + 150


def test_a_rate_is_of_the_last_few_seconds() -> None:
    rates = Throughput()
    for after_ms, jobs in ((0, 0), (1_000, 9_000), (2_000, 9_000), (3_000, 9_000), (4_000, 9_000)):
        rates.update([lease("a", after_ms, jobs)])
    assert enqueued(rates) == 0


def test_a_process_that_restarted_begins_anew() -> None:
    rates = Throughput()
    rates.update([lease("a", 0, 1_000)])
    rates.update([lease("a", 1_000, 1_100)])
    rates.update([lease("a", 5_000, 40, started_ms=START_MS + 3_000)])
    assert enqueued(rates) == 20


def test_a_process_that_is_gone_counts_no_more() -> None:
    rates = Throughput()
    for after_ms in (0, 1_000):
        rates.update([lease("a", after_ms, 10 + after_ms), lease("b", after_ms, 10 + after_ms)])
    rates.update([lease("b", 2_000, 2_010)])
    assert enqueued(rates) == 1_000


def test_a_queue_that_is_new_in_a_lease_counts_from_nothing_unless_the_lease_had_no_place_for_it() -> None:
    rates = Throughput()
    rates.update([lease("a", 0, 10, queue="other")])
    rates.update([lease("a", 1_000, 10)])
    assert enqueued(rates) == 10
    full = {f"q{number}": (1, 0, 0, 0, 0) for number in range(MAX_QUEUES)}
    rates = Throughput()
    rates.update([Lease(**{**_plain(lease("a", 0, 0)), "counters": full})])  # type: ignore[arg-type]
    rates.update([lease("a", 1_000, 1_000_000)])
    assert enqueued(rates) is None


def _plain(of: Lease) -> dict[str, object]:
    return {name: getattr(of, name) for name in Lease.__dataclass_fields__}


def test_of_too_many_queues_a_rate_is_over_the_leases_that_name_the_queue() -> None:
    others = {f"q{number}": (1, 0, 0, 0, 0) for number in range(MAX_QUEUES - 1)}
    rates = Throughput()
    for after_ms, jobs in ((0, None), (1_000, 100), (2_000, None), (3_000, 300)):
        named = others | ({"mail": (jobs, 0, 0, 0, 0)} if jobs is not None else {"else": (1, 0, 0, 0, 0)})
        rates.update([Lease(**{**_plain(lease("a", after_ms, 0)), "counters": named})])  # type: ignore[arg-type]
    assert enqueued(rates) == 100


# -- totals ----------------------------------------------------------------------------------------------------------


def totals(book: CounterBook, since_ms: int = 0) -> dict[str, dict[str, int]]:
    found = book.since(since_ms, lambda _: True)
    return {each.process: {queue: numbers[0] for queue, numbers in each.queues.items()} for each in found}


def test_the_totals_of_each_process_are_put_together_from_its_leases() -> None:
    book = CounterBook()
    book.update([lease("a", 0, 5), lease("b", 0, 7)], START_MS)
    book.update([lease("a", 1_000, 3, queue="sms"), lease("b", 1_000, 7)], START_MS + 1_000)
    assert totals(book) == {"a/1": {"mail": 5, "sms": 3}, "b/1": {"mail": 7}}
    assert totals(book, START_MS + 1) == {"a/1": {"sms": 3}, "b/1": {}}
    assert [each.queues for each in book.since(0, "sms".__eq__)] == [{"sms": (3, 0, 0, 0, 0)}, {}]


def test_what_a_late_lease_tells_is_told_to_those_who_asked_meanwhile() -> None:
    """As where a shard answers slowly: the totals are of before they asked last."""
    book = CounterBook()
    book.update([lease("a", 0, 5)], START_MS)
    assert totals(book, START_MS + 8_000) == {"a/1": {}}
    book.update([lease("a", 1_000, 9)], START_MS + 9_000)
    assert totals(book, START_MS + 8_000) == {"a/1": {"mail": 9}}


def test_a_process_that_ended_is_told_of_a_while_longer_and_one_that_began_anew_alone() -> None:
    book = CounterBook()
    book.update([lease("a", 0, 5), lease("b", 0, 7)], START_MS)
    book.update([lease("b", KEPT_MS, 8)], START_MS + KEPT_MS)
    assert totals(book) == {"a/1": {"mail": 5}, "b/1": {"mail": 8}}
    book.update([lease("b", KEPT_MS + 1, 2, started_ms=START_MS + KEPT_MS)], START_MS + KEPT_MS + 1)
    assert totals(book) == {"b/1": {"mail": 2}}


def test_every_queue_of_very_many_has_its_turn_in_the_leases() -> None:
    metrics, book = Metrics(), CounterBook()
    counters = QueueCounters(metrics)
    queues = [f"q{number}" for number in range(3 * MAX_QUEUES)]
    for at_ms in range(0, 6_000, 1_000):
        for queue in queues:
            metrics.add(2 if queue == "q7" else 1, "jobs_dequeued", queue, 1)
        told = Lease(**{**_plain(lease("a", at_ms, 0)), "counters": counters.read()})  # type: ignore[arg-type]
        assert len(told.counters) == MAX_QUEUES
        book.update([told], START_MS + at_ms)
    (found,) = book.since(0, lambda _: True)
    assert found.is_cut
    assert found.queues.keys() == set(queues)
    assert all(numbers[1] >= 3 for numbers in found.queues.values())


def test_what_fails_without_an_ack_counts_too() -> None:
    metrics = Metrics()
    for family, *rest in (
        ("jobs_acked", 1, "failed"),
        ("jobs_acked", 1, "ignored"),
        ("claims_expired", "failed"),
        ("claims_released", "retried"),
        ("claims_expired", "cancelled"),
        ("jobs_expired",),
        ("flow_items_queued",),
        ("letters_stored",),
    ):
        metrics.add(1, family, "mail", *rest)
    assert QueueCounters(metrics).read() == {"mail": (2, 0, 0, 3, 1)}


def test_a_clock_that_is_set_back_begins_anew() -> None:
    rates = Throughput()
    rates.update([lease("a", 10_000, 50)])
    rates.update([lease("a", 1_000, 60)])
    assert enqueued(rates) is None
    rates.update([lease("a", 2_000, 70)])
    assert enqueued(rates) == 10


# -- the status ------------------------------------------------------------------------------------------------------


async def two(at: ClusterStand) -> tuple[Server, Server]:
    """Two servers and a queue with jobs, that both know."""
    first, second = await at.server("a"), await at.server("b")
    await first.queues.create("mail", "me")
    await first.queues.create("idle", "me")
    await second.queues.poll()
    await at.round()
    await at.stores[0].enqueue("mail", [Job(b"x")] * 3, at.clock.now_ms())
    for server in (first, second):
        await server.stats.tick()
    return first, second


async def test_it_tells_of_servers_shards_and_queues() -> None:
    async with cluster_stand(2) as at:
        first, second = await two(at)
        first.metrics.add(30, "jobs_enqueued", "mail", 1)
        at.clock.tick(LEASE_MS // 3)
        await at.round(1)
        first.metrics.add(30, "jobs_enqueued", "mail", 1)
        at.clock.tick(LEASE_MS // 3)
        await at.round()
        for server in (first, second):
            status = await server.cluster.status()
            assert status.now_ms == at.clock.now_ms()
            assert [(each.server, each.address, each.is_ready) for each in status.servers] == [
                ("a", "a:9010", True),
                ("b", "b:9010", True),
            ]
            maintained = {shard: f"{each.server}/1" for each in status.servers for shard in each.maintains}
            assert {each.id: each.maintained_by for each in status.shards} == maintained
            assert {each.state for each in status.shards} == {"in"}
            assert [each.jobs for each in status.shards] == [3, 0]
            assert all(0 < (each.counted_at_ms or 0) <= status.now_ms for each in status.shards)
            assert [each.name for each in status.queues] == ["idle", "mail"]
            mail = status.queues[1]
            assert mail.levels[0].ready == 3
            assert mail.rates["enqueued"] == pytest.approx(100)
            assert status.queues[0].rates == {}


async def test_a_shard_that_takes_no_new_jobs_says_whose_jobs_it_holds() -> None:
    async with cluster_stand(1) as at:
        first, second = await two(at)
        for server in (first, second):
            assert (await server.cluster.status([])).shards[0].jobs_by_queue == {}
            server.members.all[0].ordered_dequeue_only = True
            assert (await server.cluster.status([])).shards[0].jobs_by_queue == {"mail": 3}


async def test_it_can_tell_of_some_queues_alone_and_of_none() -> None:
    async with cluster_stand() as at:
        first, _ = await two(at)
        assert [each.name for each in (await first.cluster.status(["mail", "nothing"])).queues] == ["mail"]
        assert (await first.cluster.status([])).queues == []


async def test_a_shard_that_one_process_found_full_is_shown_as_full_by_all() -> None:
    async with cluster_stand(2) as at:
        first, second = await two(at)
        first.members.all[0].note_full("free some space")
        await at.round(2)
        for server, trouble in ((first, "free some space"), (second, "full at a/1")):
            status = await server.cluster.status([])
            assert [(each.state, each.is_full, each.trouble) for each in status.shards] == [
                ("in", True, trouble),
                ("in", False, ""),
            ]
            assert [each.shards_full for each in status.servers] == [["1"], []]
        first.members.all[0].note_room()
        await at.round(2)
        assert not any(each.is_full for each in (await second.cluster.status([])).shards)


async def test_without_any_shard_it_tells_what_it_knows() -> None:
    async with cluster_stand(2) as at:
        first, second = await two(at)
        await second.cluster.status()
        at.kill(first)
        for member in second.members.all:
            member.eject("it is gone")
        await at.round(1)
        status = await second.cluster.status()
        assert [each.server for each in status.servers] == ["a", "b"]
        assert status.servers[1].shards_out == ["1", "2"]
        assert [(each.state, each.trouble) for each in status.shards] == [("out", "it is gone")] * 2
        assert {each.maintained_by for each in status.shards} == {"a/1"}
        assert status.queues[1].levels[0].ready == 3
        at.clock.tick(LEASE_MS)
        await at.round(1)
        status = await second.cluster.status()
        assert [(each.server, each.maintains) for each in status.servers] == [("b", [])]
        assert {each.maintained_by for each in status.shards} == {""}
        assert status.queues[1].levels[0].ready == 3


def test_a_pause_is_told_while_it_lasts() -> None:
    assert pause(QueueSettings(paused_why="before")) is None
    held = QueueSettings(paused=True, paused_by="ann", paused_at_ms=1, paused_why="down", paused_until_ms=2)
    assert pause(held) == PauseView("ann", "down", 1, 2)


def test_flags_say_what_holds_a_queue_back() -> None:
    assert flags(QueueSettings()) == []
    held = QueueSettings(paused=True, draining=True, max_jobs_per_second=2.5, max_in_progress=7)
    assert flags(held) == ["paused", "draining", "limited to 2.5/s", "at most 7 in progress"]
