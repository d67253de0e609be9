"""The processes that a worker and a server start beside themselves: where they import from, and what becomes of what
depends on one that fails for good.

A program of the test's own begins the worker or the server, with an interpreter that fails while a file is there.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import pinlater_workers
from pinlater import Client, Job, JobInfo, JobState
from tests.server.running import WITHIN_S, RunningServer, running
from tests.stores.process import free_port
from tests.workers.command import WorkerCommand, until, working

APP = """
import os, sys, time
from pathlib import Path
from pinlater_workers import App

app = App()

@app.job(queue="QUEUE", attempts=4)
def wait(path: str) -> None:
    print("waiting", flush=True)
    while not Path(path).exists():
        time.sleep(0.02)

@app.job(queue="QUEUE", attempts=2, retry=[3600])
def crash() -> None:
    os._exit(3)
"""

PROGRAM = """#!{python}
import sys
sys.path[:0] = {path!r}
from pinlater import child_process
child_process.FIRST_PAUSE_S, child_process.LONGEST_PAUSE_S = 0.02, 0.1
sys.executable = {executable!r}
from {module} import main
main()
"""

FAILING = """#!/bin/sh
case "$*" in *{only}*) [ -e {flaw} ] && echo a flaw >&2 && exit 3;; esac
exec {python} "$@"
"""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with running(tmp_path_factory.mktemp("server")) as server:
        yield server.port


class Stand:
    """A folder with an app, the programs, and the file that makes the interpreter of some modules fail."""

    def __init__(self, folder: Path, port: int, queue: str, only: str) -> None:
        self.folder = folder
        self.queue = queue
        self.client = Client(f"127.0.0.1:{port}")
        self.client.create_queue(queue)
        self.flaw = folder / "flaw"
        self.go = folder / "go"
        self.arguments = ("--app", "shop:app", "--server", f"127.0.0.1:{port}", "--lease", "3s", "--grace", "30s")
        (folder / "shop.py").write_text(APP.replace("QUEUE", queue))
        self.worker_program = program(folder, "pinlater_workers.cli", failing(folder, self.flaw, only))

    def enqueue(self, name: str, *args: object) -> str:
        body = f"PINLATER/1 application/json\n{json.dumps({'job': name, 'args': args})}".encode()
        return self.client.enqueue(self.queue, Job(body, attempts_allowed=4))

    def info(self, descriptor: str) -> JobInfo:
        return self.client.lookup([descriptor])[descriptor]

    def beaten(self, descriptor: str) -> None:
        """Its claim holds longer than it did."""
        before_ms = self.info(descriptor).claim_expires_at_ms or 0
        until(lambda: (self.info(descriptor).claim_expires_at_ms or 0) > before_ms, "it is beaten")


def bare_python() -> str:
    """An interpreter that finds no packages by itself."""
    return str(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")


def failing(folder: Path, flaw: Path, only: str) -> str:
    """An interpreter that fails at modules with that in their names while the flaw is there."""
    path = folder / "interpreter"
    path.write_text(FAILING.format(only=only, flaw=flaw, python=bare_python()))
    path.chmod(0o700)
    return str(path)


def program(folder: Path, module: str, executable: str) -> str:
    path = folder / "program"
    found = [*sys.path, str(Path(pinlater_workers.__file__).parents[1])]
    path.write_text(PROGRAM.format(python=bare_python(), path=found, executable=executable, module=module))
    path.chmod(0o700)
    return str(path)


@pytest.fixture
def stand(tmp_path: Path, port: int, request: pytest.FixtureRequest) -> Iterator[Stand]:
    stand = Stand(tmp_path, port, f"q_{abs(hash(request.node.name)):x}"[:20], getattr(request, "param", "heartbeat"))
    yield stand
    stand.client.close()


def is_child(pid: int, module: str) -> bool:
    return module.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()


def child(worker: WorkerCommand, module: str) -> int:
    (found,) = (each for each in worker.children() if is_child(each, module))
    return found


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_processes_of_a_worker_find_what_its_program_has_put_on_its_path(stand: Stand, pool: str) -> None:
    with working(stand.folder, *stand.arguments, "--pool", pool, program=stand.worker_program) as worker:
        descriptor = stand.enqueue("wait", str(stand.go))
        worker.wait_for("waiting")
        stand.beaten(descriptor)
        stand.beaten(descriptor)
        stand.go.touch()
        until(lambda: stand.info(descriptor).state is JobState.SUCCEEDED, "it succeeds")
        assert len([line for line in worker.lines if line == "waiting"]) == 1
        worker.send(signal.SIGTERM)
        assert worker.ended() == 0


@pytest.mark.parametrize(("stand", "pool"), [("heartbeat", "thread"), ("pools", "process")], indirect=["stand"])
def test_worker_whose_process_dies_at_once_ends_with_2_and_takes_no_job(stand: Stand, pool: str) -> None:
    descriptor = stand.enqueue("wait", str(stand.go))
    stand.flaw.touch()
    with working(stand.folder, *stand.arguments, "--pool", pool, program=stand.worker_program) as worker:
        assert worker.ended() == 2
        assert "a flaw" in worker.lines
        assert "exit code 3" in worker.lines[-1]
        assert "pinlater-worker: " in worker.lines[-1]
        assert "waiting" not in worker.lines
    assert stand.info(descriptor).attempts_remaining == 4


def test_worker_whose_heartbeat_process_is_gone_for_good_beats_itself_until_its_jobs_have_ended(stand: Stand) -> None:
    with working(stand.folder, *stand.arguments, program=stand.worker_program) as worker:
        descriptor = stand.enqueue("wait", str(stand.go))
        worker.wait_for("waiting")
        stand.beaten(descriptor)
        stand.flaw.touch()
        os.kill(child(worker, "heartbeat"), signal.SIGKILL)
        worker.wait_for("the worker ends: the heartbeat process")
        late = stand.enqueue("wait", str(stand.go))
        stand.beaten(descriptor)
        stand.beaten(descriptor)
        assert stand.info(late).state is JobState.PENDING
        stand.go.touch()
        assert worker.ended() == 2
        assert len([line for line in worker.lines if line == "waiting"]) == 1
    assert (stand.info(descriptor).state, stand.info(late).attempts_remaining) == (JobState.SUCCEEDED, 4)


@pytest.mark.parametrize("stand", ["pools"], indirect=True)
def test_worker_whose_pool_starts_no_process_any_more_ends_with_2_and_gives_its_jobs_back(stand: Stand) -> None:
    arguments = (*stand.arguments, "--pool", "process", "--concurrency", "1")
    with working(stand.folder, *arguments, program=stand.worker_program) as worker:
        worker.ready()
        stand.go.touch()
        first = stand.enqueue("wait", str(stand.go))
        until(lambda: stand.info(first).state is JobState.SUCCEEDED, "a process of the pool has worked")
        stand.go.unlink()
        stand.flaw.touch()
        crashed = stand.enqueue("crash")
        waiting = stand.enqueue("wait", str(stand.go))
        worker.wait_for("the worker ends: no process of the pool starts any more")
        assert worker.ended() == 2
    assert [stand.info(each).attempts_remaining for each in (crashed, waiting)] == [3, 4]


def test_http_process_that_is_gone_for_good_leaves_no_caller_waiting_and_comes_back(tmp_path: Path) -> None:
    flaw, port = tmp_path / "flaw", free_port()
    started = program(tmp_path, "pinlater.cli", failing(tmp_path, flaw, "api_process"))
    server = RunningServer(tmp_path, "--api", f"127.0.0.1:{port}", program=started)
    try:
        (pid,) = {server.wait_for("api_ready")["api"]}
        assert answers(port)
        flaw.touch()
        begun = len(server.events)
        os.kill(pid, signal.SIGKILL)
        server.wait_for("api_not_served", after=begun)
        until(lambda: is_refused(port), "callers are refused")
        with Client(f"127.0.0.1:{server.port}") as client:
            client.create_queue("still_served")
        flaw.unlink()
        server.wait_for("api_ready", after=begun)
        assert answers(port)
    finally:
        server.clean_up()


def is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), WITHIN_S).close()
    except ConnectionRefusedError:
        return True
    return False


def answers(port: int) -> bool:
    deadline_s = time.monotonic() + WITHIN_S
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/session", timeout=WITHIN_S) as answer:
                return bool(answer.status == 200)
        except (ConnectionError, urllib.error.URLError):
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
