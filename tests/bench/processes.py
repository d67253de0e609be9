"""The server and the clients of a run, as the separate processes that they are in life."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.cpu import children
from tests.stores.process import dies_with_us

STOP_WITHIN_S = 30


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
def served(store_urls: list[str], processes: int, *, http: str = "none") -> Iterator[Server]:
    """A server on these stores, one shard each, until the block ends."""
    command = [str(Path(sys.executable).parent / "pinlater"), "serve", "--port", "0", "--http", http]
    command += ["--processes", str(processes)]
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


class Program:
    """A load program of this package in a process of its own: it says `ready`, begins at `go`, ends with a result."""

    def __init__(self, module: str, **options: object) -> None:
        """Returns when the program is ready. Options are those of its command line, with underscores."""
        shape = [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", str(value))]
        self._process = subprocess.Popen(
            [*dies_with_us(), sys.executable, "-m", f"tests.bench.{module}", *shape],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
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


class Client(Program):
    """One client process that runs whole cycles (cycling.py)."""

    def __init__(self, server: str, *, batches: int, batch: int, in_flight: int) -> None:
        super().__init__("cycling", server=server, batches=batches, batch=batch, in_flight=in_flight)
