"""Signals to a process of the pool, and what the processes that its jobs fork must not inherit."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType

_LEFT_TO_WORKER = (signal.SIGINT, signal.SIGTERM)


def leave_signals_to_worker() -> None:
    """Ctrl-C in a terminal, or a service manager that signals all processes: the worker decides what comes of it.

    A handler that does nothing, as an ignored signal would stay ignored in the programs that a job starts.
    """
    for number in _LEFT_TO_WORKER:
        signal.signal(number, _nothing)


def in_forks(close: Callable[[], None]) -> None:
    """What a job forks may be ended as usual, and has no part in this process's connections: it calls `close`."""

    def forked() -> None:
        for number in _LEFT_TO_WORKER:
            signal.signal(number, signal.SIG_DFL)
        close()

    os.register_at_fork(after_in_child=forked)


def _nothing(number: int, frame: FrameType | None) -> None:
    pass
