"""The whole life of a worker and of a server: what they inherit, what forks of jobs keep, their terminal, their end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pinlater import Client, Job, JobInfo, JobState
from tests.forked_programs import Program
from tests.server.running import PROGRAM as SERVER
from tests.server.running import running
from tests.stores.process import dies_with_us, free_port
from tests.workers.command import PROGRAM, WITHIN_S, WorkerCommand, until, working

CODE = """
import asyncio, multiprocessing, os, signal, subprocess, sys, time
from pathlib import Path
from pinlater_workers import App

app = App()
QUEUE = Path("queue").read_text()

def waited(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def fork():
    return os.fork()

@app.job(queue=QUEUE, keep_result=True)
def returns():
    "The copy returns from the job."
    child = fork()
    return waited(child) if child else 0

@app.job(queue=QUEUE, keep_result=True)
def raises():
    child = fork()
    if not child:
        raise SystemExit(3)
    return waited(child)

@app.job(queue=QUEUE, keep_result=True)
async def awaits(log: str):
    "Others run on the loop meanwhile: the copy takes no step of theirs."
    async def step(number):
        await asyncio.sleep(0)
        with open(log, "a") as file:
            file.write(f"{number} {os.getpid()}\\n")
    steps = [asyncio.create_task(step(number)) for number in range(5)]
    child = fork()
    if not child:
        await asyncio.sleep(0)
        Path(log).write_text("the copy went on")
    await asyncio.gather(*steps)
    return await asyncio.to_thread(waited, child)

@app.job(queue=QUEUE, keep_result=True)
async def threads():
    def work():
        child = fork()
        return waited(child) if child else 0
    return await asyncio.to_thread(work)

@app.job(queue=QUEUE, keep_result=True)
def children():
    "They end by what they return, or by a signal, which is none to the worker."
    forks = multiprocessing.get_context("fork")
    done = forks.Process(target=int)
    done.start()
    done.join()
    slow = forks.Process(target=time.sleep, args=[600])
    slow.start()
    slow.terminate()
    slow.join()
    return [done.exitcode, slow.exitcode]

@app.job(queue=QUEUE, attempts=5, retry=[0])
def outlived(sign: str):
    "Its copy lives on when the worker is killed."
    if Path(sign).exists():
        return
    child = fork()
    if not child:
        os.setsid()
        time.sleep(600)
    Path(sign).write_text(str(child))
    time.sleep(600)

@app.job(queue=QUEUE, keep_result=True)
def orphans():
    "Zombies that process 1 is to take, once there is nothing else to be done."
    subprocess.run(["sh", "-c", "sleep 0.1 &"], check=True)
    for _ in range(200):
        time.sleep(0.05)
        states = subprocess.run(["ps", "-eo", "stat=,comm="], capture_output=True, text=True).stdout.split("\\n")
        if not any(each.startswith("Z") or each.endswith("sleep") for each in states):
            return 0
    return len(states)

@app.job(queue=QUEUE)
def done(sign: str):
    print("said", flush=True)
    print("x" * 100_000)
    sys.stderr.write("said\\n")
    Path(sign).touch()
"""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with running(tmp_path_factory.mktemp("server")) as found:
        yield found.port


class Shop:
    """A folder with an app of its own queue."""

    def __init__(self, folder: Path, queue: str, port: int, client: Client) -> None:
        self.folder, self.queue, self.client = folder, queue, client
        self.arguments = ("--app", "shop:app", "--server", f"127.0.0.1:{port}")
        (folder / "queue").write_text(queue)
        (folder / "shop.py").write_text(CODE)
        client.create_queue(queue)

    def enqueue(self, job: str, *args: str) -> str:
        given = ", ".join(f'"{each}"' for each in args)
        return self.client.enqueue(
            self.queue, Job(f'PINLATER/1 application/json\n{{"job": "{job}", "args": [{given}]}}'.encode())
        )

    def ended(self, job: str, *args: str) -> JobInfo:
        return self.client.wait(self.enqueue(job, *args), timeout=WITHIN_S * 2)

    def started(self, *before: str, **options: Any) -> subprocess.Popen[bytes]:
        """A worker whose streams the caller has: its log is read by nobody."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PINLATER_")}
        command = [*dies_with_us(), *before, PROGRAM, *self.arguments, *options.pop("arguments", ())]
        return Program(command, cwd=self.folder, env=environment, **options)


@pytest.fixture
def shop(tmp_path: Path, port: int, request: pytest.FixtureRequest) -> Iterator[Shop]:
    queue = "".join(each if each.isalnum() else "_" for each in request.node.name.removeprefix("test_"))[:50]
    with Client(f"127.0.0.1:{port}", timeout=60) as client:
        yield Shop(tmp_path, queue, port, client)


def end(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(WITHIN_S)


# -- forks of jobs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", ["thread", "process", "async"])
@pytest.mark.filterwarnings("ignore")
def test_a_copy_that_a_job_makes_of_its_process_ends_with_it(pool: str, shop: Shop) -> None:
    log = shop.folder / "log"
    jobs = ["awaits", "threads"] if pool == "async" else ["returns", "raises", "awaits", "children"]
    with shop_working(shop, "--pool", pool) as worker:
        for job in jobs:
            info = shop.ended(job, *([str(log)] if job == "awaits" else []))
            expected = "[0,-15]" if job == "children" else "0"
            assert (info.state, bytes(info.result or b"").replace(b" ", b"").decode()[-len(expected) :]) == (
                JobState.SUCCEEDED,
                expected,
            ), (job, info, worker.lines)
        steps = log.read_text().split("\n")
        assert len(steps) == 6
        assert len({line.split()[1] for line in steps if line}) == 1
        worker.send(signal.SIGTERM)
        assert worker.ended() == 0
        until(lambda: worker.is_silent, "a process has outlived it")


@contextlib.contextmanager
def shop_working(shop: Shop, *arguments: str) -> Iterator[WorkerCommand]:
    with working(shop.folder, *shop.arguments, *arguments) as worker:
        yield worker


def test_a_copy_that_lives_on_keeps_neither_jobs_nor_the_port(shop: Shop) -> None:
    """The claim is released with the worker's connection, long before its lease is over."""
    sign, http = shop.folder / "sign", f"127.0.0.1:{free_port()}"
    arguments = ("--lease", "10m", "--http", http)
    descriptor = shop.enqueue("outlived", str(sign))
    with shop_working(shop, *arguments) as worker:
        until(lambda: sign.exists() and sign.read_text(), "the job has not begun")
        copy = int(sign.read_text())
        try:
            worker.send(signal.SIGKILL)
            worker.process.wait(WITHIN_S)
            with shop_working(shop, *arguments) as second:
                assert shop.client.wait(descriptor, timeout=WITHIN_S * 3).state is JobState.SUCCEEDED
                assert http in second.wait_for("health and metrics at")
                os.kill(copy, 0)
        finally:
            os.kill(copy, signal.SIGKILL)


# -- what they inherit ------------------------------------------------------------------------------------------------


def runs_a_job_and_ends(shop: Shop, process: subprocess.Popen[bytes]) -> None:
    try:
        assert shop.ended("done", str(shop.folder / "sign")).state is JobState.SUCCEEDED
        assert end(process) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_a_worker_runs_jobs_without_standard_streams(pool: str, shop: Shop) -> None:
    process = shop.started("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", arguments=("--pool", pool))
    runs_a_job_and_ends(shop, process)


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_a_worker_runs_jobs_whose_output_nobody_takes(pool: str, shop: Shop) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with open("/dev/full", "w") as full:
        process = shop.started(stdout=writes, stderr=full, arguments=("--pool", pool))
    os.close(writes)
    runs_a_job_and_ends(shop, process)


def refuse_signals() -> None:
    """In a child, before it becomes the program."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def test_signals_that_whoever_started_it_blocked_or_ignored_end_a_worker(shop: Shop) -> None:
    process = shop.started(preexec_fn=refuse_signals, arguments=("--pool", "process"), stderr=subprocess.DEVNULL)
    runs_a_job_and_ends(shop, process)


@pytest.mark.parametrize("redirection", ["<&- >&- 2>&-", ">/dev/full 2>/dev/full"])
def test_a_server_serves_without_standard_streams(redirection: str, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PINLATER_")}
    environment |= {"PINLATER_HTTP": "none", "PINLATER_API": f"127.0.0.1:{free_port()}"}
    port = free_port()
    line = ["sh", "-c", f'exec "$@" {redirection}', "sh", SERVER, "serve", "--port", str(port)]
    process = subprocess.Popen([*dies_with_us(), *line], cwd=tmp_path, env=environment, preexec_fn=refuse_signals)
    try:
        with Client(f"127.0.0.1:{port}", timeout=60) as client:
            client.create_queue("mail")
            client.enqueue("mail", Job(b"x"))
        assert end(process) == 0
    finally:
        process.kill()
        process.wait()


# -- process 1 --------------------------------------------------------------------------------------------------------

CONTAINER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


def can_contain() -> bool:
    return subprocess.run([*CONTAINER, "true"], capture_output=True).returncode == 0


def first_process(container: int) -> int:
    found: list[str] = []
    until(
        lambda: found.extend(Path(f"/proc/{container}/task/{container}/children").read_text().split()) or found, "none"
    )
    return int(found[0])


@pytest.mark.skipif(not can_contain(), reason="this user may make no namespaces")
def test_as_the_first_process_of_a_container_a_worker_leaves_no_zombies(shop: Shop) -> None:
    process = shop.started(*CONTAINER, stderr=subprocess.PIPE)
    try:
        info = shop.ended("orphans")
        assert (info.state, bytes(info.result or b"")[-1:]) == (JobState.SUCCEEDED, b"0")
        os.kill(first_process(process.pid), signal.SIGTERM)
        _, said = process.communicate(timeout=WITHIN_S)
        assert (process.returncode, said.count(b"SIGTERM: no new jobs")) == (0, 1), said
    finally:
        process.kill()
        process.communicate()


@pytest.mark.skipif(not can_contain(), reason="this user may make no namespaces")
def test_as_the_first_process_of_a_container_a_server_ends_in_order(tmp_path: Path) -> None:
    with running(tmp_path, before=CONTAINER) as server, Client(f"127.0.0.1:{server.port}") as client:
        client.create_queue("mail")
        os.kill(first_process(server.process.pid), signal.SIGTERM)
        assert server.ended() == 0
        server.wait_for("stopped")


# -- its terminal ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def on_a_terminal(shop: Shop, prefix: Sequence[str]) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A worker that runs, on a terminal whose other side is given, and that stops who writes in the background."""
    ours, theirs = os.openpty()
    modes = termios.tcgetattr(theirs)
    modes[3] |= termios.TOSTOP
    termios.tcsetattr(theirs, termios.TCSANOW, modes)
    before = ["setsid", "--ctty", "env", "--default-signal=HUP", *prefix]
    process = shop.started(*before, stdin=theirs, stdout=theirs, stderr=theirs, arguments=("--pool", "process"))
    os.close(theirs)
    try:
        shown = b""
        while b", queues " not in shown:
            shown += os.read(ours, 65_536)
        yield process, ours
    finally:
        process.kill()
        process.wait()


def drained(terminal: int) -> None:
    with contextlib.suppress(OSError):
        while os.read(terminal, 65_536):
            pass


@pytest.mark.parametrize("prefix", [(), ("nohup",)], ids=["usual", "nohup"])
def test_a_worker_ends_with_its_terminal_but_under_nohup(prefix: Sequence[str], shop: Shop) -> None:
    ignored = ["sh", "-c", 'trap "" HUP; exec "$0" "$@"'] if prefix else []
    with on_a_terminal(shop, ignored) as (process, terminal):
        reader = subprocess.Popen([sys.executable, "-c", "import os\nwhile os.read(0, 65536): pass"], stdin=terminal)
        try:
            assert shop.ended("done", str(shop.folder / "sign")).state is JobState.SUCCEEDED
        finally:
            reader.kill()
            reader.wait()
        os.close(terminal)
        if prefix:
            assert shop.ended("done", str(shop.folder / "again")).state is JobState.SUCCEEDED
            assert process.poll() is None
            assert end(process) == 0
        else:
            assert process.wait(WITHIN_S) == 0
