"""Ends of items that come at once: one transaction for all, and none is held up by what another one says."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path

import pytest

from pinlater.errors import FlowsUnavailable
from pinlater.flows.connection import FlowConnection
from pinlater.flows.ends import EndOutcome, ItemEnd, Recorded
from pinlater.flows.item_ends import ItemEnds
from tests.flows.stand import ROOT, feed, flow_of, job_of, opened
from tests.unit.stand import stand


async def test_ends_that_cannot_be_recorded_keep_no_others_from_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/flows.db"
    with opened(url) as database:
        flow_id = flow_of(database, ROOT, items=3)
        fed = feed(database)
    told: list[Recorded] = []
    connection = FlowConnection(url)
    async with stand() as at:
        ends = ItemEnds(connection, at.router, at.clock, told.append)
        calls = [ends.record("payroll", [ItemEnd(job_of(item), b"1")]) for item in fed]
        broken = ends.record("payroll", [ItemEnd("", b"1", number=2**70)])
        first, second, *rest = await asyncio.gather(calls[0], broken, *calls[1:], return_exceptions=True)
    assert isinstance(second, OverflowError)
    assert [each[0].outcome for each in (first, *rest)] == [EndOutcome.SUCCEEDED] * 3  # type: ignore[index]
    assert (await connection.call(lambda database: database.status(flow_id))).stages[0].succeeded == 3
    await connection.close()


async def test_a_database_that_does_not_answer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinlater.flows.connection.ANSWER_S", 0.01)
    connection, release = FlowConnection(f"sqlite:///{tmp_path}/flows.db"), threading.Event()
    with pytest.raises(FlowsUnavailable, match="send it again") as refused:
        await connection.call(lambda database: release.wait())
    assert refused.value.retryable
    release.set()
    await connection.close()


async def test_a_server_that_takes_connections_and_says_nothing_is_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connection = FlowConnection(
            f"postgresql+psycopg://me@127.0.0.1:{silent.getsockname()[1]}/flows?connect_timeout=2"
        )
        with pytest.raises(FlowsUnavailable):
            await connection.call(lambda database: database.open_flows())
        await connection.close()
