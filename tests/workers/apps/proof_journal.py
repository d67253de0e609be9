"""What the attempts of a proof leave behind in the folder of their worker, and how it is read.

`journal` has a line when an attempt begins and one when it ends; that of a process which is killed just has no end.
Each line is one short append, so that those of many processes never mix. `locks` has a byte for each job, which a
process holds while it runs it, and which the kernel releases the moment that the process dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pinlater_workers.jobs.context import JobContext

JOURNAL, LOCKS = "journal", "locks"
BEGUN, ENDED, KEPT, BESIDE = "begun", "ended", "kept", "beside"
"""KEPT: a checkpoint was answered. BESIDE: another process ran the same job at this moment."""


@dataclass(frozen=True, slots=True)
class Line:
    """`moment`: nanoseconds of CLOCK_MONOTONIC, which is one for all processes of a machine."""

    what: str
    number: int
    attempt: int
    snoozes: int
    step: int
    pid: int
    moment: int


@functools.cache
def _opened(name: str) -> int:
    return os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def note(what: str, number: int, context: JobContext, step: int) -> None:
    assert context.envelope is not None
    words = (what, number, context.attempt, context.envelope.snoozes, step, os.getpid(), time.monotonic_ns())
    os.write(_opened(JOURNAL), (" ".join(map(str, words)) + "\n").encode())


@contextlib.contextmanager
def noted(number: int, context: JobContext, step: int) -> Iterator[None]:
    """Around an attempt."""
    note(BEGUN, number, context, step)
    try:
        yield
    finally:
        note(ENDED, number, context, step)


@contextlib.contextmanager
def alone(number: int, context: JobContext, step: int) -> Iterator[None]:
    """Around an attempt that runs in a process of its own."""
    locks = _opened(LOCKS)
    try:
        fcntl.lockf(locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
    except OSError:
        note(BESIDE, number, context, step)
        raise
    try:
        yield
    finally:
        fcntl.lockf(locks, fcntl.LOCK_UN, 1, number)


class Journal:
    """Read while it grows."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / JOURNAL
        self._read = 0
        self._lines: list[Line] = []
        self.ended = 0

    def lines(self) -> list[Line]:
        """All so far, as they were written."""
        data = b""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._read)
                data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        for text in whole.decode().splitlines():
            what, *numbers = text.split()
            self._lines.append(Line(what, *map(int, numbers)))
            self.ended += what == ENDED
        return self._lines
