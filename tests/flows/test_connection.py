"""The first use of the database of flows: what takes long there is no fault of the database, and is said as it is."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from pinlater.errors import FlowsUnavailable
from pinlater.flows import connection as connections
from pinlater.flows.connection import FlowConnection
from tests.flows.flow_stand import flow_stand


async def test_an_opening_that_takes_long_is_said_and_nothing_is_done_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_open, opened, began, done = threading.Event(), connections.open_database, list[int](), list[int]()

    def slow(*args: Any) -> Any:
        began.append(1)
        may_open.wait()
        return opened(*args)

    monkeypatch.setattr(connections, "open_database", slow)
    monkeypatch.setattr(connections, "OPEN_S", 0.01)
    connection = FlowConnection(f"sqlite:///{tmp_path}/flows.db")
    calls = [connection.call(lambda database: done.append(1)) for _ in range(3)]
    for refused in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(refused, FlowsUnavailable)
        assert refused.retryable
        assert "still being opened: send it again" in refused.message
    may_open.set()
    monkeypatch.setattr(connections, "OPEN_S", 60.0)
    assert await connection.call(lambda database: database.open_flows()) is False
    assert (began, done) == ([1], [])
    await connection.close()


async def test_an_opening_that_fails_is_tried_again(tmp_path: Path) -> None:
    (tmp_path / "none").write_bytes(b"")
    connection = FlowConnection(f"sqlite:///{tmp_path}/none/flows.db")
    with pytest.raises(FlowsUnavailable, match="unable to open"):
        await connection.call(lambda database: database.open_flows())
    (tmp_path / "none").unlink()
    (tmp_path / "none").mkdir()
    assert await connection.call(lambda database: database.open_flows()) is False
    await connection.close()


async def test_a_look_at_flows_that_nobody_has_made_makes_no_database(tmp_path: Path) -> None:
    async with flow_stand(tmp_path) as at:
        assert list((await at.at.service.get_flows()).flows) == []
        assert not (tmp_path / "flows.db").exists()
