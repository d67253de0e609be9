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
    """What a job forks may be ended as usual, and has no part in this process's connections: it calls `close`.

    Signals wait meanwhile, so that none of them is taken for one to this process.
    """

    def before() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, _LEFT_TO_WORKER)

    def after() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _LEFT_TO_WORKER)

    def forked() -> None:
        for number in _LEFT_TO_WORKER:
            if signal.getsignal(number) is _nothing:
                signal.signal(number, signal.SIG_DFL)
        after()
        close()

    os.register_at_fork(before=before, after_in_parent=after, after_in_child=forked)


def _nothing(number: int, frame: FrameType | None) -> None:
    pass
