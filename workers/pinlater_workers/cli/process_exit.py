"""The end of the process: exit codes and messages, the last seconds, and the restart by exec.

Exit codes: 0 done, or stopped by a signal; 1 it failed; 2 the command line, the file or the app is wrong, or a
process of the worker's own does not start; 130 Ctrl-C.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import NoReturn

import click

from pinlater.errors import PinLaterError
from pinlater.log_guard import GuardedLogger
from pinlater.printable import printable_lines
from pinlater_workers.errors import ConfigurationError

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
_LINES = 12
"""So much of the traceback of an app that cannot be imported: its end says what is wrong."""

CLOSE_S = 3.0
"""How long what is left of jobs has to end with the event loop, and the exit handlers of libraries to run."""
_log = GuardedLogger("pinlater_workers.cli")
STARTED_IN = os.getcwd()
"""Where it was started: a relative path on the command line means the same again."""

_OUTLIVES_TERMINAL = hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
"""It was started under nohup."""


@contextmanager
def failures_as_exit_codes() -> Iterator[None]:
    try:
        yield
    except ConfigurationError as error:
        say_configuration_error(error)
        raise SystemExit(EXIT_USAGE) from None
    except PinLaterError as error:
        say(str(error))
        raise SystemExit(EXIT_FAILED) from None
    except (KeyboardInterrupt, click.Abort):
        say("interrupted")
        raise SystemExit(EXIT_INTERRUPTED) from None


def say(message: str) -> None:
    click.echo(f"pinlater-worker: {printable_lines(message)}", err=True)


def say_configuration_error(error: ConfigurationError) -> None:
    """With the end of the traceback of a module that could not be imported."""
    if error.__cause__ is not None:
        _say_cause(error.__cause__)
    say(str(error))


def _say_cause(error: BaseException) -> None:
    """Where a module could not be imported: from where the module's own code begins."""
    trace, is_import = error.__traceback__, False
    while trace is not None and not (is_import and not _is_machinery(trace)):
        is_import = is_import or _is_machinery(trace)
        trace = trace.tb_next
    if trace is None:
        return
    lines = "".join(traceback.format_exception(type(error), error, trace)).rstrip().split("\n")
    for line in (["  ..."] if len(lines) > _LINES else []) + lines[-_LINES:]:
        click.echo(printable_lines(line), err=True)


def _is_machinery(trace: TracebackType) -> bool:
    return trace.tb_frame.f_code.co_filename.startswith((importlib.__file__, "<frozen importlib"))


def exit_soon(code: int, error: BaseException | None = None) -> None:
    """From now on this process has CLOSE_S to end by itself; then it ends with that exit code.

    `error` is what it is about to fail with: said only if it does not get there by itself.
    """
    timer = threading.Timer(CLOSE_S, _exit_now, (code, error))
    timer.daemon = True
    timer.start()


def _exit_now(code: int, error: BaseException | None) -> None:
    if error is not None:
        _log.error("it failed: %s", error, exc_info=error)
    _log.warning("jobs that do not stop are left behind")
    flush()
    os._exit(code)


def flush() -> None:
    """All that was logged and printed is out."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # full, without a reader, or closed by a job
            stream.flush()


def exec_restart() -> NoReturn:
    """Run the same command again in this process. Threads end here; descriptors close, as Python opens them for that.

    Nothing may run that ends with this process's threads or connections: the worker has ended its children before.
    """
    flush()
    if _OUTLIVES_TERMINAL:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a handler would be gone, and its effect the usual one
    os.chdir(STARTED_IN)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
