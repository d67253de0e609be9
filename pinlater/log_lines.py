"""Lines of logs on stderr: one that a person reads, or one JSON object, for servers and workers alike.

In a line for people only tracebacks have several lines, which stand in from the edge: no text forges a line, or moves a
terminal's cursor.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from pinlater.log_guard import StderrLines
from pinlater.printable import json_text, printable, printable_lines

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has: all else was given as `extra`."""
_COLOURS = {"warning": "\033[33m", "error": "\033[31m", "critical": "\033[31m"}


class LogEvent(dict[str, Any]):
    """The message of a record that is a word, `event`, and fields of any names."""


class LogLines(logging.Formatter):
    """What both kinds of lines have. `always`: fields of every line. `redact` takes secrets out of a text."""

    def __init__(self, always: Mapping[str, object] | None = None, redact: Callable[[str], str] = str) -> None:
        super().__init__()
        self._always = dict(always or {})
        self._redact = redact

    def parts(self, record: logging.LogRecord) -> tuple[str, str, dict[str, Any]]:
        """The logger, "" for that of an event; the message; and the fields, as JSON can hold them."""
        if isinstance(record.msg, LogEvent):
            fields = {**record.msg, **self._always}
            logger, message = "", str(fields.pop("event", ""))
        else:
            extra = {name: value for name, value in vars(record).items() if name not in _PLAIN and name[:1] != "_"}
            logger, message, fields = record.name, record.getMessage(), extra | self._always
        if record.exc_info and record.exc_info[0]:
            fields["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            fields["stack"] = record.stack_info
        return logger, self._redact(message), self._plain(fields)

    def _plain(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, Mapping):
            return {self._redact(str(key)): self._plain(each) for key, each in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self._plain(each) for each in value]
        return self._redact(str(value))


class JsonLogLines(LogLines):
    """Time (UTC), level, logger, the message under its own key, then the fields, with `exception` and `stack`."""

    def __init__(self, message_key: str, *context: Any) -> None:
        super().__init__(*context)
        self._message_key = message_key

    def format(self, record: logging.LogRecord) -> str:
        logger, message, fields = self.parts(record)
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds").removesuffix("+00:00")
        line = {"time": f"{moment}Z", "level": record.levelname.lower()} | ({"logger": logger} if logger else {})
        return json_text({**line, self._message_key: message, **fields})


class TextLogLines(LogLines):
    """`21:40:05 warning pinlater_workers.worker: the message  job=thumbnail attempt=2`."""

    def format(self, record: logging.LogRecord) -> str:
        logger, message, fields = self.parts(record)
        below = [printable_lines(fields.pop(name), "  ") for name in ("exception", "stack") if name in fields]
        shown = "".join(f" {name}={_value(value)}" for name, value in fields.items())
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        level = record.levelname.lower()
        padded = f"{level:<7}"
        if level in _COLOURS and sys.stderr.isatty():
            padded = f"{_COLOURS[level]}{padded}\033[0m"
        line = printable(f"{logger}: {message}" if logger else message) + printable(f" {shown}" if shown else "")
        return "\n".join((f"{clock} {padded} {line}", *below))


def _value(value: Any) -> str:
    is_word = isinstance(value, str) and value and not set(value) & set(" =")
    return value if is_word else repr(value)


def log_to_stderr(level: str, lines: LogLines, noisy: Mapping[str, int]) -> logging.Handler:
    """Everything from `level` on, in place of where it went; `noisy`: loggers, and the least that counts of theirs."""
    handler = StderrLines()
    handler.setFormatter(lines)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name, least in noisy.items():
        logging.getLogger(name).setLevel(max(root.level, least))
    return handler
