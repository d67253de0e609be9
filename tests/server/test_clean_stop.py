"""What a server logs of a stop that goes well, on each kind of store: nothing that would wake somebody."""

from __future__ import annotations

from pathlib import Path

import pytest

from pinlater import Client, DequeueRequest
from pinlater.model import WorkerReport
from tests.server.running import running
from tests.stores.places import Places

KINDS = "redis", "mysql", "postgres", "dynamodb"
POLLS, POLL_MS = 6, 500
"""Leases are renewed, and read, several times meanwhile."""


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.store(kind)) for kind in KINDS])
def test_a_stop_while_another_server_sees_workers_logs_no_error(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The last count of a process is of what it knows: its shards are closed by then."""
    places: Places = request.getfixturevalue(f"{kind}_places")
    arguments = "--store", f"1={places.fresh()}", "--processes", "1", "--lease", "1s"
    folders = tmp_path / "stays", tmp_path / "stops"
    for folder in folders:
        folder.mkdir()
    with running(folders[0], *arguments) as stays, running(folders[1], *arguments) as stops:
        assert stops.port
        with Client(f"127.0.0.1:{stays.port}") as client:
            client.create_queue("mail")
            for number in range(POLLS):
                report = WorkerReport("w1", "shop", 1 + number, queues={"mail": 1}, slots=1)
                client.dequeue(DequeueRequest("mail", 1, wait_ms=POLL_MS, worker=report))
        assert stops.stop() == 0
    assert [event for event in stops.events if event.get("level") == "error"] == []
