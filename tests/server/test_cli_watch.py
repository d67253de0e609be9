"""`pinlater watch`: what happened in queues since the last look, at a real server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pinlater import Ack, Client, DequeueRequest, Job
from pinlater.cli.watch import QueueEvent, WatchedQueues
from tests.server.commands import Shell
from tests.server.running import WITHIN_S, running


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a server, with its address in a file."""
    folder = tmp_path_factory.mktemp("served")
    with running(folder) as server:
        (folder / "address").write_text(f"127.0.0.1:{server.port}")
        yield folder


@pytest.fixture
def client(served: Path) -> Iterator[Client]:
    with Client((served / "address").read_text()) as made:
        yield made


def looked(events: WatchedQueues, is_enough: Callable[[list[QueueEvent]], bool]) -> list[QueueEvent]:
    """What further looks find, as servers tell of their counts every other second."""
    found: list[QueueEvent] = []
    ends_s = time.monotonic() + WITHIN_S
    while not is_enough(found):
        assert time.monotonic() < ends_s, found
        found += events.look()
    return found


def counts(found: list[QueueEvent]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for event in found:
        if event.jobs is not None:
            sums[event.event] = sums.get(event.event, 0) + event.jobs
    return sums


def test_what_happens_in_a_queue_is_counted_once_and_failures_are_named(client: Client) -> None:
    for queue in ("watched", "watched-too", "other"):
        client.create_queue(queue)
    client.enqueue("watched", [Job(b"")])  # before the first look: nobody is told
    events = WatchedQueues(client, ["watched*"], names_failures=True)
    assert events.look() == []
    client.enqueue("watched", [Job(b"")] * 2)
    client.enqueue("other", [Job(b"")])
    done, failed = client.dequeue(DequeueRequest("watched", 2))
    client.ack("watched", succeeded=[Ack(done.descriptor)], failed=[Ack(failed.descriptor, "Odd: no", permanent=True)])
    client.enqueue("watched-too", [Job(b"")] * 3)
    found = looked(
        events, lambda found: {"failed", "succeeded"} <= counts(found).keys() and counts(found)["enqueued"] >= 5
    )
    assert {event.queue for event in found} == {"watched", "watched-too"}
    named = [(event.job, event.detail) for event in found if event.job is not None]
    assert named == [(failed.descriptor, "Odd: no")]
    assert counts(found)["started"] == 2
    assert (counts(found)["succeeded"], counts(found)["failed"]) == (1, 1)


def test_what_holds_a_queue_back_is_an_event(client: Client, served: Path) -> None:
    client.create_queue("held")
    password = (served / "pinlater-data" / "admin-password").read_text().strip()
    events = WatchedQueues(client, ["held"], names_failures=False)
    assert events.look() == []
    client.update_queue("held", password, set={"paused": "true", "paused_why": "tests"})
    (event,) = looked(events, bool)
    assert (event.queue, event.event, event.jobs) == ("held", "held", None)
    assert "(tests)" in event.detail
    client.update_queue("held", password, unset=["paused"])
    assert [event.detail for event in looked(events, bool)] == ["nothing any more"]


def test_a_queue_that_does_not_exist_and_a_server_that_is_away_are_said(served: Path) -> None:
    shell = Shell(served, (served / "address").read_text())
    assert shell("watch", "held", "--event", "failed", "--for", "1ms", "--interval", "1ms").out == ""
    assert "is not one of" in shell("watch", "--event", "born", code=2).err
    assert "127.0.0.1:1: Connect" in shell("watch", "--server", "127.0.0.1:1", code=3).err
