"""Tables that a program writes into a page, each between two marks: `<!-- kind: names -->` and `<!-- end -->`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

_MARK = re.compile(r"<!-- (?P<kind>(?!end\b)\w+)(?:: (?P<names>[\w\s]+))? -->\n(?P<rows>.*?)<!-- end -->", re.S)


class TableMark(NamedTuple):
    """What the mark of a table says, and the rows that follow it."""

    kind: str
    names: list[str]
    rows: str


def marks(page: str) -> list[TableMark]:
    return [_mark(found) for found in _MARK.finditer(page)]


def refilled(page: str, rows: Callable[[TableMark], Iterable[tuple[str, ...]]]) -> str:
    """The page with the rows of each of its marks made anew."""

    def table(found: re.Match[str]) -> str:
        text = "".join(f"| {' | '.join(row)} |\n" for row in rows(_mark(found)))
        return found[0].removesuffix(f"{found['rows']}<!-- end -->") + f"{text}<!-- end -->"

    return _MARK.sub(table, page)


def _mark(found: re.Match[str]) -> TableMark:
    return TableMark(found["kind"], (found["names"] or "").split(), found["rows"])
