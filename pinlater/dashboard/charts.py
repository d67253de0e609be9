"""Charts as SVG: lines, stacked areas and stacked bars over time, with axes, and their values as text. Pure.

The templates in charts.html write what stands here. A plot is as wide as its place: positions are parts of it, texts
keep their size. Colours are classes of the style sheet; lines differ by their dashes too. Where nothing is known there
is a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property

from markupsafe import Markup

from pinlater.dashboard.axes import Axis, Tick, axis_time_text, day_axis, log_time_axis, number_axis, time_axis
from pinlater.dashboard.formats import number_text

WIDE, HIGH = 1_000, 500
"""The inner units of a plot."""

Values = Sequence[float | None]
LINES, AREA, BARS = "lines", "area", "bars"


@dataclass(frozen=True, slots=True)
class ChartLine:
    """One thing that is drawn. `style` is a class of the style sheet; `sum_text` stands beside it in the legend;
    `jobs`: the filter that finds its jobs, "" for none.
    """

    name: str
    style: str
    values: Values
    sum_text: str = ""
    jobs: str = ""


@dataclass(frozen=True)
class Chart:
    """`kind`: LINES, AREA (stacked) or BARS (stacked). `measure`: of the values: "number", "time" (in milliseconds), or
    "percentiles" of times. `note` says what a reader must know; `empty` why there is nothing to draw.
    """

    id: str
    title: str
    unit: str
    kind: str
    measure: str
    starts_ms: Sequence[int]
    step_ms: int
    lines: Sequence[ChartLine] = field(default_factory=list)
    note: str = ""
    empty: str = ""

    @property
    def text_of(self) -> Callable[[float], str]:
        return number_text if self.measure == "number" else axis_time_text

    @property
    def is_stacked(self) -> bool:
        return self.kind != LINES

    @cached_property
    def stacks(self) -> list[list[tuple[float, float] | None]]:
        """Of each line its lower and upper end at each point."""
        floors = [0.0] * len(self.starts_ms)
        found = []
        for line in self.lines:
            ends: list[tuple[float, float] | None] = []
            for at, value in enumerate(line.values):
                if value is None:
                    ends.append(None)
                else:
                    low = floors[at] if self.is_stacked else 0.0
                    ends.append((low, low + value))
                    floors[at] = low + value
            found.append(ends)
        return found

    @cached_property
    def y_axis(self) -> Axis:
        tops = [ends[1] for stack in self.stacks for ends in stack if ends is not None]
        highest = max(tops, default=0.0)
        if self.measure == "number":
            values = [value for line in self.lines for value in line.values if value is not None]
            return number_axis(highest, is_whole=all(float(value).is_integer() for value in values))
        if self.measure == "time":
            return time_axis(highest)
        return log_time_axis(min(tops, default=1.0), highest)

    @cached_property
    def x_ticks(self) -> Sequence[Tick]:
        return day_axis(self.starts_ms[0], self.starts_ms[-1] + self.step_ms).ticks

    @property
    def days(self) -> bool:
        """Whether its ticks are days."""
        return len(self.starts_ms) * self.step_ms > 2 * 86_400_000

    # -- what is drawn -------------------------------------------------------------------------------------------------

    @cached_property
    def shapes(self) -> list[tuple[str, str, str]]:
        """Paths from the back to the front: what each is (fill, stroke), its style, and its course."""
        found = []
        for line, stack in reversed(list(zip(self.lines, self.stacks, strict=True))):
            if self.kind == BARS:
                found.append(("fill", line.style, self._bars(stack)))
            else:
                if self.is_stacked:
                    found.append(("wash", line.style, self._area(stack)))
                found.append(("stroke", line.style, self._line(stack)))
        return found

    def _x(self, at: float) -> str:
        return f"{at * WIDE / len(self.starts_ms):.4g}"

    def _y(self, value: float) -> str:
        return f"{(1 - self.y_axis.place(value)) * HIGH:.4g}"

    def _runs(self, stack: Sequence[tuple[float, float] | None]) -> Iterator[list[tuple[float, float, float]]]:
        """Points that follow each other without a gap: their place, and both ends. One alone is as wide as its step."""
        run: list[tuple[float, float, float]] = []
        for at, ends in enumerate([*stack, None]):
            if ends is not None:
                run.append((at + 0.5, *ends))
            elif run:
                if len(run) == 1:
                    middle, low, high = run[0]
                    run = [(middle - 0.5, low, high), (middle + 0.5, low, high)]
                yield run
                run = []

    def _line(self, stack: Sequence[tuple[float, float] | None]) -> str:
        return "".join(
            "M" + "L".join(f"{self._x(at)} {self._y(high)}" for at, _, high in run) for run in self._runs(stack)
        )

    def _area(self, stack: Sequence[tuple[float, float] | None]) -> str:
        parts = []
        for run in self._runs(stack):
            over = [f"{self._x(at)} {self._y(high)}" for at, _, high in run]
            under = [f"{self._x(at)} {self._y(low)}" for at, low, _ in reversed(run)]
            parts.append("M" + "L".join([*over, *under]) + "Z")
        return "".join(parts)

    def _bars(self, stack: Sequence[tuple[float, float] | None]) -> str:
        parts = []
        for at, ends in enumerate(stack):
            if ends is not None and ends[1] > ends[0]:
                left, right = self._x(at + 0.1), self._x(at + 0.9)
                low, high = self._y(ends[0]), self._y(ends[1])
                parts.append(f"M{left} {low}V{high}H{right}V{low}Z")
        return "".join(parts)

    # -- what is read --------------------------------------------------------------------------------------------------

    @cached_property
    def description(self) -> str:
        """For those who do not see it."""
        if self.empty:
            return self.empty
        parts = []
        for line in self.lines:
            known = [value for value in line.values if value is not None]
            if known:
                text = self.text_of
                parts.append(
                    f"{line.name}: last {text(known[-1])}, lowest {text(min(known))}, highest {text(max(known))}"
                )
        return f"{self.title}, {self.unit}. " + "; ".join(parts) + "."

    @cached_property
    def table_rows(self) -> Markup:
        """A row for each step of which something is known; written here, as there are many."""
        rows = []
        for at, start_ms in enumerate(self.starts_ms):
            values = [line.values[at] for line in self.lines]
            if all(value is None for value in values):
                continue
            moment = datetime.fromtimestamp(start_ms / 1000, UTC)
            cells = "".join(f"<td>{'' if value is None else self._cell(value)}</td>" for value in values)
            rows.append(
                f'<tr><th scope="row" data-at="{at}" data-ms="{start_ms}">{moment:%Y-%m-%d %H:%M}</th>{cells}</tr>'
            )
        return Markup("".join(rows))

    def _cell(self, value: float) -> str:
        return self.text_of(value).replace("<", "&lt;")


def spark_path(values: Sequence[float | None], wide: float, high: float) -> str:
    """A small line over equal steps, from 0 to the highest value; gaps where there is None.

    >>> spark_path([0, 2, None, 1], 30, 10)
    'M0 10L10 0M28.5 5H30'
    """
    highest = max((value for value in values if value is not None), default=0) or 1
    step = wide / max(1, len(values) - 1)
    parts = []
    is_on = False
    for at, value in enumerate(values):
        if value is None:
            is_on = False
            continue
        x, y = at * step, high - high * value / highest
        after = values[at + 1] if at + 1 < len(values) else None
        if not is_on and after is None:  # one alone
            parts.append(f"M{max(0.0, x - 1.5):.4g} {y:.4g}H{x:.4g}")
        else:
            parts.append(f"{'L' if is_on else 'M'}{x:.4g} {y:.4g}")
        is_on = True
    return "".join(parts)
