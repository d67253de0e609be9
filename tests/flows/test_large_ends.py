"""Ends whose children come to many bytes: recorded in parts, and nobody's small one waits for all of them."""

from __future__ import annotations

import asyncio
import tracemalloc
from pathlib import Path

import pytest

from pinlater.flows import child_maker, end_records
from pinlater.flows.applets import make_children
from pinlater.flows.budgets import Budget
from pinlater.flows.child_maker import ChildMaker
from pinlater.flows.connection import FlowConnection
from pinlater.flows.database import FlowDatabase
from pinlater.flows.ends import EndOutcome, ItemEnd, Recorded, UnmadeChildren
from pinlater.flows.item_ends import ItemEnds
from pinlater.model.flow_words import Applet, AppletKind, NewItem, Stage
from tests.flows.stand import ROOT, START_MS, check_counters, feed, flow_of, job_of, opened
from tests.unit.stand import stand

PASSED = [Stage(f"pass{index}", "x", "q", ROOT.name, Applet(AppletKind.PASS)) for index in range(20)]
LARGE = b'"%b"' % (b"x" * 20_000)
LARGE_BYTES = 21 * len(LARGE) + 20
"""Of one item: read once, and written with its result for each stage."""


def large_flow(database: FlowDatabase, *more: Stage, amount: int = 10) -> str:
    flow_id = flow_of(database, ROOT, *PASSED, *more)
    database.add(flow_id, ROOT.name, [NewItem(LARGE)] * amount, START_MS, seal=True)
    return flow_id


def test_a_transaction_takes_as_many_ends_as_it_has_bytes_for(
    database: FlowDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow_id = large_flow(database)
    ends = [ItemEnd(job_of(item), b"1") for item in feed(database, ROOT.name)]
    monkeypatch.setattr(end_records, "MAX_TRANSACTION_BYTES", 3 * LARGE_BYTES)
    outcomes = [each.outcome for each in database.record_step(ends, START_MS).ends]
    assert outcomes == [EndOutcome.SUCCEEDED] * 3 + [EndOutcome.LATER] * 7
    monkeypatch.setattr(end_records, "MAX_TRANSACTION_BYTES", 1)  # one at least, whatever it has
    outcomes = [each.outcome for each in database.record_step(ends[3:], START_MS).ends]
    assert outcomes == [EndOutcome.SUCCEEDED] + [EndOutcome.LATER] * 6
    again = database.record([ends[0], *ends], START_MS)
    assert [each.outcome for each in again.ends] == [EndOutcome.ENDED] * 5 + [EndOutcome.SUCCEEDED] * 6
    assert [each.items for each in database.status(flow_id).stages] == [10] * 21
    assert feed(database, "pass7")[0].payload == b'{"payload":%b,"result":1}' % LARGE


def test_what_is_resumed_comes_in_parts_too(database: FlowDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Stage("broken", "x", "q", ROOT.name, Applet(AppletKind.MAP, "abs(payload)"))
    flow_id = large_flow(database, broken)
    database.record([ItemEnd(job_of(item), b"1") for item in feed(database, ROOT.name)], START_MS)
    assert database.status(flow_id).stages[0].applet_errors == 10
    monkeypatch.setattr(end_records, "MAX_TRANSACTION_BYTES", 3 * LARGE_BYTES + 10)
    database.mend(flow_id, "broken", "result", START_MS)
    first = database.make_children(flow_id, 0, {}, START_MS)
    made = {number: make_children(each, Budget())[0] for number, each in first.unmade.items()}
    after = database.make_children(flow_id, 0, made, START_MS)
    assert database.status(flow_id).stages[-1].items == 3
    assert after.last
    database.resume(flow_id, "", "", START_MS)
    assert [each.items for each in database.status(flow_id).stages] == [10] * 22


def test_what_one_transaction_has_in_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ack of 200 items, each passed to 63 stages, took 800 MB."""
    with opened(f"sqlite:///{tmp_path}/flows.db") as database:
        large_flow(database, amount=60)
        ends = [ItemEnd(job_of(item), b"1") for item in feed(database, ROOT.name)]
        monkeypatch.setattr(end_records, "MAX_TRANSACTION_BYTES", 3 * LARGE_BYTES)
        tracemalloc.start()
        try:
            assert len(database.record(ends, START_MS).ends) == 60
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 20 * LARGE_BYTES


async def test_a_small_end_waits_for_one_part_of_a_large_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/flows.db"
    with opened(url) as database:
        large_flow(database, amount=40)
        large = [ItemEnd(job_of(item), b"1") for item in feed(database, ROOT.name)]
        calm = flow_of(database, ROOT, PASSED[0])
        database.add(calm, ROOT.name, [NewItem(b'"calm"')] * 5, START_MS)
        small = [ItemEnd(job_of(item), b"1") for item in feed(database, ROOT.name)]
    monkeypatch.setattr(end_records, "MAX_TRANSACTION_BYTES", LARGE_BYTES)
    told: list[Recorded] = []
    connection = FlowConnection(url)
    async with stand() as at:
        ends = ItemEnds(connection, at.router, at.clock, told.append)
        recording = [asyncio.create_task(ends.record("payroll", large[start::4])) for start in range(4)]
        for end in small:
            [outcome] = await ends.record("payroll", [end])
            assert outcome.outcome is EndOutcome.SUCCEEDED
        assert not any(each.done() for each in recording)
        for each in recording:
            assert {outcome.outcome for outcome in await each} == {EndOutcome.SUCCEEDED}
    await connection.close()
    check_counters(url)


async def test_no_more_children_are_made_than_may_be_held(monkeypatch: pytest.MonkeyPatch) -> None:
    maker = ChildMaker()
    listed = UnmadeChildren(1, b"1", b"[%b]" % LARGE, [(place, Applet(AppletKind.LIST)) for place in range(3)])
    monkeypatch.setattr(child_maker, "MAX_HELD_BYTES", 5 * len(LARGE))
    made, _ = await maker.make([listed] * 9, "token:a")
    assert [sum(each.size for each in some) for some in made] == [3 * len(LARGE)] * 2
    await maker.close()
