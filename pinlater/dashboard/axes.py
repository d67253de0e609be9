"""Axes of charts: round steps for numbers, for lengths of time and for times of day. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from math import ceil, floor, log10
from typing import NamedTuple

from pinlater.dashboard.formats import number_text

_S, _MIN, _H, _D = 1_000, 60_000, 3_600_000, 86_400_000
_TIME_STEPS = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(_S * each for each in (1, 2, 5, 10, 15, 30)),
    *(_MIN * each for each in (1, 2, 5, 10, 15, 30)),
    *(_H * each for each in (1, 2, 3, 6, 12)),
    *(_D * each for each in (1, 2, 7, 14, 30, 90, 365)),
)
_MARKS = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(_S * each for each in (1, 2, 5, 10, 30)),
    *(_MIN * each for each in (1, 2, 5, 10, 30)),
    *(_H * each for each in (1, 2, 6, 12)),
    *(_D * each for each in (1, 2, 7, 14, 30, 90, 365)),
)
"""Of logarithmic axes of few decades; of others _DECADES."""

_DECADES = (1, 10, 100, _S, 10 * _S, _MIN, 10 * _MIN, _H, 6 * _H, _D, 7 * _D, 30 * _D, 365 * _D)
_MOST_STEPS = 4
_MOST_MARKS = 7


class Tick(NamedTuple):
    """A mark of an axis: its place, from 0 at the lower or left end to 1, and what it says. `ms` of a time of day."""

    at: float
    label: str
    ms: int = 0


class Axis(NamedTuple):
    """From `low` to `high`; by the logarithm where `is_log`."""

    low: float
    high: float
    ticks: Sequence[Tick]
    is_log: bool = False

    def place(self, value: float) -> float:
        """From 0 to 1."""
        if self.is_log:
            value, low, high = log10(max(value, self.low)), log10(self.low), log10(self.high)
        else:
            low, high = self.low, self.high
        return min(1.0, max(0.0, (value - low) / (high - low)))


def number_axis(highest: float, *, is_whole: bool = False) -> Axis:
    """From 0 on, in steps of 1, 2 or 5 and so many tens. `is_whole`: of things that there are no halves of.

    >>> [tick.label for tick in number_axis(37).ticks], [tick.label for tick in number_axis(0.3).ticks]
    (['0', '10', '20', '30', '40'], ['0', '0.1', '0.2', '0.3'])
    >>> [tick.label for tick in number_axis(2, is_whole=True).ticks]
    ['0', '1', '2']
    """
    highest = highest if highest > 0 else 1
    rough = highest / _MOST_STEPS
    tens = 10.0 ** floor(log10(rough))
    step = next(tens * each for each in (1, 2, 5, 10) if tens * each >= rough * 0.999)
    step = max(step, 1.0) if is_whole else step
    return _even(int(step) if step >= 1 else step, highest, number_text)


def time_axis(highest_ms: float) -> Axis:
    """
    >>> [tick.label for tick in time_axis(50_000).ticks]
    ['0', '15 s', '30 s', '45 s', '1 min']
    """
    rough = max(1.0, highest_ms / _MOST_STEPS)
    years = ceil(rough / (365 * _D)) * 365 * _D
    return _even(next((each for each in _TIME_STEPS if each >= rough), years), highest_ms, axis_time_text)


def log_time_axis(lowest_ms: float, highest_ms: float) -> Axis:
    """
    >>> [tick.label for tick in log_time_axis(20, 3000).ticks]
    ['10 ms', '100 ms', '1 s', '10 s']
    >>> [tick.label for tick in log_time_axis(210, 900).ticks], [tick.label for tick in log_time_axis(5, 5).ticks]
    (['200 ms', '500 ms', '1 s'], ['2 ms', '5 ms', '10 ms'])
    """
    marks = _around(_MARKS, lowest_ms, highest_ms)
    if len(marks) > _MOST_MARKS:
        marks = _around(_DECADES, lowest_ms, highest_ms)
    axis = Axis(marks[0], marks[-1], (), is_log=True)
    return axis._replace(ticks=[Tick(axis.place(each), axis_time_text(each)) for each in marks])


def _around(marks: Sequence[int], lowest: float, highest: float) -> Sequence[int]:
    """From the last one that is not above the lowest to the first that is not below the highest; three at least."""
    first = max((at for at, each in enumerate(marks) if each <= lowest), default=0)
    last = min((at for at, each in enumerate(marks) if each >= highest), default=len(marks) - 1)
    while last - first < 2:
        first, last = max(0, first - 1), min(len(marks) - 1, last + 1)
    return marks[first : last + 1]


def _even(step: float, highest: float, text: Callable[[float], str]) -> Axis:
    steps = max(1, ceil(highest / step - 1e-9))
    values = [step * each for each in range(steps + 1)]
    labels = ["0", *(text(value) for value in values[1:])]
    return Axis(0, values[-1], [Tick(at / steps, label) for at, label in enumerate(labels)])


def axis_time_text(ms: float) -> str:
    """In one unit, for axes and percentiles.

    >>> axis_time_text(0), axis_time_text(0.5), axis_time_text(86), axis_time_text(1500), axis_time_text(90_000)
    ('0 ms', '<1 ms', '86 ms', '1.5 s', '1.5 min')
    >>> axis_time_text(7_200_000), axis_time_text(200_000_000)
    ('2 h', '2.3 d')
    """
    if ms < 1:
        return "<1 ms" if ms else "0 ms"
    for size, unit in ((_D, "d"), (_H, "h"), (_MIN, "min"), (_S, "s")):
        if ms >= size:
            value = ms / size
            return f"{value:.0f} {unit}" if value >= 10 or value == int(value) else f"{value:.1f} {unit}"
    return f"{ms:.0f} ms"


def day_axis(start_ms: int, end_ms: int) -> Axis:
    """Times of day, or days where it is longer; in UTC until a script says it in the viewer's zone."""
    length = end_ms - start_ms
    step = next((each for each in (10 * _MIN, _H, 4 * _H, _D, 2 * _D, 5 * _D) if length <= 7 * each), 5 * _D)
    first = -(-start_ms // step) * step
    form = "%H:%M" if step < _D else "%-d %b"
    ticks = [
        Tick((ms - start_ms) / length, datetime.fromtimestamp(ms / 1000, UTC).strftime(form), ms)
        for ms in range(first, end_ms, step)
    ]
    return Axis(start_ms, end_ms, ticks)
