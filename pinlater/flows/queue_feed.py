"""Items on their way from the database of flows into their queues: which may go, which are there, which were lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

import sqlalchemy as sa

from pinlater.flows.ends import QueuedJob, WaitingItem
from pinlater.flows.many_rows import among, change_items
from pinlater.flows.rows import APPLET_SUFFIX, count, find_flow, lock_pending, stage_of
from pinlater.flows.tables import FLOWS, ITEMS, STAGES
from pinlater.model import ClaimOutcome
from pinlater.model.flow_words import ItemState
from pinlater.model.group_template import group_of


def waiting(connection: sa.Connection, window: int, limit: int, shut: Collection[str]) -> list[WaitingItem]:
    """See FlowDatabase.waiting."""
    found: list[WaitingItem] = []
    has_room = sa.select(STAGES).where(
        sa.text("pending > queued"), STAGES.c.queued < window, _may_have_work(connection)
    )
    if shut:
        has_room = has_room.where(STAGES.c.queue.not_in(list(shut)))
    for row in connection.execute(has_room.order_by(STAGES.c.flow, STAGES.c.place)).mappings():
        room = min(limit - len(found), window - row["queued"])
        if room <= 0:
            break
        if row["stop_reason"] is None:
            found += _waiting_of(connection, row, room)
    return found


def _may_have_work(connection: sa.Connection) -> sa.ColumnElement[bool]:
    """Of stages: where a database has no index of those that have something to do, those of flows that run."""
    if connection.dialect.name not in ("mysql", "mariadb"):
        return sa.true()
    return STAGES.c.flow.in_(sa.select(FLOWS.c.number).where(FLOWS.c.completed_ms.is_(None)))


def waiting_item(connection: sa.Connection, number: int) -> WaitingItem | ClaimOutcome:
    """See FlowDatabase.waiting_item."""
    of_item = sa.select(STAGES).join(ITEMS, sa.and_(ITEMS.c.flow == STAGES.c.flow, ITEMS.c.place == STAGES.c.place))
    row = connection.execute(of_item.where(ITEMS.c.number == number)).mappings().one_or_none()
    if row is None or row["stop_reason"] is not None:
        return ClaimOutcome.ENDED
    found = _waiting_of(connection, row, 1, number)
    return found[0] if found else ClaimOutcome.BEHIND


def _waiting_of(connection: sa.Connection, row: Mapping[Any, Any], limit: int, only: int = 0) -> list[WaitingItem]:
    """Of a stage, in order; those that stand behind others of it are behind these in the list too, where there is no
    item that is meant alone.
    """
    older = ITEMS.alias()
    in_stage = sa.and_(older.c.flow == row["flow"], older.c.place == row["place"])
    is_first = sa.or_(
        ITEMS.c.serialize_key.is_(None),
        ~sa.exists(
            sa.select(older.c.number).where(
                older.c.serialize_key == ITEMS.c.serialize_key,
                older.c.state == ItemState.PENDING,
                older.c.is_queued == 0,
                older.c.number < ITEMS.c.number,
                *(() if only else (~in_stage,)),
            )
        ),
    )
    read = [ITEMS.c[name] for name in ("number", "payload", "serialize_key", "failures", "retry_ms")]
    rows = connection.execute(
        sa.select(*read)
        .where(
            ITEMS.c.flow == row["flow"],
            ITEMS.c.place == row["place"],
            ITEMS.c.state == ItemState.PENDING,
            ITEMS.c.is_queued == 0,
            is_first,
            *((ITEMS.c.number == only,) if only else ()),
        )
        .order_by(ITEMS.c.number)
        .limit(limit)
    ).all()
    if not rows:
        return []
    spec = stage_of(row["spec"])
    flow_id = connection.execute(sa.select(FLOWS.c.id).where(FLOWS.c.number == row["flow"])).scalar_one()
    return [
        WaitingItem(
            number, flow_id, spec, payload, key or "", failures, retry_ms, spec.group and group_of(spec.group, payload)
        )
        for number, payload, key, failures, retry_ms in rows
    ]


def queued(connection: sa.Connection, jobs: Mapping[int, str], now_ms: int) -> list[str]:
    """See FlowDatabase.queued."""
    rows = lock_pending(connection, list(jobs))
    fresh = [(row.number, row.flow, row.place) for row in rows if not row.is_queued]
    if fresh:
        placed = [{"number": number, "job": jobs[number]} for number, _, _ in fresh]
        change_items(connection, placed, {"is_queued": 1, "queued_ms": now_ms})
        counts: dict[tuple[int, int], dict[str, int]] = defaultdict(lambda: {"queued": 0})
        for _, flow, place in fresh:
            counts[flow, place]["queued"] += 1
        count(connection, counts)
    known = {row.number for row in rows}
    return [job for number, job in jobs.items() if number not in known]


def held(
    connection: sa.Connection, after: tuple[int, int, int], before_ms: int, limit: int
) -> tuple[list[QueuedJob], tuple[int, int, int]]:
    """See FlowDatabase.held."""
    found: list[QueuedJob] = []
    flow, place, number = after
    behind = sa.or_(STAGES.c.flow > flow, sa.and_(STAGES.c.flow == flow, STAGES.c.place >= place))
    stages = sa.select(STAGES.c.flow, STAGES.c.place, STAGES.c.queue).where(
        sa.text("queued > 0"), behind, _may_have_work(connection)
    )
    for at_flow, at_place, queue in connection.execute(stages.order_by(STAGES.c.flow, STAGES.c.place)).all():
        first = number if (at_flow, at_place) == (flow, place) else 0
        some = (
            sa.select(ITEMS.c.number, ITEMS.c.job)
            .where(
                ITEMS.c.flow == at_flow,
                ITEMS.c.place == at_place,
                ITEMS.c.state == ItemState.PENDING,
                ITEMS.c.is_queued == 1,
                ITEMS.c.number > first,
                ITEMS.c.queued_ms < before_ms,
            )
            .order_by(ITEMS.c.number)
            .limit(limit - len(found))
        )
        found += [QueuedJob(each, queue, job) for each, job in connection.execute(some)]
        if len(found) == limit:
            return found, (at_flow, at_place, found[-1].number)
    return found, (0, 0, 0)


def longest_queued(connection: sa.Connection, flow_id: str, before_ms: int) -> list[tuple[str, QueuedJob]]:
    """See FlowDatabase.longest_queued."""
    flow = find_flow(connection, flow_id)["number"]
    found = []
    stages = sa.select(STAGES.c.place, STAGES.c.name, STAGES.c.queue).where(STAGES.c.flow == flow, STAGES.c.queued > 0)
    for place, name, queue in connection.execute(stages.order_by(STAGES.c.place)).all():
        in_queue = sa.select(ITEMS.c.number, ITEMS.c.job, ITEMS.c.queued_ms).where(
            ITEMS.c.flow == flow, ITEMS.c.place == place, ITEMS.c.state == ItemState.PENDING, ITEMS.c.is_queued == 1
        )
        first = connection.execute(in_queue.order_by(ITEMS.c.number).limit(1)).one_or_none()
        if first is not None and first.queued_ms <= before_ms:
            shown = name if not name.endswith(APPLET_SUFFIX) else f"before {name.removesuffix(APPLET_SUFFIX)}"
            found.append((shown, QueuedJob(first.number, queue, first.job)))
    return found


def lost(connection: sa.Connection, jobs: Mapping[int, str]) -> int:
    """See FlowDatabase.lost."""
    rows = lock_pending(connection, list(jobs))
    gone = [(row.number, row.flow, row.place) for row in rows if row.is_queued and jobs[row.number] == row.job]
    if not gone:
        return 0
    numbers = [number for number, _, _ in gone]
    connection.execute(
        sa.update(ITEMS).where(among(connection, ITEMS.c.number, numbers)).values(is_queued=0, job=None, queued_ms=None)
    )
    counts: dict[tuple[int, int], dict[str, int]] = defaultdict(lambda: {"queued": 0})
    for _, flow, place in gone:
        counts[flow, place]["queued"] -= 1
    count(connection, counts)
    return len(gone)
