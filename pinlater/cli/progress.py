"""Progress of long commands: one line on stderr that is written over, where that is a terminal."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Self

import click

from pinlater.cli.connection import say
from pinlater.cli.output import counted
from pinlater.errors import PinLaterError, QueueNotFound, RequestInvalid
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
        self.up_to = ""
        """Says which ones they are, where that can be said."""

    def add(self, count: int, more: str = "") -> None:
        """`more` is shown behind the count."""
        self.done += count
        self._line.show(f"{self._so_far()}{more}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._line.clear()
        if kind is not None and self.done:
            click.echo(f"pinlater: {self._so_far()}{self.up_to} before that", err=True)

    def _so_far(self) -> str:
        things, _, done = self._word.partition(" ")
        return f"{counted(self.done, things.removesuffix('s'))} {done}"


_PAUSE_S = 1.0
_SAY_S = 10.0
"""How often what is left is said where there is no terminal that could show it all the time."""

PATIENCE_S = 60.0
"""So long the servers may fail to answer, one call after the other."""


class Left(NamedTuple):
    """What is left, for people, and whether that is nothing. `unknown`: the shards of which nothing can be said."""

    text: str
    is_empty: bool = False
    unknown: tuple[str, ...] = ()


def wait_until_empty(look: Callable[[], Left], if_interrupted: str) -> Left:
    """Calls `look` until it finds nothing left. What the last look found; PinLaterError where servers stay away.

    Ctrl-C leaves what drains as it is, and says `if_interrupted`.
    """
    line = StatusLine()
    answered_s = reported_s = time.monotonic()
    try:
        while True:
            try:
                left = look()
                answered_s = time.monotonic()
            except (QueueNotFound, RequestInvalid):
                raise
            except PinLaterError as error:
                if time.monotonic() - answered_s > PATIENCE_S:
                    raise
                left = Left(error.message)
            if left.is_empty:
                return left
            line.show(left.text)
            if not sys.stderr.isatty() and time.monotonic() - reported_s >= _SAY_S:
                reported_s = time.monotonic()
                say(f"{left.text}; waiting")
            time.sleep(_PAUSE_S)
    except KeyboardInterrupt:
        line.clear()
        say(if_interrupted)
        raise
    finally:
        line.clear()
