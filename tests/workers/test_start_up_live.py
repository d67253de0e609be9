"""Hooks, dependencies, workers inside a program, --until-empty and run-here, at a real server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from pinlater import Client
from pinlater.data_folder.password import hash_password
from pinlater.model import JobState
from pinlater_workers import App, ConfigurationError, Worker, current
from tests.server.running import running
from tests.workers.command import PROGRAM, WITHIN_S, WorkerCommand, working

PASSWORD = "open sesame"
SOURCE = """
import os, sys
from typing import AsyncIterator, Iterator
from pinlater_workers import App, Snooze, current

app = App()

def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\\n")  # in one piece, as several processes write

class Pool:
    pass

class LoopPool:
    pass

@app.provide
def pool() -> Iterator[Pool]:
    say("pool made in", os.getpid())
    yield Pool()
    say("pool closed in", os.getpid())

@app.provide
async def loop_pool() -> AsyncIterator[LoopPool]:
    say("loop pool made")
    yield LoopPool()
    say("loop pool closed")

@app.on_process_start
def begin_process():
    say("process begins", os.getpid())

@app.on_start
async def begin():
    say("worker begins")

@app.on_stop
def end():
    say("worker ends")

@app.job(queue="threads")
def in_thread(number: int, pool: Pool):
    say("thread", number, id(pool))

@app.job(queue="loops")
async def on_loop(number: int, pool: Pool, loop_pool: LoopPool):
    say("loop", number, id(loop_pool))

@app.job(queue="processes", pool="process")
def in_process(number: int, pool: Pool):
    say("process", number, os.getpid())

@app.job(queue="processes", pool="process")
async def loop_of_process(number: int, loop_pool: LoopPool):
    say("loop of process", number)

@app.job(queue="later", attempts=3, retry=[3600])
def fails(number: int):
    raise ValueError(f"number {number}")

@app.job(queue="here")
def shown(number: int, pool: Pool):
    current().progress(0.5, "half")
    current().checkpoint(shown.body(number + 1))
    say("shown", number)
    return number * 2

@app.job(queue="here")
async def raises(number: int):
    raise ValueError(f"here {number}")
"""

FLAWED = """
from pinlater_workers import App
app = App()

@app.{hook}
def connect():
    raise OSError("no database at db-1")

@app.job(queue="flawed"{pool})
def work(): ...
"""


class Stand:
    def __init__(self, address: str, folder: Path) -> None:
        self.address = address
        self.folder = folder
        self.client = Client(address)

    def worker(self, *arguments: str) -> AbstractContextManager[WorkerCommand]:
        return working(self.folder, "--server", self.address, "--app", "shop:app", *arguments)

    def pause(self, queue: str, paused: str) -> None:
        self.client.update_queue(queue, PASSWORD, set={"paused": paused})

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith("PINLATER_")}
        return subprocess.run(
            [PROGRAM, *arguments], cwd=self.folder, capture_output=True, text=True, timeout=WITHIN_S, env=own
        )


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    folder = tmp_path_factory.mktemp("start_up")
    (folder / "shop.py").write_text(SOURCE)
    with running(tmp_path_factory.mktemp("server"), "--admin-password-hash", hash_password(PASSWORD)) as server:
        stand = Stand(f"127.0.0.1:{server.port}", folder)
        sys.path.insert(0, str(folder))
        try:
            yield stand
        finally:
            sys.path.remove(str(folder))
            stand.client.close()


def shop(stand: Stand):  # type: ignore[no-untyped-def]
    import shop  # noqa: PLC0415  # of the folder of this test

    shop.app.use(servers=[stand.address])
    for queue in ("threads", "loops", "processes", "later", "here", "flawed"):
        stand.client.create_queue(queue)
    return shop


def index(lines: list[str], part: str) -> int:
    return next(number for number, line in enumerate(lines) if part in line)


def test_hooks_and_providers_in_threads_on_the_loop_and_in_processes(stand: Stand) -> None:
    jobs = shop(stand)
    jobs.in_thread.enqueue_many([(1,), (2,)])
    jobs.on_loop.enqueue_many([(1,), (2,)])
    jobs.in_process.enqueue(1)
    jobs.loop_of_process.enqueue(1)
    with stand.worker("--queues", "threads,loops,processes", "--until-empty") as worker:
        assert worker.ended() == 0
    lines = [line for line in worker.lines if not line.startswith("{")]
    assert len({line.split()[2] for line in lines if line.startswith("thread ")}) == 1
    assert len({line.split()[2] for line in lines if line.startswith("loop ") and line.split()[1].isdigit()}) == 1
    assert index(lines, "pool made in") < index(lines, "worker begins") < index(lines, "thread ")
    assert index(lines, "thread ") < index(lines, "worker ends")
    assert "loop pool closed" in lines[index(lines, "worker ends") :]
    own = worker.process.pid
    child = int(next(line for line in lines if line.startswith("process 1")).split()[2])
    assert child != own
    for pid in (own, child):
        assert sum(line == f"process begins {pid}" for line in lines) == 1
        assert sum(line == f"pool made in {pid}" for line in lines) == 1
        assert sum(line == f"pool closed in {pid}" for line in lines) == 1
    assert lines.count("worker begins") == lines.count("worker ends") == 1
    assert "loop of process 1" in lines, worker.lines


def test_until_empty_waits_for_no_job_that_is_due_later(stand: Stand) -> None:
    jobs = shop(stand)
    failed = jobs.fails.enqueue(1)
    waiting = jobs.fails.options(delay="1h").enqueue(2)
    with stand.worker("--queues", "later", "--until-empty") as worker:
        assert worker.ended() == 0
    found = stand.client.lookup([failed, waiting])
    assert [found[each].attempts_remaining for each in (failed, waiting)] == [2, 3]


def test_until_empty_ends_on_a_signal_too_and_a_queue_that_is_not_there_is_empty(stand: Stand) -> None:
    jobs = shop(stand)
    with stand.worker("--queues", "not_there,later", "--until-empty") as worker:
        assert worker.ended() == 0
    stand.pause("threads", "true")
    jobs.in_thread.enqueue(9)
    with stand.worker("--queues", "threads", "--until-empty") as worker:
        worker.wait_for("worker begins")
        worker.send(signal.SIGTERM)
        assert worker.ended() == 0
    assert not any("it ends" in line and "ready" in line for line in worker.lines), "a paused job is ready"
    stand.pause("threads", "false")


@pytest.mark.parametrize("pool", ["", ', pool="process"'], ids=["threads", "processes"])
@pytest.mark.parametrize("hook", ["on_start", "on_process_start"])
def test_a_hook_that_fails_ends_the_worker_and_says_why(stand: Stand, hook: str, pool: str) -> None:
    name = f"flawed_{hook}_{'process' if pool else 'thread'}"
    (stand.folder / f"{name}.py").write_text(FLAWED.format(hook=hook, pool=pool))
    done = stand.command("--app", f"{name}:app", "--server", stand.address)
    assert done.returncode == 2, done.stderr
    assert f"{hook} {name}:connect failed, so that no job can run: OSError: no database at db-1" in done.stderr


# -- inside a program --------------------------------------------------------------------------------------------------


def embedded(stand: Stand) -> tuple[App, threading.Event, list[str]]:
    app, ran, said = App(servers=[stand.address]), threading.Event(), []
    stand.client.create_queue("inside")

    @app.on_start
    async def begin() -> None:
        said.append("begins")

    @app.on_stop
    def end() -> None:
        said.append("ends")

    @app.job(queue="inside")
    def work(word: str) -> None:
        said.append(f"{word} in {threading.current_thread().name}")
        assert current().queue == "inside"
        ran.set()

    work.enqueue("first")
    return app, ran, said


def test_a_worker_inside_a_program_runs_jobs_between_start_and_stop(stand: Stand) -> None:
    app, ran, said = embedded(stand)
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
    worker = Worker(app, queues=["inside"], concurrency=2, grace="5s").start()
    assert said[0] == "begins"
    assert ran.wait(WITHIN_S)
    assert before == [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
    with pytest.raises(RuntimeError, match="started already"):
        worker.start()
    worker.stop()
    worker.stop()
    assert said[-1] == "ends"
    assert "MainThread" not in said[1]
    ran.clear()
    app.job_types["work"].enqueue("again")
    with worker:
        assert ran.wait(WITHIN_S)
    assert [word.partition(" ")[0] for word in said] == ["begins", "first", "ends", "begins", "again", "ends"]
    app.close()


def test_what_keeps_a_worker_inside_a_program_from_its_start_is_raised_there(stand: Stand) -> None:
    app, _, said = embedded(stand)

    @app.on_start
    def broken() -> None:
        raise OSError("no database")

    with pytest.raises(ConfigurationError, match="no database"), Worker(app):
        said.append("never")
    assert "never" not in said
    with pytest.raises(ConfigurationError, match="poll_weight"):
        Worker(app, poll_weight=3)

    @app.job(queue="inside", pool="process")
    def apart() -> None: ...

    with pytest.raises(ConfigurationError, match='app_spec="shop'):
        Worker(app).start()
    app.close()


# -- run-here ----------------------------------------------------------------------------------------------------------


def test_run_here_runs_the_function_and_changes_nothing(stand: Stand) -> None:
    job = shop(stand).shown.enqueue(3)
    before = stand.client.lookup([job], include_body=True)[job]
    done = stand.command("run-here", "--app", "shop:app", "--server", stand.address, job)
    assert done.returncode == 0, done.stderr
    assert "shown 3" in done.stdout
    assert "pool closed in" in done.stdout
    assert "it returned 6" in done.stderr
    assert "progress 0.5 half" in done.stderr
    assert "not stored" in done.stderr
    assert stand.client.lookup([job], include_body=True)[job] == before
    assert before.state is JobState.PENDING


def test_run_here_raises_what_the_function_raises(stand: Stand) -> None:
    job = shop(stand).raises.enqueue(4)
    done = stand.command("run-here", "--app", "shop:app", "--server", stand.address, job)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert done.stderr.rstrip().endswith("ValueError: here 4")
    assert stand.client.lookup([job])[job].attempts_remaining > 0


def test_run_here_says_what_it_cannot_run(stand: Stand) -> None:
    shop(stand)
    (raw,) = stand.client.enqueue("here", [b"no envelope"])
    gone = raw[:-3] + "999"
    for descriptor, code, why in (
        (gone, 1, "there is no job"),
        (raw, 2, "has no envelope"),
        ("nonsense", 2, "DESCRIPTOR"),
    ):
        done = stand.command("run-here", "--app", "shop:app", "--server", stand.address, descriptor)
        assert done.returncode == code, done.stderr
        assert why in done.stderr
