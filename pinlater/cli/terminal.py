"""A terminal that is drawn over again and again, and gives single keys."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import sys
import termios
import tty
from collections.abc import Iterator, Sequence

import click

END = "\x04"
"""Ctrl-D."""

_HIDE_CURSOR, _SHOW_CURSOR = "\033[?25l", "\033[?25h"
_ALTERNATE, _BACK = "\033[?1049h", "\033[?1049l"
_HOME, _REST_OF_LINE, _BELOW = "\033[H", "\033[K", "\033[J"


def is_terminal() -> bool:
    """Both what is read and what is written."""
    return sys.stdin.isatty() and sys.stdout.isatty()


@contextlib.contextmanager
def screen() -> Iterator[None]:
    """A page of its own, without a cursor and with keys that come at once; all is as before at the end."""
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        click.echo(_ALTERNATE + _HIDE_CURSOR, nl=False)
        yield
    finally:
        click.echo(_SHOW_CURSOR + _BACK, nl=False)
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def draw(lines: Sequence[str]) -> None:
    """In place of what is shown; written at once, so that nothing flickers."""
    click.echo(_HOME + "\r\n".join(line + _REST_OF_LINE for line in lines) + _BELOW, nl=False)


def size() -> tuple[int, int]:
    """Columns and lines; such as usual where there is no terminal."""
    return shutil.get_terminal_size((120, 40))


def key_within(seconds: float) -> str:
    """The next key; "" if none comes, END where none can come any more."""
    readable, _, _ = select.select([sys.stdin], [], [], seconds)
    return os.read(sys.stdin.fileno(), 64)[:1].decode("ascii", "replace") or END if readable else ""
