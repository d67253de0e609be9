"""The shares of what all callers of a server process have in common: of each pool one identity takes all it gets, while
a calm one beside it keeps its answers. One row for each pool of docs/access.md that is a server process's.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from pinlater import AsyncClient, DequeueRequest
from pinlater.data_folder.password import hash_password
from pinlater.model import Ack, DequeueFromQueuesRequest, Job, QueueShare, RequestContext
from pinlater.model.flow_words import CompletionCallback, NewFlow, NewItem, Stage
from pinlater.service import audit
from pinlater.wire.convert import dequeue_to_wire, lookup_to_wire
from tests.access.cluster import PASSWORD
from tests.flows.flow_stand import FlowStand, flow_stand
from tests.server.running import Plain, running
from tests.unit.stand import stand

WITHIN_S = 60.0
PLACES = 12
"""Of each pool of waiting calls, in these tests."""

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
    calm: AsyncClient
    flooding: AsyncClient
    stack: AsyncExitStack

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
    with running(folder, "--processes", "1", "--max-waiters", str(PLACES), *rules, *options) as server:
        address = f"127.0.0.1:{server.port}"
        async with AsyncExitStack() as stack:
            boss = await stack.enter_async_context(AsyncClient(address))
            clients = {}
            for name, token in (("flood", FLOOD), ("calm", CALM)):
                await boss.update_token(name, hashlib.sha256(token.encode()).hexdigest(), ["nobody"], PASSWORD)
                clients[name] = await stack.enter_async_context(AsyncClient(address, token=token))
                await clients[name].create_queue(name)
            yield Shared(server.port, clients["calm"], clients["flood"], stack)


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
    request = lookup_to_wire([job], False, wait_ms=LONG_MS)
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


ON_SERVER: dict[str, Callable[[Shared], Awaitable[None]]] = {
    "long polls": long_polls,
    "long polls of many queues": long_polls_of_many_queues,
    "waiting lookups": waiting_lookups,
}


@pytest.mark.parametrize("pool", ON_SERVER)
async def test_a_calm_identity_has_its_share_beside_one_that_takes_all(tmp_path: Path, pool: str) -> None:
    async with shared(tmp_path) as at:
        await ON_SERVER[pool](at)


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
    async with asyncio.timeout(8.0):  # less than a POST may take
        while (made := (await at.at.service.get_flow(flow_id)).callback) is None or made.done_ms is None:
            await asyncio.sleep(0.01)


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
        async with asyncio.timeout(8.0):
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
