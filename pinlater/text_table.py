"""Tables of text, with columns as wide as a terminal shows what is in them.

A text is escaped first (see printable), so that what is measured is what is shown: a wide character takes two cells, a
combining one none.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, takewhile
from typing import NamedTuple
from unicodedata import category, east_asian_width

from pinlater.printable import printable

Paint = Callable[[str, str], str]
_GAP, _REST = "  ", "..."
_NEEDED = 7
"""Columns of this worth are never left out."""
_READABLE, _RECOGNIZED = 24, 9
"""Texts are not cut below the first number of cells while another text can be left out, and never below the second."""


class Column(NamedTuple):
    """`worth`: where the width does not suffice, the column of the least worth is left out.

    A column that `is_whole` is not cut, because a part of it says something else, or nothing: a name, a time, a number.
    One of integers is a number without being declared.
    """

    heading: str
    worth: int = _NEEDED
    is_number: bool = False
    is_whole: bool = False


class TextTable:
    """Rows come together or one after the other: later ones may make a column wider, and none narrower."""

    def __init__(self, columns: Iterable[str | Column]) -> None:
        self._columns = [Column(each) if isinstance(each, str) else each for each in columns]
        self._kept: list[int] = []
        self._widths = [0] * len(self._columns)
        # a table of one column has no heading, so that it can be fed to a shell
        self._headings = [[each.heading.upper() for each in self._columns]] if len(self._columns) > 1 else []

    def lines(
        self, rows: Iterable[Iterable[object]], width: int | None = None, paint: Paint | None = None
    ) -> list[str]:
        """The lines of these rows, the first time after that of the headings.

        With a `width` they have no more cells, if that can be: columns that matter little and are empty go first, then
        long texts are cut, then texts of the least worth go, then texts are cut shorter, then numbers of the least
        worth go. Which columns are left is decided once, as the headings are. `paint` makes of a heading and a cell
        what a terminal shows in colour, and no wider.
        """
        values = list(map(list, rows))
        texts = [list(map(cell_text, row)) for row in values]
        is_first = not self._kept
        if is_first:
            self._columns = [
                column._replace(is_number=column.is_number or any(type(row[at]) is int for row in values))
                for at, column in enumerate(self._columns)
            ]
            self._kept = [
                at
                for at, column in enumerate(self._columns)
                if width is None or column.worth >= _NEEDED or any(cells[at] not in ("", "-") for cells in texts)
            ]
        texts, self._headings = self._headings + texts, []
        for cells in texts:
            self._widths = list(map(max, self._widths, map(text_width, cells)))
        widths = self._widths if width is None else self._fitted(width, is_first)
        return [self._line(cells, self._kept, widths, paint) for cells in texts]

    def _fitted(self, width: int, may_leave_out: bool) -> list[int]:
        """The widths with which the columns fit, without those that are left out for it."""
        for shortest, is_number in ((_READABLE, False), (_RECOGNIZED, True)):
            while self._excess(widths := self._cut(width, shortest), width) > 0:
                small = [at for at in self._kept if self._is_small(at, is_number)] if may_leave_out else []
                if not small:
                    break
                self._kept.remove(min(small, key=lambda at: self._columns[at].worth))
            else:
                break
        return widths

    def _cut(self, width: int, shortest: int) -> list[int]:
        """The widths of the columns with the longest texts cut, as far as it is needed and none below `shortest`."""
        # a row is known by its first text, which is therefore not cut as short as others
        least = [_READABLE if at == self._kept[0] else shortest for at in range(len(self._columns))]
        cut = [at for at in self._kept if not (self._columns[at].is_number or self._columns[at].is_whole)]
        widths = [min(each, width) if at in cut else each for at, each in enumerate(self._widths)]
        while self._excess(widths, width) > 0:
            long = [at for at in cut if widths[at] > least[at]]
            if not long:
                break
            widths[max(long, key=widths.__getitem__)] -= 1
        return widths

    def _excess(self, widths: Sequence[int], width: int) -> int:
        return sum(widths[at] + len(_GAP) for at in self._kept) - len(_GAP) - width

    def _is_small(self, at: int, is_number: bool) -> bool:
        return self._columns[at].worth < _NEEDED and self._columns[at].is_number is is_number

    def _line(self, cells: Sequence[str], kept: Iterable[int], widths: Sequence[int], paint: Paint | None) -> str:
        padded = []
        for at in kept:
            text = cut_text(cells[at], widths[at])
            space = " " * (widths[at] - text_width(text))
            text = text if paint is None else paint(self._columns[at].heading, text)
            padded.append(space + text if self._columns[at].is_number else text + space)
        return _GAP.join(padded).rstrip()


def terminal_width() -> int | None:
    """The width for what is printed; None where it goes to no terminal, as into a pipe, whose reader wants it all."""
    return shutil.get_terminal_size((0, 0)).columns or None if sys.stdout.isatty() else None


def cell_text(value: object) -> str:
    """What stands for a value, in one line: a list with commas; yes or no; - for none."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return printable(",".join(map(str, value)))
    return "-" if value is None else printable(str(value))


def cut_text(text: str, width: int) -> str:
    """The text in one line of at most so many cells.

    >>> cut_text("a\\nb", 9), cut_text("the whole of it", 9), cut_text("日本語の名前", 9)
    ('a\\\\nb', 'the wh...', '日本語...')
    """
    text = printable(text)
    if text_width(text) <= width:
        return text
    ends = accumulate(map(_cells, text))
    return text[: sum(1 for _ in takewhile(lambda end: end <= width - len(_REST), ends))] + _REST[: max(0, width)]


def text_width(text: str) -> int:
    """How many cells of a terminal a printable text takes.

    >>> text_width("abc"), text_width("日本"), text_width("e\\u0301")
    (3, 4, 1)
    """
    return len(text) if text.isascii() else sum(map(_cells, text))


def _cells(character: str) -> int:
    if category(character) in ("Mn", "Me") or "\u1160" <= character <= "\u11ff":  # marks; parts of Korean syllables
        return 0
    return 2 if east_asian_width(character) in "WF" else 1
