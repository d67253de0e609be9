"""Worker processes of a proof, which are killed on the way, and the log of their runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from tests.cluster.proof_stand import Stand
from tests.cluster.runs import Run
from tests.stores.process import dies_with_us


class Workers:
    """So many processes of a module of tests.cluster that work until the end: `MODULE LOG SERVER...`."""

    def __init__(self, module: str, number: int, log: Path, stand: Stand) -> None:
        addresses = [server.address for server in stand.servers]
        self._command = [sys.executable, "-m", f"tests.cluster.{module}", str(log), *addresses]
        self._running = [self._started() for _ in range(number)]

    def _started(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*dies_with_us(), *self._command])

    def replace_one(self) -> None:
        """Kill the eldest, and start another one."""
        self._end(self._running.pop(0))
        self._running.append(self._started())

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running:
            self._end(process)

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()


class Log:
    """What worker processes write at once: a line of JSON for each Run, and another one when it has ended."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, runs: Iterable[Run]) -> None:
        for run in runs:
            os.write(self._file, json.dumps(asdict(run)).encode() + b"\n")


def runs_of(log: Path) -> list[Run]:
    """A run that has ended has two lines, of which the second one says when."""
    runs = [Run(**json.loads(line)) for line in log.read_text().splitlines()]
    return list({(run.key, run.number, run.began_ns): run for run in runs}.values())
