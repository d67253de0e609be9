"""Structured logs of a server: lines that a person reads on a terminal, and JSON lines for machines elsewhere.

An event is a short word or phrase, all else is key=value. Records of the standard library's loggers (drivers, the
scheduler) go the same way. Secrets are taken out of all of it.
"""

from __future__ import annotations

import logging
import sys
import threading
from types import TracebackType
from typing import Any

import structlog
from structlog.typing import EventDict

from pinlater.log_guard import report_lost
from pinlater.log_lines import JsonLogLines, LogEvent, TextLogLines, log_to_stderr
from pinlater.redaction import redact

_NOISY = {
    "apscheduler": logging.ERROR,  # it warns of each run while the one before still waits for a shard that hangs
    "asyncio": logging.WARNING,
    "sqlalchemy": logging.WARNING,
    "redis": logging.WARNING,
}


def chosen_format(log_format: str) -> str:
    """human or json; auto looks whether stderr is a terminal."""
    if log_format != "auto":
        return log_format
    return "human" if sys.stderr.isatty() else "json"


def configure(level: str, log_format: str, **always: object) -> None:
    """Send everything from `level` on to stderr, with the fields `always`. May be called again, with other values."""
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, _as_record],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=GuardedBoundLogger,
        cache_logger_on_first_use=True,
    )
    is_human = chosen_format(log_format) == "human"
    log_to_stderr(level, TextLogLines(always, redact) if is_human else JsonLogLines("event", always, redact), _NOISY)
    sys.excepthook = _log_crash
    threading.excepthook = lambda ended: _log_lost("thread_crashed", ended.exc_value)
    sys.unraisablehook = lambda lost: _log_lost("error_ignored", lost.exc_value)


class GuardedBoundLogger(structlog.stdlib.BoundLogger):
    """What goes wrong while a line is made or written is reported on standard error, and raised into nobody."""

    def _proxy_to_logger(self, method_name: str, event: str | None = None, *event_args: str, **event_kw: Any) -> Any:
        try:
            return super()._proxy_to_logger(method_name, event, *event_args, **event_kw)
        except Exception as error:
            report_lost("pinlater", logging.ERROR, event, event_args, error)


def _as_record(_logger: Any, _method: str, event: EventDict) -> tuple[tuple[LogEvent], dict[str, Any]]:
    """For the standard library, which knows what to do with these two."""
    known = {name: event.pop(name) for name in ("exc_info", "stack_info") if name in event}
    return (LogEvent(event),), known


def _log_crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What nobody caught is not printed past all of this."""
    logging.getLogger("pinlater").critical("crashed", exc_info=(kind, error, trace))


def _log_lost(event: str, error: BaseException | None) -> None:
    logging.getLogger("pinlater").error(event, exc_info=error)
