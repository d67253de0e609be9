"""The record of an attempt: when it began, how long it took, and which worker made it."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass

from pinlater.durations import elapsed_text
from pinlater.schedule import utc_text

_worker = ""


def worker_name() -> str:
    """HOST:PID of the worker, in its own process and in those of its pool."""
    return _worker or f"{socket.gethostname()}:{os.getpid()}"


def use_worker(pid: int) -> None:
    """In a process of the pool: the worker that started it."""
    global _worker
    _worker = f"{socket.gethostname()}:{pid}"


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One attempt. `began_ms` is of the wall clock."""

    began_ms: int
    took_s: float
    worker: str

    @classmethod
    def since(cls, began_s: float) -> AttemptRecord:
        """Of an attempt that ends now. `began_s` is of time.monotonic."""
        took_s = max(0.0, time.monotonic() - began_s)
        return cls(round((time.time() - took_s) * 1000), took_s, worker_name())

    def text(self) -> str:
        """
        >>> AttemptRecord(1795392552000, 1.24, "web-1:4711").text()
        '2026-11-23T00:09:12Z, 1.2s, web-1:4711'
        """
        return f"{utc_text(self.began_ms)}, {elapsed_text(self.took_s)}, {self.worker}"
