"""Stops, removals and repairs of flows, each in bounded steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from pinlater.errors import LimitReached, RequestInvalid
from pinlater.flows import end_records
from pinlater.flows.applets import AppletFailed
from pinlater.flows.ends import MadeChildren, QueuedJob, Resumed, UnmadeChildren
from pinlater.flows.many_rows import among
from pinlater.flows.owned_flows import OwnerRoom, forget
from pinlater.flows.rows import (
    StageRow,
    complete,
    count,
    find_flow,
    for_update,
    insert_items,
    is_stage,
    lock_pending,
    lock_stage,
    lock_stages,
    spec_of,
)
from pinlater.flows.tables import CALLBACKS, FAILURES, FLOW_KEYS, FLOWS, ITEMS, REOPENED_FLOWS, STAGES
from pinlater.model.flow_words import AppletKind, ItemState, NewItem

SLICE = 100
"""Items whose children are made in one step, if their bytes allow."""

_AGAIN = {"state": ItemState.PENDING, "job": None, "retry_ms": None, "ended_ms": None, "is_queued": 0}
"""An item that has ended waits for another round of tries."""


def stop(connection: sa.Connection, flow_id: str, now_ms: int, limit: int) -> tuple[list[QueuedJob], bool]:
    """See FlowDatabase.stop."""
    flow = find_flow(connection, flow_id)["number"]
    reasons = {
        place: reason
        for place, reason in connection.execute(
            sa.select(STAGES.c.place, STAGES.c.stop_reason).where(STAGES.c.flow == flow, STAGES.c.pending > 0)
        )
        if reason is not None
    }
    numbers: list[int] = []
    for place in reasons:
        some = sa.select(ITEMS.c.number).where(
            ITEMS.c.flow == flow, ITEMS.c.place == place, ITEMS.c.state == ItemState.PENDING
        )
        # what is in its queue first; as an index has them, backwards
        in_order = some.order_by(ITEMS.c.is_queued.desc(), ITEMS.c.number.desc())
        numbers += connection.execute(in_order.limit(limit - len(numbers))).scalars()
    rows = [(row.number, row.place, row.job, row.failures, row.is_queued) for row in lock_pending(connection, numbers)]
    stages = lock_stages(connection, [flow])
    counts: dict[tuple[int, int], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    jobs, failures = [], []
    for number, place, job, failed, is_queued in rows:
        counts[flow, place]["pending"] -= 1
        counts[flow, place]["queued"] -= is_queued
        counts[flow, place]["failed"] += 1
        failures.append(
            {
                "item": number,
                "attempt": failed + 1,
                "at_ms": now_ms,
                "worker": "",
                "reason": reasons[place],
                "claim": "",
            }
        )
        if job:
            jobs.append(QueuedJob(number, stages[flow, place].stage.queue, job))
    if rows:
        connection.execute(sa.insert(FAILURES), failures)
        values = {"state": ItemState.FAILED, "failures": ITEMS.c.failures + 1, "ended_ms": now_ms}
        of_these = ITEMS.c.number.in_([row[0] for row in rows])
        connection.execute(sa.update(ITEMS).where(of_these).values(**values, is_queued=0, retry_ms=None))
        count(connection, counts)
    stopped = [row for row in stages.values() if row.stop_reason is not None]
    left = {row.place for row in stopped if row.pending + counts[row.where]["pending"]}
    is_done = not left or (not numbers and left <= reasons.keys())  # a stage may have been stopped meanwhile
    if is_done:
        connection.execute(sa.update(FLOWS).where(FLOWS.c.number == flow).values(stopping_ms=None))
        complete(connection, [flow], now_ms)
    return jobs, is_done


def remove(connection: sa.Connection, flow: int, limit: int) -> bool:
    some = sa.select(ITEMS.c.number).where(ITEMS.c.flow == flow)
    in_order = some.order_by(ITEMS.c.place, ITEMS.c.state, ITEMS.c.is_queued, ITEMS.c.number)  # as an index has them
    numbers = connection.execute(in_order.limit(limit)).scalars().all()
    if numbers:
        connection.execute(sa.delete(FAILURES).where(FAILURES.c.item.in_(numbers)))
        connection.execute(sa.delete(ITEMS).where(ITEMS.c.number.in_(numbers)))
    if len(numbers) == limit:
        return False
    uncount = forget(connection, flow)
    for table in (CALLBACKS, FLOW_KEYS, REOPENED_FLOWS, STAGES):
        connection.execute(sa.delete(table).where(table.c.flow == flow))
    connection.execute(sa.delete(FLOWS).where(FLOWS.c.number == flow))
    uncount()
    return True


def mend(connection: sa.Connection, flow_id: str, stage: str, expression: str, now_ms: int) -> None:
    """Another expression for a stage, which was checked, and a callback that was given up is due again."""
    flow = find_flow(connection, flow_id)["number"]
    if expression and not stage:
        raise RequestInvalid("an expression needs the stage whose items it makes")
    if stage:
        row = lock_stage(connection, flow_id, stage)
        if expression:
            if row.stage.applet.kind is not AppletKind.MAP:
                raise RequestInvalid(f"the items of stage {stage} are not made by an expression")
            mended = replace(row.stage, applet=replace(row.stage.applet, expression=expression))
            connection.execute(sa.update(STAGES).where(is_stage(row)).values(spec=spec_of(mended)))
    given_up = sa.and_(CALLBACKS.c.flow == flow, CALLBACKS.c.done_ms.is_not(None), CALLBACKS.c.error.is_not(None))
    connection.execute(sa.update(CALLBACKS).where(given_up).values(done_ms=None, due_ms=now_ms, tries=0))


def make_children(
    connection: sa.Connection,
    flow_id: str,
    after: int,
    made: Mapping[int, Sequence[MadeChildren]],
    now_ms: int,
    room: OwnerRoom,
    only: Sequence[int] = (),
) -> Resumed:
    """See FlowDatabase.make_children."""
    found = find_flow(connection, flow_id)
    flow = found["number"]
    if found["completed_ms"] is not None:
        return Resumed(0, [])
    has_errors = STAGES.c.flow == flow, STAGES.c.applet_errors > 0, STAGES.c.stop_reason.is_(None)
    places = connection.execute(sa.select(STAGES.c.place).where(*has_errors)).scalars().all()
    if not places:
        return Resumed(0, complete(connection, [flow], now_ms))
    is_broken = sa.and_(
        ITEMS.c.flow == flow,
        ITEMS.c.place.in_(places),
        ITEMS.c.state == ItemState.SUCCEEDED,
        ITEMS.c.number > after,
        ITEMS.c.applet_error.is_not(None),
        *([among(connection, ITEMS.c.number, only)] if only else []),
    )
    numbers = _first_few(connection, is_broken)
    broken = (
        sa.select(ITEMS.c.number, ITEMS.c.place, ITEMS.c.payload, ITEMS.c.result)
        .where(is_broken, ITEMS.c.number.in_(numbers))
        .order_by(ITEMS.c.number)
    )
    rows = connection.execute(for_update(connection, broken)).all()
    stages = lock_stages(connection, [flow])
    below: dict[int, list[StageRow]] = defaultdict(list)
    for row in stages.values():
        if row.parent is not None and row.stop_reason is None and not stages[flow, row.parent].is_hidden:
            below[row.parent].append(row)
    unmade: dict[int, UnmadeChildren] = {}
    ready = written = 0
    for each in rows:
        has_made = made.get(each.number, ())
        missing = end_records.unmade_children(below[each.place], each.payload, each.result, has_made)
        if missing is not None:
            unmade[each.number] = missing
            continue
        written += end_records.bytes_of(len(each.payload), each.result, has_made, below[each.place])
        if unmade or (ready and written > end_records.MAX_TRANSACTION_BYTES):
            break
        ready += 1
    if unmade and not ready:
        return Resumed(after, [], unmade)
    rows = rows[:ready]
    counts: dict[tuple[int, int], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for number, place, payload, result in rows:
        if stages[flow, place].is_hidden:  # what its job returned stays what it is
            of_number = sa.update(ITEMS).where(ITEMS.c.number == number)
            connection.execute(of_number.values(**another_round(stages[flow, place]), result=None, applet_error=None))
            for name, change in (("succeeded", -1), ("pending", 1), ("applet_errors", -1)):
                counts[flow, place][name] += change
            continue
        errors = []
        for row in below[place]:
            try:
                children = end_records.new_children(row, number, payload, result, made.get(number, ()))
                room.reserve(flow, len(children))
            except (AppletFailed, LimitReached) as error:
                errors.append(f"{row.stage.name}: {error}")
                continue
            _, added = insert_items(connection, row, children, now_ms)
            room.added(flow, added)
            counts[row.where]["items"] += added
            counts[row.where]["pending"] += added
            if row.is_hidden and not added:
                again = _try_again(connection, row, children)
                counts[row.where]["pending"] += again
                counts[row.where]["failed"] -= again
        text = "; ".join(errors)[: end_records.MAX_ERROR_CHARS] or None
        connection.execute(sa.update(ITEMS).where(ITEMS.c.number == number).values(applet_error=text))
        if text is None:
            counts[flow, place]["applet_errors"] -= 1
    count(connection, counts)
    over = complete(connection, [flow], now_ms)
    room.write()
    return Resumed(rows[-1][0] if rows else 0, over)


def _first_few(connection: sa.Connection, are_meant: sa.ColumnElement[bool]) -> list[int]:
    """The numbers of the first of these items: as many as one transaction reads."""
    sizes = sa.func.length(ITEMS.c.payload) + sa.func.length(ITEMS.c.result)
    found = connection.execute(sa.select(ITEMS.c.number, sizes).where(are_meant).order_by(ITEMS.c.number).limit(SLICE))
    numbers: list[int] = []
    read_bytes = 0
    for number, size in found.all():
        read_bytes += size
        if numbers and read_bytes > end_records.MAX_TRANSACTION_BYTES:
            break
        numbers.append(number)
    return numbers


def _try_again(connection: sa.Connection, row: StageRow, makers: Sequence[NewItem]) -> int:
    """Jobs that were to make items, and failed, wait for another round of tries; how many."""
    of_keys = ITEMS.c.dedupe_key.in_([each.dedupe_key for each in makers])
    failed = ITEMS.c.flow == row.flow, ITEMS.c.place == row.place, of_keys, ITEMS.c.state == ItemState.FAILED
    return connection.execute(sa.update(ITEMS).where(*failed).values(**another_round(row))).rowcount


def another_round(row: StageRow) -> dict[str, Any]:
    """A whole round of tries. It begins at a multiple of their number, which the last one may not have reached."""
    tries = row.stage.max_failures + 1
    return {**_AGAIN, "failures": ITEMS.c.failures + (tries - ITEMS.c.failures % tries) % tries}
