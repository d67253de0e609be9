"""The shares of what all callers of a server process have in common: of each pool one identity takes all it gets, while
a calm one beside it keeps its answers. One row for each pool of docs/access.md that is a server process's.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web

from pinlater import AsyncClient, DequeueRequest
from pinlater.access.fair_use import ALONE_LIMIT, BULK_LIMIT, FairUse, UseLimits
from pinlater.access.guesses import FREE_TRIES, TokenGuesses
from pinlater.bodies.tiers import FetchedBodies
from pinlater.cluster import worker_list
from pinlater.data_folder.password import hash_password
from pinlater.errors import EnqueueRejected, Overloaded
from pinlater.flows import callbacks, waits
from pinlater.metrics import Metrics
from pinlater.model import (
    Ack,
    Caller,
    ConnectionRef,
    DequeueFromQueuesRequest,
    Job,
    QueueAcks,
    QueueShare,
    RequestContext,
    WorkerReport,
)
from pinlater.model.body_reference import BodyReference, BodyRule
from pinlater.model.flow_words import CompletionCallback, NewFlow, NewItem, Stage
from pinlater.overflow.store import OverflowQuota
from pinlater.server import deliveries
from pinlater.service import audit, connection_claims
from pinlater.service.settings import ServiceSettings
from pinlater.wire.convert import dequeue_to_wire
from pinlater.wire.methods import LOOKUP
from tests.access.cluster import PASSWORD
from tests.flows.flow_stand import FlowStand, flow_stand
from tests.server.running import Plain, running
from tests.server.serving import call_enqueue, connect_from, serving
from tests.unit.stand import ME, stand

WITHIN_S = 60.0
PLACES = 12
"""Of each pool of waiting calls, in these tests."""

CONNECTIONS = 16
"""Of one address."""

MORE = 4
"""Calls that the flooding identity makes beyond them."""

LONG_MS = 100_000
FLOOD, CALM = (f"plt_{letter * 43}" for letter in "fc")
RULES = """
[roles.nobody]
may = ["read"]
queues = ["nothing"]

[[rules]]
who = ["token:flood"]
may = ["enqueue", "consume", "read", "operate"]
queues = ["flood*"]

[[rules]]
who = ["token:calm"]
may = ["enqueue", "consume", "read", "operate"]
queues = ["calm*"]
"""


@dataclass
class Shared:
    """A server of one process, a client of the calm identity, and how the flooding one connects."""

    port: int
    page: str
    calm: AsyncClient
    flooding: AsyncClient
    stack: AsyncExitStack

    async def gauge(self, name: str) -> float:
        """A metric without labels."""
        async with ClientSession() as session, session.get(f"{self.page}/metrics") as answer:
            lines = (await answer.text()).splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(f"pinlater_{name}"))

    async def flood(self, method: str, requests: Sequence[Any]) -> list[asyncio.Task[Any]]:
        """One call on a connection of its own for each request; the answers as they come."""
        answers = []
        for request in requests:
            plain = await Plain.to(self.port)
            self.stack.push_async_callback(plain.close)
            await plain.send(method, context=RequestContext("flood", token=FLOOD), request=request)
            answers.append(asyncio.create_task(plain.answer()))
            self.stack.callback(answers[-1].cancel)
        return answers


@asynccontextmanager
async def shared(folder: Path, *options: str) -> AsyncIterator[Shared]:
    (folder / "rules.toml").write_text(RULES)
    rules = ("--rules", "rules.toml", "--admin-password-hash", hash_password(PASSWORD))
    with running(folder, "--processes", "1", *rules, *options, PINLATER_HTTP="127.0.0.1:0") as server:
        address = f"127.0.0.1:{server.port}"
        async with AsyncExitStack() as stack:
            boss = await stack.enter_async_context(AsyncClient(address))
            clients = {}
            for name, token in (("flood", FLOOD), ("calm", CALM)):
                await boss.update_token(name, hashlib.sha256(token.encode()).hexdigest(), ["nobody"], PASSWORD)
                clients[name] = await stack.enter_async_context(AsyncClient(address, token=token))
                await clients[name].create_queue(name)
            page = server.wait_for("http_ready")["address"].rstrip("/")
            yield Shared(server.port, page, clients["calm"], clients["flood"], stack)


async def answered(answers: Sequence[asyncio.Task[Any]], amount: int) -> list[Any]:
    """The exceptions of the first so many that are answered."""
    async with asyncio.timeout(WITHIN_S):
        while sum(each.done() for each in answers) < amount:
            await asyncio.wait([each for each in answers if not each.done()], return_when=asyncio.FIRST_COMPLETED)
    return [each.result().exception for each in answers if each.done()]


async def long_polls(at: Shared) -> None:
    request = dequeue_to_wire(DequeueRequest("flood", 1, wait_ms=LONG_MS))
    answers = await at.flood("dequeueJobs", [request] * (PLACES + MORE))
    refused = await answered(answers, MORE)
    assert [(each.reason, each.retry_after_ms) for each in refused] == [("OVERLOADED", 1_000)] * MORE
    waits = [asyncio.create_task(at.calm.dequeue(DequeueRequest("calm", 1, wait_ms=LONG_MS))) for _ in range(2)]
    await answered(answers, MORE + len(waits))  # so many gave way: the calm ones wait in their places
    await at.calm.enqueue("calm", [Job(b"1"), Job(b"2")])
    async with asyncio.timeout(WITHIN_S):
        assert [len(jobs) for jobs in await asyncio.gather(*waits)] == [1, 1]
    assert sum(each.done() for each in answers) == MORE + len(waits)


async def long_polls_of_many_queues(at: Shared) -> None:
    request = dequeue_to_wire(DequeueRequest("flood", 1, wait_ms=LONG_MS))
    answers = await at.flood("dequeueJobs", [request] * (PLACES + MORE))
    await answered(answers, MORE)
    mine = DequeueFromQueuesRequest([QueueShare("calm")], 1, wait_ms=LONG_MS)
    waiting = asyncio.create_task(at.calm.dequeue_from_queues(mine))
    await answered(answers, MORE + 1)
    await at.calm.enqueue("calm", [Job(b"1")])
    async with asyncio.timeout(WITHIN_S):
        assert len(await waiting) == 1


async def waiting_lookups(at: Shared) -> None:
    (job,) = await at.flooding.enqueue("flood", [Job(b"1")])
    request = LOOKUP.request([job], False, wait_ms=LONG_MS)
    answers = await at.flood("lookupJobs", [request] * (PLACES + MORE))
    assert {each.reason for each in await answered(answers, MORE)} == {"OVERLOADED"}
    (mine,) = await at.calm.enqueue("calm", [Job(b"1")])
    waiting = asyncio.create_task(at.calm.lookup([mine], wait_ms=LONG_MS))
    await answered(answers, MORE + 1)
    [claimed] = await at.calm.dequeue(DequeueRequest("calm", 1))
    await at.calm.ack("calm", [Ack(claimed.descriptor)])
    async with asyncio.timeout(WITHIN_S):
        await waiting
    assert sum(each.done() for each in answers) == MORE + 1


async def connections_that_wait(at: Shared) -> None:
    """The flooding identity has all connections of an address, and none of them is idle."""
    request = dequeue_to_wire(DequeueRequest("flood", 1, wait_ms=LONG_MS))
    await at.flood("dequeueJobs", [request] * CONNECTIONS)
    async with asyncio.timeout(WITHIN_S):
        while await at.gauge("waiting_dequeues") < CONNECTIONS - 3:  # the clients have one each
            await asyncio.sleep(0.05)
    await gets_answers(at)


async def connections_half_sent(at: Shared) -> None:
    for _ in range(2 * CONNECTIONS):
        _, writer = await asyncio.open_connection("127.0.0.1", at.port)
        at.stack.callback(writer.close)
        writer.write(b"\x00\x00")
    await gets_answers(at)


async def gets_answers(at: Shared) -> None:
    """A newcomer of the calm identity, at the same address, and again."""
    for _ in range(3):
        plain = await Plain.to(at.port)
        at.stack.push_async_callback(plain.close)
        await plain.send("getQueueNames", context=RequestContext("calm", token=CALM))
        async with asyncio.timeout(WITHIN_S):
            assert (await plain.answer()).success == {"calm"}


FEW_WAIT = ("--max-waiters", str(PLACES))
FEW_CONNECTIONS = ("--max-peer-connections", str(CONNECTIONS))
ON_SERVER: dict[str, tuple[Sequence[str], Callable[[Shared], Awaitable[None]]]] = {
    "long polls": (FEW_WAIT, long_polls),
    "long polls of many queues": (FEW_WAIT, long_polls_of_many_queues),
    "waiting lookups": (FEW_WAIT, waiting_lookups),
    "connections that wait": (FEW_CONNECTIONS, connections_that_wait),
    "connections half sent": (FEW_CONNECTIONS, connections_half_sent),
}


@pytest.mark.parametrize("pool", ON_SERVER)
async def test_a_calm_identity_has_its_share_beside_one_that_takes_all(tmp_path: Path, pool: str) -> None:
    options, flood = ON_SERVER[pool]
    async with shared(tmp_path, *options) as at:
        await flood(at)


# -- callbacks of flows ----------------------------------------------------------------------------------------------


@asynccontextmanager
async def receivers() -> AsyncIterator[tuple[str, str, list[str], list[str]]]:
    """One that never answers and one that does, and whom they have heard of."""
    heard: tuple[list[str], list[str]] = ([], [])
    addresses = []
    async with AsyncExitStack() as stack:
        released = asyncio.Event()
        for hangs, of in zip((True, False), heard, strict=True):

            async def hear(request: web.Request, hangs: bool = hangs, of: list[str] = of) -> web.Response:
                of.append(request.headers["PinLater-Callback"])
                if hangs:
                    await released.wait()
                return web.Response()

            application = web.Application()
            application.router.add_post("/over", hear)
            site = web.AppRunner(application)
            await site.setup()
            stack.push_async_callback(site.cleanup)
            await web.TCPSite(site, "127.0.0.1", 0).start()
            addresses.append(f"http://127.0.0.1:{site.addresses[0][1]}/over")
        stack.callback(released.set)
        yield addresses[0], addresses[1], *heard


async def over(at: FlowStand, queue: str, callback: CompletionCallback) -> str:
    """A flow that is over as soon as it is made."""
    flow = NewFlow("payroll", [Stage("one", "job", queue)], sealed=["one"], on_complete=callback)
    return (await at.at.service.create_flow(flow)).id


async def until_made(at: FlowStand, flow_id: str) -> None:
    async with asyncio.timeout(WITHIN_S):
        while (made := (await at.at.service.get_flow(flow_id)).callback) is None or made.done_ms is None:
            await asyncio.sleep(0.01)


@pytest.fixture
def hanging_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """No POST ends by itself, so whatever is made is not made in the place of one that has ended."""
    monkeypatch.setattr(callbacks, "POST_TIMEOUT_S", 3_600.0)
    monkeypatch.setattr(callbacks, "TAKEN_MS", 36_000_000)


@pytest.mark.usefixtures("hanging_for_good")
async def test_callbacks_to_a_receiver_that_hangs_delay_nobody_elses(tmp_path: Path) -> None:
    async with flow_stand(tmp_path) as at, receivers() as (hanging, quick, hung, heard):
        await at.at.service.create_queue("calm-ends")
        for _ in range(400):
            await over(at, "flood", CompletionCallback(url=hanging))
        job = await over(at, "calm", CompletionCallback("calm-ends", "told"))
        post = await over(at, "calm", CompletionCallback(url=quick))
        same_receiver = await over(at, "calm", CompletionCallback(url=hanging))
        await until_made(at, job)
        await until_made(at, post)
        callback = (await at.at.service.get_flow(same_receiver)).callback
        assert callback is not None
        async with asyncio.timeout(WITHIN_S):
            while callback.id not in hung:
                await asyncio.sleep(0.01)
        assert len(heard) == 1
        assert at.metrics.counters["flow_callbacks", "made"] == 2


@pytest.mark.usefixtures("hanging_for_good")
async def test_jobs_come_into_their_queues_while_callbacks_hang(tmp_path: Path) -> None:
    async with flow_stand(tmp_path) as at, receivers() as (hanging, _, hung, _):
        for _ in range(200):
            await over(at, "flood", CompletionCallback(url=hanging))
        async with asyncio.timeout(WITHIN_S):
            while not hung:
                await asyncio.sleep(0.01)
        await at.at.service.create_queue("calm")
        flow = NewFlow("payroll", [Stage("one", "job", "calm")])
        flow_id = (await at.at.service.create_flow(flow)).id
        await at.at.service.add_flow_items(flow_id, "one", [NewItem(b"1")])
        async with asyncio.timeout(WITHIN_S):
            while not await at.at.service.dequeue(DequeueRequest("calm", 1)):
                await asyncio.sleep(0.01)


# -- the audit -------------------------------------------------------------------------------------------------------


async def test_an_identity_that_fills_the_audit_leaves_the_entries_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for part in ("PROTECTED", "OPEN", "REFUSED"):
        monkeypatch.setattr(audit, part, getattr(audit, part)._replace(keep=20))
    monkeypatch.setattr(audit, "EACH_KEEPS", 5)
    async with stand(shards=2) as at:
        record = audit.Audit(at.members, at.clock, "here")
        calm, flood = "token:calm (me)", "token:flood (token:calm)"
        for number in range(3):
            at.clock.tick(1)
            await record.write(calm, "pause", f"calm-{number}", part=audit.OPEN)
            record.refused(calm, "delete_queue", f"calm-{number}")
        await record.drain()
        for number in range(200):
            at.clock.tick(1)
            await record.write(flood, "pause", f"flood-{number}", part=audit.OPEN)
            record.refused(flood, "delete_queue", f"flood-{number}")
        await record.drain()
        entries = await record.read(1_000, None)
        of_calm = [(each.action, each.target) for each in entries if each.who == calm]
        assert sorted(of_calm) == sorted((kind, f"calm-{n}") for kind in ("pause", "delete_queue") for n in range(3))
        assert [each.target for each in entries[:20:2]] == [f"flood-{number}" for number in range(199, 189, -1)]
        assert len(entries) == 2 * 20 + len(of_calm)


# -- in this process -------------------------------------------------------------------------------------------------


async def test_an_address_has_half_of_the_bytes_of_calls() -> None:
    async with serving(max_buffered_bytes=20_000) as served:
        gate = served.service.hold["slow"] = asyncio.Event()
        flood = [await served.connect() for _ in range(4)]
        calm = await connect_from(served, "127.0.0.2")
        await served.until(lambda: served.server.connections == 5)
        for raw in flood:
            raw.send_framed(call_enqueue(1, Job(b"x" * 4_000), queue="slow"))
        refused = [(await raw.reply()).exception for raw in flood[2:]]
        assert [(each.reason, each.retry_after_ms) for each in refused] == [("OVERLOADED", 100)] * 2
        assert served.server.counters["calls_over_peer"] == 2
        calm.send_framed(call_enqueue(1, Job(b"x" * 4_000)))
        assert (await calm.reply()).exception is None
        gate.set()
        for raw in flood[:2]:
            assert (await raw.reply()).exception is None
        flood[0].send_framed(call_enqueue(2, Job(b"x" * 12_000)))  # alone it may have any size
        assert (await flood[0].reply()).exception is None


async def test_an_address_alone_has_all_bytes_of_calls_where_no_rules_tell_callers_apart() -> None:
    async with serving(max_buffered_bytes=20_000) as served:
        gate = served.service.hold["slow"] = asyncio.Event()
        many = [await served.connect() for _ in range(4)]
        for raw in many:
            raw.send_framed(call_enqueue(1, Job(b"x" * 4_000), queue="slow"))
        await served.until(lambda: len(served.service.calls) == 4)
        gate.set()
        for raw in many:
            assert (await raw.reply()).exception is None


def test_a_call_that_waits_counts_with_its_bytes() -> None:
    fair_use = FairUse(UseLimits(call_bytes=1_000))
    flood, calm = Caller("token:flood"), Caller("token:calm")
    polls = [fair_use.begin(flood, ConnectionRef(), 400) for _ in range(2)]
    for call in polls:
        call.end_turn()
    with pytest.raises(Overloaded, match="bytes of calls"):
        fair_use.begin(flood, ConnectionRef(), 400)
    fair_use.begin(calm, ConnectionRef(), 400).end()
    polls[0].end()
    polls[0].end()
    fair_use.begin(flood, ConnectionRef(), 400).end()


async def test_receipts_of_one_caller_leave_room_for_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "MOST_OPEN", 20)
    async with stand() as at, serving(at.service, at.clock, Metrics()) as served:
        onlooker = await Plain.to(served.port)
        jobs = await onlooker.enqueue("mail", *[b"x"] * 28)
        callers = [await Plain.to(served.port, "127.0.0.2") for _ in range(3)]
        calm = await Plain.to(served.port, "127.0.0.3")
        for plain, limit in [*[(each, 8) for each in callers], (calm, 4)]:
            request = DequeueRequest("mail", limit, confirms_receipt=True)
            await plain.send("dequeueJobs", request=dequeue_to_wire(request))
            assert len((await plain.answer()).success.jobs) == limit
        calm.half_close()
        async with asyncio.timeout(WITHIN_S):
            while at.service.metrics.counters["jobs_undelivered", "mail"] < 4:
                await asyncio.sleep(0.01)
        for plain in (onlooker, calm, *callers):
            await plain.close()
        assert len(jobs) == 28


def test_bodies_of_one_queue_do_not_push_out_those_of_others() -> None:
    fetched, body = FetchedBodies(1_000), b"x" * 100
    calm, *flood = [
        BodyReference.new("tier", queue, body, 1_000, BodyRule.SIZE) for queue in ["calm", *["flood"] * 100]
    ]
    for reference in (calm, *flood):
        fetched.put(reference, body)
    assert [reference for reference in flood if reference in fetched] == flood[-9:]
    assert (fetched.take(calm), fetched.take(calm)) == (body, None)


async def test_an_identity_alone_leaves_room_where_calls_wait_for_a_store() -> None:
    fair_use = FairUse(UseLimits())
    flood, calm = Caller("token:flood"), Caller("token:calm")
    calls = [fair_use.begin(flood, ConnectionRef(), 1) for _ in range(ALONE_LIMIT + 100)]
    turns = [fair_use.turn(call) for call in calls]
    assert [turn is None for turn in turns] == [True] * ALONE_LIMIT + [False] * 100
    mine = fair_use.begin(calm, ConnectionRef(), 1)
    assert fair_use.turn(mine) is None
    for call in [*calls[:ALONE_LIMIT], mine]:
        call.end()
    async with asyncio.timeout(WITHIN_S):
        for call, turn in zip(calls[ALONE_LIMIT:], turns[ALONE_LIMIT:], strict=True):
            assert turn is not None
            await fair_use.wait(call, turn)
            call.end()


async def test_calls_of_one_identity_over_many_jobs_wait_for_each_other() -> None:
    fair_use = FairUse(UseLimits())
    flood = [fair_use.begin(Caller("token:flood"), ConnectionRef(), 1) for _ in range(BULK_LIMIT + 3)]
    calm = fair_use.begin(Caller("token:calm"), ConnectionRef(), 1)
    waiting = [asyncio.create_task(call.wait_for_bulk()) for call in flood]
    await calm.wait_for_bulk()
    await asyncio.gather(*waiting[:BULK_LIMIT])
    assert not any(each.done() for each in waiting[BULK_LIMIT:])
    waiting[-1].cancel()
    for number, each in enumerate(waiting[BULK_LIMIT:-1]):
        flood[number].end()
        await each
    for call in (*flood, calm):
        call.end()
    again = [fair_use.begin(Caller("token:flood"), ConnectionRef(), 1) for _ in range(BULK_LIMIT)]
    async with asyncio.timeout(WITHIN_S):
        await asyncio.gather(*[call.wait_for_bulk() for call in again])


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_no_job_is_lost_where_calls_give_way_while_jobs_are_handed_out(is_cancelled: bool) -> None:
    chance = random.Random(1)
    async with stand(settings=ServiceSettings(max_waiters=3, release_grace_ms=0)) as at:
        contexts = [RequestContext(name, caller=Caller(f"token:{name}")) for name in "abcd"]
        polls: list[asyncio.Task[int]] = []
        made = 0

        def poll(context: RequestContext) -> Awaitable[Any]:
            if chance.random() < 0.5:
                return at.service.dequeue(DequeueRequest("mail", 1, wait_ms=LONG_MS), context=context)
            shares = [QueueShare("mail")]
            return at.service.dequeue_from_queues(DequeueFromQueuesRequest(shares, 1, wait_ms=LONG_MS), context=context)

        async def count(context: RequestContext) -> int:
            with suppress(Overloaded):
                return len(await poll(context))
            return 0

        for _ in range(300):
            polls.append(asyncio.create_task(count(chance.choice(contexts))))
            if chance.random() < 0.4:
                made += len(await at.service.enqueue("mail", [Job(b"1")], context=contexts[0]))
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            if is_cancelled and chance.random() < 0.3:
                chance.choice(polls).cancel()
        for each in polls:
            if not each.done():
                each.cancel()
        got = sum(each for each in await asyncio.gather(*polls, return_exceptions=True) if isinstance(each, int))
        async with asyncio.timeout(WITHIN_S):
            while got < made:  # what was claimed for who is gone goes back in the background
                got += len(await at.service.dequeue(DequeueRequest("mail", 100), context=ME))
        assert at.service.long_polls.waiters == 0
        assert at.service.metrics.counters["limits_hit", "waiting_dequeues_gave_way"] > 0
        assert (made > 50, got) == (True, made)


async def test_one_call_over_many_queues_leaves_room_where_calls_wait_for_a_store() -> None:
    async with stand() as at:
        released = at.stores[0].hold("ack")
        flood = []
        for call in range(3):
            queues = [f"flood-{call}-{number}" for number in range(600)]
            acks = [QueueAcks(queue, [Ack(f"{queue}:s1:p1:1795729397038000")], []) for queue in queues]
            request = DequeueFromQueuesRequest([QueueShare("mail")], 1, acks=acks)
            flood.append(asyncio.create_task(at.service.dequeue_from_queues(request, context=ME)))
        await at.stores[0].until_begun("ack")
        mine = asyncio.create_task(at.service.enqueue("mail", [Job(b"1")], context=ME))
        await at.stores[0].until_begun("ack", 16)
        released.set()
        async with asyncio.timeout(WITHIN_S):
            assert len(await mine) == 1
            outcomes = await asyncio.gather(*flood, return_exceptions=True)
        assert not any(isinstance(each, Overloaded) for each in outcomes)


async def test_workers_of_one_identity_push_out_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_list, "MAX_WORKERS", 20)
    async with stand() as at:
        workers = worker_list.WorkerList(at.members, at.clock, "here/1")
        for number in range(3):
            workers.receive(WorkerReport(f"calm-{number}", "calm", 1), "token:calm")
        for number in range(100):
            workers.receive(WorkerReport(f"flood-{number}", "flood", 1), "token:flood")
        found = (await workers.page(limit=1_000)).workers
        assert Counter(each.name for each in found) == {"calm": 3, "flood": 17}
        assert {each.id for each in found if each.name == "flood"} == {f"flood-{number}" for number in range(83, 100)}
        await workers.close()


async def test_jobs_of_one_identity_leave_room_in_the_overflow_shard(tmp_path: Path) -> None:
    path = tmp_path / "overflow.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE job (body)")
        room = OverflowQuota(path, 100_000)
        some = [Job(bytes(10_000))]
        for _ in range(3):
            await room.reserve(some, "token:flood")
            connection.execute("INSERT INTO job VALUES (zeroblob(10000))")
            connection.commit()
        with pytest.raises(EnqueueRejected, match="token:flood has"):
            await room.reserve(some * 4, "token:flood")
        await room.reserve(some, "token:calm")
        await room.reserve(some)  # nobody's: no share


async def test_claims_bound_to_connections_of_one_caller_push_out_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_claims, "MAX_KEPT", 20)
    monkeypatch.setattr(connection_claims, "SWEEP_FROM", 40)
    async with stand() as at:
        await at.service.enqueue("mail", [Job(b"1")] * 60, context=ME)
        calm, flood = ConnectionRef(holder="token:calm"), ConnectionRef(holder="token:flood")
        for connection, limit in ((calm, 5), (flood, 50)):
            request = DequeueRequest("mail", limit, release_on_disconnect=True)
            await at.service.dequeue(request, context=RequestContext("me", connection=connection))
        assert len(calm.claims) == 5
        assert 10 <= len(flood.claims) <= 15


async def test_calls_of_one_identity_that_wait_for_flows_give_way(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(waits, "MAX_WAITERS", 3)
    async with flow_stand(tmp_path) as at:
        flow_id = (await at.at.service.create_flow(NewFlow("payroll", [Stage("one", "job", "calm")]))).id
        until_over = at.flows.waits.until_over
        flood = [asyncio.create_task(until_over(flow_id, WITHIN_S, "token:flood")) for _ in range(4)]
        with pytest.raises(Overloaded):
            await flood.pop()
        calm = asyncio.create_task(until_over(flow_id, WITHIN_S, "token:calm"))
        await flood.pop(0)
        assert not calm.done()
        await at.at.service.cancel_flow(flow_id)
        async with asyncio.timeout(WITHIN_S):
            await asyncio.gather(calm, *flood)


async def test_wrong_tokens_hold_no_large_calls() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    guesses = TokenGuesses(lambda *told: None, sleep=sleep)
    flood = ("127.0.0.2", 1)
    for _ in range(FREE_TRIES - 1):
        await guesses.hold_back(flood, "me", 16 * 2**20)  # nothing is held
    for _ in range(3):
        with pytest.raises(Overloaded, match="large call"):
            await guesses.hold_back(flood, "me", 16 * 2**20)
    assert slept == []
    await guesses.hold_back(flood, "me", 100)
    assert len(slept) == 1
