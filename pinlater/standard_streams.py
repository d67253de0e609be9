"""The three standard streams of a program, which may be closed, full, or without a reader.

What a program says on standard error never changes how it ends. What it prints is its result: where that cannot be
written, it ends with an exit code that says so, and where standard output was closed, nobody wanted it.
"""

from __future__ import annotations

import io
import math
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    import asyncio

    from _typeshed import ReadableBuffer

EXIT_NO_READER = 141
"""As a shell has it of a program that SIGPIPE ended."""

_EXIT_FAILED = 1
_NAMES = ("stdin", "stdout", "stderr")


CHECK_EVERY_S, SAYS_SO_WITHIN_S = 1.0, 2.0


class StartTerminal:
    """The terminal that a program was started on, if there was one. It is checked on the event loop: a shell that ends
    sends its jobs in the background nothing, and a SIGHUP that comes later is somebody's wish. `is_outlived`: under
    nohup.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_there = _has_terminal()
        self._gone_s = -math.inf
        self.is_outlived = hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        if self._is_there:
            self._loop.call_later(CHECK_EVERY_S, self._check_again)

    def was_closed(self) -> bool:
        """At a SIGHUP: it says so, and is no wish of somebody's. True once."""
        self._check()
        gone_s, self._gone_s = self._gone_s, -math.inf
        return self._loop.time() - gone_s <= SAYS_SO_WITHIN_S

    def _check_again(self) -> None:
        self._check()
        if self._is_there:
            self._loop.call_later(CHECK_EVERY_S, self._check_again)

    def _check(self) -> None:
        if self._is_there and not _has_terminal():
            self._is_there, self._gone_s = False, self._loop.time()


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | getattr(os, "O_NOCTTY", 0)))
    except OSError:
        return False
    return True


class OutputFailed(OSError):
    """Standard output took no more."""


class NoReader(OutputFailed, BrokenPipeError):
    """Whoever read it has gone, as `| head` does."""


def fill_descriptors() -> None:
    """Open those of the descriptors 0 to 2 that are closed, on nothing: no file or socket of this program, or of its
    children, is to be taken for one of them. To read from standard input is then an error, not the end of a file.
    """
    for number, name in enumerate(_NAMES):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR if number else os.O_WRONLY)  # the lowest that is free: this one
            os.set_inheritable(opened, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


@contextmanager
def standard_streams(program: str) -> Iterator[None]:
    """The whole run of a command: its streams, and an exit code where its output could not be written."""
    fill_descriptors()
    sys.stderr = _reopened(sys.stderr, _Droppable(2, "wb", closefd=False))
    sys.stdout = _reopened(sys.stdout, _Output(1, "wb", closefd=False))
    try:
        try:
            yield
            sys.stdout.flush()
        except SystemExit as ending:
            if ending.code:
                drop_output()  # what is left in the buffer changes no exit code
            sys.stdout.flush()
            raise
    except NoReader:
        drop_output()
        raise SystemExit(EXIT_NO_READER) from None
    except OutputFailed as failed:
        drop_output()
        why = "what had been done by then stays done"
        sys.stderr.write(f"{program}: standard output failed: {failed.strerror}; {why}\n")
        raise SystemExit(_EXIT_FAILED) from None


def drop_output() -> None:
    """From now on what is printed goes out if it can, and nobody fails by it: for what prints on its way only."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        with suppress(OSError):  # it is no descriptor, as in tests
            if stream.fileno() == number:
                setattr(sys, name, _reopened(stream, _Droppable(number, "wb", closefd=False)))


class _Droppable(io.FileIO):
    """What cannot be written is dropped."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


class _Output(io.FileIO):
    """Errors have names of their own, and no number: click has an exit code of its own for a broken pipe."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            failed = NoReader() if isinstance(error, BrokenPipeError) else OutputFailed()
            failed.strerror = error.strerror
            raise failed from None


def _reopened(stream: TextIO, raw: io.FileIO) -> TextIO:
    """Over the same descriptor, buffered in the same way; what `stream` held is written first."""
    with suppress(OSError):
        stream.flush()
    is_unbuffered, by_lines = getattr(stream, "write_through", False), getattr(stream, "line_buffering", True)
    buffer: Any = raw if is_unbuffered else io.BufferedWriter(raw)
    return io.TextIOWrapper(
        buffer, stream.encoding, stream.errors, line_buffering=by_lines, write_through=is_unbuffered
    )
