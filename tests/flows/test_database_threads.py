"""Transactions at once on the database of flows: nothing counts twice, and nobody waits in a circle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from pinlater.flows.database import FlowDatabase
from pinlater.flows.ends import EndOutcome, ItemEnd, RecordedEnd
from pinlater.flows.tables import STAGES
from pinlater.model.flow_words import Applet, AppletKind, FlowState, NewItem, OnFailure, Stage
from tests.flows.stand import ROOT, START_MS, fail, feed, flow_of, job_of, opened, some_items, work

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


@contextmanager
def locked(url: str, *places: int) -> Iterator[sa.Connection]:
    """Another process that has these stages of the only flow, and takes more."""
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    with engine.connect() as connection:
        if connection.dialect.name == "sqlite":
            connection.connection.driver_connection.isolation_level = None  # type: ignore[union-attr]
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        take(connection, *places)
        yield connection


def take(connection: sa.Connection, *places: int) -> None:
    """DBAPIError: somebody else has one."""
    rows = sa.select(STAGES.c.place).where(STAGES.c.place.in_(places))
    assert len(connection.execute(rows.with_for_update(nowait=True)).all()) == len(places)


def waits(future: Future[Any]) -> bool:
    with suppress(FutureTimeout):
        future.result(0.3)
    return not future.done()


def test_a_stage_that_is_stopped_while_another_one_is(database: FlowDatabase, url: str) -> None:
    side = replace(ROOT, name="side", queue="side")
    flow_id = flow_of(database, replace(ROOT, max_failures=0), side, items=2, on_failure=OnFailure.STOP_STAGE)
    database.add(flow_id, "side", some_items(2), START_MS)
    fail(database, database.waiting(10, 10)[0].number, "c")
    with locked(url, 0, 1) as other, ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(database.stop, flow_id, START_MS, 10)
        assert waits(stopping)
        of_side = sa.update(STAGES).where(STAGES.c.name == "side")
        other.execute(of_side.values(stop_reason="another failure", sealed_ms=START_MS))
        other.commit()
        is_done = stopping.result(10)[1]
        assert is_done == (database.status(flow_id).stages[1].pending == 0)
    while not is_done:
        is_done = database.stop(flow_id, START_MS, 10)[1]
    status = database.status(flow_id)
    assert ([each.failed for each in status.stages], status.state) == ([2, 2], FlowState.COMPLETE)


@pytest.mark.parametrize("call", ["add and seal", "seal"])
def test_whoever_seals_takes_the_parents_first(database: FlowDatabase, url: str, call: str) -> None:
    """Else it would wait for who has the parent and wants the child, and that one for it."""
    flow_id = flow_of(database, ROOT, BELOW)
    with locked(url, 0) as other, ThreadPoolExecutor(1) as pool:
        if call == "seal":
            sealing = pool.submit(database.seal, flow_id, "below", START_MS)
        else:
            sealing = pool.submit(database.add, flow_id, "below", some_items(1), START_MS, seal=True)  # type: ignore[arg-type]
        assert waits(sealing)
        take(other, 1)
        other.rollback()
        sealing.result(10)
    assert database.status(flow_id).stages[1].is_sealed
