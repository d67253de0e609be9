"""How far a long command has come: one line on stderr that is written over, where that is a terminal."""

from __future__ import annotations

import shutil
import sys
import time
from types import TracebackType
from typing import Self

import click

from pinlater.printable import printable

_EVERY_S = 0.1


class StatusLine:
    """The line; gone again at the end."""

    def __init__(self) -> None:
        self._shown = False
        self._next_s = 0.0

    def show(self, text: str) -> None:
        """Unless the last one was shown a moment ago. Cut to the width, so that it can be written over."""
        if sys.stderr.isatty() and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + _EVERY_S
            self._shown = True
            width = shutil.get_terminal_size().columns
            click.echo(f"\r{printable(text)[: width - 1]}\033[K", nl=False, err=True)

    def clear(self) -> None:
        if self._shown:
            click.echo("\r\033[K", nl=False, err=True)
            self._shown = False


class Progress:
    """Counts what is done. Leaving by an exception says how far it came, since that much stays done."""

    def __init__(self, done_word: str) -> None:
        self._word = done_word
        self._line = StatusLine()
        self.done = 0

    def add(self, count: int, more: str = "") -> None:
        """`more` is shown behind the count."""
        self.done += count
        self._line.show(f"{self.done:,} {self._word}{more}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._line.clear()
        if kind is not None and self.done:
            click.echo(f"pinlater: {self.done:,} {self._word} before that", err=True)
