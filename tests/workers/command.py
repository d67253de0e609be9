"""`pinlater-worker` as an operator runs it, in a process of its own; its log is read as it comes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from tests.forked_programs import Program
from tests.stores.process import dies_with_us

PROGRAM = str(Path(sys.executable).parent / "pinlater-worker")
WITHIN_S = 60.0


class WorkerCommand:
    """`pinlater-worker ARGUMENTS` in a folder. What it and its jobs print, and its log, are one list of texts."""

    def __init__(
        self, folder: Path, *arguments: str, program: str = PROGRAM, before: Sequence[str] = (), **variables: str
    ) -> None:
        """`before`: a command that starts it. `variables` are those of the environment, beside its own."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PINLATER_")}
        environment["PYTHONUNBUFFERED"] = "1"
        environment |= variables
        self.lines: list[str] = []
        self._news = threading.Condition()
        self.process = Program(
            [*dies_with_us(), *before, program, "--log-format", "json", *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        pipes = (self.process.stdout, self.process.stderr)
        self._readers = [threading.Thread(target=self._read, args=[pipe], daemon=True) for pipe in pipes]
        for reader in self._readers:
            reader.start()

    def _read(self, pipe: IO[str]) -> None:
        for text in pipe:
            with self._news:
                self.lines.append(text.rstrip())
                self._news.notify_all()

    def wait_for(self, part: str, *, times: int = 1) -> str:
        """The line that holds this text for the so-manieth time. Fails after a while."""
        deadline = time.monotonic() + WITHIN_S
        with self._news:
            while True:
                found = [line for line in self.lines if part in line]
                if len(found) >= times:
                    return found[times - 1]
                left = deadline - time.monotonic()
                assert left > 0, f"no {part!r} in {self.lines}"
                is_over = not any(reader.is_alive() for reader in self._readers)
                assert not is_over, f"ended without {part!r}: {self.lines}"
                self._news.wait(min(left, 0.5))

    def event(self, part: str) -> dict[str, Any]:
        """A line of the log that holds this text."""
        event: dict[str, Any] = json.loads(self.wait_for(part))
        return event

    def ready(self, times: int = 1) -> None:
        """It says what it runs, the so-manieth time."""
        self.wait_for(", queues ", times=times)

    def children(self) -> list[int]:
        pid = self.process.pid
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        """The exit code; all that it said is read then."""
        code = self.process.wait(WITHIN_S)
        for reader in self._readers:
            reader.join(WITHIN_S)
        return code

    @property
    def is_silent(self) -> bool:
        """Nobody holds its output open any more: none of its processes has outlived it."""
        return not any(reader.is_alive() for reader in self._readers)

    def clean_up(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.ended()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


@contextlib.contextmanager
def working(
    folder: Path, *arguments: str, program: str = PROGRAM, before: Sequence[str] = (), **variables: str
) -> Iterator[WorkerCommand]:
    """A worker that is ended with the block, however it ends."""
    worker = WorkerCommand(folder, *arguments, program=program, before=before, **variables)
    try:
        yield worker
    finally:
        worker.clean_up()


def until(condition: Callable[[], object], what: str) -> None:
    """Fails after a while."""
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
