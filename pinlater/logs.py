"""Structured logs on stderr: lines that a person reads on a terminal, and JSON lines for machines elsewhere.

An event is a short word or phrase, all else is key=value. Records of the standard library's loggers (drivers, the
scheduler) go the same way. Secrets are taken out of all of it, and nothing in it moves a terminal's cursor or looks
like another line.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import structlog
from structlog.typing import EventDict, Processor

from pinlater.log_guard import StderrLines, report_lost
from pinlater.printable import printable, printable_lines
from pinlater.redaction import redact

_NOISY = {
    "apscheduler": logging.ERROR,  # it warns of each run while the one before still waits for a shard that hangs
    "asyncio": logging.WARNING,
    "sqlalchemy": logging.WARNING,
    "redis": logging.WARNING,
}
"""Loggers of libraries, and the least that counts of theirs."""


def chosen_format(log_format: str) -> str:
    """human or json; auto looks whether stderr is a terminal."""
    if log_format != "auto":
        return log_format
    return "human" if sys.stderr.isatty() else "json"


def configure(level: str, log_format: str, **always: object) -> None:
    """Send everything from `level` on to stderr, with the fields `always`. May be called again, with other values."""
    common = _common(always)
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *common, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=GuardedBoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = StderrLines()
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processors=_last(log_format), foreign_pre_chain=common))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    sys.excepthook = _log_crash
    threading.excepthook = lambda ended: _log_lost("thread_crashed", ended.exc_value)
    sys.unraisablehook = lambda lost: _log_lost("error_ignored", lost.exc_value)
    for noisy, least in _NOISY.items():
        logging.getLogger(noisy).setLevel(max(root.level, least))


class GuardedBoundLogger(structlog.stdlib.BoundLogger):
    """What goes wrong while a line is made or written is reported on standard error, and raised into nobody."""

    def _proxy_to_logger(self, method_name: str, event: str | None = None, *event_args: str, **event_kw: Any) -> Any:
        try:
            return super()._proxy_to_logger(method_name, event, *event_args, **event_kw)
        except Exception as error:
            report_lost("pinlater", logging.ERROR, event, event_args, error)


def _common(always: Mapping[str, object]) -> list[Processor]:
    def add_fields(_logger: Any, _method: str, event: EventDict) -> EventDict:
        event.update(always)
        return event

    return [
        add_fields,
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.StackInfoRenderer(),
        structlog.stdlib.PositionalArgumentsFormatter(),
    ]


def _log_crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What nobody caught is not printed past all of this."""
    logging.getLogger("pinlater").critical("crashed", exc_info=(kind, error, trace))


def _log_lost(event: str, error: BaseException | None) -> None:
    logging.getLogger("pinlater").error(event, exc_info=error)


def _redacted(value: Any) -> Any:
    """As JSON can hold it: what cannot be held is shown as it represents itself."""
    if isinstance(value, str):
        return redact(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {_redacted(key): _redacted(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_redacted(each) for each in value]
    return redact(repr(value))


def _redact_all(_logger: Any, _method: str, event: EventDict) -> EventDict:
    return {redact(key): _redacted(value) for key, value in event.items()}


def _in_one_line(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Of several lines are tracebacks alone, which stand in from the edge: else a text could forge a line."""
    return {printable(key): _shown(key, value) for key, value in event.items()}


def _shown(key: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return printable_lines(value, "  ") if key in ("exception", "stack") else printable(value)


def _last(log_format: str) -> Sequence[Processor]:
    without_inner = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    with_trace = structlog.processors.format_exc_info
    if chosen_format(log_format) == "human":
        local = structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False, key="timestamp")
        plain = structlog.dev.plain_traceback
        console = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), pad_event_to=24, pad_level=False, exception_formatter=plain
        )
        return [local, with_trace, without_inner, _redact_all, _in_one_line, console]
    utc = structlog.processors.TimeStamper(fmt="iso", utc=True, key="time")
    return [utc, with_trace, without_inner, _redact_all, structlog.processors.JSONRenderer()]
