"""Tables of text, with columns as wide as a terminal shows what is in them.

A text is escaped first (see printable), so that what is measured is what is shown: a wide character takes two cells, a
combining one none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, takewhile
from typing import NamedTuple
from unicodedata import category, east_asian_width

from pinlater.printable import printable

_GAP, _REST = "  ", "..."
_NEEDED = 7
"""Columns of this worth are never left out."""
_READABLE = 24
"""Texts are not cut below so many cells while there is a column to leave out."""


class Column(NamedTuple):
    """`worth`: where the width does not suffice, the column of the least worth is left out."""

    heading: str
    worth: int = _NEEDED
    is_number: bool = False


class TextTable:
    """Rows come together or one after the other: later ones may make a column wider, and none narrower."""

    def __init__(self, columns: Iterable[str | Column]) -> None:
        self._columns = [Column(each) if isinstance(each, str) else each for each in columns]
        self._widths = [0] * len(self._columns)
        # a table of one column has no heading, so that it can be fed to a shell
        self._headings = [[each.heading.upper() for each in self._columns]] if len(self._columns) > 1 else []

    def lines(self, rows: Iterable[Iterable[object]], width: int | None = None) -> list[str]:
        """The lines of these rows, the first time after that of the headings.

        With a `width` none has more cells: columns that matter little and are empty go first, then the longest texts
        are cut, then columns of the least worth go.
        """
        texts = [list(map(cell_text, row)) for row in rows]
        kept = list(range(len(self._columns)))
        if width is not None:
            kept = [at for at in kept if self._columns[at].worth >= _NEEDED or any(cells[at] for cells in texts)]
        texts, self._headings = self._headings + texts, []
        for cells in texts:
            self._widths = list(map(max, self._widths, map(text_width, cells)))
        widths = self._widths if width is None else self._fitted(kept, width)
        return [self._line(cells, kept, widths) for cells in texts]

    def _fitted(self, kept: list[int], width: int) -> list[int]:
        """The widths with which the columns fit; takes out of `kept` those with which they do not."""
        while True:
            widths = [min(each, width) for each in self._widths]
            texts = [at for at in kept if not self._columns[at].is_number]
            while (excess := sum(widths[at] + len(_GAP) for at in kept) - len(_GAP) - width) > 0:
                longest = max(texts, key=widths.__getitem__)
                if widths[longest] <= _READABLE:
                    break
                widths[longest] -= 1
            least = min(kept, key=lambda at: self._columns[at].worth)
            if excess <= 0 or self._columns[least].worth >= _NEEDED:
                return widths  # the rest matters, and is cut at the end of the line
            kept.remove(least)

    def _line(self, cells: Sequence[str], kept: Iterable[int], widths: Sequence[int]) -> str:
        padded = []
        for at in kept:
            text = cut_text(cells[at], widths[at])
            space = " " * (widths[at] - text_width(text))
            padded.append(space + text if self._columns[at].is_number else text + space)
        return _GAP.join(padded).rstrip()


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
