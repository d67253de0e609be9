"""Figures as a table and as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from tests.bench.figure import Figure

_HEAD = ("figure", "value", "unit", "floor", "ratio", "scaled", "goal", "")


def table(figures: Sequence[Figure]) -> str:
    rows = [_HEAD, *map(_row, figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = ["  ".join(_aligned(row, widths)).rstrip() for row in rows]
    return "\n".join([*lines, "", *_remarks(figures)])


def _aligned(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Numbers to the right, words to the left."""
    return [
        cell.rjust(width) if 1 <= column <= 5 and column != 2 else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]


def _row(figure: Figure) -> tuple[str, ...]:
    return (
        figure.name,
        number(figure.value),
        figure.unit,
        "" if figure.floor is None else number(figure.floor),
        "" if figure.ratio is None else f"{figure.ratio:.2f}",
        number(figure.scaled) if figure.unit.endswith("/s") else "",
        ", ".join(map(str, figure.goals)),
        "" if not figure.goals else "reached" if figure.is_reached else "NOT REACHED",
    )


def _remarks(figures: Sequence[Figure]) -> list[str]:
    lines = []
    for figure in figures:
        about = [f"rounds {', '.join(map(number, figure.rounds))}"]
        if figure.floor_is:
            about.append(f"floor: {figure.floor_is}")
        if figure.cpu_us:
            about.append("cpu us: " + ", ".join(f"{name} {spent:.1f}" for name, spent in figure.cpu_us.items()))
        about += [each for each in (figure.persistence, figure.notes) if each]
        about.append(f"yardstick {number(figure.yardstick)} SET/s")
        lines.append(f"{figure.name}: {'; '.join(about)}")
    return lines


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def keep(figures: Sequence[Figure], path: str | None) -> None:
    """Write them to a file, where one is named."""
    if path:
        with open(path, "w", encoding="utf-8") as file:
            document = {"cores": len(os.sched_getaffinity(0)), "figures": [figure.as_json() for figure in figures]}
            json.dump(document, file, indent=2)
