"""`pinlater top` on a terminal of 80 columns and 24 lines, as somebody types."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater import Ack, Client, DequeueRequest, Job
from tests.server.running import running
from tests.server.terminal import Terminal


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[tuple[Path, Client, str]]:
    """Where a server has its data; a client of it, and its address."""
    with running(tmp_path) as server:
        address = f"127.0.0.1:{server.port}"
        with Client(address) as client:
            yield tmp_path, client, address


def is_paused(client: Client, queue: str) -> bool:
    (view,) = client.get_queues([queue])
    return view.settings["paused"].value == "true"


def test_a_queue_is_opened_paused_and_resumed(folder: tuple[Path, Client, str]) -> None:
    path, client, address = folder
    for queue in ("first", "second"):
        client.create_queue(queue)
    client.enqueue("second", [Job(b"")])
    (job,) = client.dequeue(DequeueRequest("second", 1))
    client.ack("second", failed=[Ack(job.descriptor, "ValueError: no\n", permanent=True)])
    terminal = Terminal(path, address, "top", "--interval", "100ms", "--sort", "name", columns=80, lines=24)
    terminal.until("> first")
    terminal.type("s")
    terminal.until("sort: ready")
    terminal.type("\x1b[B")
    terminal.until("> second")
    terminal.type("\r")
    terminal.until("last failures")
    terminal.until("ValueError: no")
    terminal.type("p")
    terminal.until("Pause queue second? [y/N]")
    terminal.type("n")
    terminal.until("q back")
    assert not is_paused(client, "second")
    terminal.type("p")
    terminal.type("y")
    terminal.until("queue second is paused; p resumes it")
    assert is_paused(client, "second")
    assert not is_paused(client, "first")
    terminal.type("p")
    terminal.until("Resume queue second? [y/N]")
    terminal.type("y")
    terminal.until("queue second is resumed")
    assert not is_paused(client, "second")
    terminal.type("q")
    terminal.type("q")
    assert terminal.ended() == 0
