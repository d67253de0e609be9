"""Relays that are killed with SIGKILL in the middle of their work: each job comes once, whatever the database."""

from __future__ import annotations

import contextlib
import signal
from collections import Counter
from pathlib import Path

import pytest

from pinlater import Client, DequeueRequest, Job
from tests.server.running import running
from tests.workers.command import WorkerCommand, working
from tests.workers.outbox_stand import DIALECTS, OutboxPlace, Shop, fresh_place, numbers, until

BATCH = 20
KILLS = 2
JOBS = 1000


def relay(folder: Path, place: OutboxPlace, server: str) -> contextlib.AbstractContextManager[WorkerCommand]:
    arguments = ["--database", place.url, "--server", server, "--batch", str(BATCH), "--poll", "5ms"]
    return working(folder, "--log-level", "debug", "outbox", *arguments)


def drained(client: Client, queue: str) -> Counter[int]:
    found: Counter[int] = Counter()
    while jobs := client.dequeue(DequeueRequest(queue, limit=500)):
        found.update(numbers([Job(job.body) for job in jobs]))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_job_comes_once(dialect: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    place = fresh_place(dialect, request, tmp_path)
    (tmp_path / "server").mkdir()
    with running(tmp_path / "server") as server:
        address = f"127.0.0.1:{server.port}"
        shop = Shop(address)
        shop.app.client.create_queue("mail")
        with place.engine.begin() as connection:
            shop.outbox.create_table(connection)
        left, written = JOBS, 0
        for _ in range(KILLS):
            with place.engine.begin() as connection:
                calls = [{"to": "ada", "number": number} for number in range(written, written + JOBS // KILLS)]
                shop.outbox.enqueue_many(connection, shop.send, calls)
            written += len(calls)
            left = place.waiting()
            with relay(tmp_path, place, address) as killed, relay(tmp_path, place, address) as other:
                until(lambda before=left: place.waiting() < before, "a relay works")  # type: ignore[misc]
                killed.send(signal.SIGKILL)
                other.send(signal.SIGKILL)
                assert (killed.ended(), other.ended()) == (-signal.SIGKILL, -signal.SIGKILL)
        with relay(tmp_path, place, address) as last:
            last.wait_for("from table")  # the two before it may have left nothing, and it listens to signals now
            until(lambda: place.waiting() == 0, "the rest is handed over")
            last.send(signal.SIGTERM)
            assert last.ended() == 0
        with Client(address) as client:
            found = drained(client, "mail")
        shop.app.close()
    assert sorted(found) == list(range(JOBS)), "none is lost"
    assert sum(found.values()) == JOBS, "none comes again"
