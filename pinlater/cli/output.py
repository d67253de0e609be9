"""Rows of data on stdout: as a table for people, as one JSON document, or as one JSON object per line.

Rows leave as they come, so that a long scan can be followed, and needs no memory. In a table the widths are those of
the first rows written together; a table of one column has no heading, so that it can be fed to a shell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import click

from pinlater.printable import json_text, printable

Row = Mapping[str, Any]
"""A value per column, as in JSON; a table may show fewer columns."""

FORMATS = ("table", "json", "jsonl")


class Output(Protocol):
    """Where a command writes its rows; `close` once at the end, also where there were none."""

    def write(self, rows: Iterable[Row]) -> None: ...

    def close(self) -> None: ...


class Table:
    """`columns` are shown; a text with a line break or a control character is shown in one line."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._widths: list[int] | None = None

    def write(self, rows: Iterable[Row]) -> None:
        lines = [[_cell(row.get(column)) for column in self._columns] for row in rows]
        if not lines:
            return
        if self._widths is None:
            if len(self._columns) > 1:
                lines.insert(0, [column.upper() for column in self._columns])
            self._widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        _echo_lines(_padded(line, self._widths) for line in lines)

    def close(self) -> None:
        pass


class JsonLines:
    def write(self, rows: Iterable[Row]) -> None:
        _echo_lines(json_text(row) for row in rows)

    def close(self) -> None:
        pass


class JsonArray:
    """One document: a list of all rows."""

    def __init__(self) -> None:
        self._begun = False

    def write(self, rows: Iterable[Row]) -> None:
        text = ",\n ".join(json_text(row) for row in rows)
        if text:
            click.echo((",\n " if self._begun else "[") + text, nl=False)
            self._begun = True

    def close(self) -> None:
        click.echo("]" if self._begun else "[]")


def open_output(format: str, columns: Sequence[str]) -> Output:
    if format == "json":
        return JsonArray()
    return JsonLines() if format == "jsonl" else Table(columns)


def write_all(format: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """All the rows of a short answer."""
    output = open_output(format, columns)
    output.write(rows)
    output.close()


def write_one(format: str, column: str, value: Any) -> None:
    """An answer that is one value: the bare value, or a JSON object."""
    click.echo(_cell(value) if format == "table" else json_text({column: value}))


def output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """-o, as the argument `format`."""
    return click.option(
        "-o", "--output", "format", type=click.Choice(FORMATS), default="table", show_default=True, help="How to print."
    )(command)


def _echo_lines(lines: Iterable[str]) -> None:
    """All at once: one write and one flush for rows that came together."""
    text = "\n".join(lines)
    if text:
        click.echo(text)


def _padded(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _cell(value: Any) -> str:
    """A list with commas; yes or no."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return printable(",".join(map(str, value)))
    return "-" if value is None else printable(str(value))


def counted(number: int, thing: str) -> str:
    """
    >>> counted(1, "job"), counted(2_000, "job")
    ('1 job', '2,000 jobs')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
