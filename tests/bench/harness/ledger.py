"""Which jobs were stored and which have run, in files that outlive a `kill -9` of who writes them.

A record is eight bytes: the writer's number and the job's. It is with the kernel before the call returns, and a job is
written down as run before its worker acks it. So a job that is in `stored` and will never be in `run` is lost.
"""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_RECORD = struct.Struct("<Q")


class Account(NamedTuple):
    """`repeated`: runs over the first of each job. `unanswered`: ran, and no enqueue said that they were stored."""

    stored: int
    not_run: int
    repeated: int
    unanswered: int


class Ledger:
    """That of one process; `folder` None: nothing is written."""

    def __init__(self, folder: str | None) -> None:
        self.writer = int.from_bytes(os.urandom(4)) >> 1
        self._stored = _opened(folder, f"stored-{self.writer}")
        self._run = _opened(folder, f"run-{self.writer}")

    def job(self, number: int) -> int:
        """The number of a job of this process among those of all."""
        return self.writer << 32 | number

    def stored(self, jobs: Iterable[int]) -> None:
        _write(self._stored, jobs)

    def ran(self, job: int) -> None:
        _write(self._run, [job])


def _opened(folder: str | None, name: str) -> int | None:
    return None if folder is None else os.open(Path(folder, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def _write(file: int | None, jobs: Iterable[int]) -> None:
    if file is not None:
        os.write(file, b"".join(map(_RECORD.pack, jobs)))


def account(folder: Path) -> Account:
    """As it stands now."""
    stored, ran = _read(folder, "stored"), _read(folder, "run")
    return Account(
        stored.total(),
        len(stored.keys() - ran.keys()),
        ran.total() - len(ran),
        len(ran.keys() - stored.keys()),
    )


def _read(folder: Path, kind: str) -> Counter[int]:
    return Counter(job for path in folder.glob(f"{kind}-*") for (job,) in _RECORD.iter_unpack(path.read_bytes()))
