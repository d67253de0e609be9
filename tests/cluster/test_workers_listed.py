"""Real workers in the list of a real cluster: two servers of two processes, each of which lists them all."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pinlater import Client, Job
from pinlater.cluster.worker_list import KEEP_MS
from pinlater.model import WorkerInfo
from pinlater_workers.envelope import Envelope, write_envelope
from tests.cluster.conftest import Command, TwoServers, eventually
from tests.workers.command import WorkerCommand, working

CODE = """
import ctypes, time
from pinlater_workers import App

app = App(version="2026.11")

@app.job(queue="listed", time_limit="5m", attempts=9)
def wait(seconds: float) -> None:
    time.sleep(seconds)

@app.job(queue="listed", time_limit="5m", attempts=9)
def hold(seconds: int) -> None:
    ctypes.PyDLL(None).sleep(seconds)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "listed_jobs.py").write_text(CODE)
    return tmp_path


@pytest.fixture
def clients(cluster: TwoServers) -> Iterator[list[Client]]:
    """Of each server two: their connections go to its processes in turn."""
    with ExitStack() as stack:
        made = [stack.enter_context(Client(address)) for address in cluster.addresses * 2]
        made[0].create_queue("listed")
        yield made


def start(stack: ExitStack, cluster: TwoServers, folder: Path, *arguments: str) -> WorkerCommand:
    servers = [word for address in cluster.addresses for word in ("--server", address)]
    worker = stack.enter_context(working(folder, "--app", "listed_jobs:app", *servers, *arguments))
    worker.ready()
    return worker


def enqueue(client: Client, job: str, *arguments: object) -> None:
    client.enqueue("listed", Job(write_envelope(Envelope(job=job, args=list(arguments))), attempts_allowed=9))


def seen_by(clients: list[Client], **filter: Any) -> list[list[WorkerInfo]]:
    return [client.get_workers(include_running=True, **filter).workers for client in clients]


def all_see(clients: list[Client], *names: str) -> bool:
    return all([each.name for each in workers] == sorted(names) for workers in seen_by(clients))


@pytest.mark.slow
def test_workers_are_listed_everywhere_until_they_stop_or_are_gone(
    cluster: TwoServers, clients: list[Client], command: Command, folder: Path
) -> None:
    with ExitStack() as stack:
        plain = start(stack, cluster, folder, "--concurrency", "3")
        named = start(stack, cluster, folder, "--queues", "listed=5", "--name", "second", "--grace", "0s")
        eventually(lambda: all_see(clients, "listed_jobs", "second"))
        for first, second in seen_by(clients):
            assert (first.pid, first.slots, first.queues) == (plain.process.pid, 3, {"listed": 1})
            assert (second.pid, second.slots, second.queues) == (named.process.pid, 8, {"listed": 5})
            assert first.versions["app"] == "2026.11"
            assert first.versions.keys() == {"app", "pinlater", "python"}

        # and an operator sees them
        whole = json.loads(command("cluster", "status", "-o", "json").stdout)
        assert [each["name"] for each in whole["workers"]] == ["listed_jobs", "second"]
        kinds = [json.loads(line)["kind"] for line in command("cluster", "status", "-o", "jsonl").stdout.splitlines()]
        assert kinds.count("worker") == 2
        last = command("cluster", "status").stdout.splitlines()[-1]
        assert last == "2 workers with 11 slots, 0 busy; pinlater worker list shows them"
        assert command("worker", "list", "--queue", "listed").stdout.count("working") == 2

        # one that stops in order is gone at once, wherever it was heard of before
        named.send(signal.SIGTERM)
        assert named.ended() == 0
        stopped_s = time.monotonic()
        eventually(lambda: all_see(clients, "listed_jobs"))
        assert time.monotonic() - stopped_s < KEEP_MS / 2_000

        # what it runs is known, also where long jobs take all its slots
        for _ in range(3):
            enqueue(clients[0], "wait", 300)
        eventually(lambda: all(workers[0].busy_slots == 3 for workers in seen_by(clients)))
        for (worker,) in seen_by(clients):
            assert [job.job_type for job in worker.running] == ["wait"] * 3
            assert worker.longest_since_ms == worker.running[0].since_ms <= worker.running[-1].since_ms
        seen_ms = seen_by(clients)[0][0].seen_ms
        eventually(lambda: all(workers[0].seen_ms > seen_ms for workers in seen_by(clients)))

        # one that was killed says no more, and its claims move on: after a minute it is gone
        plain.send(signal.SIGKILL)
        plain.ended()
        killed_s = time.monotonic()
        assert all_see(clients, "listed_jobs")
        while not all_see(clients):
            assert time.monotonic() - killed_s < KEEP_MS / 1_000 + 30
            time.sleep(0.5)


def test_a_worker_that_a_job_holds_up_is_listed_as_silent_with_that_job(
    cluster: TwoServers, clients: list[Client], folder: Path
) -> None:
    with ExitStack() as stack:
        start(stack, cluster, folder, "--name", "held")
        eventually(lambda: bool(seen_by(clients, name="held")[0]))
        enqueue(clients[0], "hold", 25)

        def is_silent() -> bool:
            (worker,) = seen_by(clients, name="held")[0]
            return worker.silent_since_ms is not None and "hold" in [job.job_type for job in worker.running]

        eventually(is_silent)
