"""The history as pages ask for it: series of one queue or of all, over a choice of time, in steps that can be drawn."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pinlater.api import Api
from pinlater.dashboard.charts import spark_path
from pinlater.dashboard.formats import number_text
from pinlater.dashboard.history_file import DAY, HOUR, HistoryFile, Kept
from pinlater.dashboard.history_recorder import ALL_QUEUES, EVERY_S, MINUTE_MS, HistoryRecorder
from pinlater.dashboard.history_store import HistoryStore
from pinlater.dashboard.queue_record import QueueRecord, expanded, unpack
from pinlater.http.fair_shares import FairEntries
from pinlater.model import RequestContext

T = TypeVar("T")
SPARK_MINUTES = 60
MOST_DRAWN = 200
"""Sets of charts that are kept for a minute."""


class Span(NamedTuple):
    """A choice of time. `step` minutes are one point; `by_hours`: from the hours, else from the minutes."""

    name: str
    title: str
    minutes: int
    step: int
    by_hours: bool = False


SPANS = {
    span.name: span
    for span in (
        Span("1h", "last hour", 60, 1),
        Span("6h", "last 6 hours", 6 * 60, 5),
        Span("24h", "last 24 hours", 24 * 60, 15),
        Span("7d", "last 7 days", 7 * 24 * 60, 60, True),
        Span("30d", "last 30 days", 30 * 24 * 60, 6 * 60, True),
    )
}
DEFAULT_SPAN = "1h"


class Point(NamedTuple):
    """One step: what was recorded of it, in how many of its minutes; None: nothing is known."""

    start_ms: int
    record: QueueRecord | None
    minutes: int


@dataclass(frozen=True)
class Series:
    """A queue, "" for all, over a span. `since_ms`: before it nothing was recorded; `cut_ms`: what was recorded before
    it was removed to make room, as far as nothing is shown. None: neither.
    """

    queue: str
    span: Span
    points: Sequence[Point]
    since_ms: int | None = None
    cut_ms: int | None = None
    has_begun: bool = True
    """Something was recorded at some time."""

    @cached_property
    def total(self) -> QueueRecord:
        """All of it together."""
        whole = QueueRecord()
        for point in self.points:
            if point.record is not None:
                whole.merge(point.record)
        return whole


class Sparkline(NamedTuple):
    """Jobs that ended well or failed in each of the last minutes; None where nothing is known."""

    done: Sequence[int | None]

    @property
    def is_any(self) -> bool:
        return any(self.done)

    @property
    def path(self) -> str:
        """On a ground of 80 by 22."""
        return spark_path(self.done, 80, 22)

    @property
    def text(self) -> str:
        """For those who do not see it."""
        known = [jobs for jobs in self.done if jobs is not None]
        most = number_text(max(known, default=0))
        return f"Jobs that ended in the last hour: {number_text(sum(known))}, at most {most} in a minute"


class History:
    """Of one HTTP process. `open` it; `stop` it where another process is to go on; `close` it."""

    def __init__(self, api: Api, context: RequestContext, path: Path | None, *, every_s: float = EVERY_S) -> None:
        self.store = HistoryStore(path)
        self.recorder = HistoryRecorder(api, context, self.store, every_s=every_s)
        self.drawings: FairEntries[tuple[int, asyncio.Task[tuple[Series, Any]]]] = FairEntries(
            "http_drawings", MOST_DRAWN
        )
        self._failed: dict[int, dict[str, int]] = {}
        self._failed_minutes: list[int] = []
        self._failed_in_hour: Counter[str] = Counter()

    async def open(self) -> None:
        await self.store.open()
        self.recorder.start()

    async def stop(self) -> None:
        await self.recorder.stop()

    async def close(self) -> None:
        await self.recorder.stop()
        await self.store.close()

    # -- what pages show -----------------------------------------------------------------------------------------------

    def sparklines(self, queues: Collection[str], now_ms: int | None = None) -> dict[str, Sparkline]:
        """Of the last hour, all that a page shows at once."""
        last = _minute(now_ms)
        recent = self.store.recent
        minutes = [recent.get(minute) for minute in range(last - SPARK_MINUTES, last)]
        return {queue: Sparkline([_done(records, queue) for records in minutes]) for queue in queues}

    def failed_in_hour(self, now_ms: int | None = None) -> Mapping[str, int]:
        """Jobs that failed for good in the last hour, by queue. A minute that is over is read once."""
        last = _minute(now_ms)
        recent = self.store.recent
        minutes = [minute for minute in range(last - SPARK_MINUTES, last) if minute in recent]
        if minutes != self._failed_minutes:
            self._failed = {
                minute: self._failed[minute] if minute in self._failed else _failed_of(recent[minute])
                for minute in minutes
            }
            self._failed_minutes = minutes
            self._failed_in_hour = sum((Counter(each) for each in self._failed.values()), Counter())
        return self._failed_in_hour

    async def drawn(
        self, owner: Hashable, name: Hashable, queue: str, span: Span, draw: Callable[[Series], T]
    ) -> tuple[Series, T]:
        """A series, and what `draw` makes of it: once in a minute for all pages that show it under this name. It counts
        for whoever asks first.
        """
        minute = max(self.store.recent, default=_minute(None))
        kept = self.drawings.get(name)
        if kept is None or kept[0] != minute or (kept[1].done() and kept[1].exception() is not None):

            async def make() -> tuple[Series, T]:
                series = await self.series(queue, span)
                return series, draw(series)

            kept = minute, asyncio.ensure_future(make())
            self.drawings.put(owner, name, kept)
        return await asyncio.shield(kept[1])

    async def series(
        self, queue: str = ALL_QUEUES, span: Span = SPANS[DEFAULT_SPAN], now_ms: int | None = None
    ) -> Series:
        """Up to the last minute that is over."""
        last = _minute(now_ms)
        first = (last - span.minutes) // span.step * span.step
        if span.by_hours:
            return await self._by_hours(queue, span, first, last)
        found = await self._minutes(queue, first, last)
        starts = range(first, last, span.step)
        points = [_point(start, found.within(start, min(start + span.step, last))) for start in starts]
        return _series(queue, span, points, found.since, found.kept.minute, first)

    async def _by_hours(self, queue: str, span: Span, first: int, last: int) -> Series:
        """The hours that are put away, and those of the minutes that are not."""
        rows = await self._rows(HistoryFile.hours, queue, first // HOUR // DAY, last // HOUR // DAY)
        hours = {hour: (rows.own.get(hour, QueueRecord()), record.minutes) for hour, record in rows.total.items()}
        begun = max(first, (max(rows.total, default=-1) + 1) * HOUR)
        found = await self._minutes(queue, begun, last)
        for hour in range(begun // HOUR, last // HOUR + 1):
            whole = _point(0, found.within(hour * HOUR, min((hour + 1) * HOUR, last)))
            if whole.record is not None:
                hours[hour] = whole.record, whole.minutes
        points = []
        for start in range(first, last, span.step):
            within = [hours[each] for each in range(start // HOUR, (start + span.step) // HOUR) if each in hours]
            record, minutes = QueueRecord(), 0
            for each, size in within:
                record.merge(each)
                minutes += size
            is_known = within and (start >= rows.kept.hour * HOUR or record != QueueRecord())
            points.append(Point(start * MINUTE_MS, record if is_known else None, minutes))
        since = found.since if rows.since is None else rows.since * HOUR
        return _series(queue, span, points, since, rows.kept.hour * HOUR, first)

    async def _minutes(self, queue: str, first: int, last: int) -> _Minutes:
        """Those of the file, and those at hand; also those in which nothing happened."""
        recent = self.store.recent
        at_hand = min(recent, default=last) // HOUR * HOUR
        rows = await self._rows(HistoryFile.minutes, queue, first // HOUR, at_hand // HOUR - 1)
        known = sorted({*rows.total, *recent})
        own = rows.own | {at: unpack(records[queue]) for at, records in recent.items() if queue in records}
        found: dict[int, QueueRecord] = {}
        for _hour, minutes in groupby(known, lambda minute: minute // HOUR):
            of_hour = list(minutes)
            found |= expanded(((each, own[each]) for each in of_hour if each in own), of_hour)
        shown = {at: record for at, record in found.items() if at >= rows.kept.minute or at in own}
        return _Minutes(shown, rows.kept, min(known, default=None) if rows.since is None else rows.since * HOUR)

    async def _rows(
        self, read: Callable[[HistoryFile, str, int, int], dict[int, QueueRecord]], queue: str, first: int, last: int
    ) -> _Rows:
        def rows(file: HistoryFile) -> _Rows:
            total = read(file, ALL_QUEUES, first, last)
            own = total if queue == ALL_QUEUES else read(file, queue, first, last)
            return _Rows(total, own, file.kept(queue), file.first_hour())

        return await self.store.read(rows, _NO_ROWS)


class _Rows(NamedTuple):
    """What the file has: of all queues, of the one that is asked for, and since when."""

    total: dict[int, QueueRecord]
    own: dict[int, QueueRecord]
    kept: Kept
    since: int | None


_NO_ROWS = _Rows({}, {}, Kept(0, 0), None)


class _Minutes(NamedTuple):
    """A queue in each minute of which something is known; `since`: the first minute that was ever recorded."""

    records: dict[int, QueueRecord]
    kept: Kept
    since: int | None

    def within(self, start: int, end: int) -> list[QueueRecord]:
        return [self.records[minute] for minute in range(start, end) if minute in self.records]


def _minute(now_ms: int | None) -> int:
    return (int(time.time() * 1000) if now_ms is None else now_ms) // MINUTE_MS


def _failed_of(records: Mapping[str, bytes]) -> dict[str, int]:
    failed = {queue: unpack(packed).failed for queue, packed in records.items() if queue != ALL_QUEUES}
    return {queue: jobs for queue, jobs in failed.items() if jobs}


def _done(records: Mapping[str, bytes] | None, queue: str) -> int | None:
    if records is None:
        return None
    packed = records.get(queue)
    if packed is None:
        return 0
    record = unpack(packed)
    return record.succeeded + record.failed


def _point(start: int, records: Iterable[QueueRecord]) -> Point:
    whole, minutes = QueueRecord(), 0
    for record in records:
        whole.merge(record)
        minutes += 1
    return Point(start * MINUTE_MS, whole if minutes else None, minutes)


def _series(queue: str, span: Span, points: list[Point], since: int | None, cut: int, first: int) -> Series:
    since_ms = since * MINUTE_MS if since is not None and since > first else None
    return Series(queue, span, points, since_ms, cut * MINUTE_MS if cut > first else None, since is not None)
