"""The programs of the trial as processes: workers with a ledger, producers that are asked a line at a time."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.kits.ledger import WITHIN_S, Ledger
from tests.stores.process import dies_with_us


class ProgramProcess:
    """A program with its configuration; what it prints on standard error is in a file beside that."""

    def __init__(
        self, command: Sequence[str], role: str, folder: Path, config: Mapping[str, Any], **pipes: int
    ) -> None:
        (folder / "config.json").write_text(json.dumps(config))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PINLATER_")}
        self.log = folder / f"{role}.log"
        with self.log.open("wb") as log:
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            arguments = [*dies_with_us(), *command, role, str(folder / "config.json")]
            self.process = subprocess.Popen(arguments, cwd=folder, env=environment, **streams | pipes)

    def text(self) -> str:
        return self.log.read_text(errors="replace")[-5000:]

    def kill(self) -> None:
        """kill -9; returns when it is gone."""
        self.process.kill()
        self.process.wait(WITHIN_S)

    def clean_up(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(WITHIN_S)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


class TrialWorker(ProgramProcess):
    def __init__(self, command: Sequence[str], folder: Path, config: Mapping[str, Any]) -> None:
        super().__init__(command, "worker", folder, config)
        self.name: str = config["name"]
        self.ledger = Ledger(Path(config["ledger"]))

    def started(self) -> None:
        """Returns when it polls."""
        self.ledger.wait_for("started", worker=self.name)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def ends(self) -> None:
        """It has drained, and ends with 0; its last line says so."""
        try:
            code = self.process.wait(WITHIN_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end: {self.text()}") from None
        assert code == 0, (code, self.text())
        assert self.ledger.events(worker=self.name)[-1]["event"] == "stopped", self.ledger.events()[-5:]

    def fails(self) -> None:
        """It ends by itself, with 1."""
        try:
            code = self.process.wait(WITHIN_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end: {self.text()}") from None
        assert code == 1, (code, self.text())


class TrialProducer(ProgramProcess):
    """One command at a time."""

    def __init__(self, command: Sequence[str], folder: Path, config: Mapping[str, Any]) -> None:
        super().__init__(command, "producer", folder, config, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._lock = threading.Lock()
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(ValueError, OSError):  # closed at the end
            for line in self.process.stdout:
                self._answers.put(line)
        self._answers.put(b"")

    def ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """The answer, an error too."""
        with self._lock:
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps(command, ensure_ascii=False).encode() + b"\n")
            self.process.stdin.flush()
            try:
                line = self._answers.get(timeout=WITHIN_S)
            except queue.Empty:
                raise AssertionError(f"no answer to {str(command)[:500]}: {self.text()}") from None
        assert line, f"it ended without an answer to {str(command)[:500]}: {self.text()}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def enqueue(self, place: str, name: str, kwargs: Mapping[str, Any] | None = None, **options: Any) -> str:
        """The descriptor of a job in the queue `place`."""
        answer = self.ask({"enqueue": job_command(place, name, kwargs, **options)})
        assert "descriptor" in answer, answer
        return str(answer["descriptor"])

    def close(self) -> int:
        """End of the commands; its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(WITHIN_S)


OPTIONS = ("delay_ms", "priority", "attempts", "dedupe_key", "serialize_key", "group", "keep_result_ms")


def job_command(place: str, name: str, kwargs: Mapping[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    """A job for the queue `place` as a command of a producer has it."""
    assert options.keys() <= set(OPTIONS), options
    chosen = {option: options.get(option) for option in OPTIONS}
    return {"queue": place, "name": name, "kwargs": dict(kwargs or {}), "options": chosen}
