"""Loggers and handlers whose errors never reach the code that logs: apps and hosts may bring handlers that fail."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from pinlater.printable import printable

if TYPE_CHECKING:
    import asyncio


class GuardedLogger(logging.LoggerAdapter[logging.Logger]):
    """The logger of that name. What its filters, handlers or formats raise is reported on standard error, with the line
    that they lost; only KeyboardInterrupt passes, which is for the process.
    """

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger(name), {})

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if not self.isEnabledFor(level):
            return
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # the caller is not this method
        about = sys.exc_info()[1] if kwargs.get("exc_info") is True else kwargs.get("exc_info")
        try:
            self.logger.log(level, msg, *args, **kwargs)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            report_lost(self.logger.name, level, msg, args, error, about)


class StderrLines(logging.StreamHandler[TextIO]):
    """Writes to standard error. It may be closed or full, and a record may not bear to be formatted: the line is lost
    then, and nobody who logs gets an error for it.
    """

    def __init__(self) -> None:
        super().__init__(sys.stderr)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except RecursionError:  # the base class lets it through
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        with suppress(Exception):  # it is reported on that very stream
            super().handleError(record)


def report_lost(
    name: str, level: int, message: object, args: tuple[object, ...], error: BaseException, about: object = None
) -> None:
    """On standard error: the line that was not logged, and why. `about`: the error it speaks of. Raises nothing."""
    with suppress(Exception):
        try:
            text = str(message) % args if args else str(message)
        except Exception:
            text = str(message)
        text += f": {about!r}" if about else ""
        why = f"{type(error).__name__}: {error}"
        line = f"{logging.getLevelName(level).lower()} {name}: {text}  (a log handler failed: {why})"
        sys.stderr.write(f"{printable(line)}\n")


def guard_loop(loop: asyncio.AbstractEventLoop) -> None:
    """What goes wrong in a callback is logged as ever; where a log handler fails then, the loop goes on."""
    loop.set_exception_handler(_log_in_loop)


def _log_in_loop(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    try:
        loop.default_exception_handler(context)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        report_lost("asyncio", logging.ERROR, context.get("message", ""), (), error, context.get("exception"))
