"""The charts of the history: what they draw, what they say where there is nothing to draw, and their text."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from pinlater.dashboard import history_charts
from pinlater.dashboard.axes import day_axis, log_time_axis, number_axis, time_axis
from pinlater.dashboard.charts import AREA, BARS, LINES, Chart, ChartLine
from pinlater.dashboard.duration_buckets import buckets_of
from pinlater.dashboard.queue_history import SPANS, Point, Series, Sparkline
from pinlater.dashboard.queue_record import QueueRecord
from pinlater.dashboard.static_files import StaticFiles
from pinlater.dashboard.template_engine import TemplateEngine

START_MS = 1_790_000_000_000 // 86_400_000 * 86_400_000
MINUTE_MS = 60_000


def series(*records: QueueRecord | None, span: str = "1h", minutes: int = 1) -> Series:
    step_ms = SPANS[span].step * MINUTE_MS
    points = [Point(START_MS + at * step_ms, record, minutes if record else 0) for at, record in enumerate(records)]
    return Series("mail", SPANS[span], points)


def values(chart: Chart, name: str) -> list[Any]:
    (line,) = [line for line in chart.lines if line.name == name]
    return list(line.values)


def test_throughput_is_per_minute_of_those_that_were_recorded() -> None:
    found = history_charts.throughput(series(QueueRecord(enqueued=30), None, QueueRecord(), span="6h", minutes=3))
    assert values(found, "Enqueued") == [10, None, 0]
    assert found.lines[0].sum_text == "30 in all"
    assert values(history_charts.throughput(series(QueueRecord(failed=3))), "Failed") == [3]


def test_percentiles_say_that_they_are_of_a_sample() -> None:
    record = QueueRecord(succeeded=400, runs=buckets_of([100] * 90 + [5_000] * 10))
    found = history_charts.runs(series(record))
    assert "sample of 100 jobs" in found.note
    assert [line.values[0] for line in found.lines] == [pytest.approx(each, rel=0.1) for each in (100, 5_000, 5_000)]


def test_a_queue_that_keeps_no_jobs_says_why_there_are_no_run_times() -> None:
    found = history_charts.runs(series(QueueRecord(dequeued=9, succeeded=9)))
    assert "succeeded_ttl" in found.empty
    assert history_charts.runs(series(QueueRecord())).empty == "No job ended in this time."
    assert "bounded sample" in history_charts.waits(series(QueueRecord(dequeued=4))).empty
    assert "Nothing is recorded" in history_charts.waits(series(None)).empty


def test_failures_are_shown_with_those_that_nobody_looked_at() -> None:
    record = QueueRecord(failed=10, sampled=4, reasons={"KeyError": 6, "other": 1}, types={})
    found = history_charts.failures_by_reason(series(record, None))
    assert {line.name: list(line.values) for line in found.lines} == {
        "KeyError": [6, None],
        "other": [1, None],
        "not examined": [3, None],
    }
    assert "4 of 10 were examined; the numbers are scaled up" in found.note
    assert history_charts.failures_by_type(series(record), "no bodies here").empty == "no bodies here"
    hidden = history_charts.failures_by_type(series(QueueRecord(failed=1, types={"a": 1})), "hidden", is_withheld=True)
    assert (hidden.empty, hidden.lines) == ("hidden", [])
    many = QueueRecord(failed=36, reasons={f"E{number}": number for number in range(1, 9)})
    assert [line.name for line in history_charts.failures_by_reason(series(many)).lines][-1] == "other"


def test_jobs_that_are_scheduled_have_a_chart_where_there_are_some() -> None:
    assert history_charts.scheduled(series(QueueRecord())) is None
    assert history_charts.scheduled(series(QueueRecord(scheduled=5))) is not None
    assert [line.name for line in history_charts.waiting(series(QueueRecord(blocked=1))).lines][-1].startswith("Behind")


# -- drawn -------------------------------------------------------------------------------------------------------------


def chart(kind: str, *lines: list[float | None], measure: str = "number") -> Chart:
    starts = [START_MS + at * MINUTE_MS for at in range(len(lines[0]))]
    drawn = [ChartLine(f"line {at}", "blue", line) for at, line in enumerate(lines)]
    return Chart("x", "A chart", "jobs", kind, measure, starts, MINUTE_MS, drawn)


def test_gaps_stay_gaps_and_one_point_alone_is_seen() -> None:
    ((_, _, course),) = chart(LINES, [1, 2, None, 4, None]).shapes
    runs = course.split("M")[1:]
    assert [run.count("L") for run in runs] == [1, 1]
    assert runs[1] == "600 0L800 0"


def test_what_is_stacked_stands_on_what_is_below() -> None:
    found = chart(AREA, [1, 1], [2, None])
    assert found.stacks == [[(0, 1), (0, 1)], [(1, 3), None]]
    assert [what for what, _, _ in found.shapes] == ["wash", "stroke", "wash", "stroke"]
    bars = chart(BARS, [1, 0], [2, 3])
    assert [course.count("Z") for _, _, course in bars.shapes] == [2, 1]


def test_a_colour_belongs_to_a_name_whatever_its_rank() -> None:
    def styles(**reasons: int) -> dict[str, str]:
        drawn = history_charts.failures_by_reason(series(QueueRecord(failed=sum(reasons.values()), reasons=reasons)))
        return {line.name: line.style for line in drawn.lines}

    first = styles(KeyError=5, TimeoutError=3, ValueError=2, other=1)
    assert styles(KeyError=1, TimeoutError=7, ValueError=9, other=20) == first
    assert len(set(first.values())) == 4
    assert styles(TimeoutError=1)["TimeoutError"] == first["TimeoutError"]
    many = styles(**{f"E{number}": 10 + number for number in range(6)})
    assert len(set(many.values())) == len(many)


def test_a_chart_says_that_its_history_is_young() -> None:
    young = replace(series(None, None), has_begun=False)
    assert "has just begun" in history_charts.throughput(young).empty
    assert "of this time" in history_charts.throughput(series(None)).empty
    assert "one point is recorded" in history_charts.throughput(series(QueueRecord(), None)).empty
    assert history_charts.throughput(series(QueueRecord(), QueueRecord())).empty == "Nothing happened in this time."
    one = history_charts.throughput(series(None, QueueRecord(enqueued=4)))
    assert "One point is recorded so far" in one.note
    assert "One point" not in history_charts.throughput(series(QueueRecord(enqueued=4), QueueRecord())).note


def test_axes_of_few_decades_and_of_few_things_have_marks_that_help() -> None:
    for low, high in (
        (210, 900),
        (5, 5),
        (1, 2),
        (86, 95),
        (50_000, 70_000),
        (20, 3_000),
        (1, 10**9),
        (10**12, 10**12),
    ):
        assert 3 <= len(log_time_axis(low, high).ticks) <= 13, (low, high)
    assert [tick.label for tick in number_axis(1, is_whole=True).ticks] == ["0", "1"]
    assert [tick.label for tick in chart(LINES, [1, 2]).y_axis.ticks] == ["0", "1", "2"]
    assert [tick.label for tick in chart(LINES, [0.1, 0.4]).y_axis.ticks] == ["0", "0.1", "0.2", "0.3", "0.4"]


@pytest.mark.parametrize("axis", [number_axis(0), number_axis(1e9), time_axis(0), time_axis(1e12), log_time_axis(5, 5)])
def test_axes_are_from_their_first_mark_to_their_last(axis: Any) -> None:
    assert (axis.ticks[0].at, axis.ticks[-1].at) == (0, 1)
    assert len(axis.ticks) <= 13
    assert axis.place(axis.high) == 1


@pytest.mark.parametrize("name", SPANS)
def test_there_are_a_few_times_on_the_axis_whatever_the_span(name: str) -> None:
    span = SPANS[name]
    ticks = day_axis(START_MS + 7 * MINUTE_MS, START_MS + (7 + span.minutes) * MINUTE_MS).ticks
    assert 3 <= len(ticks) <= 8
    assert all(0 <= tick.at <= 1 and tick.ms % (10 * MINUTE_MS) == 0 for tick in ticks)


def rendered(drawn: Chart) -> str:
    return TemplateEngine(StaticFiles()).render("chart.html", chart=drawn)


def test_a_chart_is_well_formed_without_styles_and_says_all_as_text() -> None:
    hostile = ChartLine("<img src=x onerror=alert(1)>\u202e", "red", [3, None])
    drawn = Chart("x", "Failures", "jobs", BARS, "number", [START_MS, START_MS + MINUTE_MS], MINUTE_MS, [hostile])
    html = rendered(drawn)
    assert "style=" not in html
    assert "<img" not in html
    assert "\u202e" not in html
    root = ElementTree.fromstring(re.sub(r"\b(hidden|data-chart|data-zone)(?=[ >])", r'\1=""', html))
    (described,) = [each.text for each in root.iter("desc")]
    assert described is not None
    assert "highest 3" in described
    rows = [each for each in root.iter("tr") if each.find("td") is not None]
    assert [[cell.text for cell in row.iter("td")] for row in rows] == [["3"]]


def test_a_sparkline_says_what_it_shows() -> None:
    line = Sparkline([None, 1, 5, 0])
    assert line.is_any
    assert "6, at most 5 in a minute" in line.text
    assert not Sparkline([None, 0]).is_any
