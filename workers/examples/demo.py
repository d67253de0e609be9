"""The demonstration: a server on SQLite, a worker process, and a thumbnail job per picture and size.

    ./scripts/demo [--images DIR]

Exit codes: 0 all went as it should (of the pictures that ship with it, the truncated one fails); 1 something did not;
2 a wrong command line; 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

from progress import Progress
from report import Report, collect, show

from pinlater import Client, Job, JobFilter, JobState, PinLaterError

HERE = Path(__file__).resolve().parent
PICTURES = HERE / "pictures"
BROKEN_ON_PURPOSE = {"chelsea-truncated.png"}
OUTPUT = HERE.parents[1] / "demo-output"
SUFFIXES = {".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff"}
SIZES = (64, 128, 256)
QUEUE = "thumbnails"
ATTEMPTS = 3
JOBS_PER_CALL = 500
LOOK_EVERY_S = 0.1
END_WITHIN_S = 15.0


class DemoFailed(Exception):
    """What went wrong, for a person."""


def main() -> int:
    pictures = _pictures(_arguments())
    thumbnails = OUTPUT / "thumbnails"
    try:
        _heed_signals()
        _make_anew(thumbnails)
        report = _run(pictures, thumbnails)
    except KeyboardInterrupt:
        print("\nStopped; the server and the worker have ended.", flush=True)
        return 130
    except (DemoFailed, PinLaterError) as error:
        print(f"\nThe demonstration failed: {error}\nWhat the processes said: {OUTPUT}/*.log", file=sys.stderr)
        return 1
    show(report, thumbnails, BROKEN_ON_PURPOSE)
    return 0 if report.failed_pictures <= BROKEN_ON_PURPOSE else 1


def _arguments() -> Path:
    parser = argparse.ArgumentParser(prog="scripts/demo", description="Thumbnails of photographs, made by a worker.")
    parser.add_argument("--images", type=Path, default=PICTURES, metavar="DIR", help="a folder of pictures of your own")
    folder: Path = parser.parse_args().images
    if not folder.is_dir():
        parser.error(f"--images {folder} is no folder")
    return folder.resolve()


def _pictures(folder: Path) -> list[Path]:
    found = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
    if not found:
        print(f"There is no picture in {folder} ({', '.join(sorted(SUFFIXES))}).", file=sys.stderr)
        raise SystemExit(2)
    return found


def _make_anew(thumbnails: Path) -> None:
    try:
        shutil.rmtree(OUTPUT, ignore_errors=True)
        thumbnails.mkdir(parents=True, exist_ok=True)  # another demonstration may be writing there
        (OUTPUT / "server.log").touch()
    except OSError as error:
        raise DemoFailed(f"{OUTPUT} cannot be written: {error.strerror}") from error


def _heed_signals() -> None:
    """From here on a signal ends all in order. scripts/demo holds back Ctrl-C until now."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _run(pictures: list[Path], thumbnails: Path) -> Report:
    with ExitStack() as stack:
        data = stack.enter_context(tempfile.TemporaryDirectory(prefix="pinlater-demo-"))
        server = stack.enter_context(_process("server", str(Path(sys.executable).with_name("pinlater")), *_serve(data)))
        address = _address(server)
        print(f"A server on SQLite listens on {address}.", flush=True)
        client = stack.enter_context(Client(address, source="demo"))
        client.create_queue(QUEUE)
        worker = stack.enter_context(
            _process("worker", sys.executable, str(HERE / "thumbnails.py"), "--server", address, "--queue", QUEUE)
        )
        print(f"A worker process (pid {worker.pid}) waits for jobs.", flush=True)
        started = time.monotonic()
        jobs = [_job(picture, size, thumbnails) for picture in pictures for size in SIZES]
        for first in range(0, len(jobs), JOBS_PER_CALL):
            client.enqueue(QUEUE, jobs[first : first + JOBS_PER_CALL])
        print(f"Enqueued {len(jobs)} jobs: {len(pictures)} pictures in {len(SIZES)} sizes.", flush=True)
        _wait(client, len(jobs), [server, worker])
        return collect(client, QUEUE, len(jobs), time.monotonic() - started)


def _serve(data: str) -> list[str]:
    return ["serve", "--port", "0", "--data", data, "--http", "none", "--log-format", "human"]


def _job(picture: Path, size: int, thumbnails: Path) -> Job:
    body = json.dumps({"picture": str(picture), "size": size, "folder": str(thumbnails)})
    return Job(body.encode(), attempts_allowed=ATTEMPTS)


def _wait(client: Client, total: int, processes: list[subprocess.Popen[str]]) -> None:
    """Until every job has ended."""
    with Progress(total) as progress:
        while True:
            succeeded = client.count(JobFilter(QUEUE, JobState.SUCCEEDED))
            failed = client.count(JobFilter(QUEUE, JobState.FAILED))
            progress.update(succeeded, failed)
            if succeeded + failed >= total:
                return
            for process in processes:
                if process.poll() is not None:
                    raise DemoFailed(f"{process.args!r} ended with exit code {process.returncode}")
            time.sleep(LOOK_EVERY_S)


@contextmanager
def _process(name: str, *command: str) -> Iterator[subprocess.Popen[str]]:
    """A process out of Ctrl-C's reach, so that it is ended in order; it ends with this one in any case (Linux)."""
    setpriv = shutil.which("setpriv")
    guarded = [setpriv, "--pdeathsig", "TERM", *command] if setpriv else list(command)
    with (
        open(OUTPUT / f"{name}.log", "w") as log,
        subprocess.Popen(
            guarded,
            cwd=OUTPUT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if name == "server" else log,
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


def _address(server: subprocess.Popen[str]) -> str:
    """HOST:PORT, which the server prints when it answers."""
    assert server.stdout is not None
    address = server.stdout.readline().strip()
    if not address:
        raise DemoFailed(f"the server did not start; it said:\n{(OUTPUT / 'server.log').read_text()}")
    return address


if __name__ == "__main__":
    raise SystemExit(main())
