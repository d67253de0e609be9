"""The record of an attempt: when it began, how long it took, and which worker made it."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass

from pinlater.schedule import duration_text, utc_text

LONG_S = 100.0
"""From here on tenths of a second say nothing."""

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
        return f"{utc_text(self.began_ms)}, {took_text(self.took_s)}, {self.worker}"


def took_text(seconds: float) -> str:
    """
    >>> took_text(0.0123), took_text(12.34), took_text(3725.4)
    ('12ms', '12.3s', '1h2m5s')
    """
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    return f"{seconds:.1f}s" if seconds < LONG_S else duration_text(round(seconds))
