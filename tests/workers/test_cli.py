"""`pinlater-worker` in a process of its own, against a real server: what it runs, says, and how it ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater import Client, Job, JobState
from pinlater.errors import install_command
from tests.server.running import BY_EXEC, running
from tests.workers.command import WITHIN_S, WorkerCommand, until, working

CODE = """
import asyncio, os, time
from pathlib import Path
from pinlater_workers import App

app = App()

@app.job(queue="QUEUE", name="QUEUE_say")
def say(text: str) -> None:
    print(f"said {text} in VERSION", flush=True)

@app.job(queue="QUEUE", name="QUEUE_wait", attempts=4)
def wait(path: str) -> None:
    print("waiting", flush=True)
    while not Path(path).exists():
        time.sleep(0.02)

@app.job(queue="QUEUE", name="QUEUE_hang", attempts=1, time_limit=0.3)
def hang() -> None:
    print("hanging", flush=True)
    time.sleep(60)

@app.job(queue="QUEUE", name="QUEUE_cling", attempts=4)
async def cling() -> None:
    print("clinging", flush=True)
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            print("not yet", flush=True)

@app.job(queue="QUEUE", name="QUEUE_fail", attempts=1)
def fail() -> None:
    raise ValueError("not today")
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with running(tmp_path_factory.mktemp("server")) as found:
        yield found.port


class Shop:
    """A folder with an app of its own queue, and a client to enqueue to it."""

    def __init__(self, folder: Path, queue: str, port: int, client: Client) -> None:
        self.folder = folder
        self.queue = queue
        self.client = client
        self.written = 0
        self.arguments = ("--app", "shop:app", "--server", f"127.0.0.1:{port}")
        self.write("one")
        client.create_queue(queue)

    def write(self, version: str) -> None:
        """Each text has another length: Python takes bytecode for that of a text of the same second and length."""
        self.written += 1
        text = CODE.replace("QUEUE", self.queue).replace("VERSION", version) + "#" * self.written
        (self.folder / "shop.py").write_text(text, encoding="utf-8")

    def enqueue(self, job: str, *args: object, attempts: int = 4) -> str:
        body = f"PINLATER/1 application/json\n{json.dumps({'job': f'{self.queue}_{job}', 'args': args})}".encode()
        return self.client.enqueue(self.queue, Job(body, attempts_allowed=attempts))

    def state(self, descriptor: str) -> JobState:
        return self.client.lookup([descriptor])[descriptor].state

    def working(self, *arguments: str) -> contextlib.AbstractContextManager[WorkerCommand]:
        return working(self.folder, *self.arguments, *arguments, before=BY_EXEC)


@pytest.fixture
def shop(tmp_path: Path, server: int, request: pytest.FixtureRequest) -> Iterator[Shop]:
    with Client(f"127.0.0.1:{server}") as client:
        yield Shop(tmp_path, request.node.name.removeprefix("test_")[:40], server, client)


def test_it_runs_jobs_says_how_it_is_and_ends_when_it_is_told(shop: Shop) -> None:
    said = shop.enqueue("say", "hello")
    failed = shop.enqueue("fail", attempts=1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as statsd, contextlib.ExitStack() as stack:
        statsd.bind(("127.0.0.1", 0))
        statsd.settimeout(WITHIN_S)
        sends = ("--statsd", f"127.0.0.1:{statsd.getsockname()[1]}", "--statsd-prefix", "shop")
        worker = stack.enter_context(shop.working("--http", "127.0.0.1:0", "--concurrency", "3", *sends))
        begins = worker.event(", queues ")["message"]
        assert f"app shop:app, queues {shop.queue}=1, pool thread with 3 slots, servers 127.0.0.1:" in begins
        assert begins.endswith(f"pid {worker.process.pid}")
        worker.wait_for("said hello in one")
        event = worker.event("ValueError: not today")
        assert (event["level"], event["job"], event["attempt"]) == ("warning", f"{shop.queue}_fail", 1)
        assert event["descriptor"] == failed
        assert 'raise ValueError("not today")' in event["exception"]
        until(lambda: shop.state(said) is JobState.SUCCEEDED, "the job is not acked")
        until(lambda: shop.state(failed) is JobState.FAILED, "its failure is not acked")
        address = worker.event("/healthz")["message"].split()[-3].removesuffix("/healthz")
        with urllib.request.urlopen(f"{address}/healthz", timeout=WITHIN_S) as answer:
            health = json.load(answer)
        assert (health["healthy"], health["slots"], health["queues"][shop.queue]["state"]) == (True, 3, "polling")
        with urllib.request.urlopen(f"{address}/metrics", timeout=WITHIN_S) as answer:
            metrics = answer.read().decode()
        assert f'pinlater_worker_succeeded_total{{type="{shop.queue}_say"}} 1.0' in metrics
        assert f'pinlater_worker_errors_total{{error="ValueError",type="{shop.queue}_fail"}} 1.0' in metrics
        children = worker.children()
        worker.send(signal.SIGTERM)
        assert worker.ended() == 0
        assert worker.event("ended")["level"] == "info"
        while f"shop.succeeded.{shop.queue}_say:1|c" not in statsd.recv(65536).decode().split("\n"):
            pass
    until(lambda: not [each for each in children if Path(f"/proc/{each}").exists()], "its processes outlive it")


def test_sigterm_lets_a_job_end(shop: Shop) -> None:
    descriptor = shop.enqueue("wait", str(shop.folder / "go"))
    with shop.working() as worker:
        worker.wait_for("waiting")
        worker.send(signal.SIGTERM)
        assert "1 run and have 30 s" in worker.event("SIGTERM")["message"]
        (shop.folder / "go").touch()
        assert worker.ended() == 0
    assert shop.state(descriptor) is JobState.SUCCEEDED


def test_a_second_sigterm_requeues_what_runs_without_an_attempt_spent(shop: Shop) -> None:
    descriptor = shop.enqueue("wait", str(shop.folder / "never"))
    with shop.working() as worker:
        worker.wait_for("waiting")
        worker.send(signal.SIGINT)
        worker.wait_for("SIGINT: no new jobs")
        worker.send(signal.SIGINT)
        assert worker.ended() == 0
    found = shop.client.lookup([descriptor])[descriptor]
    assert (found.state, found.attempts_remaining) == (JobState.PENDING, 4)


def test_sighup_begins_anew_as_the_same_process_with_new_code(shop: Shop) -> None:
    with shop.working() as worker:
        shop.enqueue("say", "a")
        worker.wait_for("said a in one")
        pid, descriptors = worker.process.pid, open_files(worker)
        shop.write("two")
        worker.send(signal.SIGHUP)
        worker.ready(times=2)
        assert json.loads(worker.wait_for(", queues ", times=2))["message"].endswith(f"pid {pid}")
        shop.enqueue("say", "b")
        worker.wait_for("said b in two")
        assert open_files(worker) <= descriptors + 2
        worker.send(signal.SIGTERM)
        assert worker.ended() == 0


def test_code_that_cannot_be_imported_keeps_the_old_running_until_it_is_mended(shop: Shop) -> None:
    with shop.working() as worker:
        shop.enqueue("say", "a")
        worker.wait_for("said a in one")
        (shop.folder / "shop.py").write_text("import no_such_package")
        for times in (1, 2):
            worker.send(signal.SIGHUP)
            refused = json.loads(worker.wait_for("cannot begin, so the old goes on", times=times))
            assert refused["level"] == "error"
            assert "ModuleNotFoundError: No module named 'no_such_package'" in refused["message"]
            shop.enqueue("say", f"b{times}")
            worker.wait_for(f"said b{times} in one")
        shop.write("two")
        worker.send(signal.SIGHUP)
        worker.ready(times=2)
        shop.enqueue("say", "c")
        worker.wait_for("said c in two")
        worker.send(signal.SIGTERM)
        assert worker.ended() == 0


def test_a_sigterm_is_not_held_up_by_new_code_that_takes_long(shop: Shop) -> None:
    with shop.working() as worker:
        worker.ready()
        (shop.folder / "shop.py").write_text("import time; open('begun', 'w').close(); time.sleep(600)")
        worker.send(signal.SIGHUP)
        until((shop.folder / "begun").exists, "the new code is not loaded")
        worker.send(signal.SIGTERM)
        assert worker.ended() == 0


def test_check_says_whether_a_worker_would_begin_and_runs_nothing(shop: Shop) -> None:
    with shop.working("--check") as checked:
        assert checked.ended() == 0
        assert "app shop:app, queues " in checked.lines[0]
    (shop.folder / "shop.py").write_text("this is no Python")
    with shop.working("--check") as checked:
        assert checked.ended() == 2
        assert "SyntaxError" in checked.lines[-1]


def test_a_change_of_the_code_begins_anew_and_code_that_is_wrong_is_waited_for(shop: Shop) -> None:
    with shop.working("--reload") as worker:
        shop.enqueue("say", "a")
        worker.wait_for("said a in one")
        shop.write("two")
        worker.wait_for("has changed: no new jobs")
        worker.ready(times=2)
        shop.enqueue("say", "b")
        worker.wait_for("said b in two")
        (shop.folder / "shop.py").write_text("this is no Python")
        worker.wait_for("waiting for a change of the code")
        shop.write("three")
        worker.ready(times=3)
        shop.enqueue("say", "c")
        worker.wait_for("said c in three")
        worker.send(signal.SIGTERM)
        assert worker.ended() == 0


def test_a_coroutine_that_never_stops_holds_up_neither_a_new_beginning_nor_the_end(shop: Shop) -> None:
    descriptor = shop.enqueue("cling")
    with shop.working("--grace", "0.2s") as worker:
        worker.wait_for("clinging")
        pid = worker.process.pid
        worker.send(signal.SIGHUP)
        assert json.loads(worker.wait_for(", queues ", times=2))["message"].endswith(f"pid {pid}")
        worker.wait_for("clinging", times=2)
        worker.send(signal.SIGTERM)
        assert worker.ended() == 0
        assert worker.event("left behind")["level"] == "warning"
    found = shop.client.lookup([descriptor])[descriptor]
    assert (found.state, found.attempts_remaining) == (JobState.PENDING, 4)


def open_files(worker: WorkerCommand) -> int:
    return len(os.listdir(f"/proc/{worker.process.pid}/fd"))


def test_a_worker_whose_threads_hang_begins_anew_by_itself(shop: Shop) -> None:
    with shop.working("--concurrency", "2") as worker:
        descriptor = shop.enqueue("hang", attempts=1)
        worker.ready(times=2)
        until(lambda: shop.state(descriptor) is JobState.FAILED, "the job over its limit has not failed")
        shop.enqueue("say", "hello")
        worker.wait_for("said hello")
        worker.send(signal.SIGTERM)
        assert worker.ended() == 0


def test_what_an_extra_is_missing_for_is_said(shop: Shop) -> None:
    code = "import sys; sys.modules['aiohttp'] = None; from pinlater_workers.cli import main; main()"
    command = [sys.executable, "-c", code, *shop.arguments, "--http", "127.0.0.1:0"]
    done = subprocess.run(command, cwd=shop.folder, capture_output=True, text=True, check=False, timeout=WITHIN_S)
    assert done.returncode == 2
    assert f"--http needs the Python package aiohttp: {install_command('workers')}" in done.stderr
