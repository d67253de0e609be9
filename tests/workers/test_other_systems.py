"""Systems without what POSIX and Linux have: clients and a worker of threads, with all of that taken away."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater import Client, JobState
from tests.server.running import RunningServer, running
from tests.workers.command import until, working

pytestmark = [pytest.mark.slow]

TAKEN_AWAY = """
import asyncio, os, signal, subprocess, sys

MODULES = {"fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty", "uvloop"}

class Nowhere:
    def find_spec(self, name, path=None, target=None):
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Nowhere())
for name in MODULES & sys.modules.keys():
    del sys.modules[name]
for place, names in (
    (os, "fork register_at_fork getuid geteuid getgid killpg pidfd_open sched_getaffinity set_blocking O_NOFOLLOW "
         "O_NONBLOCK O_NOCTTY"),
    (signal, "SIGHUP SIGCHLD SIGTTIN SIGTTOU SIGSTOP SIGUSR1 pthread_sigmask set_wakeup_fd"),
):
    for name in names.split():
        delattr(place, name)

def missing(*_, **__):
    raise NotImplementedError

for name in ("add_reader", "add_writer", "add_signal_handler"):
    setattr(asyncio.SelectorEventLoop, name, missing)
"""
CLIENTS = """
from pinlater import AsyncClient, Client

async def names():
    async with AsyncClient(servers=[sys.argv[1]]) as client:
        return await client.queue_names()

with Client(servers=[sys.argv[1]]) as client:
    client.create_queue("mail")
    assert "mail" in client.queue_names() and asyncio.run(names())
print("answered")
"""
SHOP = """
from pinlater_workers import App, current

app = App()

@app.job(queue="mail", keep_result=True)
def send(to: str) -> str:
    current().checkpoint()
    return f"sent to {to}"
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(tmp_path_factory.mktemp("server")) as server:
        yield server


def test_both_clients_call_a_server(server: RunningServer) -> None:
    command = [sys.executable, "-W", "error", "-c", TAKEN_AWAY + CLIENTS, f"127.0.0.1:{server.port}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "answered\n", done.stderr


def test_a_worker_of_threads_runs_jobs_and_keeps_their_claims_itself(server: RunningServer, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    program = tmp_path / "worker"
    program.write_text(f"#!{sys.executable}\n{TAKEN_AWAY}\nfrom pinlater_workers.cli import main\nmain()\n")
    program.chmod(0o755)
    words = ("--app", "shop:app", "--server", f"127.0.0.1:{server.port}", "--create-queues", "--lease", "3s")
    with working(tmp_path, *words, program=str(program)) as worker, Client(f"127.0.0.1:{server.port}") as client:
        worker.wait_for("there is no heartbeat process")
        until(lambda: "mail" in client.queue_names(), "no queue")
        body = b'PINLATER/1 application/json\n{"job":"send","args":["ada"],"kwargs":{}}'
        descriptor = client.enqueue("mail", body)
        found = client.lookup([descriptor], include_result=True, wait_ms=20_000)[descriptor]
        assert found.state is JobState.SUCCEEDED, worker.lines
        assert found.result is not None
        assert found.result.endswith(b'"sent to ada"')
        worker.send(signal.SIGTERM)
        assert worker.ended() == 0
