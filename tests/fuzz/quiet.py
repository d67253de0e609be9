"""The log of the product while it is fuzzed: nothing is printed, and what has a traceback is kept for the target."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog

ERRORS: list[BaseException] = []
"""Those that were logged, or that an event loop had nobody to give to, since a target last looked."""


class _Errors(logging.Handler):
    """Of the standard library's log, which aiohttp writes to."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            ERRORS.append(record.exc_info[1])


_HANDLER = _Errors(logging.ERROR)


def be_quiet() -> None:
    """From now on, for the whole process."""
    logging.getLogger().addHandler(_HANDLER)
    structlog.configure(
        processors=[_note], logger_factory=structlog.ReturnLoggerFactory(), cache_logger_on_first_use=False
    )


@contextmanager
def quiet() -> Iterator[None]:
    """The same, for as long as this lasts."""
    before = structlog.get_config()
    be_quiet()
    try:
        yield
    finally:
        structlog.configure(**before)
        logging.getLogger().removeHandler(_HANDLER)


def _note(logger: object, name: str, event: Any) -> Any:
    error = event.get("exc_info")
    if isinstance(error, BaseException):
        ERRORS.append(error)
    raise structlog.DropEvent


def from_loop(loop: object, context: dict[str, Any]) -> None:
    """The handler of errors for an event loop."""
    error = context.get("exception")
    ERRORS.append(error if isinstance(error, BaseException) else RuntimeError(str(context.get("message"))))


def first_error() -> BaseException | None:
    """The first since the last call, which are then forgotten."""
    found = ERRORS[0] if ERRORS else None
    ERRORS.clear()
    return found
