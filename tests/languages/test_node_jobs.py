"""The programs of docs/workers-bodies.md: what Node enqueues Python takes, and what Python enqueues Node runs."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater.model import DequeueRequest, Job, JobInfo, JobState
from pinlater_workers import App, JobType
from pinlater_workers.envelope import read_envelope
from tests.languages.conftest import ROOT
from tests.stores.process import dies_with_us

PAGE = ROOT / "docs" / "workers-bodies.md"
WITHIN_S = 60.0


@pytest.fixture
def app(sqlite_server: int, queue: str) -> Iterator[App]:
    app = App(servers=[f"127.0.0.1:{sqlite_server}"])
    app.client.create_queue(queue)
    yield app
    app.close()


@pytest.fixture
def thumbnail(app: App, queue: str) -> JobType:
    @app.job(queue=queue)
    def thumbnail(path: str, size: int) -> str:
        return ""

    return thumbnail


def program(name: str, folder: Path, port: int, queue: str) -> list[str]:
    """The command of a program of the page, which is written beside the generated classes and other tests' programs."""
    (text,) = re.findall(rf"```js\n(// {name}: .*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (folder / f"page-{name}").write_text(text, encoding="utf-8")
    return ["node", f"page-{name}", "127.0.0.1", str(port), queue]


def looked_up(app: App, descriptor: str) -> JobInfo:
    return app.client.lookup([descriptor])[descriptor]


def test_python_takes_what_node_enqueues(
    app: App, thumbnail: JobType, sqlite_server: int, queue: str, node_worker: Path
) -> None:
    command = program("producer.js", node_worker, sqlite_server, queue)
    done = subprocess.run(command, cwd=node_worker, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    (job,) = app.client.dequeue(DequeueRequest(queue, 10, wait_ms=10_000))
    assert (job.descriptor, job.attempts_allowed) == (done.stdout.strip(), 11)
    envelope = read_envelope(job.body)
    assert envelope is not None
    assert envelope.job == thumbnail.name
    assert thumbnail.arguments(envelope) == (("ä.jpg",), {"size": 200})


def test_node_runs_what_python_enqueues_fails_what_it_cannot_read_and_requeues_what_it_does_not_know(
    app: App, thumbnail: JobType, sqlite_server: int, queue: str, node_worker: Path
) -> None:
    unreadable = app.client.enqueue(queue, Job(b"PINLATER/1 application/json\n{", attempts_allowed=3))
    unknown = app.job(queue=queue, name="unknown")(thumbnail.function).enqueue("b.jpg", 1)
    done = thumbnail.options(keep_result=True).enqueue("ä.jpg", size=300)
    command = [*dies_with_us(), *program("worker.js", node_worker, sqlite_server, queue)]
    with (node_worker / "worker.log").open("wb") as log, subprocess.Popen(command, cwd=node_worker, stderr=log) as node:
        try:
            deadline = time.monotonic() + WITHIN_S
            while looked_up(app, done).state is not JobState.SUCCEEDED:
                assert node.poll() is None, (node_worker / "worker.log").read_text()
                assert time.monotonic() < deadline, looked_up(app, done)
                time.sleep(0.05)
        finally:
            node.kill()
    assert looked_up(app, done).custom_status == "attempt 1: ä.jpg in 300\n"
    assert done.result(timeout=60) == "ä.jpg in 300"
    given_back = looked_up(app, unknown)
    assert (given_back.state, given_back.attempts_remaining) == (JobState.PENDING, 11)
    assert given_back.run_after_ms > given_back.created_at_ms + 9000
    failed = looked_up(app, unreadable)
    assert (failed.state, failed.attempts_remaining) == (JobState.PENDING, 2)
    assert failed.custom_status.startswith("attempt 1: SyntaxError")
