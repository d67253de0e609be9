"""The database of flows: each method is one transaction, and blocks.

Whoever changes counters of stages takes the rows of these stages first, in the order of flows and places, parents
first; so two transactions never wait for each other in a circle, and adding to a stage sees whether it is sealed.
Items are taken before their stages, in the order of their numbers.
"""

from __future__ import annotations

import json
import secrets
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import IntEnum
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa

from pinlater.errors import RequestInvalid
from pinlater.flows.applets import AppletFailed, children_of
from pinlater.flows.tables import CALLBACKS, FAILURES, FLOWS, ITEMS, KEEPERS, STAGES, upgrade
from pinlater.model.flows import (
    Applet,
    AppletKind,
    CompletionCallback,
    FlowItem,
    FlowState,
    FlowStatus,
    ItemFailure,
    ItemState,
    NewFlow,
    NewItem,
    OnFailure,
    Stage,
    StageStatus,
)

APPLET_SUFFIX = " applet"
"""Behind the name of a child stage: the hidden stage whose jobs make its items."""

STOPPED = "stopped: another item of the flow failed"
CANCELLED = "cancelled"


class ItemEnd(NamedTuple):
    """What a worker says of a job, by its descriptor. `result`: of a success; None for a failure, with its reason."""

    job: str
    result: bytes | None
    worker: str = ""
    reason: str = ""


class EndOutcome(IntEnum):
    """NO_ITEM: the job is none of a flow. ENDED: the item had ended before, and nothing has changed. RETRY: it failed,
    and is to be tried again after `retry_ms`.
    """

    NO_ITEM = 0
    SUCCEEDED = 1
    FAILED = 2
    RETRY = 3
    ENDED = 4


class RecordedEnd(NamedTuple):
    outcome: EndOutcome
    retry_ms: int = 0


class WaitingItem(NamedTuple):
    """An item that is to come into its queue."""

    number: int
    flow: int
    place: int
    stage: Stage
    payload: bytes
    serialize_key: str
    failures: int


class DueCallback(NamedTuple):
    flow: int
    id: str
    tries: int
    callback: CompletionCallback
    status: FlowStatus


@dataclass(slots=True)
class _StageRow:
    flow: int
    place: int
    parent: int | None
    stage: Stage
    sealed_ms: int | None
    pending: int
    applet_errors: int


class FlowDatabase:
    """Opened by a URL of SQLAlchemy."""

    def __init__(self, url: str) -> None:
        self._engine = sa.create_engine(url)
        self._is_sqlite = self._engine.dialect.name == "sqlite"
        if self._is_sqlite:
            sa.event.listen(self._engine, "connect", _set_up_sqlite)
            sa.event.listen(self._engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))

    def open(self) -> None:
        with self._transaction() as connection:
            upgrade(connection)

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        with self._engine.begin() as connection:
            yield connection

    # -- making and filling --------------------------------------------------------------------------------------------

    def create(self, new: NewFlow, now_ms: int) -> tuple[str, bool]:
        """The id of the flow, and whether it is new. RequestInvalid: its stages are no tree."""
        stages = _in_order(new.stages)
        with self._transaction() as connection:
            if new.dedupe_key:
                of_key = sa.and_(FLOWS.c.name == new.name, FLOWS.c.dedupe_key == new.dedupe_key)
                found = connection.execute(sa.select(FLOWS.c.id).where(of_key)).scalar()
                if found is not None:
                    return found, False
            flow_id = secrets.token_hex(13)
            number = connection.execute(
                sa.insert(FLOWS).values(
                    id=flow_id,
                    name=new.name,
                    dedupe_key=new.dedupe_key or None,
                    state=FlowState.RUNNING,
                    metadata=json.dumps(dict(new.metadata)),
                    on_complete=json.dumps(asdict(new.on_complete)) if new.on_complete else None,
                    on_failure=new.on_failure,
                    ttl_ms=new.ttl_ms,
                    created_ms=now_ms,
                )
            ).inserted_primary_key[0]
            places = {stage.name: place for place, stage in enumerate(stages)}
            counters = dict.fromkeys(("items", "pending", "queued", "succeeded", "failed", "applet_errors"), 0)
            connection.execute(
                sa.insert(STAGES),
                [
                    {
                        "flow": number,
                        "place": place,
                        "name": stage.name,
                        "parent": places.get(stage.parent),
                        "queue": stage.queue,
                        "spec": msgspec.json.encode(stage).decode(),
                        **counters,
                    }
                    for place, stage in enumerate(stages)
                ],
            )
        return flow_id, True

    def add(self, flow_id: str, stage: str, items: Sequence[NewItem], now_ms: int) -> list[int]:
        """The numbers of the items, in order; of one whose dedupe key is taken that of the item which has it.
        RequestInvalid: there is no such flow or stage, or it is sealed; and then none is added.
        """
        with self._transaction() as connection:
            row = self._locked_stage(connection, flow_id, stage)
            if row.sealed_ms is not None:
                raise RequestInvalid(f"stage {stage!r} of flow {flow_id} is sealed: no more items come into it")
            numbers, added = self._insert(connection, row, items, now_ms)
            self._count(connection, {(row.flow, row.place): {"items": added, "pending": added}})
        return numbers

    def seal(self, flow_id: str, stage: str, now_ms: int) -> None:
        """No more items come into it. Once more is nothing. RequestInvalid."""
        with self._transaction() as connection:
            row = self._locked_stage(connection, flow_id, stage)
            if row.sealed_ms is None:
                self._seal(connection, row, now_ms)
                self._complete(connection, {row.flow}, now_ms)

    # -- to queues, and back -------------------------------------------------------------------------------------------

    def waiting(self, flow_from: int, flow_below: int, window: int, limit: int) -> list[WaitingItem]:
        """Items that may come into their queues, of flows with these numbers, at most so many of a stage being there,
        in the order of their numbers. One with a serialize key waits for those before it.
        """
        older = ITEMS.alias()
        is_first = sa.or_(
            ITEMS.c.serialize_key.is_(None),
            ~sa.exists(
                sa.select(older.c.number).where(
                    older.c.serialize_key == ITEMS.c.serialize_key,
                    older.c.state == ItemState.PENDING,
                    older.c.is_queued == 0,
                    older.c.number < ITEMS.c.number,
                )
            ),
        )
        found: list[WaitingItem] = []
        with self._transaction() as connection:
            open_stages = sa.select(STAGES).where(
                STAGES.c.flow >= flow_from,
                STAGES.c.flow < flow_below,
                STAGES.c.pending > STAGES.c.queued,
                STAGES.c.queued < window,
            )
            for stage in connection.execute(open_stages.order_by(STAGES.c.flow, STAGES.c.place)).mappings():
                room = min(limit - len(found), window - stage["queued"])
                if room <= 0:
                    break
                spec = _stage_of(stage["spec"])
                rows = connection.execute(
                    sa.select(ITEMS.c.number, ITEMS.c.payload, ITEMS.c.serialize_key, ITEMS.c.failures)
                    .where(
                        ITEMS.c.flow == stage["flow"],
                        ITEMS.c.place == stage["place"],
                        ITEMS.c.state == ItemState.PENDING,
                        ITEMS.c.is_queued == 0,
                        is_first,
                    )
                    .order_by(ITEMS.c.number)
                    .limit(room)
                )
                found += [
                    WaitingItem(number, stage["flow"], stage["place"], spec, payload, key or "", failures)
                    for number, payload, key, failures in rows
                ]
        return found

    def queued(self, jobs: Mapping[int, str], now_ms: int) -> list[str]:
        """These items are in their queues, as these jobs. The jobs of items that have ended meanwhile, or are gone."""
        with self._transaction() as connection:
            rows = connection.execute(
                self._for_update(
                    sa.select(ITEMS.c.number, ITEMS.c.flow, ITEMS.c.place).where(
                        ITEMS.c.number.in_(jobs), ITEMS.c.state == ItemState.PENDING, ITEMS.c.is_queued == 0
                    )
                ).order_by(ITEMS.c.number)
            ).all()
            if rows:
                connection.execute(
                    sa.update(ITEMS).where(ITEMS.c.number == sa.bindparam("of")).values(is_queued=1, job=sa.bindparam("j")),
                    [{"of": number, "j": jobs[number]} for number, _, _ in rows],
                )
                counts: dict[tuple[int, int], dict[str, int]] = defaultdict(lambda: {"queued": 0})
                for _, flow, place in rows:
                    counts[flow, place]["queued"] += 1
                self._count(connection, counts)
        taken = {number for number, _, _ in rows}
        return [job for number, job in jobs.items() if number not in taken]

    def record(self, ends: Sequence[ItemEnd], now_ms: int) -> list[RecordedEnd]:
        """What workers say of jobs: an outcome for each, in order. The first result of an item counts."""
        with self._transaction() as connection:
            rows = connection.execute(
                self._for_update(
                    sa.select(
                        *(ITEMS.c[name] for name in ("number", "flow", "place", "job", "state", "failures", "payload"))
                    ).where(ITEMS.c.job.in_([end.job for end in ends]))
                ).order_by(ITEMS.c.number)
            ).mappings()
            items = {row["job"]: dict(row) for row in rows}
            if not items:
                return [RecordedEnd(EndOutcome.NO_ITEM)] * len(ends)
            flows = {item["flow"] for item in items.values()}
            stages = self._stages(connection, flows)
            recording = _Recording(now_ms)
            outcomes = [recording.end(end, items.get(end.job), stages) for end in ends]
            self._write(connection, recording, stages)
            self._complete(connection, flows, now_ms)
        return outcomes

    def _write(self, connection: sa.Connection, recording: _Recording, stages: dict[tuple[int, int], _StageRow]) -> None:
        if recording.ended:
            connection.execute(
                sa.update(ITEMS)
                .where(ITEMS.c.number == sa.bindparam("of"))
                .values(
                    state=sa.bindparam("s"),
                    result=sa.bindparam("r"),
                    failures=sa.bindparam("f"),
                    ended_ms=recording.now_ms,
                    is_queued=0,
                    retry_ms=None,
                ),
                recording.ended,
            )
        if recording.retried:
            connection.execute(
                sa.update(ITEMS)
                .where(ITEMS.c.number == sa.bindparam("of"))
                .values(failures=sa.bindparam("f"), retry_ms=sa.bindparam("t")),
                recording.retried,
            )
        if recording.failures:
            connection.execute(sa.insert(FAILURES), recording.failures)
        for (flow, place), children in recording.children.items():
            _, added = self._insert(connection, stages[flow, place], children, recording.now_ms)
            recording.counts[flow, place]["items"] += added
            recording.counts[flow, place]["pending"] += added
        if recording.applet_errors:
            connection.execute(
                sa.update(ITEMS).where(ITEMS.c.number == sa.bindparam("of")).values(applet_error=sa.bindparam("e")),
                recording.applet_errors,
            )
        self._count(connection, recording.counts)
        stopped = {flow for flow in recording.failed_flows if self._on_failure(connection, flow) is OnFailure.STOP_FLOW}
        for flow in stopped:
            self._stop(connection, flow, None, STOPPED, recording.now_ms)
        for flow, place in recording.failed_stages:
            if flow not in stopped and self._on_failure(connection, flow) is OnFailure.STOP_STAGE:
                self._stop(connection, flow, place, STOPPED, recording.now_ms)

    # -- ends of flows -------------------------------------------------------------------------------------------------

    def cancel(self, flow_id: str, now_ms: int) -> list[str]:
        """What has not ended fails as cancelled, and the flow is over. The jobs of those items. RequestInvalid."""
        with self._transaction() as connection:
            flow = self._flow(connection, flow_id)
            if flow["state"] != FlowState.RUNNING:
                return []
            connection.execute(
                sa.update(FLOWS).where(FLOWS.c.number == flow["number"]).values(state=FlowState.CANCELLED)
            )
            jobs = self._stop(connection, flow["number"], None, CANCELLED, now_ms)
            self._complete(connection, {flow["number"]}, now_ms)
        return jobs

    def _stop(self, connection: sa.Connection, flow: int, place: int | None, reason: str, now_ms: int) -> list[str]:
        """Fail the pending items of a stage, or of all, and seal what is stopped."""
        stages = [
            row for (_, each), row in sorted(self._stages(connection, {flow}).items()) if place is None or each == place
        ]
        pending = sa.and_(
            ITEMS.c.flow == flow,
            ITEMS.c.state == ItemState.PENDING,
            *(() if place is None else (ITEMS.c.place == place,)),
        )
        rows = connection.execute(
            self._for_update(sa.select(ITEMS.c.number, ITEMS.c.job, ITEMS.c.failures).where(pending)).order_by(
                ITEMS.c.number
            )
        ).all()
        if rows:
            failures = [
                {"item": number, "attempt": failures + 1, "at_ms": now_ms, "worker": "", "reason": reason}
                for number, _, failures in rows
            ]
            connection.execute(sa.insert(FAILURES), failures)
            connection.execute(
                sa.update(ITEMS)
                .where(pending)
                .values(
                    state=ItemState.FAILED,
                    failures=ITEMS.c.failures + 1,
                    ended_ms=now_ms,
                    is_queued=0,
                    retry_ms=None,
                )
            )
        for row in stages:
            of_stage = sa.and_(STAGES.c.flow == flow, STAGES.c.place == row.place)
            connection.execute(
                sa.update(STAGES)
                .where(of_stage)
                .values(failed=STAGES.c.failed + STAGES.c.pending, pending=0, queued=0, applet_errors=0)
            )
            if row.sealed_ms is None:
                self._seal(connection, row, now_ms)
        return [job for _, job, _ in rows if job]

    def _complete(self, connection: sa.Connection, flows: set[int], now_ms: int) -> None:
        """Seal the children of stages that are complete, and end the flows that are."""
        for flow in sorted(flows):
            stages = self._stages(connection, {flow})
            by_place = {place: row for (_, place), row in stages.items()}
            for place in sorted(by_place):  # parents first
                row = by_place[place]
                above = None if row.parent is None else by_place[row.parent]
                if row.sealed_ms is None and above is not None and not row.stage.keeps_open and _is_complete(above):
                    self._seal(connection, row, now_ms)
            if all(map(_is_complete, by_place.values())):
                self._end(connection, flow, now_ms)

    def _end(self, connection: sa.Connection, flow: int, now_ms: int) -> None:
        row = connection.execute(self._for_update(sa.select(FLOWS).where(FLOWS.c.number == flow))).mappings().one()
        if row["completed_ms"] is not None:
            return
        state = FlowState.CANCELLED if row["state"] == FlowState.CANCELLED else FlowState.COMPLETE
        connection.execute(
            sa.update(FLOWS)
            .where(FLOWS.c.number == flow)
            .values(state=state, completed_ms=now_ms, reap_ms=now_ms + row["ttl_ms"])
        )
        if row["on_complete"]:
            connection.execute(
                sa.insert(CALLBACKS).values(flow=flow, id=secrets.token_hex(16), due_ms=now_ms, tries=0)
            )

    def _seal(self, connection: sa.Connection, row: _StageRow, now_ms: int) -> None:
        row.sealed_ms = now_ms
        of_stage = sa.and_(STAGES.c.flow == row.flow, STAGES.c.place == row.place)
        connection.execute(sa.update(STAGES).where(of_stage).values(sealed_ms=now_ms))

    def delete(self, flow_id: str, limit: int) -> bool:
        """Remove up to so many items; whether the flow is gone. RequestInvalid: there is none."""
        with self._transaction() as connection:
            return self._remove(connection, self._flow(connection, flow_id)["number"], limit)

    def reap(self, now_ms: int, limit: int) -> int:
        """Remove up to so many items of flows whose time to live is over; how many flows are gone."""
        with self._transaction() as connection:
            due = sa.select(FLOWS.c.number).where(FLOWS.c.reap_ms <= now_ms).order_by(FLOWS.c.reap_ms).limit(10)
            return sum([self._remove(connection, flow, limit) for flow in connection.execute(due).scalars().all()])

    def _remove(self, connection: sa.Connection, flow: int, limit: int) -> bool:
        some = sa.select(ITEMS.c.number).where(ITEMS.c.flow == flow).order_by(ITEMS.c.number).limit(limit)
        numbers = connection.execute(some).scalars().all()
        if numbers:
            connection.execute(sa.delete(FAILURES).where(FAILURES.c.item.in_(numbers)))
            connection.execute(sa.delete(ITEMS).where(ITEMS.c.number.in_(numbers)))
        if len(numbers) == limit:
            return False
        for table in (CALLBACKS, STAGES):
            connection.execute(sa.delete(table).where(table.c.flow == flow))
        connection.execute(sa.delete(FLOWS).where(FLOWS.c.number == flow))
        return True

    # -- the keeper ----------------------------------------------------------------------------------------------------

    def keep(self, holder: str, until_ms: int, now_ms: int) -> bool:
        """Whether this process is the keeper of all flows from now until then: nobody else is. With `until_ms` now, it
        is no more.
        """
        is_free = sa.or_(KEEPERS.c.holder == holder, KEEPERS.c.until_ms < now_ms)
        with self._transaction() as connection:
            taken = connection.execute(sa.update(KEEPERS).where(is_free).values(holder=holder, until_ms=until_ms))
            return taken.rowcount > 0

    # -- callbacks -----------------------------------------------------------------------------------------------------

    def due_callbacks(self, now_ms: int, limit: int) -> list[DueCallback]:
        """The first of those that are to be made now."""
        due = sa.and_(CALLBACKS.c.done_ms.is_(None), CALLBACKS.c.due_ms <= now_ms)
        with self._transaction() as connection:
            rows = connection.execute(
                sa.select(CALLBACKS, FLOWS.c.on_complete, FLOWS.c.id.label("flow_id"))
                .join(FLOWS, FLOWS.c.number == CALLBACKS.c.flow)
                .where(due)
                .order_by(CALLBACKS.c.due_ms)
                .limit(limit)
            ).mappings()
            return [
                DueCallback(
                    row["flow"],
                    row["id"],
                    row["tries"],
                    CompletionCallback(**json.loads(row["on_complete"])),
                    self._status(connection, row["flow_id"]),
                )
                for row in rows.all()
            ]

    def callback_made(self, flow: int, now_ms: int) -> None:
        self._set_callback(flow, done_ms=now_ms, error=None)

    def callback_failed(self, flow: int, error: str, retry_ms: int | None, now_ms: int) -> None:
        """`retry_ms` None: it is given up."""
        again = {"done_ms": now_ms} if retry_ms is None else {"due_ms": retry_ms}
        self._set_callback(flow, error=error, tries=CALLBACKS.c.tries + 1, **again)

    def _set_callback(self, flow: int, **values: Any) -> None:
        with self._transaction() as connection:
            connection.execute(sa.update(CALLBACKS).where(CALLBACKS.c.flow == flow).values(**values))

    # -- looking -------------------------------------------------------------------------------------------------------

    def status(self, flow_id: str) -> FlowStatus:
        """RequestInvalid: there is no such flow."""
        with self._transaction() as connection:
            return self._status(connection, flow_id)

    def _status(self, connection: sa.Connection, flow_id: str) -> FlowStatus:
        flow = self._flow(connection, flow_id)
        rows = connection.execute(sa.select(STAGES).where(STAGES.c.flow == flow["number"]).order_by(STAGES.c.place))
        stages = [
            StageStatus(
                _stage_of(row["spec"]),
                *(row[name] for name in ("items", "pending", "queued", "succeeded", "failed", "applet_errors")),
                is_sealed=row["sealed_ms"] is not None,
            )
            for row in rows.mappings()
        ]
        return FlowStatus(
            flow["id"],
            flow["name"],
            FlowState(flow["state"]),
            flow["dedupe_key"] or "",
            json.loads(flow["metadata"]),
            stages,
            flow["created_ms"],
            flow["completed_ms"],
        )

    def items(
        self, flow_id: str, stage: str = "", state: ItemState | None = None, after: int = 0, limit: int = 100
    ) -> list[FlowItem]:
        """A page of items behind a number, in their order. RequestInvalid."""
        with self._transaction() as connection:
            flow = self._flow(connection, flow_id)["number"]
            names = {row.place: row.stage.name for row in self._stages(connection, {flow}).values()}
            wanted = [ITEMS.c.flow == flow, ITEMS.c.number > after]
            if stage:
                wanted.append(ITEMS.c.place.in_([place for place, name in names.items() if name == stage]))
            if state is not None:
                wanted.append(ITEMS.c.state == state)
            found = connection.execute(sa.select(ITEMS).where(*wanted).order_by(ITEMS.c.number).limit(limit))
            rows = found.mappings().all()
            failures = defaultdict(list)
            of_these = FAILURES.c.item.in_([row["number"] for row in rows])
            for each in connection.execute(sa.select(FAILURES).where(of_these).order_by(FAILURES.c.attempt)).mappings():
                failures[each["item"]].append(
                    ItemFailure(each["attempt"], each["at_ms"], each["worker"], each["reason"])
                )
        return [
            FlowItem(
                row["number"],
                names[row["place"]],
                ItemState(row["state"]),
                row["payload"],
                row["result"],
                failures[row["number"]],
                row["dedupe_key"] or "",
                row["serialize_key"] or "",
                row["retry_ms"],
                row["added_ms"],
                row["ended_ms"],
            )
            for row in rows
        ]

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _flow(self, connection: sa.Connection, flow_id: str) -> Mapping[str, Any]:
        row = connection.execute(sa.select(FLOWS).where(FLOWS.c.id == flow_id)).mappings().one_or_none()
        if row is None:
            raise RequestInvalid(f"there is no flow {flow_id!r:.100}: it was deleted, or its time to live is over")
        return dict(row)

    def _locked_stage(self, connection: sa.Connection, flow_id: str, name: str) -> _StageRow:
        flow = self._flow(connection, flow_id)
        of_name = sa.and_(STAGES.c.flow == flow["number"], STAGES.c.name == name)
        row = connection.execute(self._for_update(sa.select(STAGES).where(of_name))).mappings().one_or_none()
        if row is None or name.endswith(APPLET_SUFFIX):
            raise RequestInvalid(f"flow {flow_id} has no stage {name!r:.100}")
        return _stage_row(row)

    def _stages(self, connection: sa.Connection, flows: set[int]) -> dict[tuple[int, int], _StageRow]:
        """Locked, by flow and place."""
        rows = connection.execute(
            self._for_update(sa.select(STAGES).where(STAGES.c.flow.in_(sorted(flows)))).order_by(
                STAGES.c.flow, STAGES.c.place
            )
        )
        return {(row["flow"], row["place"]): _stage_row(row) for row in rows.mappings()}

    def _for_update(self, statement: sa.Select[Any]) -> sa.Select[Any]:
        return statement if self._is_sqlite else statement.with_for_update()

    def _insert(
        self, connection: sa.Connection, row: _StageRow, items: Sequence[NewItem], now_ms: int
    ) -> tuple[list[int], int]:
        """The numbers of the items, in order, and how many are new."""
        of_stage = sa.and_(ITEMS.c.flow == row.flow, ITEMS.c.place == row.place)
        keys = [item.dedupe_key for item in items if item.dedupe_key]
        known: dict[str, int] = {}
        for start in range(0, len(keys), 500):
            some = sa.select(ITEMS.c.dedupe_key, ITEMS.c.number).where(
                of_stage, ITEMS.c.dedupe_key.in_(keys[start : start + 500])
            )
            known.update((key, number) for key, number in connection.execute(some))
        fresh: dict[str, NewItem] = {}
        for place, item in enumerate(items):
            if item.dedupe_key not in known:
                fresh.setdefault(item.dedupe_key or f"\0{place}", item)
        if fresh:
            made = connection.execute(
                sa.insert(ITEMS).returning(ITEMS.c.number, sort_by_parameter_order=True),
                [
                    {
                        "flow": row.flow,
                        "place": row.place,
                        "state": ItemState.PENDING,
                        "is_queued": 0,
                        "payload": item.payload,
                        "failures": 0,
                        "dedupe_key": item.dedupe_key or None,
                        "serialize_key": item.serialize_key or None,
                        "added_ms": now_ms,
                    }
                    for item in fresh.values()
                ],
            ).scalars()
            known.update(zip(fresh, made, strict=True))
        return [known[item.dedupe_key or f"\0{place}"] for place, item in enumerate(items)], len(fresh)

    def _count(self, connection: sa.Connection, counts: Mapping[tuple[int, int], Mapping[str, int]]) -> None:
        """Each stage once, parents first."""
        for (flow, place), changes in sorted(counts.items()):
            values = {name: STAGES.c[name] + change for name, change in changes.items() if change}
            if values:
                of_stage = sa.and_(STAGES.c.flow == flow, STAGES.c.place == place)
                connection.execute(sa.update(STAGES).where(of_stage).values(**values))

    def _on_failure(self, connection: sa.Connection, flow: int) -> OnFailure:
        return OnFailure(connection.execute(sa.select(FLOWS.c.on_failure).where(FLOWS.c.number == flow)).scalar_one())


class _Recording:
    """What the ends of some items come to, before it is written."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.ended: list[dict[str, Any]] = []
        self.retried: list[dict[str, Any]] = []
        self.failures: list[dict[str, Any]] = []
        self.applet_errors: list[dict[str, Any]] = []
        self.children: dict[tuple[int, int], list[NewItem]] = defaultdict(list)
        self.counts: dict[tuple[int, int], dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self.failed_flows: set[int] = set()
        self.failed_stages: set[tuple[int, int]] = set()

    def end(
        self, end: ItemEnd, item: dict[str, Any] | None, stages: Mapping[tuple[int, int], _StageRow]
    ) -> RecordedEnd:
        if item is None:
            return RecordedEnd(EndOutcome.NO_ITEM)
        if item["state"] != ItemState.PENDING:
            return RecordedEnd(EndOutcome.ENDED)
        where = item["flow"], item["place"]
        stage = stages[where].stage
        if end.result is not None:
            self._over(item, where, ItemState.SUCCEEDED, end.result)
            self._begin_children(item, where, end.result, stages)
            return RecordedEnd(EndOutcome.SUCCEEDED)
        item["failures"] += 1
        self.failures.append(
            {
                "item": item["number"],
                "attempt": item["failures"],
                "at_ms": self.now_ms,
                "worker": end.worker,
                "reason": end.reason,
            }
        )
        if item["failures"] > stage.max_failures:
            self._over(item, where, ItemState.FAILED, None)
            self.failed_flows.add(where[0])
            self.failed_stages.add(where)
            return RecordedEnd(EndOutcome.FAILED)
        backoff_ms = min(stage.backoff_ms << min(item["failures"] - 1, 40), stage.max_backoff_ms)
        retry_ms = self.now_ms + backoff_ms
        self.retried.append({"of": item["number"], "f": item["failures"], "t": retry_ms})
        return RecordedEnd(EndOutcome.RETRY, retry_ms)

    def _over(self, item: dict[str, Any], where: tuple[int, int], state: ItemState, result: bytes | None) -> None:
        item["state"] = state
        self.ended.append({"of": item["number"], "s": state, "r": result, "f": item["failures"]})
        counts = self.counts[where]
        counts["pending"] -= 1
        counts["queued"] -= 1
        counts["succeeded" if state is ItemState.SUCCEEDED else "failed"] += 1

    def _begin_children(
        self,
        item: dict[str, Any],
        where: tuple[int, int],
        result: bytes,
        stages: Mapping[tuple[int, int], _StageRow],
    ) -> None:
        flow, place = where
        for (_, child), row in stages.items():
            if row.flow != flow or row.parent != place:
                continue
            try:
                payloads = children_of(row.stage.applet, item["payload"], result)
            except AppletFailed as error:
                self.applet_errors.append({"of": item["number"], "e": f"{row.stage.name}: {error}"})
                self.counts[where]["applet_errors"] += 1
                continue
            self.children[flow, child] += [
                NewItem(payload, f"{item['number']}:{index}") for index, payload in enumerate(payloads)
            ]


def _in_order(stages: Sequence[Stage]) -> list[Stage]:
    """Parents before their children, and before a child whose items a job makes the stage of that job."""
    names = [stage.name for stage in stages]
    if not stages or len(set(names)) != len(names):
        raise RequestInvalid("a flow has stages, each with a name of its own")
    ordered: list[Stage] = []
    left = list(stages)
    while left:
        known = {"", *(stage.name for stage in ordered)}
        ready = [stage for stage in left if stage.parent in known]
        if not ready:
            raise RequestInvalid(f"stage {left[0].name!r} has no parent in this flow: {left[0].parent!r}")
        for stage in ready:
            left.remove(stage)
            applet = stage.applet
            if stage.parent and applet.kind is AppletKind.JOB:
                name = stage.name + APPLET_SUFFIX
                ordered.append(Stage(name, applet.job, applet.queue, stage.parent, max_failures=stage.max_failures))
                stage = replace(stage, parent=name, applet=Applet(AppletKind.LIST))
            ordered.append(stage)
    return ordered


def _stage_of(spec: str) -> Stage:
    return msgspec.json.decode(spec, type=Stage)


def _stage_row(row: Mapping[Any, Any]) -> _StageRow:
    return _StageRow(
        row["flow"],
        row["place"],
        row["parent"],
        _stage_of(row["spec"]),
        row["sealed_ms"],
        row["pending"],
        row["applet_errors"],
    )


def _is_complete(row: _StageRow) -> bool:
    return row.sealed_ms is not None and not row.pending and not row.applet_errors


def _set_up_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # transactions are begun by hand
    for line in ("journal_mode = WAL", "synchronous = FULL", "busy_timeout = 10000"):
        connection.execute(f"PRAGMA {line}")
