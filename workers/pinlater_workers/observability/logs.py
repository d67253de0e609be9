"""Logs on stderr: lines that a person reads, or one JSON object per line. The standard library's logging, no more.

What is logged while a job runs, by its own code too, carries the job's name, descriptor, attempt and trace id; while a
batch runs, its name and how many jobs it has. So does what is given as `extra`. An app that sets up logging by itself
when it is imported has the last word.
"""

from __future__ import annotations

import logging
import os

from pinlater.log_lines import JsonLogLines, TextLogLines, log_to_stderr
from pinlater_workers.jobs.batch import BATCH_SIZE
from pinlater_workers.jobs.context import current
from pinlater_workers.tracing import current_trace

FORMATS = ("human", "json")
LEVELS = ("debug", "info", "warning", "error")
_LEVEL_VARIABLE = "PINLATER_WORKER_LOG_LEVEL"
_FORMAT_VARIABLE = "PINLATER_WORKER_LOG_FORMAT"
_NOISY = {"asyncio": logging.WARNING, "aiohttp.access": logging.WARNING}


def configure(level: str, format: str) -> None:
    """Send everything from `level` on to stderr, here and in the processes that this one starts."""
    os.environ[_LEVEL_VARIABLE], os.environ[_FORMAT_VARIABLE] = level, format
    handler = log_to_stderr(level, JsonLogLines("message") if format == "json" else TextLogLines(), _NOISY)
    handler.addFilter(_add_job)


def configure_child() -> None:
    """As the process that started this one was configured."""
    level, format = os.environ.get(_LEVEL_VARIABLE, "info"), os.environ.get(_FORMAT_VARIABLE, "human")
    configure(level if level in LEVELS else "info", format if format in FORMATS else "human")


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
