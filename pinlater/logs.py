"""Structured logs on stderr: lines that a person reads on a terminal, and JSON lines for machines elsewhere.

An event is a short word or phrase, all else is key=value. Records of the standard library's loggers (drivers, the
scheduler) go the same way.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from structlog.typing import EventDict, Processor

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
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processors=_last(log_format), foreign_pre_chain=common))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for noisy, least in _NOISY.items():
        logging.getLogger(noisy).setLevel(max(root.level, least))


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


def _last(log_format: str) -> Sequence[Processor]:
    without_inner = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    if chosen_format(log_format) == "human":
        local = structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False, key="timestamp")
        plain = structlog.dev.plain_traceback
        console = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), pad_event_to=24, pad_level=False, exception_formatter=plain
        )
        return [local, without_inner, console]
    utc = structlog.processors.TimeStamper(fmt="iso", utc=True, key="time")
    return [utc, structlog.processors.format_exc_info, without_inner, structlog.processors.JSONRenderer()]
