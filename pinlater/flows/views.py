"""Looks at flows and items, as people and callbacks see them. Hidden stages are not among them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import sqlalchemy as sa

from pinlater.errors import FlowNotFound, ItemNotFound
from pinlater.flows.end_records import MAX_REASON_CHARS
from pinlater.flows.ends import DueCallback, SeesBodies, sees_none
from pinlater.flows.flow_keys import Sees, keys_of, numbers_of_key, queues_of_flows
from pinlater.flows.flow_limits import MAX_CALL_BYTES
from pinlater.flows.rows import APPLET_SUFFIX, ENDS_BEFORE, find_flow, for_update, stage_of
from pinlater.flows.tables import CALLBACKS, FAILURES, FLOWS, ITEMS, OWNED_FLOWS, STAGES
from pinlater.model.flow_words import (
    Applet,
    AppletKind,
    CallbackStatus,
    CompletionCallback,
    FlowItem,
    FlowState,
    FlowStatus,
    ItemFailure,
    ItemState,
    OnFailure,
    Stage,
    StageStatus,
)

_COUNTERS = ("items", "pending", "queued", "succeeded", "failed", "applet_errors")

_SIZE = (
    sa.func.length(ITEMS.c.payload)
    + sa.func.coalesce(sa.func.length(ITEMS.c.result), 0)
    + ITEMS.c.failures * MAX_REASON_CHARS
)
"""The most bytes of an item in an answer, about."""

_KINDS = ((ItemState.PENDING, 0), (ItemState.PENDING, 1), (ItemState.SUCCEEDED, 0), (ItemState.FAILED, 0))
"""What an item can be: its state, and whether it is in its queue."""

_MAX_CAUSES = 100
_RUNS_AT_ONCE = 100
"""In one statement."""

_READ_AT_ONCE = 500
_MOST_READ = 5_000
"""Flows, for a page of those that a caller may read."""


def status(connection: sa.Connection, flow_id: str, sees: SeesBodies) -> FlowStatus:
    """FlowNotFound."""
    found = connection.execute(sa.select(FLOWS, ENDS_BEFORE).where(FLOWS.c.id == flow_id)).mappings().one_or_none()
    if found is None:
        raise FlowNotFound.named(flow_id)
    return _statuses(connection, [found], sees)[0]


def flows(
    connection: sa.Connection,
    name: str,
    dedupe_key: str,
    state: FlowState | None,
    below: int,
    limit: int,
    may_read: Sees | None,
    sees: SeesBodies,
) -> tuple[list[FlowStatus], int]:
    """A page of those that the caller may read, the newest first, and the number to go on below; 0: it was the last
    one. It passes over so many others at most, and may then have fewer, or none.
    """
    wanted = sa.select(FLOWS.c.number).order_by(FLOWS.c.number.desc())
    if name:
        wanted = wanted.where(FLOWS.c.name == name)
    if dedupe_key:
        keyed = numbers_of_key(dedupe_key, name)
        wanted = wanted.join(keyed, keyed.c.number == FLOWS.c.number)
    if state is not None:
        wanted = wanted.where(FLOWS.c.state == state)
    size = limit + 1 if may_read is None else max(limit + 1, _READ_AT_ONCE)
    shown: list[int] = []
    for _ in range(_MOST_READ // size + 1):
        page = wanted.where(FLOWS.c.number < below) if below else wanted
        found = connection.scalars(page.limit(size)).all()
        queues = {} if may_read is None else queues_of_flows(connection, found)
        shown += [number for number in found if may_read is None or may_read(queues[number])]
        below = found[-1] if len(found) == size else 0
        if len(shown) > limit or not below:
            break
    if len(shown) > limit:
        del shown[limit:]
        below = shown[-1]
    rows = sa.select(FLOWS, ENDS_BEFORE).where(FLOWS.c.number.in_(shown)).order_by(FLOWS.c.number.desc())
    return _statuses(connection, connection.execute(rows).mappings().all(), sees), below


def _statuses(connection: sa.Connection, rows: Sequence[Mapping[Any, Any]], sees: SeesBodies) -> list[FlowStatus]:
    numbers = [row["number"] for row in rows]
    stages: dict[int, list[Mapping[Any, Any]]] = defaultdict(list)
    of_these = sa.select(STAGES).where(STAGES.c.flow.in_(numbers)).order_by(STAGES.c.flow, STAGES.c.place)
    for stage in connection.execute(of_these).mappings():
        stages[stage["flow"]].append(stage)
    made = sa.select(CALLBACKS).where(CALLBACKS.c.flow.in_(numbers))
    callbacks = {row["flow"]: row for row in connection.execute(made).mappings()}
    keys = keys_of(connection, [row["number"] for row in rows if row["dedupe_key"] is None])
    rows = [{**row, "dedupe_key": row["dedupe_key"] or keys.get(row["number"], "")} for row in rows]
    causes = _Causes(connection, sees)
    return [_status(row, stages[row["number"]], callbacks.get(row["number"]), causes) for row in rows]


CAUSE_HIDDEN = "why is shown to who may see bodies"


class _Causes:
    """Why children of items could not be made, for whoever may know. Of a page of flows that of the first stages alone,
    as each is a statement.
    """

    def __init__(self, connection: sa.Connection, sees: SeesBodies) -> None:
        self._connection = connection
        self._sees = sees
        self._left = _MAX_CAUSES

    def of(self, stage: Mapping[Any, Any], queues: Collection[str]) -> str:
        if not self._sees(queues):
            return CAUSE_HIDDEN
        if not self._left:
            return "the flow's own status says why"
        self._left -= 1
        first = sa.select(ITEMS.c.applet_error).where(
            ITEMS.c.flow == stage["flow"],
            ITEMS.c.place == stage["place"],
            ITEMS.c.state == ItemState.SUCCEEDED,
            ITEMS.c.applet_error.is_not(None),
        )
        return self._connection.execute(first.limit(1)).scalar() or ""


def _status(
    flow: Mapping[Any, Any],
    rows: Sequence[Mapping[Any, Any]],
    callback_row: Mapping[Any, Any] | None,
    causes: _Causes,
) -> FlowStatus:
    by_place = {row["place"]: row for row in rows}
    counters = {row["place"]: {name: row[name] for name in _COUNTERS} for row in rows}
    for row in rows:
        if row["name"].endswith(APPLET_SUFFIX):  # what its jobs made, and could not come into the stage, is not there
            counters[row["parent"]]["applet_errors"] += row["applet_errors"]
    stages = [
        StageStatus(_shown(row, by_place), **counters[row["place"]], is_sealed=row["sealed_ms"] is not None)
        for row in rows
        if not row["name"].endswith(APPLET_SUFFIX)
    ]
    callback = None if callback_row is None else _callback(callback_row)
    return FlowStatus(
        flow["id"],
        flow["name"],
        FlowState(flow["state"]),
        flow["dedupe_key"],
        json.loads(flow["metadata"]),
        stages,
        flow["created_ms"],
        flow["completed_ms"],
        OnFailure(flow["on_failure"]),
        CompletionCallback(**json.loads(flow["on_complete"])) if flow["on_complete"] else None,
        callback,
        _problems(flow, rows, callback, causes),
        flow["ends_before"] + (flow["completed_ms"] is not None),
        flow["completed_ms"] is None
        and not any(row["pending"] for row in rows)
        and any(row["applet_errors"] and row["stop_reason"] is None for row in rows),
    )


def _shown(row: Mapping[Any, Any], by_place: Mapping[int, Mapping[Any, Any]]) -> Stage:
    """A stage as it was asked for: without the hidden one between it and its parent."""
    stage = stage_of(row["spec"])
    if not stage.parent.endswith(APPLET_SUFFIX):
        return stage
    hidden = stage_of(by_place[row["parent"]]["spec"])
    applet = Applet(AppletKind.JOB, job=hidden.job, queue=hidden.queue)
    return replace(stage, parent=hidden.parent, applet=applet)


def _callback(row: Mapping[Any, Any]) -> CallbackStatus:
    is_over = row["done_ms"] is not None
    return CallbackStatus(
        row["id"], row["tries"], row["error"] or "", None if is_over else row["due_ms"], row["done_ms"]
    )


def _problems(
    flow: Mapping[Any, Any],
    rows: Sequence[Mapping[Any, Any]],
    callback: CallbackStatus | None,
    causes: _Causes,
) -> list[str]:
    problems, names = [], {row["place"]: row["name"] for row in rows}
    again = f"`pinlater flow resume {flow['id']}` tries again, with --expression by another one"
    if flow["completed_ms"] is not None:
        again = "the flow ended without them"
    queues = {row["queue"] for row in rows}
    for row in rows:
        if row["applet_errors"]:
            shown = names[row["parent"]] if row["name"].endswith(APPLET_SUFFIX) else row["name"]
            childless = f"{row['applet_errors']} item{'' if row['applet_errors'] == 1 else 's'}"
            problems.append(
                f"the children of {childless} of stage {shown} could not be made: "
                f"{causes.of(row, queues)}; "
                f"{again if row['stop_reason'] is None else 'the stage was stopped, and goes on without them'}"
            )
    if callback is not None and callback.done_ms is not None and callback.error:
        problems.append(
            f"the callback was given up after {callback.tries} tries: {callback.error}; "
            f"`pinlater flow resume {flow['id']}` tries again"
        )
    return problems


def items(
    connection: sa.Connection,
    flow_id: str,
    stage: str,
    state: ItemState | None,
    dedupe_key: str,
    numbers: Sequence[int],
    after: int,
    limit: int,
) -> tuple[list[FlowItem], int]:
    """A page behind a number, in order, and the number to go on behind; 0: it was the last one. It ends before it has
    more bytes than a call may bring, but has one item. FlowNotFound.
    """
    flow = find_flow(connection, flow_id)
    names = _names(connection, flow["number"])
    places = [place for place, name in names.items() if stage in ("", name) and not name.endswith(APPLET_SUFFIX)]
    wanted = [ITEMS.c.flow == flow["number"], ITEMS.c.number > after]
    if dedupe_key:
        wanted.append(ITEMS.c.dedupe_key == dedupe_key)
    if numbers:
        wanted.append(ITEMS.c.number.in_(numbers))
    if dedupe_key or numbers:  # few
        of_state = [ITEMS.c.place.in_(places), *([] if state is None else [ITEMS.c.state == state])]
        runs = [sa.select(ITEMS.c.number).where(*wanted, *of_state)]
    else:
        kinds = [kind for kind in _KINDS if state in (None, kind[0])]
        runs = [_run(wanted, place, *kind, limit + 1) for place in places for kind in kinds]
    found = _merged(connection, runs, limit + 1)
    among = sa.select(ITEMS.c.number, _SIZE.label("size")).where(ITEMS.c.number.in_(found[:limit]))
    sizes = connection.execute(among.order_by(ITEMS.c.number)).all()
    fitting = sum(size <= MAX_CALL_BYTES for size in accumulate(row.size for row in sizes))
    shown = [row.number for row in sizes[: max(1, fitting)]]
    if not shown:
        return [], 0
    page = sa.select(ITEMS).where(ITEMS.c.number.in_(shown)).order_by(ITEMS.c.number)
    rows = connection.execute(page).mappings().all()
    return _items(connection, rows, {flow["number"]: flow_id}, names), shown[-1] if len(found) > len(shown) else 0


def _run(
    wanted: Sequence[sa.ColumnElement[bool]], place: int, state: ItemState, is_queued: int, limit: int
) -> sa.Select[Any]:
    """The first items of a stage that are in one state: an index has these in order, and not those of several."""
    of_kind = (ITEMS.c.place == place, ITEMS.c.state == state, ITEMS.c.is_queued == is_queued)
    run = sa.select(ITEMS.c.number).where(*wanted, *of_kind).order_by(ITEMS.c.number).limit(limit)
    return sa.select(run.subquery())


def _merged(connection: sa.Connection, runs: Sequence[sa.Select[Any]], limit: int) -> list[int]:
    """The first numbers of all runs, in order."""
    found: set[int] = set()
    for at in range(0, len(runs), _RUNS_AT_ONCE):
        found.update(connection.scalars(sa.union_all(*runs[at : at + _RUNS_AT_ONCE])))
    return sorted(found)[:limit]


def item(connection: sa.Connection, number: int, is_shown: Sees | None = None) -> tuple[FlowItem, str]:
    """An item, and its queue. ItemNotFound, with one text and for one price whether it is not there or not shown."""
    in_stage = sa.and_(STAGES.c.flow == ITEMS.c.flow, STAGES.c.place == ITEMS.c.place)
    where = sa.select(STAGES.c.name, STAGES.c.queue, FLOWS.c.id).join(ITEMS, in_stage)
    where = where.join(FLOWS, FLOWS.c.number == ITEMS.c.flow).where(ITEMS.c.number == number)
    found = connection.execute(where).one_or_none()
    if found is None or (is_shown is not None and not is_shown([found.queue])):
        raise ItemNotFound.numbered(number)
    row = connection.execute(sa.select(ITEMS).where(ITEMS.c.number == number)).mappings().one_or_none()
    if row is None:  # deleted between the two
        raise ItemNotFound.numbered(number)
    return _items(connection, [row], {row["flow"]: found.id}, {row["place"]: found.name})[0], found.queue


def queues(connection: sa.Connection, flow_id: str) -> dict[str, str]:
    """The queue of each stage, hidden ones too. FlowNotFound."""
    of_flow = sa.select(STAGES.c.name, STAGES.c.queue).join(FLOWS, FLOWS.c.number == STAGES.c.flow)
    found = {row.name: row.queue for row in connection.execute(of_flow.where(FLOWS.c.id == flow_id))}
    if not found:
        raise FlowNotFound.named(flow_id)
    return found


def _names(connection: sa.Connection, flow: int) -> dict[int, str]:
    found = connection.execute(sa.select(STAGES.c.place, STAGES.c.name).where(STAGES.c.flow == flow))
    return {row.place: row.name for row in found}


def _items(
    connection: sa.Connection,
    rows: Sequence[Mapping[Any, Any]],
    flow_ids: Mapping[int, str],
    names: Mapping[int, str],
) -> list[FlowItem]:
    failures: dict[int, list[ItemFailure]] = defaultdict(list)
    numbers = [row["number"] for row in rows if row["failures"]]
    if numbers:
        of_these = sa.select(FAILURES).where(FAILURES.c.item.in_(numbers)).order_by(FAILURES.c.attempt)
        for each in connection.execute(of_these).mappings():
            failures[each["item"]].append(ItemFailure(each["attempt"], each["at_ms"], each["worker"], each["reason"]))
    return [
        FlowItem(
            row["number"],
            flow_ids[row["flow"]],
            names[row["place"]],
            ItemState(row["state"]),
            row["payload"],
            row["result"],
            failures[row["number"]],
            _key(row["dedupe_key"]),
            row["serialize_key"] or "",
            row["retry_ms"],
            row["added_ms"],
            row["ended_ms"],
            row["job"] or "",
            row["applet_error"] or "",
        )
        for row in rows
    ]


def _key(key: str | None) -> str:
    """As its caller gave it; what an applet made has none."""
    return "" if key is None or key.startswith("@") else key


def due_callbacks(connection: sa.Connection, now_ms: int, limit: int, flow_id: str) -> list[DueCallback]:
    """Those that are to be made now, taken, the first ones first; of one flow, where it is named."""
    due = [CALLBACKS.c.done_ms.is_(None), CALLBACKS.c.due_ms <= now_ms]
    if flow_id:
        due.append(FLOWS.c.id == flow_id)
    owner = sa.select(OWNED_FLOWS.c.owner).where(OWNED_FLOWS.c.flow == CALLBACKS.c.flow).scalar_subquery()
    wanted = (
        sa.select(CALLBACKS, FLOWS.c.on_complete, FLOWS.c.id.label("flow_id"), owner.label("owner"))
        .join(FLOWS, FLOWS.c.number == CALLBACKS.c.flow)
        .where(*due)
        .order_by(CALLBACKS.c.due_ms)
        .limit(limit)
    )
    rows = connection.execute(for_update(connection, wanted, of=CALLBACKS)).mappings()
    return [
        DueCallback(
            row["flow"],
            row["id"],
            row["tries"],
            CompletionCallback(**json.loads(row["on_complete"])),
            status(connection, row["flow_id"], sees_none),
            row["owner"] or "",
        )
        for row in rows.all()
    ]
