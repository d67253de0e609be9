"""A terminal that is drawn over and gives single keys."""

from __future__ import annotations

import contextlib
import os
import re
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


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """The terminal as it was before `screen`, for a question that is answered with a line."""
    mode = termios.tcgetattr(sys.stdin)
    click.echo(_SHOW_CURSOR + _BACK, nl=False)
    mode[3] |= termios.ICANON | termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, mode)
    try:
        yield
    finally:
        tty.setcbreak(sys.stdin)
        click.echo(_ALTERNATE + _HIDE_CURSOR, nl=False)


_KEYS = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "k": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "j": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    " ": "page down",
    "\x1b[H": "home",
    "\x1b[1~": "home",
    "g": "home",
    "\x1b[F": "end",
    "\x1b[4~": "end",
    "G": "end",
    "\r": "enter",
    "\n": "enter",
    "\x1b": "back",
    "\x7f": "back",
    "\x1b[D": "back",
}
"""What terminals send for keys that are no letters, and the letters that less and vi have for them."""


_KEY = re.compile(
    "|".join(map(re.escape, sorted(_KEYS, key=len, reverse=True))) + "|\x1b\\[[0-9;]*[A-Za-z~]|.", re.DOTALL
)


class TypedKeys:
    """The keys that are typed, one after the other: some come together."""

    def __init__(self) -> None:
        self._typed: list[str] = []

    def within(self, seconds: float) -> str:
        """The next key, by its name or its letter; "" if none comes, END where none can come any more."""
        if not self._typed:
            readable, _, _ = select.select([sys.stdin], [], [], max(0.0, seconds))
            if not readable:
                return ""
            text = os.read(sys.stdin.fileno(), 64).decode("ascii", "replace")
            if not text:
                return END
            self._typed = _KEY.findall(text)
        key = self._typed.pop(0)
        return _KEYS.get(key, key)
