"""What goes wrong with a flow is said, with what to do about it; and that mends it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pinlater.alarms.flow_watch import FAILURES, FlowWatch
from pinlater.client.async_client import AsyncClient
from pinlater.data_folder.password import hash_password
from pinlater.errors import FlowsUnavailable
from pinlater.flows.callbacks import LOST_CALLBACKS, TRIES
from pinlater.flows.connection import FlowConnection
from pinlater.model import DequeueRequest, Job, RequestContext
from pinlater.model.flow_words import Applet, AppletKind, CompletionCallback, NewFlow, Stage
from tests.flows.async_service import SETTINGS, WITHIN_S, ack_of, items_of, service_of
from tests.flows.flow_stand import FlowStand, flow_stand
from tests.flows.stand import ROOT, some_items
from tests.server.running import running
from tests.stores.places import start_server
from tests.stores.process import StoreServer

PASSWORD = "correct horse"
HOUR_MS = 3_600_000


# -- at a server in a process of its own -------------------------------------------------------------------------------


async def test_a_queue_that_is_not_there_is_said_and_made_again(tmp_path: Path) -> None:
    with running(tmp_path, *SETTINGS, "--admin-password-hash", hash_password(PASSWORD)) as server:
        async with service_of(server) as service:
            root = service.stage("root")
            flow_id = await service.start(root, seal=False)
            await service.client.delete_queue(root.queue, PASSWORD)
            await service.client.add_flow_items(flow_id, "root", items_of(1), seal=True)
            (trouble,) = (await service.client.get_flow(flow_id)).troubles
            assert (f"stage root: queue {root.queue!r} is not there" in trouble, "flow resume" in trouble) == (
                True,
                True,
            )
            (page,) = (await service.client.get_flows(name="payroll")).flows
            assert page.troubles == [trouble]
            assert (await service.client.resume_flow(flow_id)).troubles == []
            await service.do(root)
            await service.over(flow_id)


async def test_a_queue_that_is_paused_is_said(tmp_path: Path) -> None:
    with running(tmp_path, *SETTINGS, "--admin-password-hash", hash_password(PASSWORD)) as server:
        async with service_of(server) as service:
            root = service.stage("root")
            flow_id = await service.start(root, items=items_of(1))
            await service.until(flow_id, lambda status: status.stages[0].queued == 1)
            await service.client.update_queue(root.queue, PASSWORD, set={"paused": "true"})
            (trouble,) = (await service.client.get_flow(flow_id)).troubles
            assert f"stage root: queue {root.queue!r} is paused" in trouble


@pytest.fixture
def postgres() -> Iterator[StoreServer]:
    server = start_server("postgres")
    yield server
    server.stop()


@pytest.mark.store("postgres")
async def test_a_database_that_is_away_is_said_and_all_goes_on_when_it_is_back(
    tmp_path: Path, postgres: StoreServer
) -> None:
    postgres.empty(0)
    with running(tmp_path, *SETTINGS, "--flows", postgres.url()) as server:
        async with service_of(server) as service:
            root = service.stage("root", max_failures=1)
            flow_id = await service.start(root, items=items_of(1, 2), seal=False)
            done, failed = await service.take(root, 2)
            await asyncio.to_thread(postgres.kill)
            client = service.client
            async with AsyncClient(f"127.0.0.1:{server.port}", timeout=0.5) as hasty:
                for call in (
                    hasty.create_flow(NewFlow("other", [root])),
                    hasty.add_flow_items(flow_id, "root", items_of(3)),
                    hasty.get_flow(flow_id),
                    hasty.ack(root.queue, [ack_of(done, result=b"1")], []),
                    hasty.ack(root.queue, [], [ack_of(failed)]),
                ):
                    with pytest.raises(FlowsUnavailable, match="database of flows") as refused:
                        await call
                    assert refused.value.retryable
            await client.create_queue("plain")
            await client.enqueue("plain", [Job(b"goes on")])  # what is no flow's does not notice
            (job,) = await service.take("plain")
            await service.client.ack("plain", [ack_of(job)], [])
            await asyncio.to_thread(postgres.start)
            await service.succeed(root, [done])  # a caller that is patient sends it again by itself
            await service.fail(root, [failed])
            await client.add_flow_items(flow_id, "root", items_of(3), seal=True)
            await service.do(root, 2)
            assert (await service.over(flow_id)).stages[0].succeeded == 3


# -- with a clock that the test holds ----------------------------------------------------------------------------------


async def troubles_of(at: FlowStand, flow_id: str) -> list[str]:
    return list((await at.at.service.get_flow(flow_id)).troubles)


async def until_queued(at: FlowStand, flow_id: str, amount: int) -> None:
    async with asyncio.timeout(WITHIN_S):
        while (await at.at.service.get_flow(flow_id)).stages[0].queued < amount:
            await asyncio.sleep(0.005)


async def test_items_that_no_worker_takes_for_an_hour_are_said(tmp_path: Path) -> None:
    split = Stage("split", "s", "parts", ROOT.name, Applet(AppletKind.JOB, job="split", queue="splitters"))
    async with flow_stand(tmp_path) as at:
        service = at.at.service
        flow_id = (await service.create_flow(NewFlow("payroll", [ROOT, split], items={ROOT.name: some_items(1)}))).id
        await until_queued(at, flow_id, 1)
        at.at.clock.tick(HOUR_MS - 1)
        assert await troubles_of(at, flow_id) == []
        at.at.clock.tick(1)
        (trouble,) = await troubles_of(at, flow_id)
        assert trouble == (
            "stage calculate: no worker has taken item 1 from queue 'payroll' for an hour: start a worker of this queue"
        )
        (job,) = await service.dequeue(DequeueRequest("payroll", 1), context=RequestContext("w"))
        assert await troubles_of(at, flow_id) == []  # a worker has it, for however long
        await service.ack("payroll", [ack_of(job)], [])
        async with asyncio.timeout(WITHIN_S):
            while not await at.flows.connection.call(
                lambda database: database.longest_queued(flow_id, at.at.clock.now_ms())
            ):
                await asyncio.sleep(0.005)
        at.at.clock.tick(HOUR_MS)
        (trouble,) = await troubles_of(at, flow_id)
        assert "stage before split: no worker has taken item 2 from queue 'splitters'" in trouble


async def test_a_callback_that_is_refused_is_said_and_made_when_it_is_resumed(tmp_path: Path) -> None:
    async with flow_stand(tmp_path) as at:
        service = at.at.service
        new = NewFlow("payroll", [ROOT], on_complete=CompletionCallback("done", "report"))
        flow_id = (await service.create_flow(new)).id
        await service.queues.delete("done", "me")
        await service.seal_stage(flow_id)
        described: Mapping[str, Any] = at.flows.callbacks.describe()
        assert described == {}
        async with asyncio.timeout(WITHIN_S):
            while (made := (await service.get_flow(flow_id)).callback) is None or made.done_ms is None:
                at.at.clock.tick(HOUR_MS)
                await at.flows.callbacks.make_due()
                await asyncio.sleep(0.005)
                described = at.flows.callbacks.describe() or described
        assert made.tries == TRIES
        ((lost_id, lost_name, lost_queue, why, _),) = described[LOST_CALLBACKS]
        assert (lost_id, lost_name, lost_queue) == (flow_id, "payroll", ROOT.queue)
        assert "'done'" in why
        (trouble,) = await troubles_of(at, flow_id)
        assert f"given up after {TRIES} tries" in trouble
        assert "queue 'done'" in trouble
        await service.create_queue("done")
        await service.resume_flow(flow_id)
        at.at.clock.tick(HOUR_MS)
        await at.flows.callbacks.make_due()
        async with asyncio.timeout(WITHIN_S):
            while await troubles_of(at, flow_id) or not await service.dequeue(
                DequeueRequest("done", 1), context=RequestContext("w")
            ):
                await asyncio.sleep(0.005)
        assert at.flows.callbacks.describe() == {}


async def test_the_judge_sees_what_waits_for_a_seal_and_a_database_that_is_away(tmp_path: Path) -> None:
    async with flow_stand(tmp_path) as at:
        service, refused = at.at.service, [""]
        flow_id = (await service.create_flow(NewFlow("payroll", [ROOT]))).id
        connection = FlowConnection(at.settings.url, lambda: refused[0])
        watch = FlowWatch(connection, service.queues, at.at.clock, every_s=0)
        try:
            (stage,) = (await watch.facts()).unsealed
            assert (stage.flow_id, stage.stage, stage.items) == (flow_id, ROOT.name, 0)
            at.at.clock.tick(HOUR_MS)
            assert (await watch.facts()).unsealed == [stage]
            refused[0] = "it is away"
            problems = [(await watch.facts()).problem for _ in range(FAILURES)]
            assert problems == ["", "", "it is away"]
            assert (await watch.facts()).unsealed == [stage]
            refused[0] = ""
            await service.add_flow_items(flow_id, ROOT.name, some_items(1))
            facts = await watch.facts()
            assert (facts.problem, facts.unsealed) == ("", [])
        finally:
            await watch.close()
            await connection.close()
