"""The database of flows: each method is one transaction, and blocks.

FlowsUnavailable: it cannot be reached, or too many write at once; nothing was changed. RequestInvalid: some text or
number is none that it takes. See rows.py for the order of locks.
"""

from __future__ import annotations

import json
import random
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from pinlater.backends.sql.driver_texts import driver_text
from pinlater.data_folder.private_files import make_private_database
from pinlater.errors import FlowsUnavailable, RequestInvalid, StageSealed
from pinlater.flows import end_records, owned_flows, queue_feed, retries, stops, views
from pinlater.flows.applets import check_expression, make_children
from pinlater.flows.budgets import Budget
from pinlater.flows.ends import (
    DueCallback,
    EndOutcome,
    ItemEnd,
    MadeChildren,
    QueuedJob,
    Recorded,
    Resumed,
    RetriedItems,
    SeesBodies,
    WaitingItem,
    WantedItems,
    sees_none,
)
from pinlater.flows.engines import CHANGES, LOOKS, is_conflict, make_engine
from pinlater.flows.flow_keys import KeyedFlow, Sees, find_keyed
from pinlater.flows.owned_flows import OwnerCounts, OwnerRoom
from pinlater.flows.rows import (
    APPLET_SUFFIX,
    COUNTERS,
    StageRow,
    complete,
    count,
    find_flow,
    lock_stage,
    lock_stages,
    seal,
    spec_of,
)
from pinlater.flows.tables import CALLBACKS, FLOW_KEYS, FLOWS, KEEPERS, STAGES, upgrade
from pinlater.model import ClaimOutcome
from pinlater.model.flow_words import (
    Applet,
    AppletKind,
    FlowCreated,
    FlowItem,
    FlowState,
    FlowStatus,
    ItemState,
    NewFlow,
    NewItem,
    Stage,
)
from pinlater.model.owner_bounds import NO_BOUNDS, OwnerBounds

T = TypeVar("T")

CANCELLED = "cancelled"
SLICE = 500
"""Rows of one step of what may have many."""

_TRIES = 7
"""Of a transaction that others were in the way of. The pauses between them grow: on a busy machine the same others are
in the way again, and five tries within a tenth of a second were not enough.
"""


class FlowDatabase:
    """Opened by a URL of SQLAlchemy. `bounds` says what an owner may have."""

    def __init__(self, url: str, bounds: Callable[[str], OwnerBounds] = lambda owner: NO_BOUNDS) -> None:
        self._bounds = bounds
        self._engine = make_engine(url)

    def open(self) -> None:
        path = self._engine.url.database if self._engine.dialect.name == "sqlite" else None
        if path:
            with suppress(OSError):  # SQLite says what is wrong
                make_private_database(Path(path))
        self._transaction(upgrade)

    def close(self) -> None:
        self._engine.dispose()

    def _look(self, work: Callable[[sa.Connection], T]) -> T:
        """As `_transaction`, of what changes nothing: it waits for no writer."""
        return self._transaction(work, LOOKS)

    def _transaction(self, work: Callable[[sa.Connection], T], options: Mapping[str, bool] = CHANGES) -> T:
        """Again where others were in the way, a few times."""
        for tried in range(1, _TRIES + 1):
            try:
                with self._engine.connect().execution_options(**options) as connection, connection.begin():
                    return work(connection)
            except sa.exc.DataError as error:
                raise RequestInvalid(
                    f"the database of flows takes no such text or number: {_error_text(error)}"
                ) from None
            except sa.exc.DBAPIError as error:
                if tried == _TRIES or not is_conflict(error):
                    raise FlowsUnavailable(
                        f"the database of flows failed: {_error_text(error)}", retry_after_ms=1_000
                    ) from error
            time.sleep(random.uniform(0, 0.01 * 2**tried))
        raise AssertionError

    # -- making and filling --------------------------------------------------------------------------------------------

    def create(
        self, new: NewFlow, now_ms: int, owner: str = "", may_fill: Sees | None = None, *, is_checked: bool = False
    ) -> FlowCreated:
        """A flow with its first items, or the one that has its name and dedupe key, where the caller may fill that one;
        what flow_limits.py says was checked, and with `is_checked` its expressions were too. RequestInvalid: one is
        none. LimitReached: its owner may have no more.
        """
        if not is_checked:
            for stage in new.stages:
                check_expression(stage)
        stages = _in_order(new.stages)
        try:
            return self._transaction(lambda connection: self._create(connection, new, stages, now_ms, owner, may_fill))
        except FlowsUnavailable as error:
            if not isinstance(error.__cause__, sa.exc.IntegrityError):
                raise
        return self._transaction(lambda connection: self._create(connection, new, stages, now_ms, owner, may_fill))

    def _create(
        self,
        connection: sa.Connection,
        new: NewFlow,
        stages: Sequence[Stage],
        now_ms: int,
        owner: str,
        may_fill: Sees | None,
    ) -> FlowCreated:
        keyed = KeyedFlow("")
        if new.dedupe_key:
            queues = {stage.queue for stage in stages}
            keyed = find_keyed(connection, new.name, new.dedupe_key, queues, may_fill)
        if keyed.id:
            return FlowCreated(keyed.id, is_new=False)
        flow_id = secrets.token_hex(13)
        inserted = connection.execute(
            sa.insert(FLOWS).values(
                id=flow_id,
                name=new.name,
                dedupe_key=None if keyed.is_taken else new.dedupe_key or None,
                state=FlowState.RUNNING,
                metadata=json.dumps(dict(new.metadata)),
                on_complete=json.dumps(asdict(new.on_complete)) if new.on_complete else None,
                on_failure=new.on_failure,
                ttl_ms=new.ttl_ms,
                created_ms=now_ms,
            )
        )
        assert inserted.inserted_primary_key is not None
        number = inserted.inserted_primary_key[0]
        room = OwnerRoom(connection, self._bounds)
        room.add_flow(number, owner)
        if keyed.is_taken:
            own = {"flow": number, "name": new.name, "dedupe_key": new.dedupe_key}
            connection.execute(sa.insert(FLOW_KEYS).values(**own))
        places = {stage.name: place for place, stage in enumerate(stages)}
        counters = dict.fromkeys(COUNTERS, 0)
        rows = [
            {
                "flow": number,
                "place": place,
                "name": stage.name,
                "parent": places.get(stage.parent),
                "queue": stage.queue,
                "spec": spec_of(stage),
                **counters,
            }
            for place, stage in enumerate(stages)
        ]
        connection.execute(sa.insert(STAGES), rows)
        counts: dict[tuple[int, int], dict[str, int]] = {}
        for place, stage in enumerate(stages):
            row = StageRow(number, place, places.get(stage.parent), stage, None, 0, 0, None)
            if new.items.get(stage.name):
                _, added = room.insert(row, new.items[stage.name], now_ms)
                counts[row.where] = {"items": added, "pending": added}
            if stage.name in new.sealed:
                seal(connection, row, now_ms)
        count(connection, counts)
        if new.sealed:
            complete(connection, [number], now_ms)
        room.write()
        return FlowCreated(flow_id, is_new=True)

    def add(self, flow_id: str, stage: str, items: Sequence[NewItem], now_ms: int, *, seal: bool = False) -> list[int]:
        """The numbers of the items, in order; of one whose dedupe key is taken that of the item which has it. With
        `seal` no more come. FlowNotFound, StageSealed, LimitReached, RequestInvalid: none was added.
        """
        return self._transaction(lambda connection: self._add(connection, flow_id, stage, items, now_ms, seal))

    def _add(
        self, connection: sa.Connection, flow_id: str, stage: str, items: Sequence[NewItem], now_ms: int, is_last: bool
    ) -> list[int]:
        if is_last:  # all of them in their order, as sealing may change any
            lock_stages(connection, [find_flow(connection, flow_id)["number"]])
        row = lock_stage(connection, flow_id, stage)
        if row.sealed_ms is not None:
            raise StageSealed(f"stage {stage!r} of flow {flow_id} is sealed: no more items come into it")
        room = OwnerRoom(connection, self._bounds)
        numbers, added = room.insert(row, items, now_ms)
        count(connection, {row.where: {"items": added, "pending": added}})
        if is_last:
            seal(connection, row, now_ms)
            complete(connection, [row.flow], now_ms)
        room.write()
        return numbers

    def seal(self, flow_id: str, stage: str, now_ms: int) -> list[str]:
        """No more items come into a stage; "": into those without a parent. The id of the flow, if it is over by that.
        FlowNotFound, RequestInvalid.
        """

        def work(connection: sa.Connection) -> list[str]:
            flow = find_flow(connection, flow_id)["number"]
            rows = [row for row in lock_stages(connection, [flow]).values() if row.parent is None]
            if stage:
                rows = [lock_stage(connection, flow_id, stage)]
            is_open = [row for row in rows if row.sealed_ms is None]
            for row in is_open:
                seal(connection, row, now_ms)
            return complete(connection, [flow], now_ms) if is_open else []

        return self._transaction(work)

    # -- to queues, and back -------------------------------------------------------------------------------------------

    def waiting(self, window: int, limit: int, shut: Collection[str] = ()) -> list[WaitingItem]:
        """Items that may come into their queues, at most so many of a stage being there, in the order of their numbers
        within a stage. One with a serialize key waits for those of other stages before it. None for queues `shut`.
        """

        return self._look(lambda connection: queue_feed.waiting(connection, window, limit, shut))

    def waiting_item(self, number: int) -> WaitingItem | ClaimOutcome:
        """One item that waits, or why it may not come into its queue: BEHIND an older one of its serialize key that
        waits too, or ENDED where its stage is stopped or it is gone.
        """
        return self._look(lambda connection: queue_feed.waiting_item(connection, number))

    def queued(self, jobs: Mapping[int, str], now_ms: int) -> list[str]:
        """These items are in their queues, as these jobs. The jobs of items that have ended meanwhile, or are gone."""

        return self._transaction(lambda connection: queue_feed.queued(connection, jobs, now_ms))

    def record(self, ends: Sequence[ItemEnd], now_ms: int) -> Recorded:
        """As `record_step`, with all children made on the way."""
        recorded = self.record_step(ends, now_ms)
        again = [
            index for index, each in enumerate(recorded.ends) if each.outcome in (EndOutcome.UNMADE, EndOutcome.LATER)
        ]
        if not again:
            return recorded
        made = {index: make_children(each, Budget())[0] for index in again if (each := recorded.ends[index].unmade)}
        ready = [ends[index]._replace(made=(*ends[index].made, *made.get(index, ()))) for index in again]
        rest, outcomes = self.record(ready, now_ms), list(recorded.ends)
        for index, outcome in zip(again, rest.ends, strict=True):
            outcomes[index] = outcome
        return Recorded(
            outcomes,
            recorded.has_waiting or rest.has_waiting,
            recorded.over + rest.over,
            [each for each in recorded.stopping if each not in rest.over] + rest.stopping,
        )

    def record_step(self, ends: Sequence[ItemEnd], now_ms: int) -> Recorded:
        """What is said of jobs: an outcome for each, in order, and what follows.

        The first result of an item counts, and later ones change nothing. A failure is counted once for a claim that
        is named; the item fails when it has more than its stage allows. A success whose children are still to be made
        changes nothing: it is UNMADE, and comes again with them.
        """
        return self._transaction(
            lambda connection: end_records.record(connection, ends, now_ms, OwnerRoom(connection, self._bounds))
        )

    def held(
        self, after: tuple[int, int, int], before_ms: int, limit: int
    ) -> tuple[list[QueuedJob], tuple[int, int, int]]:
        """Jobs of items that came into their queues before that time, a slice of all that there are, and where to go on
        behind; `(0, 0, 0)` is the beginning, and the answer at the end.
        """

        return self._look(lambda connection: queue_feed.held(connection, after, before_ms, limit))

    def longest_queued(self, flow_id: str, before_ms: int) -> list[tuple[str, QueuedJob]]:
        """Of each stage of a flow, named for people, the first item that is in its queue, if it came there before that
        time. FlowNotFound.
        """
        return self._look(lambda connection: queue_feed.longest_queued(connection, flow_id, before_ms))

    def lost(self, jobs: Mapping[int, str]) -> int:
        """These items have no jobs any more: they wait again, where they have that very job. How many."""

        return self._transaction(lambda connection: queue_feed.lost(connection, jobs))

    def open_flows(self) -> bool:
        """Whether any flow runs, or a callback is to be made."""

        def work(connection: sa.Connection) -> bool:
            runs = sa.select(FLOWS.c.number).where(FLOWS.c.completed_ms.is_(None)).limit(1)
            due = sa.select(CALLBACKS.c.flow).where(CALLBACKS.c.done_ms.is_(None)).limit(1)
            return any(connection.execute(each).first() is not None for each in (runs, due))

        return self._look(work)

    def open_queues(self) -> list[str]:
        """The queues of flows that are not over, those of hidden stages too."""
        is_open = sa.and_(FLOWS.c.number == STAGES.c.flow, FLOWS.c.completed_ms.is_(None))
        found = sa.select(STAGES.c.queue).distinct().join(FLOWS, is_open).order_by(STAGES.c.queue)
        return self._look(lambda connection: list(connection.execute(found).scalars()))

    def over_among(self, flow_ids: Sequence[str]) -> list[str]:
        """Those of these flows that are over, or gone."""

        def work(connection: sa.Connection) -> list[str]:
            runs: set[str] = set()
            for start in range(0, len(flow_ids), SLICE):
                of_these = FLOWS.c.id.in_(flow_ids[start : start + SLICE])
                some = sa.select(FLOWS.c.id).where(of_these, FLOWS.c.completed_ms.is_(None))
                runs.update(connection.execute(some).scalars())
            return [flow_id for flow_id in flow_ids if flow_id not in runs]

        return self._look(work)

    # -- ends of flows -------------------------------------------------------------------------------------------------

    def cancel(self, flow_id: str, now_ms: int) -> bool:
        """A flow that runs is cancelled: what has not ended is to fail, by `stop`. Whether it ran. FlowNotFound."""

        def work(connection: sa.Connection) -> bool:
            flow = find_flow(connection, flow_id)
            stages = list(lock_stages(connection, [flow["number"]]).values())
            ran = flow["completed_ms"] is None and flow["state"] == FlowState.RUNNING
            if ran:
                of_flow = FLOWS.c.number == flow["number"]
                connection.execute(sa.update(FLOWS).where(of_flow).values(state=FlowState.CANCELLED))
                end_records.stop_stages(connection, flow["number"], stages, CANCELLED, now_ms)
            return ran

        return self._transaction(work)

    def stopping(self) -> list[str]:
        """Flows of which something is still to be stopped."""

        def work(connection: sa.Connection) -> list[str]:
            found = sa.select(FLOWS.c.id).where(FLOWS.c.stopping_ms.is_not(None)).order_by(FLOWS.c.stopping_ms)
            return list(connection.execute(found.limit(100)).scalars())

        return self._look(work)

    def stop(self, flow_id: str, now_ms: int, limit: int) -> tuple[list[QueuedJob], bool]:
        """Fail up to so many pending items of the stages of a flow that are to be stopped. Their jobs, and whether it
        is done; then the flow may be over. FlowNotFound.
        """

        return self._transaction(lambda connection: stops.stop(connection, flow_id, now_ms, limit))

    def delete(self, flow_id: str, limit: int) -> bool:
        """Remove up to so many items; whether the flow is gone. FlowNotFound. What is begun is reaped, if nobody goes
        on with it.
        """

        def work(connection: sa.Connection) -> bool:
            flow = find_flow(connection, flow_id)["number"]
            connection.execute(sa.update(FLOWS).where(FLOWS.c.number == flow).values(reap_ms=0))
            return stops.remove(connection, flow, limit)

        return self._transaction(work)

    def reap(self, now_ms: int, limit: int) -> int:
        """Remove up to so many items of a flow whose time to live is over; how many were removed, the flow included."""

        def work(connection: sa.Connection) -> int:
            due = sa.select(FLOWS.c.number).where(FLOWS.c.reap_ms <= now_ms).order_by(FLOWS.c.reap_ms).limit(1)
            flow = connection.execute(due).scalar()
            if flow is None:
                return 0
            stops.remove(connection, flow, limit)
            return 1

        return self._transaction(work)

    def resume(self, flow_id: str, stage: str, expression: str, now_ms: int) -> list[str]:
        """As `mend`, with all children made. The id of the flow, if it is over by that."""
        if expression:
            check_expression(Stage(stage, "", "", "-", Applet(AppletKind.MAP, expression)))
        self.mend(flow_id, stage, expression, now_ms)
        over: list[str] = []
        after, made = 0, dict[int, Sequence[MadeChildren]]()
        while True:
            resumed = self.make_children(flow_id, after, made, now_ms)
            over += resumed.over
            if not resumed.unmade and not resumed.last:
                return over
            after = resumed.last
            made = {number: make_children(each, Budget())[0] for number, each in resumed.unmade.items()}

    def mend(self, flow_id: str, stage: str, expression: str, now_ms: int) -> None:
        """From now on another expression makes the children of a stage, where one is given, which was checked; and a
        callback that was given up is due. FlowNotFound, RequestInvalid.
        """
        self._transaction(lambda connection: stops.mend(connection, flow_id, stage, expression, now_ms))

    def make_children(
        self,
        flow_id: str,
        after: int,
        made: Mapping[int, Sequence[MadeChildren]],
        now_ms: int,
        only: Sequence[int] = (),
    ) -> Resumed:
        """The children of some items, behind that one, that have none yet as they could not be made; among these alone,
        where some are named. `made`: what was made of them since, by their numbers. FlowNotFound.
        """
        return self._transaction(
            lambda connection: stops.make_children(
                connection, flow_id, after, made, now_ms, OwnerRoom(connection, self._bounds), only
            )
        )

    def retry(self, flow_id: str, wanted: WantedItems, now_ms: int) -> RetriedItems:
        """Items that have ended are tried again, and the flow opens where it was over; of those that have failed up to
        10,000. Nothing else of the flow changes but by `and_follows`. FlowNotFound, RequestInvalid.
        """
        return self._transaction(
            lambda connection: retries.retry(connection, flow_id, wanted, now_ms, OwnerRoom(connection, self._bounds))
        )

    # -- owners --------------------------------------------------------------------------------------------------------

    def counts_of(self, owner: str) -> OwnerCounts:
        return self._look(lambda connection: owned_flows.counts_of(connection, owner))

    def counted_owners(self, limit: int) -> list[OwnerCounts]:
        """Those with the most items first."""
        return self._look(lambda connection: owned_flows.counted_owners(connection, limit))

    def recount(self, after: str, limit: int) -> str:
        """Count anew what some owners have, in order, as a server may have worked here that knows none; the last one,
        to go on after, and "" when all are counted.
        """
        owners = self._look(lambda connection: owned_flows.owners_after(connection, after, limit))
        for owner in owners:
            self._transaction(lambda connection: owned_flows.recount(connection, owner))  # noqa: B023
        return owners[-1] if len(owners) == limit else ""

    # -- the keeper ----------------------------------------------------------------------------------------------------

    def keep(
        self, holder: str, until_ms: int, over_ms: int = -1, is_dead: Callable[[str], bool] = lambda name: False
    ) -> tuple[bool, int]:
        """Whether this process is the keeper of all flows from now on, nobody else is, and what the keeper said last.
        It is that where another one has said nothing since `over_ms`, or is known to be dead. With an `until_ms` of 0
        it is no more.

        Clocks of servers may differ: times are only compared for being the same.
        """

        def work(connection: sa.Connection) -> tuple[bool, int]:
            is_free = sa.or_(KEEPERS.c.holder == holder, KEEPERS.c.until_ms.in_((0, over_ms)))
            taking = sa.update(KEEPERS).values(holder=holder, until_ms=until_ms)
            taken = connection.execute(taking.where(is_free)).rowcount > 0
            if not taken:
                other = connection.execute(sa.select(KEEPERS.c.holder)).scalar_one()
                taken = is_dead(other) and connection.execute(taking.where(KEEPERS.c.holder == other)).rowcount > 0
            kept_until_ms: int = connection.execute(sa.select(KEEPERS.c.until_ms)).scalar_one()
            return taken, kept_until_ms

        return self._transaction(work)

    # -- callbacks -----------------------------------------------------------------------------------------------------

    def take_callbacks(self, before_ms: int, until_ms: int, limit: int, flow_id: str = "") -> list[DueCallback]:
        """Those that are due at that time, the first ones first; of one flow, where it is named. A POST is due again
        only at `until_ms`, unless something is said of it: nobody else makes it meanwhile.
        """

        def work(connection: sa.Connection) -> list[DueCallback]:
            due = views.due_callbacks(connection, before_ms, limit, flow_id)
            posts = [each.flow for each in due if each.callback.url]
            if posts:
                connection.execute(sa.update(CALLBACKS).where(CALLBACKS.c.flow.in_(posts)).values(due_ms=until_ms))
            return due

        return self._transaction(work)

    def callback_made(self, due: DueCallback, now_ms: int) -> None:
        self._set_callback(due, done_ms=now_ms, error=None, tries=CALLBACKS.c.tries + 1)

    def callback_failed(self, due: DueCallback, error: str, retry_ms: int | None, now_ms: int) -> None:
        """`retry_ms` None: it is given up."""
        again = {"done_ms": now_ms} if retry_ms is None else {"due_ms": retry_ms}
        text = error[: end_records.MAX_ERROR_CHARS].replace("\0", "")
        self._set_callback(due, error=text, tries=CALLBACKS.c.tries + 1, **again)

    def _set_callback(self, due: DueCallback, **values: Any) -> None:
        """Nothing where the flow has been opened again meanwhile, and may have another one."""
        this = sa.and_(CALLBACKS.c.flow == due.flow, CALLBACKS.c.id == due.id)
        self._transaction(lambda connection: connection.execute(sa.update(CALLBACKS).where(this).values(**values)))

    # -- looking -------------------------------------------------------------------------------------------------------

    def status(self, flow_id: str, sees: SeesBodies = sees_none) -> FlowStatus:
        """FlowNotFound."""
        return self._look(lambda connection: views.status(connection, flow_id, sees))

    def flows(
        self,
        name: str,
        dedupe_key: str,
        state: FlowState | None,
        below: int,
        limit: int,
        may_read: Sees | None = None,
        sees: SeesBodies = sees_none,
    ) -> tuple[list[FlowStatus], int]:
        """A page of those that the caller may read, the newest first, and the number to go on below; 0: it was the
        last one.
        """
        return self._look(
            lambda connection: views.flows(connection, name, dedupe_key, state, below, limit, may_read, sees)
        )

    def items(
        self,
        flow_id: str,
        stage: str,
        state: ItemState | None,
        dedupe_key: str,
        numbers: Sequence[int],
        after: int,
        limit: int,
    ) -> tuple[list[FlowItem], int]:
        """A page behind a number, in order, and the number to go on behind; 0: it was the last one. FlowNotFound."""
        return self._look(
            lambda connection: views.items(connection, flow_id, stage, state, dedupe_key, numbers, after, limit)
        )

    def item(self, number: int, is_shown: Sees | None = None) -> tuple[FlowItem, str]:
        """An item, and its queue. ItemNotFound: also where that queue is none of those whose items are shown."""
        return self._look(lambda connection: views.item(connection, number, is_shown))

    def queues(self, flow_id: str) -> Mapping[str, str]:
        """The queue of each stage, hidden ones too. FlowNotFound."""
        return self._look(lambda connection: views.queues(connection, flow_id))


def _in_order(stages: Sequence[Stage]) -> list[Stage]:
    """Parents before their children, and before a child whose items a job makes the stage of that job."""
    ordered: list[Stage] = []
    left = list(stages)
    while left:
        known = {"", *(stage.name for stage in ordered)}
        for stage in [each for each in left if each.parent in known]:
            left.remove(stage)
            applet, made = stage.applet, stage
            if stage.parent and applet.kind is AppletKind.JOB:
                name = stage.name + APPLET_SUFFIX
                ordered.append(Stage(name, applet.job, applet.queue, stage.parent, max_failures=stage.max_failures))
                made = replace(stage, parent=name, applet=Applet(AppletKind.LIST))
            ordered.append(made)
    return ordered


def _error_text(error: sa.exc.DBAPIError) -> str:
    return driver_text(error.orig) if error.orig is not None else type(error).__name__
