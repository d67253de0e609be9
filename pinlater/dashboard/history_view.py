"""The part of a page that shows the history: its charts, the choice of time, and what a reader must know of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pinlater.dashboard import history_charts
from pinlater.dashboard.charts import Chart
from pinlater.dashboard.page import Page
from pinlater.dashboard.queue_history import DEFAULT_SPAN, SPANS, Series, Span, Sparkline
from pinlater.model import AccessAction

_WITHHELD = (
    "The history of all queues together is shown to those who may read all queues. "
    "Each queue that you may read has its own."
)
_TYPES_WITHHELD = "The type of a job stands in its body, and you may not see bodies of this queue."
_TYPES_MISSING = (
    "The types of jobs are not known: they stand in bodies, which the history may not read. "
    "The rules let it by a role history with bodies = true."
)


@dataclass(frozen=True, slots=True)
class HistoryView:
    """`problems`: what is missing, and why. `withheld`: why nothing is shown to this caller."""

    span: Span
    charts: Sequence[Chart] = field(default_factory=list)
    since_ms: int | None = None
    cut_ms: int | None = None
    problems: Sequence[str] = ()
    withheld: str = ""

    @property
    def spans(self) -> list[Span]:
        return list(SPANS.values())


def span_of(page: Page) -> Span:
    return SPANS.get(page.query.get("span", ""), SPANS[DEFAULT_SPAN])


async def queue_history_view(page: Page, queue: str) -> HistoryView:
    """All charts of one queue."""
    sees_types = page.rights.sees_bodies(queue)

    def draw(series: Series) -> list[Chart]:
        charts = (
            history_charts.throughput(series),
            history_charts.waiting(series),
            history_charts.oldest_wait(series),
            history_charts.scheduled(series),
            history_charts.waits(series),
            history_charts.runs(series),
            history_charts.failures_by_reason(series),
            history_charts.failures_by_type(series, _why_no_types(page, sees_types), is_withheld=not sees_types),
        )
        return [chart for chart in charts if chart is not None]

    span = span_of(page)
    series, charts = await page.history.drawn(page.counts_as, (queue, span.name, sees_types), queue, span, draw)
    return _view(page, series, charts)


async def all_queues_view(page: Page) -> HistoryView:
    """A few charts of all queues together."""
    span = span_of(page)
    if not page.rights.may(AccessAction.READ):
        return HistoryView(span, withheld=_WITHHELD)

    def draw(series: Series) -> list[Chart]:
        return [history_charts.throughput(series), history_charts.failures_by_reason(series)]

    series, charts = await page.history.drawn(page.counts_as, ("", span.name, False), "", span, draw)
    return _view(page, series, charts)


def sparklines(page: Page, queues: Sequence[str]) -> dict[str, Sparkline]:
    """Of the queues that a page shows."""
    return page.history.sparklines(queues)


def _why_no_types(page: Page, sees_types: bool) -> str:
    if not sees_types:
        return _TYPES_WITHHELD
    sampler = page.history.recorder.sampler
    return _TYPES_MISSING if sampler is not None and not sampler.may_see_bodies else ""


def _view(page: Page, series: Series, charts: Sequence[Chart]) -> HistoryView:
    history = page.history
    problems = [text for text in (history.recorder.problem, history.store.problem) if text]
    return HistoryView(series.span, charts, series.since_ms, series.cut_ms, problems)
