"""One server process of a real store: started on a free loopback port, killed and restarted with the same data."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections import deque
from pathlib import Path
from typing import Any

READY_WITHIN_S = 120.0
STOPPED_WITHIN_S = 60.0
PORTS = 15_000, 32_000


class StoreMissing(Exception):
    """The store's program is not installed; the message says what to install."""


_given: deque[int] = deque(maxlen=500)
"""The last that this process has given out: who got one may not have bound it yet."""


def free_port() -> int:
    """A loopback port that nobody listened on a moment ago, that the system gives to nobody who names none, and that no
    other process of a test run is given.

    A connection out, or a server on port 0, of another test would take one of the system's own while its store is dead.
    """
    worker, workers = (os.environ.get(f"PYTEST_XDIST_{name}", "") for name in ("WORKER", "WORKER_COUNT"))
    share = int(workers or 1)
    first = PORTS[0] + int(worker.removeprefix("gw") or 0)
    while True:
        port = random.randrange(first, PORTS[1], share)
        if port in _given:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            _given.append(port)
            return port


def until_it_listens(port: int, process: subprocess.Popen[Any]) -> None:
    """On loopback. AssertionError: the process has ended before."""
    while process.poll() is None:
        with socket.socket() as probe:
            probe.settimeout(0.1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise AssertionError(f"{process.args} has ended, and did not listen at {port}")


def dies_with_us() -> list[str]:
    """What to put before a command so that even a killed test run leaves no process behind (Linux)."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else []


def children_of(pid: int) -> list[int]:
    """The processes that it has started and that live; none of one that has ended itself (Linux)."""
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _states(pid: int) -> list[str]:
    """What each thread does, as the kernel puts it; a thread that ends meanwhile is left out."""
    found = []
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):
            found.append(stat.read_text().rpartition(")")[2].split()[0])
    return found


class StoreServer(ABC):
    """Started by `start`, ended by `stop`; `kill` and `start` again keep the port and the data.

    `durable` stores keep whatever they answered through a kill -9; the others are fast.
    """

    name: str

    def __init__(self, *, durable: bool = False) -> None:
        self.durable = durable
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix=f"pinlater-{self.name}-"))
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """The program with its arguments. Raises StoreMissing."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether the store answers a query now."""

    @abstractmethod
    def url(self, place: int = 0) -> str:
        """The address of one of several places in this store that know nothing of each other."""

    @abstractmethod
    def empty(self, place: int) -> None:
        """Make a place exist, with nothing in it."""

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} does not run"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Started, and neither killed nor ended since."""
        return self._process is not None

    def start(self) -> None:
        """Start, and return when the store answers."""
        self._process = self._launch(self.command())
        deadline = time.monotonic() + READY_WITHIN_S
        while not self.answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = self.log()
                self.stop()
                raise RuntimeError(f"{self.name} did not start; it said:\n{said}")
            time.sleep(0.02)

    def _launch(self, command: list[str]) -> subprocess.Popen[bytes]:
        with open(self.directory / "log", "ab") as log:
            return subprocess.Popen(
                [*dies_with_us(), *command],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # else a Ctrl-C at the terminal ends it before what still needs it
            )

    def log(self) -> str:
        """The last that the store said."""
        return (self.directory / "log").read_text(errors="replace")[-2000:]

    def kill(self) -> None:
        """kill -9, as a crash does; returns when the process is gone."""
        self._end(signal.SIGKILL)

    def terminate(self) -> None:
        """An orderly end, as an operator's restart does; returns when the process is gone."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """Freeze the process: its connections stay open, and nothing answers; returns when all its threads stand."""
        self._signal(signal.SIGSTOP)
        deadline = time.monotonic() + STOPPED_WITHIN_S
        while any(state != "T" for state in _states(self.pid)):
            assert time.monotonic() < deadline, f"{self.name} goes on"
            time.sleep(0.001)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """End for good, and remove the data."""
        self._end(signal.SIGTERM if self.durable else signal.SIGKILL)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, f"{self.name} does not run"
        self._process.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOPPED_WITHIN_S)
        if process.returncode is None:
            process.kill()
            process.wait()
