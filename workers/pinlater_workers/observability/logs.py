"""Logs on stderr: lines that a person reads, or one JSON object per line. The standard library's logging, no more.

What is logged while a job runs, by its own code too, carries the job's name, descriptor, attempt and trace id; while a
batch runs, its name and how many jobs it has. So does what is given as `extra`. An app that sets up logging by itself
when it is imported has the last word.
"""

from __future__ import annotations

import logging
import os
import time
from typing import Any

from pinlater.log_guard import StderrLines
from pinlater.printable import json_text, printable, printable_lines
from pinlater_workers.jobs.batch import BATCH_SIZE
from pinlater_workers.jobs.context import current
from pinlater_workers.tracing import current_trace

_INDENT = "  "
FORMATS = ("human", "json")
LEVELS = ("debug", "info", "warning", "error")
_LEVEL_VARIABLE = "PINLATER_WORKER_LOG_LEVEL"
_FORMAT_VARIABLE = "PINLATER_WORKER_LOG_FORMAT"
_NOISY = ("asyncio", "aiohttp.access")
_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has: all else was given as `extra`."""


def configure(level: str, format: str) -> None:
    """Send everything from `level` on to stderr, here and in the processes that this one starts."""
    os.environ[_LEVEL_VARIABLE], os.environ[_FORMAT_VARIABLE] = level, format
    handler = StderrLines()
    handler.setFormatter(JsonFormatter() if format == "json" else HumanFormatter())
    handler.addFilter(_add_job)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _NOISY:
        logging.getLogger(name).setLevel(max(root.level, logging.WARNING))


def configure_child() -> None:
    """As the process that started this one was configured."""
    level, format = os.environ.get(_LEVEL_VARIABLE, "info"), os.environ.get(_FORMAT_VARIABLE, "human")
    configure(level if level in LEVELS else "info", format if format in FORMATS else "human")


class HumanFormatter(logging.Formatter):
    """`21:40:05 warning pinlater_workers.worker: the message  job=thumbnail attempt=2`.

    Of several lines are tracebacks alone, which stand in from the edge: whatever a job is named, or says, it forges no
    line, and moves no terminal's cursor.
    """

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        fields = "".join(f" {name}={value}" for name, value in _extra(record).items())
        line = f"{clock} {record.levelname.lower():<7} {record.name}: {record.getMessage()}"
        trace = self.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""
        line = printable(line + (f" {fields}" if fields else ""))
        return f"{line}\n{printable_lines(trace, _INDENT)}" if trace else line


class JsonFormatter(logging.Formatter):
    """One object per line: time (UTC), level, logger, message, then what is known of the job, and `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info and record.exc_info[0]:
            line["exception"] = self.formatException(record.exc_info)
        return json_text(line, default=str)


def _add_job(record: logging.LogRecord) -> bool:
    """Runs where the record is made, so the job and the trace are those of this thread or task."""
    fields: dict[str, object] = {}
    try:
        context = current()
        fields |= {"job": context.job, "descriptor": context.descriptor, "attempt": context.attempt}
    except LookupError:
        batch = BATCH_SIZE.get(None)
        if batch is not None:
            fields = {"job": batch[0], "batch": batch[1]}
    trace = current_trace()
    if trace is not None:
        fields["trace_id"] = trace.trace_id
    for name, value in fields.items():
        if not hasattr(record, name):
            setattr(record, name, value)
    return True


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _PLAIN and not name.startswith("_")}
