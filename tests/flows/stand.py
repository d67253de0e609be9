"""A database of flows in an empty place, and what tests do with its items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from pinlater.flows.database import FlowDatabase
from pinlater.flows.ends import ItemEnd, Recorded, RecordedEnd, WaitingItem
from pinlater.flows.tables import ITEMS, STAGES
from pinlater.model.flow_words import ItemState, NewFlow, NewItem, Stage
from pinlater.model.owner_bounds import NO_BOUNDS, OwnerBounds

START_MS = 1_000_000
ROOT = Stage("calculate", "calc", "payroll", max_failures=1, backoff_ms=100)


@contextmanager
def opened(url: str, bounds: Callable[[str], OwnerBounds] = lambda owner: NO_BOUNDS) -> Iterator[FlowDatabase]:
    database = FlowDatabase(url, bounds)
    database.open()
    try:
        yield database
    finally:
        database.close()


def some_items(count: int) -> list[NewItem]:
    return [NewItem(b'{"user":%d}' % index) for index in range(count)]


def job_of(item: WaitingItem) -> str:
    return f"job-{item.number}"


def feed(database: FlowDatabase, stage: str = "", limit: int = 1_000) -> list[WaitingItem]:
    """Put what waits, of one stage where it is named, into its queue."""
    found = [each for each in database.waiting(10_000, limit) if stage in ("", each.stage.name)]
    database.queued({each.number: job_of(each) for each in found}, START_MS)
    return found


def work(database: FlowDatabase, stage: str, result: Callable[[WaitingItem], bytes] = lambda item: b"null") -> Recorded:
    """All that waits in a stage succeeds."""
    ends = [ItemEnd(job_of(each), result(each)) for each in feed(database, stage)]
    return database.record(ends, START_MS + 1)


def fail(database: FlowDatabase, number: int, claim: str, *, now_ms: int = START_MS) -> RecordedEnd:
    return database.record([ItemEnd("", None, claim, "w1", "it broke", number=number)], now_ms).ends[0]


def flow_of(database: FlowDatabase, *stages: Stage, items: int = 0, owner: str = "", **values: object) -> str:
    first = {stages[0].name: some_items(items)} if items else {}
    new = NewFlow("payroll", stages, items=first, **values)  # type: ignore[arg-type]
    return database.create(new, START_MS, owner).id


def check_counters(url: str) -> None:
    """The counters of every stage say what a count of its rows says."""
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    with engine.connect() as connection:
        read = sa.select(ITEMS.c.flow, ITEMS.c.place, ITEMS.c.state, ITEMS.c.is_queued)
        rows = Counter(tuple(row) for row in connection.execute(read))
        for stage in connection.execute(sa.select(STAGES)).mappings():
            counted = Counter[str]()
            for (flow, place, state, is_queued), count in rows.items():
                if (flow, place) == (stage["flow"], stage["place"]):
                    counted["items"] += count
                    counted[ItemState(state).name.lower()] += count
                    counted["queued"] += count * is_queued
            for name in ("items", "pending", "queued", "succeeded", "failed"):
                assert stage[name] == counted[name], (stage["name"], name, stage[name], counted)
            assert stage["applet_errors"] >= 0
