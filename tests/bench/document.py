"""Puts what was measured into the tables of docs/performance.md: `scripts/bench document --help`.

A file is what `scripts/bench --json` or `scripts/bench instructions --json` wrote. Rows are found by the name in their
first cell; what a row says in words stays as it is, and a row that is not there yet is added.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.bench.figures import number
from tests.bench.measures import NAMES, what_is

DOCUMENT = Path(__file__).parents[2] / "docs" / "performance.md"
COLUMNS = ("before", "now")
Row = list[str]


def with_figures(text: str, figures: list[Mapping[str, Any]], column: str) -> str:
    """The document with figures: name, what it is, goal, before, now."""
    rows = _rows(text, "figures")
    for figure in figures:
        row = rows.setdefault(figure["name"], [figure["name"], _what(figure["name"], rows), "", "", ""])
        row[2] = ", ".join(figure["goals"])
        row[3 + COLUMNS.index(column)] = figure_cell(figure)
    return _with_rows(text, "figures", rows)


def with_instructions(text: str, counts: Mapping[str, float], column: str) -> str:
    """The document with instructions: name, before, now, and what is left of before."""
    rows = _rows(text, "instructions")
    for name, count in counts.items():
        row = rows.setdefault(name, [name, "", "", ""])
        row[1 + COLUMNS.index(column)] = f"{count:,.0f}"
        if row[1] and row[2]:
            row[3] = f"{_read(row[2]) / _read(row[1]):.2f}"
    return _with_rows(text, "instructions", rows)


def figure_cell(figure: Mapping[str, Any]) -> str:
    """The figure as its goal is said: of the floor, scaled, or as it was measured.

    >>> figure_cell({"value": 2.5, "unit": "ms", "ratio": None, "scaled": 9.0, "reached": False})
    '2.5 ms, not reached'
    """
    parts = [f"{number(figure['value'])} {figure['unit']}"]
    if figure["ratio"] is not None:
        parts.insert(0, f"**{figure['ratio']:.2f}**")
    if figure["unit"].endswith("/s"):
        parts.append(f"scaled {number(figure['scaled'])}")
    if figure["reached"] is False:
        parts.append("not reached")
    return ", ".join(parts)


def _what(name: str, rows: Mapping[str, Row]) -> str:
    """What the measure is, in its first row; nothing in the others, nor of a name that is no measure."""
    measure = name.split("/")[0]
    is_first = all(row.split("/")[0] != measure for row in rows)
    return what_is(measure).rstrip(".") if measure in NAMES and is_first else ""


def _read(cell: str) -> float:
    return float(cell.replace(",", ""))


def _block(name: str) -> re.Pattern[str]:
    """The head of a table and the line under it stay; what is behind, up to the mark, are its rows."""
    return re.compile(rf"(<!-- {name} -->\n\n?\|.*\n\|.*\n)((?:\|.*\n)*)")


def _rows(text: str, name: str) -> dict[str, Row]:
    found = _block(name).search(text)
    if found is None:
        raise SystemExit(f"there is no table behind <!-- {name} -->")
    return {row[0]: row for row in map(_cells, found[2].splitlines())}


def _cells(line: str) -> Row:
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    return [cells[0].strip("`"), *cells[1:]]


def _with_rows(text: str, name: str, rows: Mapping[str, Row]) -> str:
    lines = "".join(f"| {' | '.join([f'`{first}`', *rest])} |\n" for first, *rest in rows.values())
    return _block(name).sub(lambda found: found[1] + lines, text)


def _read_files(paths: list[str]) -> Iterator[Any]:
    for path in paths:
        yield json.loads(Path(path).read_text(encoding="utf-8"))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="scripts/bench document",
        description=__doc__,
        epilog="example: scripts/bench --json now.json && scripts/bench document now.json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="later ones count before earlier ones")
    parser.add_argument("--column", choices=COLUMNS, default="now", help="where the figures belong [now]")
    options = parser.parse_args()
    text = DOCUMENT.read_text(encoding="utf-8")
    for said in _read_files(options.files):
        if "figures" in said:
            text = with_figures(text, said["figures"], options.column)
        else:
            text = with_instructions(text, said, options.column)
    DOCUMENT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
