"""Transactions at once on the database of flows: nothing counts twice, and nobody waits in a circle."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from pinlater.flows.database import FlowDatabase
from pinlater.flows.ends import EndOutcome, ItemEnd, RecordedEnd
from pinlater.model.flow_words import Applet, AppletKind, FlowState, NewItem, Stage
from tests.flows.stand import ROOT, START_MS, feed, flow_of, job_of, opened, work

BELOW = Stage("below", "x", "q", "calculate", Applet(AppletKind.PASS))
THREADS = 4


def test_processes_that_open_at_once(url: str) -> None:
    def open_it(_: int) -> None:
        with opened(url) as database:
            assert not database.open_flows()

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(open_it, range(THREADS)))


def test_every_end_counts_once(database: FlowDatabase) -> None:
    flow_id = flow_of(database, ROOT, BELOW, items=200, sealed=["calculate"])
    ends = [ItemEnd(job_of(item), b"1") for item in feed(database)]

    def record(turn: int) -> list[RecordedEnd]:
        found: list[RecordedEnd] = []
        for start in range(0, len(ends), 20):
            some = ends[start : start + 20]
            found += database.record(some if turn % 2 else some[::-1], START_MS).ends
        return found

    with ThreadPoolExecutor(THREADS) as pool:
        told = Counter(each.outcome for found in pool.map(record, range(THREADS)) for each in found)
    assert told == {EndOutcome.SUCCEEDED: 200, EndOutcome.ENDED: 200 * (THREADS - 1)}
    stages = database.status(flow_id).stages
    assert [(each.pending, each.items, each.is_sealed) for each in stages] == [(0, 200, True), (200, 200, True)]


def test_adding_recording_and_sealing_at_once(database: FlowDatabase) -> None:
    flow_id = flow_of(database, ROOT, BELOW, dedupe_key="one")

    def add(turn: int) -> None:
        for index in range(10):
            keyed = [NewItem(b"1", f"{index}-{key}") for key in range(5)]
            database.add(flow_id, "calculate", keyed if turn % 2 else keyed[::-1], START_MS)
            database.add(flow_id, "below", [NewItem(b"2", f"{turn}-{index}")], START_MS)
            work(database, ("calculate", "below")[turn % 2])

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(add, range(THREADS)))
    database.seal(flow_id, "", START_MS)
    for stage in ("calculate", "below"):
        work(database, stage)
    status = database.status(flow_id)
    assert [each.items for each in status.stages] == [50, 50 + 10 * THREADS]
    assert status.state is FlowState.COMPLETE
