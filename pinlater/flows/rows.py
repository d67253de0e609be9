"""Rows of the database of flows, as its transactions lock, read and count them.

Whoever changes counters of stages takes the rows of these stages first, in the order of flows and places, parents
first; so two transactions never wait for each other in a circle, and adding to a stage sees whether it is sealed.
Items are taken before their stages, in the order of their numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

import msgspec
import sqlalchemy as sa

from pinlater.errors import FlowNotFound, RequestInvalid
from pinlater.flows.many_rows import among, insert_in_order, insert_unless_taken
from pinlater.flows.tables import CALLBACKS, FLOWS, ITEMS, REOPENED_FLOWS, STAGES
from pinlater.model.flow_words import FlowState, ItemState, NewItem, Stage

APPLET_SUFFIX = " applet"
"""Behind the name of a child stage: the hidden stage whose jobs make its items."""

KEYS_AT_ONCE = 500
COUNTERS = ("items", "pending", "queued", "succeeded", "failed", "applet_errors")

ENDS_BEFORE = sa.func.coalesce(
    sa.select(REOPENED_FLOWS.c.ends).where(REOPENED_FLOWS.c.flow == FLOWS.c.number).scalar_subquery(), 0
).label("ends_before")
"""Of a flow: how many ends it had when it was opened again last."""

_COUNT = (
    sa.update(STAGES)
    .where(STAGES.c.flow == sa.bindparam("of_flow"), STAGES.c.place == sa.bindparam("of_place"))
    .values({name: STAGES.c[name] + sa.bindparam(f"add_{name}") for name in COUNTERS})
)


@dataclass(slots=True)
class StageRow:
    flow: int
    place: int
    parent: int | None
    stage: Stage
    sealed_ms: int | None
    pending: int
    applet_errors: int
    stop_reason: str | None

    @property
    def where(self) -> tuple[int, int]:
        return self.flow, self.place

    @property
    def is_hidden(self) -> bool:
        """Its items are jobs that make those of another stage."""
        return self.stage.name.endswith(APPLET_SUFFIX)

    @property
    def is_complete(self) -> bool:
        """What is stopped has no more children: those that could not be made are given up."""
        is_whole = not self.applet_errors or self.stop_reason is not None
        return self.sealed_ms is not None and not self.pending and is_whole


def for_update(connection: sa.Connection, statement: sa.Select[Any], of: sa.Table | None = None) -> sa.Select[Any]:
    """SQLite has one writer, who has it all. `of`: the rows of this table alone, where a database can tell."""
    if connection.dialect.name == "sqlite":
        return statement
    return statement.with_for_update(of=of if connection.dialect.name == "postgresql" else None)


@lru_cache(maxsize=10_000)
def stage_of(spec: str) -> Stage:
    return msgspec.json.decode(spec, type=Stage)


def spec_of(stage: Stage) -> str:
    return msgspec.json.encode(stage).decode()


def stage_row(row: Mapping[Any, Any]) -> StageRow:
    return StageRow(
        row["flow"],
        row["place"],
        row["parent"],
        stage_of(row["spec"]),
        row["sealed_ms"],
        row["pending"],
        row["applet_errors"],
        row["stop_reason"],
    )


def find_flow(connection: sa.Connection, flow_id: str) -> Mapping[str, Any]:
    """FlowNotFound."""
    row = connection.execute(sa.select(FLOWS).where(FLOWS.c.id == flow_id)).mappings().one_or_none()
    if row is None:
        raise FlowNotFound.named(flow_id)
    return dict(row)


def lock_stages(connection: sa.Connection, flows: Collection[int]) -> dict[tuple[int, int], StageRow]:
    """All stages of these flows, by flow and place, parents first."""
    rows = connection.execute(
        for_update(connection, sa.select(STAGES).where(STAGES.c.flow.in_(sorted(flows)))).order_by(
            STAGES.c.flow, STAGES.c.place
        )
    )
    return {(row["flow"], row["place"]): stage_row(row) for row in rows.mappings()}


def lock_stage(connection: sa.Connection, flow_id: str, name: str) -> StageRow:
    """FlowNotFound; RequestInvalid: it has no such stage."""
    flow = find_flow(connection, flow_id)
    of_name = sa.and_(STAGES.c.flow == flow["number"], STAGES.c.name == name)
    row = connection.execute(for_update(connection, sa.select(STAGES).where(of_name))).mappings().one_or_none()
    if row is None or name.endswith(APPLET_SUFFIX):
        names = connection.execute(sa.select(STAGES.c.name).where(STAGES.c.flow == flow["number"])).scalars()
        shown = ", ".join(sorted(each for each in names if not each.endswith(APPLET_SUFFIX)))
        raise RequestInvalid.of("the name of a stage", name, f"one of flow {flow_id}: {shown[:500]}")
    return stage_row(row)


def lock_pending(connection: sa.Connection, numbers: Sequence[int]) -> list[sa.Row[Any]]:
    """Those of these items that are pending. They are found by their numbers alone: where the state is said, too,
    PostgreSQL may keep a plan from when the table was small, and read the index of states whole.
    """
    read = [ITEMS.c[name] for name in ("number", "flow", "place", "job", "state", "failures", "is_queued")]
    of_these = sa.select(*read).where(among(connection, ITEMS.c.number, numbers))
    rows = connection.execute(for_update(connection, of_these).order_by(ITEMS.c.number)).all()
    return [row for row in rows if row.state == ItemState.PENDING]


def is_stage(row: StageRow) -> sa.ColumnElement[bool]:
    return sa.and_(STAGES.c.flow == row.flow, STAGES.c.place == row.place)


def insert_items(
    connection: sa.Connection, row: StageRow, items: Sequence[NewItem], now_ms: int
) -> tuple[list[int], int]:
    """The numbers of the items, in order, that of the one which has it for a dedupe key that is taken; and how many are
    new.
    """
    numbers: list[int] = []
    added, same = 0, _same_values(row, now_ms)
    for has_key, run in groupby(items, lambda item: bool(item.dedupe_key)):
        some = list(run)
        if has_key:
            known, fresh = _insert_keyed(connection, row, some, now_ms)
            numbers += [known[item.dedupe_key] for item in some]
            added += fresh
        else:
            numbers += insert_in_order(connection, [_own_values(item) for item in some], same)
            added += len(some)
    return numbers, added


def _insert_keyed(
    connection: sa.Connection, row: StageRow, items: Sequence[NewItem], now_ms: int
) -> tuple[dict[str, int], int]:
    """The numbers by their keys, and how many are new."""
    first_of_key = {item.dedupe_key: item for item in reversed(items)}
    unique = [item for item in items if first_of_key[item.dedupe_key] is item]
    known = insert_unless_taken(connection, [_own_values(item) for item in unique], _same_values(row, now_ms))
    fresh = len(known)
    taken = [key for key in first_of_key if key not in known]
    for start in range(0, len(taken), KEYS_AT_ONCE):
        of_keys = sa.select(ITEMS.c.dedupe_key, ITEMS.c.number).where(
            ITEMS.c.flow == row.flow,
            ITEMS.c.place == row.place,
            among(connection, ITEMS.c.dedupe_key, taken[start : start + KEYS_AT_ONCE]),
        )
        known.update((key, number) for key, number in connection.execute(of_keys))
    return known, fresh


def _own_values(item: NewItem) -> dict[str, Any]:
    return {
        "payload": item.payload,
        "dedupe_key": item.dedupe_key or None,
        "serialize_key": item.serialize_key or None,
    }


def _same_values(row: StageRow, now_ms: int) -> dict[str, Any]:
    """Of all items that come into a stage."""
    where = {"flow": row.flow, "place": row.place}
    return {**where, "state": ItemState.PENDING, "is_queued": 0, "failures": 0, "added_ms": now_ms}


def count(connection: sa.Connection, counts: Mapping[tuple[int, int], Mapping[str, int]]) -> None:
    """Change counters: each stage once, parents first."""
    changes = [
        {"of_flow": flow, "of_place": place, **{f"add_{name}": change.get(name, 0) for name in COUNTERS}}
        for (flow, place), change in sorted(counts.items())
        if any(change.values())
    ]
    if changes:
        connection.execute(_COUNT, changes)


def seal(connection: sa.Connection, row: StageRow, now_ms: int) -> None:
    row.sealed_ms = now_ms
    connection.execute(sa.update(STAGES).where(is_stage(row)).values(sealed_ms=now_ms))


def complete(
    connection: sa.Connection,
    flows: Collection[int],
    now_ms: int,
    stages: Mapping[tuple[int, int], StageRow] | None = None,
) -> list[str]:
    """Seal the children of stages that are complete, and end the flows that are; the ids of those. `stages`: all of
    them as they are now, where they are locked already.
    """
    over: list[str] = []
    stages = lock_stages(connection, flows) if stages is None else stages
    for flow in sorted(flows):
        by_place = {place: row for (number, place), row in stages.items() if number == flow}
        for place in sorted(by_place):  # parents first
            row = by_place[place]
            if row.sealed_ms is None and row.parent is not None and not row.stage.keeps_open:
                above = by_place[row.parent]
                makers_of = above if above.parent is None or not above.is_hidden else by_place[above.parent]
                if above.is_complete and makers_of.is_complete:  # a job that failed may be tried again
                    seal(connection, row, now_ms)
        if by_place and all(row.is_complete for row in by_place.values()):
            over += _end(connection, flow, now_ms)
    return over


def _end(connection: sa.Connection, flow: int, now_ms: int) -> list[str]:
    of_number = sa.select(FLOWS, ENDS_BEFORE).where(FLOWS.c.number == flow)
    row = connection.execute(for_update(connection, of_number)).mappings().one()
    if row["completed_ms"] is not None:
        return []
    state = FlowState.CANCELLED if row["state"] == FlowState.CANCELLED else FlowState.COMPLETE
    ended = {"state": state, "completed_ms": now_ms, "reap_ms": now_ms + row["ttl_ms"], "stopping_ms": None}
    connection.execute(sa.update(FLOWS).where(FLOWS.c.number == flow).values(**ended))
    if row["on_complete"]:
        made = {"flow": flow, "id": f"{row['id']}/{row['ends_before'] + 1}", "due_ms": now_ms, "tries": 0}
        connection.execute(sa.insert(CALLBACKS).values(**made))
    return [row["id"]]


def reopen(connection: sa.Connection, flow: Mapping[Any, Any]) -> None:
    """A flow that is over runs again; `flow` is its row, which is locked. A callback that was not made yet is not made
    any more: the next end has its own.
    """
    number = flow["number"]
    opened = {"state": FlowState.RUNNING, "completed_ms": None, "reap_ms": None}
    connection.execute(sa.update(FLOWS).where(FLOWS.c.number == number).values(**opened))
    connection.execute(sa.delete(CALLBACKS).where(CALLBACKS.c.flow == number))
    of_flow = REOPENED_FLOWS.c.flow == number
    more = sa.update(REOPENED_FLOWS).where(of_flow).values(ends=REOPENED_FLOWS.c.ends + 1)
    if not connection.execute(more).rowcount:
        connection.execute(sa.insert(REOPENED_FLOWS).values(flow=number, ends=1))
