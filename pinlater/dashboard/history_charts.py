"""The charts of a queue, or of all queues together, each with a note on its figures. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from zlib import crc32

from pinlater.dashboard.charts import AREA, BARS, LINES, Chart, ChartLine
from pinlater.dashboard.duration_buckets import percentile_ms
from pinlater.dashboard.formats import number_text
from pinlater.dashboard.history_recorder import MINUTE_MS
from pinlater.dashboard.queue_history import Point, Series
from pinlater.dashboard.queue_record import OTHER, QueueRecord, fewer_words
from pinlater.job_filters.job_filter import FilterLine, Term, in_order

MOST_BARS = 6
UNKNOWN = "not examined"
_COUNTS = (
    ("enqueued", "Enqueued", "blue"),
    ("dequeued", "Handed out", "sky"),
    ("succeeded", "Succeeded", "green"),
    ("failed", "Failed", "red"),
    ("retried", "Tried again", "orange"),
)
_PARTS = (("Half within (p50)", 0.5, "green"), ("p95", 0.95, "orange"), ("p99", 0.99, "red"))
_STYLES = ("red", "orange", "blue", "green", "purple", "teal", "pink", "lime", "gold")
_NOTHING_YET = "Nothing is recorded yet: the history has just begun. A minute is shown when it is over."
_NOTHING_THEN = "Nothing is recorded of this time. A minute is shown when it is over."


def throughput(series: Series) -> Chart:
    whole = series.total
    lines = [
        ChartLine(title, style, _per_minute(series, name), f"{number_text(getattr(whole, name))} in all")
        for name, title, style in _COUNTS
    ]
    return _chart(series, "throughput", "Throughput", "jobs per minute", LINES, "number", lines, whole.events)


def waiting(series: Series) -> Chart:
    """Those that are scheduled have a chart of their own: they are often a thousand times as many."""
    lines = [
        ChartLine("Running", "green", _levels(series, "running")),
        ChartLine("Ready", "blue", _levels(series, "ready")),
    ]
    if series.total.blocked:
        lines.append(ChartLine("Behind another of their key", "orange", _levels(series, "blocked")))
    note = "" if series.span.step == 1 else f"The most at a time in each {_step_text(series)}."
    return _chart(series, "waiting", "Ready and running", "jobs", AREA, "number", lines, note=note)


def scheduled(series: Series) -> Chart | None:
    """None: there were none."""
    if not series.total.scheduled:
        return None
    lines = [ChartLine("Scheduled", "purple", _levels(series, "scheduled"))]
    return _chart(series, "scheduled", "Scheduled for later", "jobs", AREA, "number", lines)


def oldest_wait(series: Series) -> Chart:
    values = [None if point.record is None else point.record.oldest_s * 1000.0 for point in series.points]
    lines = [ChartLine("Oldest job that is ready", "blue", values)]
    return _chart(series, "oldest", "Longest wait", "time since it was due", AREA, "time", lines)


def waits(series: Series) -> Chart:
    empty = "No job was handed out in this time." if not series.total.dequeued else _none_seen(series)
    return _percentiles(series, "waits", "Wait until handed out", lambda record: record.waits, empty)


def runs(series: Series) -> Chart:
    whole = series.total
    ended = whole.succeeded + whole.failed
    empty = "No job ended in this time."
    if whole.succeeded:
        empty = (
            f"{number_text(whole.succeeded)} jobs succeeded, and none of them was kept long enough to be examined: "
            "with a longer succeeded_ttl of the queue their run times are shown here."
        )
    elif ended:
        empty = _none_seen(series)
    return _percentiles(series, "runs", "Run time", lambda record: record.runs, empty)


def failures_by_reason(series: Series) -> Chart:
    return _failures(series, "reasons", "Failures by reason", "error", lambda record: record.reasons, "")


def failures_by_type(series: Series, missing: str = "", *, is_withheld: bool = False) -> Chart:
    """`missing`: why types are not known. `is_withheld`: they are not to be shown."""

    def types(record: QueueRecord) -> Mapping[str, int]:
        return {} if is_withheld else record.types

    return _failures(series, "types", "Failures by type of job", "type", types, missing)


# -- pieces ------------------------------------------------------------------------------------------------------------


def _chart(
    series: Series,
    name: str,
    title: str,
    unit: str,
    kind: str,
    measure: str,
    lines: Sequence[ChartLine],
    has_any: object = True,
    note: str = "",
    empty: str = "",
) -> Chart:
    recorded = sum(point.record is not None for point in series.points)
    if not recorded:
        empty = _NOTHING_THEN if series.has_begun else _NOTHING_YET
    elif not has_any and not empty:
        empty = "Nothing happened in this time." if recorded > 1 else "Nothing has happened yet: one point is recorded."
    if recorded == 1 and kind != BARS:
        note = f"One point is recorded so far, of {_step_text(series)}: a line needs two. {note}".rstrip()
    starts = [point.start_ms for point in series.points]
    return Chart(name, title, unit, kind, measure, starts, series.span.step * MINUTE_MS, lines, note, empty)


def _per_minute(series: Series, name: str) -> list[float | None]:
    def rate(point: Point) -> float | None:
        if point.record is None or not point.minutes:
            return None
        amount: int = getattr(point.record, name)
        return amount if series.span.step == 1 else amount / point.minutes

    return [rate(point) for point in series.points]


def _levels(series: Series, name: str) -> list[float | None]:
    return [None if point.record is None else getattr(point.record, name) for point in series.points]


def _percentiles(
    series: Series, name: str, title: str, buckets: Callable[[QueueRecord], Mapping[int, int]], empty: str
) -> Chart:
    seen = sum(buckets(series.total).values())
    found = [None if each.record is None else buckets(each.record) for each in series.points]
    lines = [
        ChartLine(label, style, [None if each is None else percentile_ms(each, part) for each in found])
        for label, part, style in _PARTS
    ]
    note = f"From a sample of {number_text(seen)} jobs, to within 10 %."
    return _chart(series, name, title, "percentiles", LINES, "percentiles", lines, seen, note, "" if seen else empty)


def _none_seen(series: Series) -> str:
    return "None of the jobs of this time was examined: servers read a bounded sample only."


def _failures(
    series: Series, name: str, title: str, field: str, words: Callable[[QueueRecord], Mapping[str, int]], missing: str
) -> Chart:
    """`field`: of filters, by which the jobs of a word are found."""
    whole = series.total
    most = fewer_words(words(whole), MOST_BARS)
    known = sum(words(whole).values())
    styles = styles_of(most)

    def jobs_of(word: str) -> str:
        terms = [Term(field, (word,)), Term("state", ("failed",)), *([Term("queue", (queue,))] if queue else [])]
        return "" if word == OTHER else FilterLine(in_order(terms)).text()

    queue = series.queue
    lines = [ChartLine(word, styles[word], [], number_text(jobs), jobs_of(word)) for word, jobs in most.items()]
    if whole.failed > known and known:
        lines.append(ChartLine(UNKNOWN, "pale", [], number_text(whole.failed - known)))
    drawn = [replace(line, values=_jobs_of(series, line.name, most, words)) for line in lines]
    note = f"Jobs that failed for good. {number_text(whole.sampled)} of {number_text(whole.failed)} were examined"
    note += "; the numbers are scaled up to all." if whole.sampled < whole.failed else "."
    empty = ""
    if missing and not known:
        empty = missing
    elif not whole.failed:
        empty = "No job failed for good in this time."
    elif not known:
        empty = f"{number_text(whole.failed)} jobs failed; none of them was examined."
    return _chart(series, name, title, f"jobs per {_step_text(series)}", BARS, "number", drawn, known, note, empty)


def styles_of(words: Collection[str]) -> dict[str, str]:
    """The colour of each name is its own, whatever its rank; where two share one, the later name takes the next.

    >>> styles_of(["TimeoutError", "KeyError", "other"]) == styles_of(["other", "KeyError", "TimeoutError"])
    True
    """
    styles: dict[str, str] = {}
    for word in sorted(words):
        at = crc32(word.encode("utf-8", "replace")) % len(_STYLES)
        in_turn = _STYLES[at:] + _STYLES[:at]
        styles[word] = "grey" if word == OTHER else next(style for style in in_turn if style not in styles.values())
    return styles


def _jobs_of(
    series: Series, word: str, most: Mapping[str, int], words: Callable[[QueueRecord], Mapping[str, int]]
) -> list[float | None]:
    found: list[float | None] = []
    for point in series.points:
        if point.record is None:
            found.append(None)
            continue
        own = words(point.record)
        if word == UNKNOWN:
            found.append(max(0, point.record.failed - sum(own.values())))
        elif word == OTHER:
            found.append(sum(jobs for each, jobs in own.items() if each == OTHER or each not in most))
        else:
            found.append(own.get(word, 0))
    return found


def _step_text(series: Series) -> str:
    minutes = series.span.step
    if minutes < 60:
        return "minute" if minutes == 1 else f"{minutes} minutes"
    return "hour" if minutes == 60 else f"{minutes // 60} hours"
