"""What goes on by itself, in a process whose stores and clock the test holds."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from aiohttp import web

from pinlater.errors import FlowNotFound, NoHealthyShards, ShardConnectionFailed
from pinlater.flows import keeper
from pinlater.flows.callbacks import FlowCallbacks
from pinlater.flows.database import FlowDatabase
from pinlater.flows.flow_engine import Flows
from pinlater.flows.tables import OWNERS
from pinlater.metrics import Metrics
from pinlater.model import Ack, ClaimOutcome, DequeueRequest, RequestContext
from pinlater.model.flow_words import Assignment, CompletionCallback, NewFlow, NewItem
from tests.flows.flow_stand import FlowStand, flow_stand
from tests.flows.stand import ROOT, some_items
from tests.unit.breaking import HeldClock

WITHIN_S = 60.0


async def made(at: FlowStand, **values: object) -> str:
    new = NewFlow("payroll", [ROOT], **values)  # type: ignore[arg-type]
    return (await at.at.service.create_flow(new)).id


async def until_queued(at: FlowStand, flow_id: str, amount: int) -> None:
    async with asyncio.timeout(WITHIN_S):
        while (await at.at.service.get_flow(flow_id)).stages[0].queued < amount:
            await asyncio.sleep(0.005)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not holds():
            await asyncio.sleep(0.005)


async def ended(at: FlowStand, items: int, **values: object) -> str:
    """A flow whose items have ended."""
    flow_id = await made(at, **values)
    for _ in range(0, items, 1_000):
        await at.at.service.add_flow_items(flow_id, ROOT.name, some_items(1_000))
    await at.at.service.cancel_flow(flow_id)
    return flow_id


async def test_a_large_flow_is_reaped_while_others_are_fed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "BATCH", 20)
    monkeypatch.setattr(keeper, "WORK_S", 0.0)
    async with flow_stand(tmp_path) as at:
        large = await ended(at, 1_000, ttl_ms=0)
        at.at.clock.tick(1)
    async with flow_stand(tmp_path) as at:
        at.at.clock.tick(2)
        flow_id = await made(at)
        async with asyncio.timeout(WITHIN_S):
            while (await at.at.service.get_flow_items(large, limit=1)).items[0].number == 1:
                await asyncio.sleep(0.005)
        await at.at.service.add_flow_items(flow_id, ROOT.name, some_items(1))
        await until_queued(at, flow_id, 1)
        assert (await at.at.service.get_flow_items(large, limit=1)).items  # it is not gone yet
        async with asyncio.timeout(WITHIN_S):
            while (await at.at.service.get_flows(name="payroll")).flows[-1].id == large:
                await asyncio.sleep(0.005)


async def test_many_owners_are_recounted_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "WORK_S", 0.0)
    monkeypatch.setattr(keeper, "RECOUNT_AT_ONCE", 2)
    database, owners = FlowDatabase(f"sqlite:///{tmp_path}/flows.db"), [f"token:{number}" for number in range(5)]
    database.open()
    for owner in owners:
        database.create(NewFlow("payroll", [ROOT], items={ROOT.name: some_items(1)}), 0, owner)
    engine = sa.create_engine(f"sqlite:///{tmp_path}/flows.db", poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.update(OWNERS).values(flows=7))
    async with flow_stand(tmp_path) as at:
        flow_id = await made(at, items={ROOT.name: some_items(1)})
        await until_queued(at, flow_id, 1)
        await until(lambda: [each.flows for each in database.counted_owners(10)] == [1] * 5)
    database.close()


async def test_a_receiver_that_answers_slowly_holds_up_nothing_and_hears_once(tmp_path: Path) -> None:
    heard: list[str] = []
    release = asyncio.Event()

    async def hear(request: web.Request) -> web.Response:
        heard.append(request.headers["PinLater-Callback"])
        await release.wait()
        return web.Response()

    application = web.Application()
    application.router.add_post("/over", hear)
    site = web.AppRunner(application)
    await site.setup()
    await web.TCPSite(site, "127.0.0.1", 0).start()
    callback = CompletionCallback(url=f"http://127.0.0.1:{site.addresses[0][1]}/over")
    try:
        async with flow_stand(tmp_path) as at:
            over = await made(at, sealed=[ROOT.name], on_complete=callback)
            async with asyncio.timeout(WITHIN_S):
                while not heard:
                    await asyncio.sleep(0.005)
            at.at.clock.tick(5_000)  # nobody takes it for left by another process
            await at.flows.callbacks.make_due()
            flow_id = await made(at, items={ROOT.name: [NewItem(b"1")]})
            await until_queued(at, flow_id, 1)
            release.set()
            async with asyncio.timeout(WITHIN_S):
                while (told := (await at.at.service.get_flow(over)).callback) is None or told.done_ms is None:
                    await asyncio.sleep(0.005)
            assert (heard, told.tries) == ([told.id], 1)
    finally:
        await site.cleanup()


async def test_the_callback_of_a_flow_that_known_items_seal_is_made_at_once(tmp_path: Path) -> None:
    async with flow_stand(tmp_path) as at:
        service, known = at.at.service, [NewItem(b"1", dedupe_key="one")]
        flow_id = await made(at, items={ROOT.name: known}, on_complete=CompletionCallback("ends", "told"))
        await until_queued(at, flow_id, 1)
        (job,) = await service.dequeue(DequeueRequest(ROOT.queue, 1))
        await service.ack(ROOT.queue, [Ack(job.descriptor, claim_descriptor=job.claim_descriptor)], [])
        await service.add_flow_items(flow_id, ROOT.name, known, seal=True)
        async with asyncio.timeout(WITHIN_S):  # the clock stands still, so nobody makes it for its time
            while (told := (await service.get_flow(flow_id)).callback) is None or told.done_ms is None:
                await asyncio.sleep(0.005)


async def test_a_flow_that_is_deleted_by_two_at_once(tmp_path: Path) -> None:
    async with flow_stand(tmp_path) as at:
        flow_id = await made(at, items={ROOT.name: some_items(1_000)})
        await at.at.service.add_flow_items(flow_id, ROOT.name, some_items(1_000))
        outcomes = await asyncio.gather(*[at.at.service.delete_flow(flow_id) for _ in range(2)], return_exceptions=True)
        assert None in outcomes
        assert all(each is None or isinstance(each, FlowNotFound) for each in outcomes)


async def test_a_removal_that_its_caller_gave_up_is_ended(tmp_path: Path) -> None:
    async with flow_stand(tmp_path) as at:
        flow_id = await made(at, items={ROOT.name: some_items(10)})
        await at.at.service.cancel_flow(flow_id)
        assert not await at.flows.connection.call(lambda database: database.delete(flow_id, 5))
    async with flow_stand(tmp_path) as at, asyncio.timeout(WITHIN_S):
        left = await made(at)
        while [each.id for each in (await at.at.service.get_flows(name="payroll")).flows] != [left]:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("error", [NoHealthyShards("away"), IndexError("a fault")])
async def test_a_queue_that_takes_no_items_does_not_hold_up_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(keeper, "BATCH", 1)
    async with flow_stand(tmp_path) as at:
        (store,) = at.at.stores
        store.failures["enqueue_extended"] = [error]
        stuck = await made(at, items={ROOT.name: some_items(3)})
        await until(lambda: at.flows.keeper.problem_of("payroll") != "")
        other = replace(ROOT, queue="other")
        store.failures["enqueue_extended"] = []
        new = NewFlow("other", [other], items={ROOT.name: some_items(1)})
        await until_queued(at, (await at.at.service.create_flow(new)).id, 1)
        await until_queued(at, stuck, 3)  # and it is tried again
        assert at.flows.keeper.problem_of("payroll") == ""


async def test_jobs_of_a_cancelled_flow_are_taken_back_when_their_shard_answers_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "CANCEL_EVERY_S", 0.01)
    async with flow_stand(tmp_path) as at:
        (store,) = at.at.stores
        flow_id = await made(at, items={ROOT.name: some_items(2)})
        await until_queued(at, flow_id, 2)
        store.failures["cancel"] = [ShardConnectionFailed("away")] * 2
        await at.at.service.cancel_flow(flow_id)
        async with asyncio.timeout(WITHIN_S):
            while await at.at.service.dequeue(DequeueRequest("payroll", 1, dry_run=True), context=RequestContext("me")):
                await asyncio.sleep(0.005)
        assert store.begun["cancel"] == 3


async def test_a_keeper_whose_clock_is_set_back_keeps_nothing_beside_another_one(tmp_path: Path) -> None:
    async with flow_stand(tmp_path) as at:
        service, metrics = at.at.service, Metrics()
        flow_id = await made(at, items={ROOT.name: some_items(1)})
        await until_queued(at, flow_id, 1)
        at.at.clock.tick(-3_600_000)
        other = Flows(at.settings, "me/2", at.at.router, service.queues, HeldClock(), metrics, service.events.ready)
        other.start()
        try:
            for _ in range(10):
                at.at.clock.tick(50)
                await service.add_flow_items(flow_id, ROOT.name, some_items(1))
                await asyncio.sleep(0.05)
            await until_queued(at, flow_id, 11)
            assert fed(at.metrics) == 11  # the first one goes on as the only one
            assert fed(metrics) == 0
        finally:
            await other.close()


def held_by(at: FlowStand, name: str) -> None:
    """Another process is the keeper, and has just said so."""
    database = FlowDatabase(at.settings.url)
    database.open()
    assert database.keep(name, at.at.clock.now_ms() + 1)[0]
    database.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody takes over from a keeper because it has said nothing."""
    monkeypatch.setattr(keeper, "KEPT_MS", 3_600_000)


@pytest.fixture
def dead_pid() -> int:
    with subprocess.Popen(["true"]) as process:
        process.wait()
        return process.pid


@pytest.mark.usefixtures("patient")
async def test_a_process_of_the_same_server_takes_over_from_a_dead_keeper_at_once(
    tmp_path: Path, dead_pid: int
) -> None:
    async with flow_stand(tmp_path) as at:
        held_by(at, f"me/{dead_pid}")
        flow_id = await made(at, items={ROOT.name: some_items(3)})
        await until_queued(at, flow_id, 3)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("name", ["another/{dead}", "me/{alive}", "me/no-number", "me/99999999999999999999"])
async def test_what_may_live_is_left_the_keeper(tmp_path: Path, dead_pid: int, name: str) -> None:
    async with flow_stand(tmp_path) as at:
        held_by(at, name.format(dead=dead_pid, alive=os.getppid()))
        flow_id = await made(at, items={ROOT.name: some_items(3)})
        await at.at.service.get_flow(flow_id)
        for _ in range(20):
            at.flows.keeper.wake()
            await asyncio.sleep(0.005)
        assert (await at.at.service.get_flow(flow_id)).stages[0].queued == 0


@pytest.mark.usefixtures("patient")
async def test_an_item_that_is_asked_for_comes_into_its_queue_whoever_is_the_keeper(tmp_path: Path) -> None:
    async with flow_stand(tmp_path) as at:
        held_by(at, f"another/{os.getpid()}")
        service = at.at.service
        second = replace(ROOT, name="second", queue="other")
        keyed = [NewItem(b"1", serialize_key="k"), NewItem(b"2", serialize_key="k")]
        new = NewFlow("payroll", [ROOT, second], items={ROOT.name: [*some_items(2), *keyed], second.name: keyed})
        flow_id = (await service.create_flow(new)).id
        items = (await service.get_flow_items(flow_id)).items
        first, last, older, younger, elsewhere, _ = [each.number for each in items]

        async def asked(number: int) -> Assignment:
            return await service.assign_item(number, context=RequestContext("me"))

        assert [(await asked(each)).outcome for each in (younger, elsewhere)] == [ClaimOutcome.BEHIND] * 2
        got = await asked(last)
        assert got.outcome is ClaimOutcome.CLAIMED
        assert [(await asked(each)).outcome for each in (last, first, first, older)] == [
            ClaimOutcome.IN_PROGRESS,
            ClaimOutcome.CLAIMED,
            ClaimOutcome.IN_PROGRESS,
            ClaimOutcome.CLAIMED,
        ]
        assert [(await asked(each)).outcome for each in (younger, elsewhere)] == [ClaimOutcome.BEHIND] * 2
        assert got.job is not None
        ack = Ack(got.job.descriptor, claim_descriptor=got.job.claim_descriptor)
        await service.ack("payroll", [ack], [])
        assert (await asked(last)).outcome is ClaimOutcome.ENDED
        stages = {each.stage.name: each for each in (await service.get_flow(flow_id)).stages}
        assert (stages["calculate"].queued, stages["calculate"].pending) == (3, 3)


def fed(metrics: Metrics) -> float:
    return sum(sum(values) for key, values in metrics.snapshot() if key[0] == "flow_items_queued")


async def test_work_that_fails_for_good_keeps_no_other_work_from_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(callbacks: FlowCallbacks) -> bool:
        raise ZeroDivisionError("for good")

    async with flow_stand(tmp_path) as at:
        over = await ended(at, 1_000, ttl_ms=0)
    monkeypatch.setattr(FlowCallbacks, "make_due", fails)
    async with flow_stand(tmp_path) as at:
        at.at.clock.tick(2)
        flow_id = await made(at)
        await at.at.service.add_flow_items(flow_id, ROOT.name, some_items(1))
        await until_queued(at, flow_id, 1)
        async with asyncio.timeout(WITHIN_S):
            while over in [each.id for each in (await at.at.service.get_flows(name="payroll")).flows]:
                await asyncio.sleep(0.005)


async def test_a_keeper_that_fails_again_and_again_lets_another_process_keep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[FlowCallbacks] = []
    works = FlowCallbacks.make_due

    async def fails_in_the_first(callbacks: FlowCallbacks) -> bool:
        turns.append(callbacks)
        if callbacks is turns[0]:
            raise ZeroDivisionError("here for good")
        return await works(callbacks)

    monkeypatch.setattr(FlowCallbacks, "make_due", fails_in_the_first)
    monkeypatch.setattr(keeper, "PASS_ON_AFTER", 2)
    async with flow_stand(tmp_path) as at:
        flow_id = await made(at)
        await until(lambda: bool(turns))
        service = at.at.service
        other = Flows(
            at.settings, f"me/{os.getpid()}", at.at.router, service.queues, at.at.clock, Metrics(), service.events.ready
        )
        other.start()
        try:
            await until(lambda: turns[-1] is not turns[0])
            await service.add_flow_items(flow_id, ROOT.name, some_items(1))
            await until_queued(at, flow_id, 1)
        finally:
            await other.close()


async def test_a_keeper_that_cannot_even_say_that_it_is_none_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []
    keep = FlowDatabase.keep

    def fails_at_first(database: FlowDatabase, holder: str, *args: Any) -> tuple[bool, int]:
        tries.append(holder)
        if len(tries) <= 4:
            raise ZeroDivisionError("in the database")
        return keep(database, holder, *args)

    monkeypatch.setattr(FlowDatabase, "keep", fails_at_first)
    monkeypatch.setattr(keeper, "PASS_ON_AFTER", 1)
    async with flow_stand(tmp_path) as at:
        flow_id = await made(at, items={ROOT.name: some_items(1)})
        await until_queued(at, flow_id, 1)
        assert len(tries) > 4
