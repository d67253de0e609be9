"""The end of the process, which no job holds up: neither a coroutine nor a thread that does not stop."""

from __future__ import annotations

import logging
import os
import sys
import threading

CLOSE_S = 3.0
"""How long what is left of jobs has to end with the event loop, and the exit handlers of libraries to run."""

_log = logging.getLogger("pinlater_workers.cli")


def leave_soon(code: int, error: BaseException | None = None) -> None:
    """From now on this process has CLOSE_S to end by itself; then it ends with that exit code.

    `error` is what it is about to fail with: said only if it does not get there by itself.
    """
    timer = threading.Timer(CLOSE_S, _leave, (code, error))
    timer.daemon = True
    timer.start()


def _leave(code: int, error: BaseException | None) -> None:
    if error is not None:
        _log.error("it failed: %s", error, exc_info=error)
    _log.warning("jobs that do not stop are left behind")
    flush()
    os._exit(code)


def flush() -> None:
    """All that was logged and printed is out."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
