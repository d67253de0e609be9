"""What relays of outboxes tell a real server: who they are, what waits, and that they stop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater import Client
from pinlater.model import WorkerInfo
from pinlater_workers import ConfigurationError
from tests.server.commands import Shell
from tests.server.running import running
from tests.workers.outbox_stand import DIALECTS, Shop, fresh_place, until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("server")) as found:
        yield f"127.0.0.1:{found.port}"


def relays(client: Client) -> list[WorkerInfo]:
    return [each for each in client.get_workers().workers if each.outbox is not None]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_relay_says_what_waits_until_it_stops(
    dialect: str, server: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The queue of its jobs is not there yet, so they wait."""
    place = fresh_place(dialect, request, tmp_path)
    shop = Shop(server)
    late = shop.send.options(queue="not_yet")
    with place.engine.begin() as connection:
        shop.outbox.create_table(connection)
        shop.outbox.enqueue_many(connection, late, [{"to": "ada", "number": number} for number in range(3)])
    relay = shop.outbox.relay(place.url, goal=60)
    with Client(server) as client:
        with relay:
            until(lambda: relays(client), "the relay is listed")
            ((found, outbox),) = [(each, each.outbox) for each in relays(client)]
            assert outbox is not None
            assert outbox.name == f"{relay.database.shown}/pinlater_outbox"
            assert (outbox.waiting, outbox.goal_ms, found.queues, found.slots) == (3, 60_000, {}, 0)
            assert "queue not_yet takes no jobs" in outbox.problem
            assert client.get_workers().total == 0
            row = next(
                line for line in Shell(tmp_path, server)("worker", "list").out.splitlines() if "relay of" in line
            )
            assert "3 jobs wait, the oldest for" in row
        until(lambda: not relays(client), "a relay that stops is not listed")
    shop.app.close()


def test_a_relay_of_a_test_tells_nobody(server: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    place = fresh_place("sqlite", request, tmp_path)
    shop = Shop(server)
    with place.engine.begin() as connection:
        shop.outbox.create_table(connection)
        shop.outbox.enqueue(connection, shop.send, "ada")
    sink = shop.record()
    with shop.outbox.relay(place.url), Client(server) as client:
        until(lambda: sink.calls, "it works")
        until(lambda: place.waiting() == 0, "it goes on")
        assert relays(client) == []
    shop.app.close()


def test_a_goal_that_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="goal is 0; allowed: 1s to 30d"):
        Shop().outbox.relay("sqlite://", goal=0)
