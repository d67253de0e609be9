"""How far a long command has come: one line on stderr that is written over, where that is a terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

import click

_EVERY_S = 0.1


class Progress:
    """Counts what is done. Leaving by an exception says how far it came, since that much stays done."""

    def __init__(self, done_word: str) -> None:
        self._word = done_word
        self._shown = False
        self._next_s = 0.0
        self.done = 0

    def add(self, count: int) -> None:
        self.done += count
        if sys.stderr.isatty() and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + _EVERY_S
            self._shown = True
            click.echo(f"\r{self.done:,} {self._word}", nl=False, err=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._shown:
            click.echo("\r\033[K", nl=False, err=True)
        if kind is not None and self.done:
            click.echo(f"pinlater: {self.done:,} {self._word} before that", err=True)
