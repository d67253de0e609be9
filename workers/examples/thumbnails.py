"""A plain worker: makes thumbnails, one job per picture and size.

    python thumbnails.py --server 127.0.0.1:9010 --queue thumbnails

A job's body is JSON: {"picture": PATH, "size": PIXELS, "folder": WHERE THE THUMBNAIL GOES}. A job may come twice
(delivery is at least once), so the thumbnail is written beside its place and moved there in one step.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from pathlib import Path
from types import FrameType

from PIL import Image

from pinlater import Ack, Client, DequeuedJob, DequeueRequest, PinLaterError

WAIT_MS = 10_000
JOBS_AT_ONCE = 8
RETRY_DELAY_MS = 400
PAUSE_AFTER_ERROR_S = 1.0


def thumbnail_path(picture: Path, size: int, folder: Path) -> Path:
    """Where the thumbnail of a picture lies: `coffee.png` has `coffee-png-64.jpg`."""
    return folder / f"{picture.name.replace('.', '-')}-{size}.jpg"


def make_thumbnail(picture: Path, size: int, folder: Path) -> Path:
    """Write a JPEG that fits into a square of `size` pixels. OSError for a picture that cannot be read."""
    target = thumbnail_path(picture, size, folder)
    unfinished = target.with_suffix(f".{os.getpid()}")
    with Image.open(picture) as image:
        image.thumbnail((size, size))
        image.convert("RGB").save(unfinished, "JPEG", quality=88)
    unfinished.replace(target)
    return target


class Worker:
    """Takes jobs until it is told to stop; the jobs in hand are finished first."""

    def __init__(self, client: Client, queue: str) -> None:
        self._client = client
        self._queue = queue
        self._stopping = False
        self._waiting = False

    def stop(self, _signal: int, _frame: FrameType | None) -> None:
        """A signal handler. A wait for jobs ends at once: the server gives back what it claimed for nobody."""
        self._stopping = True
        if self._waiting:
            raise SystemExit(0)

    def run(self) -> None:
        while not self._stopping:
            try:
                for job in self._next_jobs():
                    self._work_on(job)
            except PinLaterError as error:
                print(f"the server could not be asked: {error}", flush=True)
                time.sleep(PAUSE_AFTER_ERROR_S)

    def _next_jobs(self) -> list[DequeuedJob]:
        self._waiting = True
        try:
            return self._client.dequeue(DequeueRequest(self._queue, JOBS_AT_ONCE, wait_ms=WAIT_MS))
        finally:
            self._waiting = False

    def _work_on(self, job: DequeuedJob) -> None:
        attempt = job.attempts_allowed - job.attempts_remaining + 1
        try:
            wanted = json.loads(job.body)
            made = make_thumbnail(Path(wanted["picture"]), wanted["size"], Path(wanted["folder"]))
        except Exception as error:
            status = f"attempt {attempt}: {type(error).__name__}: {error}\n"
            self._client.ack(self._queue, failed=[_ack(job, status, RETRY_DELAY_MS * attempt)])
        else:
            status = f"attempt {attempt}: {made.stat().st_size} bytes\n"
            self._client.ack(self._queue, succeeded=[_ack(job, status)])
        print(f"{job.descriptor} {status}", end="", flush=True)


def _ack(job: DequeuedJob, status: str, retry_delay_ms: int = 0) -> Ack:
    """The claim goes along, so that an ack that comes too late ends nobody else's attempt."""
    return Ack(
        job.descriptor, append_status=status, retry_delay_ms=retry_delay_ms, claim_descriptor=job.claim_descriptor
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description="Makes thumbnails for the jobs of a queue.")
    arguments.add_argument("--server", required=True, metavar="HOST:PORT")
    arguments.add_argument("--queue", default="thumbnails")
    chosen = arguments.parse_args()
    with Client(chosen.server, source=f"thumbnails-{os.getpid()}") as client:
        worker = Worker(client, chosen.queue)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, worker.stop)
        worker.run()


if __name__ == "__main__":
    main()
