"""What the examples that run by themselves share: a server, a worker, and an end in order, however it comes."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from pinlater import PinLaterError

HERE = Path(__file__).resolve().parent
OUTPUT = HERE.parents[1] / "demo-output"
END_WITHIN_S = 15.0


class ExampleFailed(Exception):
    """What went wrong, for a person."""


@dataclass(frozen=True, slots=True)
class Server:
    """`data` is its data folder."""

    address: str
    process: subprocess.Popen[str]
    data: str

    @property
    def program(self) -> str:
        """The path of the command line."""
        return str(Path(sys.executable).with_name("pinlater"))

    def dashboard_link(self, api: str) -> str:
        """A link that opens its dashboard once; "" where it has made no admin password, so that a login is needed."""
        if not Path(self.data, "admin-password").exists():
            return ""
        command = self._dashboard(api, "--print")
        ends_s = time.monotonic() + END_WITHIN_S
        while time.monotonic() < ends_s:  # the HTTP interface begins a moment after the server
            printed = subprocess.run(command, capture_output=True, text=True, check=False)
            if printed.returncode == 0:
                return printed.stdout.strip()
            time.sleep(0.2)
        return ""

    def open_dashboard(self, api: str) -> None:
        """In a browser, where there is a display."""
        if any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")):
            nothing = subprocess.DEVNULL
            subprocess.Popen(self._dashboard(api), stdin=nothing, stdout=nothing, stderr=nothing)

    def _dashboard(self, api: str, *options: str) -> list[str]:
        return [self.program, "dashboard", "--url", f"http://{api}", "--data", self.data, *options]


def run_to_its_end(example: Callable[[], int]) -> int:
    """The exit code: that of the example; 1: it failed; 130: Ctrl-C, or a signal that ends programs."""
    try:
        _heed_signals()
        return example()
    except KeyboardInterrupt:
        print("\nStopped; the server and the worker have ended.", flush=True)
        return 130
    except (ExampleFailed, PinLaterError) as error:
        print(f"\nThe demonstration failed: {error}\nWhat the processes said: {OUTPUT}/*.log", file=sys.stderr)
        return 1


def make_anew(folder: Path) -> None:
    """Empty OUTPUT, and make a folder in it."""
    try:
        shutil.rmtree(OUTPUT, ignore_errors=True)
        OUTPUT.mkdir(mode=0o700, exist_ok=True)  # what is in it is nobody else's business
        folder.mkdir(parents=True, exist_ok=True)  # another demonstration may be writing there
        (OUTPUT / "server.log").touch()
    except OSError as error:
        raise ExampleFailed(f"{OUTPUT} cannot be written: {error.strerror}") from error


def free_address() -> str:
    """Where something may listen on this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


@contextmanager
def server(*options: str) -> Iterator[Server]:
    """`pinlater serve` on SQLite, in a folder that goes with it."""
    serve = ("serve", "--port", "0", "--http", "none", "--api", "none", "--log-format", "human", *options)
    with (
        tempfile.TemporaryDirectory(prefix="pinlater-demo-") as data,
        _process("server", "pinlater", *serve, "--data", data, folder=OUTPUT, stdout=subprocess.PIPE) as process,
    ):
        assert process.stdout is not None
        address = process.stdout.readline().strip()  # printed when it answers
        if not address:
            raise ExampleFailed(f"the server did not start; it said:\n{(OUTPUT / 'server.log').read_text()}")
        yield Server(address, process, data)


@contextmanager
def worker(
    app: str, server: str, *options: str, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """`pinlater-worker` in the folder of the examples, which makes their modules importable."""
    given = ("--app", app, "--server", server, "--grace", "5s", *options)
    with _process("worker", "pinlater-worker", *given, folder=HERE, environment=environment) as process:
        yield process


def check(*processes: subprocess.Popen[str]) -> None:
    """ExampleFailed: one of them has ended."""
    for process in processes:
        if process.poll() is not None:
            raise ExampleFailed(f"{process.args!r} ended with exit code {process.returncode}")


@contextmanager
def _process(
    name: str,
    program: str,
    *arguments: str,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    stdout: int | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """A process out of Ctrl-C's reach, so that it is ended in order; it ends with this one in any case (Linux)."""
    command = [str(Path(sys.executable).with_name(program)), *arguments]
    setpriv = shutil.which("setpriv")
    with (
        open(OUTPUT / f"{name}.log", "w") as log,
        subprocess.Popen(
            [setpriv, "--pdeathsig", "TERM", *command] if setpriv else command,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=log if stdout is None else stdout,
            stderr=log,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(END_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _heed_signals() -> None:
    """From here on a signal ends all in order. scripts/demo holds back Ctrl-C until now."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
