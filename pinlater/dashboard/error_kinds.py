"""The kinds of error that jobs failed with for good: how many of each, since when, and how the last hour was. Pure.

A job that failed in several ways is in the group of each, as a filter for that error finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pinlater.dashboard.failure_sample import error_lines
from pinlater.dashboard.job_timeline import attempt_text
from pinlater.job_filters.job_filter import FilterLine
from pinlater.model import JobInfo
from pinlater.model.job_selection import JobPhase

HOUR_MS, BARS = 3_600_000, 30
MAX_LINE_CHARS = 160


@dataclass(slots=True)
class ErrorGroup:
    """Jobs with errors of one kind. `line` is what the latest says, "" where that may not be seen; `hour`: how many
    failed in each part of the last hour.
    """

    name: str
    line: str = ""
    jobs: int = 0
    first_ms: int = 0
    last_ms: int = 0
    hour: list[int] = field(default_factory=lambda: [0] * BARS)


def grouped(jobs: Iterable[JobInfo], now_ms: int, sees_texts: Callable[[str], bool]) -> list[ErrorGroup]:
    """The largest first. `sees_texts`: of a queue."""
    groups: dict[str, ErrorGroup] = {}
    for job in jobs:
        at_ms = job.updated_at_ms
        for name, line in error_lines(job.custom_status).items():
            group = groups.setdefault(name, ErrorGroup(name, first_ms=at_ms))
            if at_ms >= group.last_ms:
                group.last_ms = at_ms
                shown = sees_texts(job.descriptor.partition(":")[0])
                group.line = attempt_text(line).removeprefix(name).lstrip(": ")[:MAX_LINE_CHARS] if shown else ""
            group.first_ms = min(group.first_ms, at_ms)
            group.jobs += 1
            if 0 <= now_ms - at_ms < HOUR_MS:
                group.hour[BARS - 1 - (now_ms - at_ms) * BARS // HOUR_MS] += 1
    return sorted(groups.values(), key=lambda group: (-group.jobs, group.name))


def of_failed(line: FilterLine) -> FilterLine:
    """The same filter, for jobs that failed with whatever error."""
    return line.with_values("error").with_values("state", JobPhase.FAILED.word)
