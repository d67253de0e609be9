"""Rows for people."""

from __future__ import annotations

from collections.abc import Sequence

import click

from pinlater.printable import printable


def write_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    lines = [[column.upper() for column in columns], *[[printable(str(cell)) for cell in row] for row in rows]]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
