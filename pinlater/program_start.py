"""The start of a long-running program: what it inherits from its parent, and its duties as process 1."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress

_KEPT = ("SIGCHLD", "SIGTTIN", "SIGTTOU", "SIGKILL", "SIGSTOP")
_PASSED_ON = signal.valid_signals() - {getattr(signal, name, None) for name in _KEPT}


def begin_service() -> None:
    """Signals arrive, and the ends of children are told, whatever was set up before. As the first process of a
    container it goes on as a child of one that takes what others leave behind. Before there are threads.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        return
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if os.getpid() == 1:
        _go_on_as_child()


def stop_signals() -> list[signal.Signals]:
    """Those that end a program in order which has nothing to read anew: of its terminal too, but under nohup."""
    outlives_terminal = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGTERM, signal.SIGINT, *([] if outlives_terminal else [signal.SIGHUP])]


def _go_on_as_child() -> None:
    """Returns in the child. The process itself waits for all that ends below it, and hands on the signals that it gets:
    else each orphan of the container would be a zombie for ever.
    """
    waited = {signal.SIGCHLD, *_PASSED_ON}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    child = os.fork()
    if child:
        _wait_for_all(child, waited)
    _lead_terminal()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _lead_terminal() -> None:
    """A Ctrl-C that is typed comes once, and not from the first process too."""
    os.setpgid(0, 0)
    handler = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    with suppress(OSError):  # there is none
        os.tcsetpgrp(0, os.getpgrp())
    signal.signal(signal.SIGTTOU, handler)


def _wait_for_all(child: int, waited: Iterable[int]) -> None:
    """Ends with the child, by its exit code."""
    while True:
        number = signal.sigwait(waited)
        if number != signal.SIGCHLD:
            with suppress(ProcessLookupError):
                os.kill(child, number)
            continue
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                code = os.waitstatus_to_exitcode(ended[1])
                os._exit(code if code >= 0 else 128 - code)
