"""Forks of this program, which the code of a job may make at any moment and from any thread.

The copy goes on with what forked it, and with nothing else: it has no part in the connections of the program, hears no
signal that is meant for it, and ends where it would take up the program's own work.
"""

from __future__ import annotations

import os
import signal
import sys
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import FrameType
from typing import Any, Protocol

_RUNNERS = {"asyncio.base_events", "asyncio.events", "asyncio.runners", "concurrent.futures.thread", "threading"}
"""Modules that call code of others again and again, or for as long as a thread lives."""


class HasDescriptor(Protocol):
    def fileno(self) -> int:
        """Below 0: none any more."""


_owners: weakref.WeakSet[HasDescriptor] = weakref.WeakSet()


def stays_with_parent(owner: HasDescriptor) -> None:
    """A connection or listening socket that is to end with this process, whatever its forks do."""
    _owners.add(owner)


def in_forks(signals: Iterable[signal.Signals], forked: Callable[[], None], own: str) -> None:
    """From now on `forked` is called in each fork, at once. The present handlers of these signals do not count there:
    the signals have their usual effect. They wait meanwhile, so that none of them is taken for one to this process.

    The fork ends when what made it returns to an event loop or a pool of threads. The module `own` sees to that itself,
    where that is what it returns to.
    """
    if not hasattr(os, "register_at_fork"):  # Windows has no forks
        return
    handlers = {number: signal.getsignal(number) for number in signals}

    def before() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, handlers)

    def after() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, handlers)

    def in_child() -> None:
        for number, handler in handlers.items():
            if signal.getsignal(number) is handler:
                signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)  # it would wake the loop of the parent, which would take the signal for its own
        after()
        forked()
        _end_where_it_returns(own, sys._getframe(1))

    os.register_at_fork(before=before, after_in_parent=after, after_in_child=in_child)


def leave_connections() -> None:
    """In a fork. Their numbers lead to nothing, and are given to nobody else: objects of the parent may close them."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for owner in list(_owners):
        with suppress(OSError):
            number = owner.fileno()
            if number >= 0:
                os.dup2(nothing, number, inheritable=False)
    os.close(nothing)


def _end_where_it_returns(own: str, frame: FrameType | None) -> None:
    """`frame`: where the fork was made."""
    last: FrameType | None = None
    while frame is not None and frame.f_globals.get("__name__") not in (*_RUNNERS, own):
        last, frame = frame, frame.f_back
    if frame is None or frame.f_globals.get("__name__") == own:
        return

    def watch(now: FrameType, event: str, _: Any) -> None:
        if event == "return" and now is last:
            os._exit(0)
        elif event == "call" and now.f_code.co_name == "_bootstrap" and "multiprocessing" in now.f_code.co_filename:
            sys.setprofile(None)  # it ends by itself, and is not to be slowed down

    sys.setprofile(watch)
