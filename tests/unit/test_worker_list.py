"""The list of workers: two servers hear of workers, and each of them lists them all."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from pinlater.cluster.worker_entries import (
    MAX_RUNNING,
    SeenWorker,
    decode_entries,
    decode_entry,
    encode_worker,
    entries,
)
from pinlater.cluster.worker_list import (
    KEEP_MS,
    KIND,
    MAX_BYTES,
    PAGE_BYTES,
    READ_FOR_S,
    READ_WITHIN_S,
    SOON_S,
    WRITE_AFTER_S,
    WRITES_APART_S,
    WorkerList,
)
from pinlater.errors import ContinuationInvalid, PinLaterError, StoreRefused
from pinlater.model import (
    ANONYMOUS,
    CONTINUATION_END,
    CONTINUATION_START,
    WorkerCommand,
    WorkerJob,
    WorkerReport,
    WorkersPage,
)
from pinlater.wire.codec import encode_reply
from tests.unit.breaking import HeldClock, HeldTime, until_quiet
from tests.unit.cluster_stand import ClusterStand, Server, cluster_stand

REPORT = WorkerReport(
    "a1",
    "shop",
    5_000,
    host="host-1",
    pid=7,
    queues={"mail": 3, "images": 1},
    slots=8,
    busy_slots=2,
    stuck_slots=1,
    running=[WorkerJob("mail:s1:p1:1790000000000001", "send", 4_000), WorkerJob("mail:s1:p1:1790000000000002")],
    versions={"python": "3.11.2"},
)


class Stand:
    """A cluster whose servers keep lists of workers."""

    def __init__(self, cluster: ClusterStand) -> None:
        self.cluster = cluster
        self.lists: list[WorkerList] = []

    async def server(self, name: str, clock: HeldClock | None = None) -> tuple[Server, WorkerList]:
        made: list[WorkerList] = []
        server = await self.cluster.server(name, clock=clock, describe=lambda: made[0].describe() if made else {})
        membership = server.membership
        made.append(WorkerList(server.members, server.clock, membership.me.lease_name, membership.alive))
        self.lists.append(made[0])
        return server, made[0]


@pytest.fixture
def stand(runner: asyncio.Runner) -> Iterator[Stand]:
    stack = AsyncExitStack()

    async def opened() -> Stand:
        return Stand(await stack.enter_async_context(cluster_stand(2)))

    async def close() -> None:
        for each in stand.lists:
            await each.close()
        await stack.aclose()

    stand = runner.run(opened())
    yield stand
    runner.run(close())


async def listed(workers: WorkerList, *, queue: str = "", name: str = "", **options: object) -> WorkersPage:
    wanted = {"include_running": True, "continuation": CONTINUATION_START, "limit": 100, **options}
    return await workers.page(queue, name, **wanted)  # type: ignore[arg-type]


async def names(workers: WorkerList) -> list[str]:
    return [each.id for each in (await listed(workers)).workers]


async def test_a_worker_is_listed_as_it_said_it_by_the_clock_of_the_server(stand: Stand) -> None:
    _, one = await stand.server("a")
    one.receive(REPORT)
    page = await listed(one)
    (worker,) = page.workers
    now_ms = stand.cluster.clock.now_ms()
    assert (worker.name, worker.host, worker.pid, worker.queues) == ("shop", "host-1", 7, {"mail": 3, "images": 1})
    assert (worker.started_ms, worker.seen_ms, worker.longest_since_ms) == (now_ms - 5_000, now_ms, now_ms - 4_000)
    assert [(job.job_type, job.since_ms) for job in worker.running] == [("send", now_ms - 4_000), ("", now_ms)]
    assert (page.total, page.slots, page.busy_slots, page.stuck_slots) == (1, 8, 2, 1)
    assert (await listed(one, include_running=False)).workers[0].running == []


async def test_every_server_lists_what_another_one_heard(stand: Stand) -> None:
    _, one = await stand.server("a")
    one.receive(REPORT)
    await one.close()  # writes what is not written yet
    _, other = await stand.server("b")
    assert await names(other) == ["a1"]
    assert (await listed(other)).workers == (await listed(one)).workers


async def test_the_newest_word_of_a_worker_counts_whichever_server_heard_it(stand: Stand) -> None:
    _, one = await stand.server("a")
    _, other = await stand.server("b")
    one.receive(replace(REPORT, busy_slots=1))
    other.receive(replace(REPORT, up_ms=6_000, busy_slots=2))
    one.receive(replace(REPORT, up_ms=4_000, busy_slots=3))  # late, or sent again
    await one.close()
    await other.close()
    for each in stand.lists:
        assert [worker.busy_slots for worker in (await listed(each)).workers] == [2]


async def test_a_worker_that_stops_in_order_is_gone_at_once_also_where_another_server_heard_it_before(
    stand: Stand,
) -> None:
    _, one = await stand.server("a")
    one.receive(REPORT)
    await one.close()
    _, other = await stand.server("b")
    other.receive(replace(REPORT, up_ms=5_001, has_stopped=True))
    assert await names(other) == []
    await other.close()
    _, third = await stand.server("c")
    assert await names(third) == []


async def test_a_word_counts_for_its_identity_whichever_server_heard_it(stand: Stand) -> None:
    _, one = await stand.server("a")
    _, other = await stand.server("b")
    one.receive(REPORT, "token:shop")
    other.receive(replace(REPORT, up_ms=9_000, has_stopped=True), "token:thief")
    other.receive(replace(REPORT, up_ms=9_000, slots=1), "anonymous")
    await one.close()
    await other.close()
    _, third = await stand.server("c")
    for each in stand.lists:
        found = (await listed(each)).workers
        assert {worker.identity: worker.slots for worker in found} == {"token:shop": 8, "anonymous": 1}
    third.receive(replace(REPORT, up_ms=5_001, has_stopped=True), "token:shop")
    assert [worker.identity for worker in (await listed(third)).workers] == ["anonymous"]


async def test_workers_of_one_id_are_told_apart_from_page_to_page(stand: Stand) -> None:
    _, one = await stand.server("a")
    for identity in ("token:a", "token:b", "token:c"):
        one.receive(REPORT, identity)
    found, continuation = [], CONTINUATION_START
    while continuation != CONTINUATION_END:
        page = await listed(one, limit=1, continuation=continuation)
        found += [worker.identity for worker in page.workers]
        continuation = page.continuation
    assert found == ["token:a", "token:b", "token:c"]
    older = '["shop","host-1",7,"a"]'  # as servers of before continue
    assert len((await listed(one, continuation=older)).workers) == 3


async def test_what_an_older_server_heard_counts_where_nobody_knows_whose_word_it_is(stand: Stand) -> None:
    _, one = await stand.server("a")
    now_ms = stand.cluster.clock.now_ms()
    reports = [REPORT, replace(REPORT, id="a2", up_ms=9_000, has_stopped=True), replace(REPORT, id="a3", up_ms=9_000)]
    lines = [encode_worker(SeenWorker(each, now_ms)).replace(b',"identity":null', b"") for each in reports]
    (body,) = entries(lines)
    assert b"identity" not in zlib.decompress(body)
    await stand.cluster.stores[0].kv_put(KIND, "x/1/0", body, now_ms + KEEP_MS, now_ms)
    for id in ("a2", "a3"):
        one.receive(replace(REPORT, id=id, busy_slots=5), "token:shop")
    found = (await listed(one)).workers
    assert {worker.id: (worker.identity, worker.busy_slots) for worker in found} == {
        "a1": (None, 2),
        "a2": ("token:shop", 5),
        "a3": ("token:shop", 5),
    }


async def test_a_worker_that_says_no_more_is_gone_after_a_minute(stand: Stand) -> None:
    _, one = await stand.server("a")
    one.receive(REPORT)
    await one.close()
    await stand.server("b")
    stand.cluster.clock.tick(KEEP_MS - 1)
    assert [await names(each) for each in stand.lists] == [["a1"], ["a1"]]
    stand.cluster.clock.tick(1)
    assert [await names(each) for each in stand.lists] == [[], []]
    assert await stand.cluster.stores[0].kv_list(KIND, stand.cluster.clock.now_ms()) == {}


async def test_a_process_writes_to_one_shard_and_to_another_one_where_that_is_out(stand: Stand) -> None:
    server, one = await stand.server("a")
    one.receive(REPORT)
    await one.close()

    async def holders() -> list[str]:
        now_ms = stand.cluster.clock.now_ms()
        return [store.shard_id for store in stand.cluster.stores if await store.kv_list(KIND, now_ms)]

    (first,) = await holders()
    member = next(each for each in server.members.all if each.shard.shard_id == first)
    member.eject("for a test")
    one.receive(replace(REPORT, up_ms=6_000))
    await one.close()
    assert len(await holders()) == 2


async def test_what_is_heard_is_written_soon_where_a_worker_starts_or_stops_and_else_joined(stand: Stand) -> None:
    server, one = await stand.server("a")
    time = HeldTime(*server.reach)

    def writes() -> int:
        return sum(reach.begun["kv_put"] for reach in server.reach)

    one.receive(REPORT)
    assert writes() == 0
    await time.leap(SOON_S)
    await until_quiet(*server.reach)
    assert writes() == 1
    for number in range(100):
        one.receive(replace(REPORT, up_ms=6_000 + number))
    await time.leap(WRITE_AFTER_S - 0.1)
    assert writes() == 1
    await time.leap(0.2)
    await until_quiet(*server.reach)
    assert writes() == 2
    await time.leap(600)
    assert writes() == 2
    one.receive(replace(REPORT, up_ms=7_000, is_stopping=True))
    await time.leap(SOON_S)
    await until_quiet(*server.reach)
    assert writes() == 3


async def test_a_shard_that_takes_no_entry_is_tried_again_until_it_does(stand: Stand) -> None:
    server, one = await stand.server("a")
    time = HeldTime(*server.reach)
    for reach in server.reach:
        reach.failures["kv_put"] = [StoreRefused("for a test")]
    one.receive(REPORT)
    await time.leap(SOON_S)
    await until_quiet(*server.reach)
    await time.leap(WRITE_AFTER_S)
    await until_quiet(*server.reach)
    _, other = await stand.server("b")
    assert await names(other) == ["a1"]


async def test_what_a_shard_said_is_kept_while_it_cannot_be_read_and_the_shard_is_named(stand: Stand) -> None:
    _, one = await stand.server("a")
    one.receive(REPORT)
    await one.close()
    server, other = await stand.server("b")
    time = HeldTime(*server.reach)
    assert await names(other) == ["a1"]
    for reach in server.reach:
        reach.failures["kv_list"] = [StoreRefused("for a test")]
    await time.leap(READ_FOR_S)
    page = await listed(other)
    assert ([each.id for each in page.workers], page.missing_shards) == (["a1"], ["1", "2"])
    await time.leap(READ_FOR_S)
    assert (await listed(other)).missing_shards == []


async def test_a_shard_that_does_not_answer_keeps_nobody_waiting_for_long(stand: Stand) -> None:
    server, one = await stand.server("a")
    time = HeldTime(*server.reach)
    one.receive(REPORT)
    for reach in server.reach:
        reach.hold("kv_list")
    asking = asyncio.ensure_future(listed(one))
    await time.leap(READ_WITHIN_S)
    page = await asking
    assert ([each.id for each in page.workers], page.missing_shards) == (["a1"], ["1", "2"])
    for reach in server.reach:
        reach.heal()


async def test_nothing_is_written_or_described_where_no_worker_reports(stand: Stand) -> None:
    server, one = await stand.server("a")
    assert one.describe() == {}
    await one.set_gauges(server.metrics, {"mail"}, server.membership.alive())
    await one.close()
    for store, reach in zip(stand.cluster.stores, server.reach, strict=True):
        assert await store.kv_list(KIND, stand.cluster.clock.now_ms()) == {}
        assert reach.begun["kv_list"] == reach.begun["kv_put"] == 0


async def test_gauges_tell_of_the_whole_cluster_and_label_only_queues_that_are_there(stand: Stand) -> None:
    server, one = await stand.server("a")
    _, other = await stand.server("b")
    one.receive(REPORT)
    other.receive(replace(REPORT, id="a2", slots=4, busy_slots=0, stuck_slots=0))
    await other.close()
    lease = replace(server.membership.alive()[0], more=other.describe())
    await one.set_gauges(server.metrics, {"mail"}, [lease])
    gauges = {key: value for key, value in server.metrics.gauges.items() if "worker" in key[0]}
    assert gauges == {
        ("cluster_workers",): 2,
        ("cluster_worker_slots", "free"): 9,
        ("cluster_worker_slots", "busy"): 2,
        ("cluster_worker_slots", "stuck"): 1,
        ("queue_workers", "mail"): 2,
    }


async def test_pages_go_by_name_and_together_have_each_worker_once(stand: Stand) -> None:
    _, one = await stand.server("a")
    for number in range(25):
        one.receive(replace(REPORT, id=f"id{number}", name=f"n{number % 5}", pid=number))
    got, continuation = [], CONTINUATION_START
    while continuation != CONTINUATION_END:
        page = await listed(one, limit=7, continuation=continuation)
        assert (page.total, page.slots, len(page.workers) <= 7) == (25, 25 * 8, True)
        got += [(each.name, each.pid) for each in page.workers]
        continuation = page.continuation
    assert got == sorted((f"n{number % 5}", number) for number in range(25))


def crowded(number: int) -> WorkerReport:
    """As long as a report can be, in characters of four bytes."""
    long = "\U0001f600" * 200
    return WorkerReport(
        f"{number}",
        long,
        1,
        long,
        queues={f"{each}{long}": 1 for each in range(100)},
        running=[WorkerJob(long, long, 1)] * MAX_RUNNING,
        versions={f"{each}{long}": long for each in range(20)},
    )


async def test_no_crowd_of_workers_makes_an_answer_too_long_or_a_process_too_large(stand: Stand) -> None:
    _, one = await stand.server("a")
    for number in range(300):
        one.receive(crowded(number))
    kept = (await listed(one, limit=1)).total
    assert 50 < kept < 150
    assert kept * len(encode_worker(SeenWorker(crowded(0), 0))) > MAX_BYTES / 4
    got, continuation = 0, CONTINUATION_START
    while continuation != CONTINUATION_END:
        page = await listed(one, limit=10_000, continuation=continuation)
        assert len(encode_reply("getWorkers", 1, page)) <= PAGE_BYTES
        got, continuation = got + len(page.workers), page.continuation
    assert got == kept
    assert len((await listed(one, limit=10_000, include_running=False)).workers) > len(page.workers)


async def test_a_write_that_takes_long_is_not_overtaken_by_the_next(stand: Stand) -> None:
    server, one = await stand.server("a")
    time = HeldTime(*server.reach)
    held = [reach.hold("kv_put") for reach in server.reach]
    one.receive(REPORT)
    await time.leap(SOON_S)
    one.receive(replace(REPORT, up_ms=6_000, has_stopped=True))
    await time.leap(2)
    assert sum(reach.begun["kv_put"] for reach in server.reach) == 1
    for gate in held:
        gate.set()
    await until_quiet(*server.reach)
    await time.leap(WRITES_APART_S)
    await until_quiet(*server.reach)
    assert sum(reach.begun["kv_put"] for reach in server.reach) == 2
    _, other = await stand.server("b")
    assert await names(other) == []


async def test_the_list_can_be_of_one_queue_or_one_name(stand: Stand) -> None:
    _, one = await stand.server("a")
    one.receive(REPORT)
    one.receive(replace(REPORT, id="a2", name="office", queues={"letters": 1}))
    for wanted, ids in (
        ({"queue": "mail"}, ["a1"]),
        ({"queue": "letters"}, ["a2"]),
        ({"name": "office"}, ["a2"]),
        ({"queue": "mail", "name": "office"}, []),
    ):
        assert [each.id for each in (await listed(one, **wanted)).workers] == ids  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "1", "[]", '["a","b","c","d"]', '["a","b",1]', "\x1b[2J", "-1"])
async def test_a_continuation_that_was_not_given_is_refused(stand: Stand, text: str) -> None:
    _, one = await stand.server("a")
    with pytest.raises(ContinuationInvalid, match="was not given for this list"):
        await listed(one, continuation=text)


async def test_what_is_too_much_or_below_zero_is_cut_and_one_without_an_id_is_not_kept(stand: Stand) -> None:
    _, one = await stand.server("a")
    one.receive(replace(REPORT, id=""))
    assert await names(one) == []
    long = "x" * 5_000
    one.receive(
        WorkerReport(
            long,
            long,
            -5,
            long,
            -1,
            {f"{number}{long}": -1 for number in range(500)},
            -1,
            -1,
            -1,
            [WorkerJob(long, long, -1)] * 500,
            {f"{number}{long}": long for number in range(500)},
            silent_ms=-1,
            job_types=[long] * 500,
        )
    )
    (worker,) = (await listed(one)).workers
    assert (len(worker.id), len(worker.name), len(worker.host), worker.pid) == (100, 100, 100, 0)
    assert (len(worker.queues), len(worker.running), len(worker.versions)) == (100, 100, 20)
    assert [len(name) for name in worker.job_types] == [200] * 100
    assert {len(name) for name in worker.queues} == {100}
    assert set(worker.queues.values()) == {0}
    assert (worker.started_ms, worker.silent_since_ms) == (worker.seen_ms, None)
    assert {(len(job.job_type), len(job.job_descriptor), job.since_ms) for job in worker.running} == {
        (200, 200, worker.seen_ms)
    }


def test_types_of_job_are_for_who_may_see_all_queues_of_a_worker() -> None:
    worker = SeenWorker(replace(REPORT, job_types=["send"]), 17)
    for is_kept, types in ((lambda _: True, ["send"]), (lambda queue: queue == "mail", [])):
        view = worker.view(include_running=True)
        view.keep_queues(is_kept)
        assert view.job_types == types
    assert worker.view(include_running=False).job_types == []


async def test_the_jobs_that_run_longest_are_first_and_the_others_are_cut(stand: Stand) -> None:
    _, one = await stand.server("a")
    running = [WorkerJob(f"mail:s1:p1:{number}", "letter", number) for number in (*range(0, 200, 2), *range(1, 200, 2))]
    one.receive(replace(REPORT, running=running))
    (worker,) = (await listed(one)).workers
    assert [job.job_descriptor for job in worker.running] == [f"mail:s1:p1:{number}" for number in range(199, 99, -1)]


async def test_entries_that_another_version_wrote_are_read_as_far_as_they_are_understood(stand: Stand) -> None:
    _, one = await stand.server("a")
    now_ms = stand.cluster.clock.now_ms()
    line = encode_worker(SeenWorker(REPORT, now_ms))
    newer = line.replace(b'{"seen_ms"', b'{"mood":[1],"seen_ms"').replace(b'"name"', b'"colour":"red","name"')
    bodies = [zlib.compress(newer), b"", b"nonsense", zlib.compress(b'[1,{"id":5}]'), zlib.compress(b"[")]
    for number, body in enumerate(bodies):
        await stand.cluster.stores[0].kv_put(KIND, f"x/1/{number}", body, now_ms + KEEP_MS, now_ms)
    assert await names(one) == ["a1"]


def test_many_workers_take_several_entries_of_bounded_size() -> None:
    seen = [SeenWorker(replace(REPORT, id=f"id{number}", up_ms=number), 17) for number in range(1_000)]
    bodies = list(entries(map(encode_worker, seen)))
    assert len(bodies) > 1
    assert [worker for body in bodies for worker in decode_entry(body)] == seen
    assert sum(map(len, bodies)) < 100 * 1_000
    assert decode_entry(next(entries([]))) == []


def test_others_have_their_turn_behind_each_entry_that_is_read() -> None:
    (body,) = entries([encode_worker(SeenWorker(REPORT, 5, "token:shop"))])
    reading = decode_entries({"a": body, "b": b"nonsense", "c": body})
    for _ in range(3):
        reading.send(None)
    with pytest.raises(StopIteration) as ended:
        reading.send(None)
    seen = [SeenWorker(REPORT, 5, "token:shop")]
    assert ended.value.value == {"a": seen, "b": None, "c": seen}


# -- commands ----------------------------------------------------------------------------------------------------------

KNOWS = replace(REPORT, is_quiet=False)
KEY = (ANONYMOUS, "a1")


async def seen_by(workers: WorkerList) -> list[SeenWorker]:
    return (await workers.known())[0]


async def told(stand: Stand) -> None:
    """Every server says in its lease what it has to say, and reads those of the others."""
    for _ in range(2):
        for server in stand.cluster.servers:
            await server.membership.renew()


async def test_a_command_reaches_the_server_that_the_worker_reports_to(stand: Stand) -> None:
    _, one = await stand.server("a")
    _, other = await stand.server("b")
    other.receive(KNOWS)
    assert await other.commands.for_worker(KEY) is None
    await one.commands.give(WorkerCommand.QUIET, await seen_by(other))
    await told(stand)
    first = await other.commands.for_worker(KEY)
    assert first is not None
    assert first.command is WorkerCommand.QUIET
    assert await other.commands.for_worker((ANONYMOUS, "b2")) is None
    assert await other.commands.for_worker(("token:x", "a1")) is None, "an id of another caller is another worker"


async def test_the_command_that_was_given_last_counts_also_where_its_server_is_behind(stand: Stand) -> None:
    clock = HeldClock()
    clock.tick(-5_000)
    _, one = await stand.server("a", clock)
    _, other = await stand.server("b")
    other.receive(KNOWS)
    (worker,) = await seen_by(other)
    await other.commands.give(WorkerCommand.QUIET, [worker])
    given = await other.commands.for_worker(KEY)
    assert given is not None
    await one.commands.give(WorkerCommand.RESUME, [worker])
    await told(stand)
    last = await other.commands.for_worker(KEY)
    assert last is not None
    assert (last.command, last.number > given.number) == (WorkerCommand.RESUME, True)


async def test_a_command_is_forgotten_after_a_minute_and_costs_no_look_where_none_is_given(stand: Stand) -> None:
    server, one = await stand.server("a")
    one.receive(KNOWS)
    reads = [store.begun["kv_list"] for store in server.reach]
    assert await one.commands.for_worker(KEY) is None
    assert [store.begun["kv_list"] for store in server.reach] == reads
    await one.commands.give(WorkerCommand.STOP, await seen_by(one))
    assert await one.commands.for_worker(KEY) is not None
    stand.cluster.clock.tick(KEEP_MS)
    assert await one.commands.for_worker(KEY) is None
    assert one.describe() == {}


async def test_a_command_that_no_shard_can_keep_is_refused(stand: Stand) -> None:
    server, one = await stand.server("a")
    one.receive(KNOWS)
    workers = await seen_by(one)
    for store in server.reach:
        store.failures["kv_put"] = [StoreRefused("no")] * 10
    with pytest.raises(PinLaterError):
        await one.commands.give(WorkerCommand.QUIET, workers)
    assert await one.commands.for_worker(KEY) is None
