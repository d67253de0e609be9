"""The figures of a benchmark: a value, its floor and goals, whether it reaches them, and tables and JSON of many."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

REFERENCE_SETS_PER_S = 1_300_000
"""What the yardstick (`redis-benchmark -P 16` SET with 200 bytes) says on a quiet machine of the kind for which
absolute targets are meant, with 2 cores."""


class Goal(Protocol):
    """What a figure is to reach."""

    def reached(self, figure: Figure) -> bool:
        """Whether it does."""

    def __str__(self) -> str: ...


@dataclass(frozen=True)
class OfFloor:
    """At least so much of the floor that was measured in the same run."""

    ratio: float

    def reached(self, figure: Figure) -> bool:
        return figure.ratio is not None and figure.ratio >= self.ratio

    def __str__(self) -> str:
        return f">= {self.ratio:g} of the floor"


@dataclass(frozen=True)
class AtLeast:
    """At least so much on the machine of reference: the figure is scaled by the yardstick of its run."""

    amount: float

    def reached(self, figure: Figure) -> bool:
        return figure.scaled >= self.amount

    def __str__(self) -> str:
        return f">= {self.amount:,.0f} scaled"


@dataclass(frozen=True)
class AtMost:
    """At most so much, as it was measured."""

    amount: float

    def reached(self, figure: Figure) -> bool:
        return figure.value <= self.amount

    def __str__(self) -> str:
        return f"<= {self.amount:,g}"


@dataclass(frozen=True)
class Figure:
    """`rounds` are the values of the rounds, in order, and `floors` the floors of the very same rounds."""

    name: str
    """Which measure, as on the command line; behind a slash, what of it: `pickup/p99 redis`."""

    unit: str
    """Of the value: jobs/s, calls/s, ms, bytes, us, %, x."""

    rounds: Sequence[float]
    goals: Sequence[Goal] = ()
    floors: Sequence[float] = ()
    floor_is: str = ""
    """What the floor is, in a few words."""

    cpu_us: Mapping[str, float] = field(default_factory=dict)
    """Microseconds of processor time per job or call, by process."""

    persistence: str = ""
    """What the store keeps through a power cut, in its own words."""

    yardstick: float = REFERENCE_SETS_PER_S
    """SETs per second just before and after, on average."""

    notes: str = ""

    @property
    def value(self) -> float:
        return statistics.median(self.rounds)

    @property
    def floor(self) -> float | None:
        return statistics.median(self.floors) if self.floors else None

    @property
    def ratio(self) -> float | None:
        """The median of the rounds' own ratios: a machine is slow or fast for a while."""
        if not self.floors:
            return None
        return statistics.median(value / floor for value, floor in zip(self.rounds, self.floors, strict=True))

    @property
    def scaled(self) -> float:
        return self.value * REFERENCE_SETS_PER_S / self.yardstick

    @property
    def is_reached(self) -> bool:
        return all(goal.reached(self) for goal in self.goals)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "rounds": list(self.rounds),
            "floor": self.floor,
            "floors": list(self.floors),
            "floor_is": self.floor_is,
            "ratio": self.ratio,
            "scaled": self.scaled,
            "yardstick_sets_per_s": self.yardstick,
            "goals": [str(goal) for goal in self.goals],
            "reached": self.is_reached if self.goals else None,
            "cpu_us": dict(self.cpu_us),
            "persistence": self.persistence,
            "notes": self.notes,
        }


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
