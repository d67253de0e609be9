"""The processes of a run: the server and the load programs, as separate as in life, and the processor time of each."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.stores.process import StoreServer, dies_with_us

STOP_WITHIN_S = 30
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Server:
    """`pinlater serve` on a free port."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self._process = process
        self.address = address

    def pids(self) -> dict[str, int]:
        """By the name that a report shows; the supervisor is left out, it only waits."""
        return {f"server {number}": pid for number, pid in enumerate(children(self._process.pid), 1)}

    @property
    def supervisor(self) -> int:
        """Its process id."""
        return self._process.pid


@contextlib.contextmanager
def served(
    store_urls: list[str], processes: int, *, http: str = "none", options: Sequence[str] = ()
) -> Iterator[Server]:
    """A server on these stores, one shard each, until the block ends. `options`: further ones of `pinlater serve`."""
    command = [str(Path(sys.executable).parent / "pinlater"), "serve", "--port", "0", "--http", http]
    command += ["--api", "none", "--processes", str(processes), *options]
    for number, url in enumerate(store_urls, 1):
        command += ["--store", f"{number}={url}"]
    with tempfile.TemporaryDirectory(prefix="pinlater-bench-") as data:
        process = subprocess.Popen(
            [*dies_with_us(), *command, "--data", data], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            assert process.stdout is not None
            yield Server(process, process.stdout.readline().strip())
        finally:
            process.terminate()
            process.wait(STOP_WITHIN_S)
            assert process.stdout is not None
            process.stdout.close()


class LoadProgram:
    """A load program in a process of its own: it says `ready`, begins at `go`, ends with a result."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        """Returns when the program is ready."""
        self._process = subprocess.Popen(
            [*dies_with_us(), *command], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._line()

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def result(self) -> dict[str, Any]:
        """What it did: jobs, seconds, cpu."""
        result: dict[str, Any] = json.loads(self._line())
        self._process.communicate(timeout=STOP_WITHIN_S)
        return result

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a load program ended with {self._process.wait()}")
        return line


class Program(LoadProgram):
    """One of this package."""

    def __init__(self, program: str, **options: object) -> None:
        """`program`: its module, with the words of its command behind it.

        Options are those of its command line, with underscores.
        """
        module, *words = program.split()
        shape = [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", str(value))]
        super().__init__([sys.executable, "-m", f"tests.bench.{module}", *words, *shape])


class Client(Program):
    """One client process that runs whole cycles (cycle_client.py)."""

    def __init__(self, server: str, *, batches: int, batch: int, in_flight: int, keys: str = "none") -> None:
        super().__init__("cycle_client", server=server, batches=batches, batch=batch, in_flight=in_flight, keys=keys)


def cpu_seconds(pid: int) -> float:
    """User and system time of one process so far, its threads included, its children not."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def family_cpu_seconds(pid: int) -> float:
    """The same with its children, those that have ended included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ended = (int(fields[13]) + int(fields[14])) / _TICKS_PER_SECOND
    return cpu_seconds(pid) + ended + sum(map(family_cpu_seconds, children(pid)))


FAMILIES = frozenset({"postgres", "server", "worker"})
"""Those that work in processes of their own: a store with one for each connection, and what starts several."""


def children(pid: int) -> list[int]:
    """The direct children of a process."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


def started_by_main_thread() -> list[int]:
    """The children of this process, but for those that other threads started: there may be hundreds of threads."""
    pid = os.getpid()
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class CpuWatch:
    """Processor time per named process between `start` and `stop`."""

    def __init__(self, pids: dict[str, int]) -> None:
        self._pids = pids
        self._before: dict[str, float] = {}

    def start(self) -> None:
        self._before = self._spent()

    def stop(self) -> dict[str, float]:
        return {name: round(spent - self._before[name], 2) for name, spent in self._spent().items()}

    def _spent(self) -> dict[str, float]:
        return {
            name: family_cpu_seconds(pid) if name in FAMILIES else cpu_seconds(pid) for name, pid in self._pids.items()
        }


def per_job(spent_s: dict[str, float], jobs: int) -> dict[str, float]:
    """Microseconds of each process per job or call."""
    return {name: seconds / jobs * 1e6 for name, seconds in spent_s.items()}


@dataclass(frozen=True)
class Outcome:
    """`rate` is jobs or calls per second; `cpu_us` the microseconds of each process for one of them."""

    rate: float
    cpu_us: Mapping[str, float]

    def all_of(self, kind: str) -> float:
        """The processor time per job of every `server`, or every `redis`, together."""
        return sum(spent for name, spent in self.cpu_us.items() if name.split()[0] == kind)


def loaded(program: Program, server: Server, *stores: StoreServer) -> Outcome:
    """Have a program that is ready begin, and wait for its end."""
    watched = {f"{store.name} {number}": store.pid for number, store in enumerate(stores, 1)}
    watch = CpuWatch(watched | server.pids())
    watch.start()
    program.go()
    result = program.result()
    spent = watch.stop() | {"client": result["cpu"]}
    return Outcome(result["jobs"] / result["seconds"], per_job(spent, result["jobs"]))
