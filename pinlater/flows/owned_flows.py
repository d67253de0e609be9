"""Owners of flows: how many flows and items each has, kept in the transactions that make and remove them.

A flow that has an owner has a row that says so, and each owner a row with its counts. Those are changed last of all, in
the order of their names, so nobody waits for them who has not all other rows. What is under way elsewhere at the same
moment is not counted yet: each such transaction may go beyond a bound by what it adds.

A server that knows no owners neither counts what it adds nor what it removes: `recount` makes that right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

import sqlalchemy as sa

from pinlater.errors import LimitReached
from pinlater.flows.many_rows import among
from pinlater.flows.rows import KEYS_AT_ONCE, StageRow, for_update, insert_items
from pinlater.flows.tables import FLOW_KEYS, FLOWS, OWNED_FLOWS, OWNERS, STAGES
from pinlater.model.flow_words import NewItem
from pinlater.model.owner_bounds import OwnedKind, OwnerBounds
from pinlater.queues.owned_entries import limit_reached, ways_out

Bounds = Callable[[str], OwnerBounds]
_FULL = f"the owner of this flow may have no more items of flows: {ways_out(OwnedKind.FLOW_ITEMS)}"
"""Who adds to a flow, or reads what it is stuck with, learns neither whose it is nor how much they have elsewhere."""


class OwnerCounts(NamedTuple):
    owner: str
    flows: int = 0
    items: int = 0


def counts_of(connection: sa.Connection, owner: str) -> OwnerCounts:
    row = connection.execute(sa.select(OWNERS).where(OWNERS.c.owner == owner)).mappings().one_or_none()
    return OwnerCounts(owner) if row is None else OwnerCounts(**row)


class OwnerRoom:
    """The room that owners have for more items, in one transaction."""

    def __init__(self, connection: sa.Connection, bounds: Bounds) -> None:
        self._connection = connection
        self._bounds = lru_cache(bounds)
        self._expected: Collection[int] = ()
        self._owners: dict[int, str] = {}
        """Of flows, as far as they were looked up; "" for nobody."""
        self._reserved: Counter[str] = Counter()
        """What they have, with what is to be added now."""
        self._added_flows: Counter[str] = Counter()
        self._added_items: Counter[str] = Counter()

    def expect(self, flows: Collection[int]) -> None:
        """Items may be added to these: when the first are, the owners of all are looked up at once."""
        self._expected = flows

    def add_flow(self, flow: int, owner: str) -> None:
        """A flow that was just made. LimitReached."""
        self._owners[flow] = owner
        if not owner:
            return
        has, bound = counts_of(self._connection, owner), self._bounds(owner).flows
        if bound and has.flows >= bound:
            raise limit_reached(OwnedKind.FLOWS, owner, has.flows, bound)
        self._reserved[owner] = has.items
        self._added_flows[owner] += 1
        self._connection.execute(sa.insert(OWNED_FLOWS).values(flow=flow, owner=owner))

    def reserve(self, flow: int, items: int) -> None:
        """Before so many are added. LimitReached: there is no room for them, and none is taken."""
        owner = self._owner_of(flow) if items else ""
        bound = self._bounds(owner).flow_items if owner else 0
        if bound and self._reserved[owner] + items > bound:
            raise LimitReached.by(OwnedKind.FLOW_ITEMS.limit, _FULL)
        self._reserved[owner] += items

    def added(self, flow: int, items: int) -> None:
        owner = self._owner_of(flow) if items else ""
        if owner:
            self._added_items[owner] += items

    def insert(self, row: StageRow, items: Sequence[NewItem], now_ms: int) -> tuple[list[int], int]:
        """As `insert_items`. LimitReached: nothing of the transaction may stand."""
        without_key = sum(not item.dedupe_key for item in items)
        self.reserve(row.flow, without_key)  # those with a key may be there already
        numbers, added = insert_items(self._connection, row, items, now_ms)
        self.reserve(row.flow, added - without_key)
        self.added(row.flow, added)
        return numbers, added

    def write(self) -> None:
        """Count what was added; the last of all that the transaction changes."""
        for owner in sorted(self._added_flows.keys() | self._added_items.keys()):
            _change(self._connection, OwnerCounts(owner, self._added_flows[owner], self._added_items[owner]))

    def _owner_of(self, flow: int) -> str:
        if flow not in self._owners:
            flows = sorted({flow, *self._expected} - self._owners.keys())
            self._owners |= dict.fromkeys(flows, "")
            owned = sa.select(OWNED_FLOWS.c.flow, OWNED_FLOWS.c.owner, OWNERS.c["items"]).join_from(
                OWNED_FLOWS, OWNERS, OWNED_FLOWS.c.owner == OWNERS.c.owner, isouter=True
            )
            of_these = among(self._connection, OWNED_FLOWS.c.flow, flows)
            for number, owner, items in self._connection.execute(owned.where(of_these)):
                self._owners[number] = owner
                self._reserved.setdefault(owner, items or 0)
        return self._owners[flow]


def _change(connection: sa.Connection, by: OwnerCounts) -> None:
    after = {"flows": OWNERS.c.flows + by.flows, "items": OWNERS.c["items"] + by.items}
    # what a server added that knows no owners was not counted, and is removed with the rest
    values = {name: sa.case((count < 0, 0), else_=count) for name, count in after.items()}
    of_owner = sa.update(OWNERS).where(OWNERS.c.owner == by.owner)
    if not connection.execute(of_owner.values(values)).rowcount and min(by.flows, by.items) >= 0:
        connection.execute(sa.insert(OWNERS).values(by._asdict()))


def forget(connection: sa.Connection, flow: int) -> Callable[[], None]:
    """A flow is removed: what is to be done when all its rows are. Once, whoever else removes it at the same time."""
    owner = connection.execute(sa.select(OWNED_FLOWS.c.owner).where(OWNED_FLOWS.c.flow == flow)).scalar()
    if owner is None:
        return lambda: None
    items = connection.execute(sa.select(sa.func.sum(STAGES.c["items"])).where(STAGES.c.flow == flow)).scalar()
    if not connection.execute(sa.delete(OWNED_FLOWS).where(OWNED_FLOWS.c.flow == flow)).rowcount:
        return lambda: None
    return lambda: _change(connection, OwnerCounts(owner, -1, -int(items or 0)))


def counted_owners(connection: sa.Connection, limit: int) -> list[OwnerCounts]:
    """Those with the most items first."""
    in_order = sa.select(OWNERS).order_by(OWNERS.c["items"].desc(), OWNERS.c.owner).limit(limit)
    return [OwnerCounts(**row) for row in connection.execute(in_order).mappings()]


def owners_after(connection: sa.Connection, after: str, limit: int) -> list[str]:
    """Of flows, in order."""
    some = sa.select(OWNED_FLOWS.c.owner).distinct().where(OWNED_FLOWS.c.owner > after).order_by(OWNED_FLOWS.c.owner)
    counted = sa.select(OWNERS.c.owner).where(OWNERS.c.owner > after).order_by(OWNERS.c.owner)
    found = {owner for each in (some, counted) for owner in connection.execute(each.limit(limit)).scalars()}
    return sorted(found)[:limit]


def recount(connection: sa.Connection, owner: str) -> None:
    """Whoever adds to this owner's flows, or removes one, waits meanwhile; and what they add is on top."""
    counted = connection.execute(for_update(connection, sa.select(OWNERS).where(OWNERS.c.owner == owner)))
    before = counted.mappings().one_or_none()
    _forget_missing(connection, owner)
    of_owner = OWNED_FLOWS.c.owner == owner
    flows = connection.execute(sa.select(sa.func.count()).select_from(OWNED_FLOWS).where(of_owner)).scalar_one()
    in_stages = sa.select(sa.func.sum(STAGES.c["items"])).join_from(
        OWNED_FLOWS, STAGES, OWNED_FLOWS.c.flow == STAGES.c.flow
    )
    items = int(connection.execute(in_stages.where(of_owner)).scalar() or 0)
    now = OwnerCounts(owner, flows, items)
    if before is None:
        connection.execute(sa.insert(OWNERS).values(now._asdict()))
    elif not flows:
        connection.execute(sa.delete(OWNERS).where(OWNERS.c.owner == owner))
    elif now != OwnerCounts(**before):  # mostly it is right, and then nothing is written
        connection.execute(sa.update(OWNERS).where(OWNERS.c.owner == owner).values(now._asdict()))


def _forget_missing(connection: sa.Connection, owner: str) -> None:
    """What is kept of flows of this owner that a server has removed which knows nothing of it."""
    is_there = sa.exists().where(FLOWS.c.number == OWNED_FLOWS.c.flow)
    of_missing = sa.select(OWNED_FLOWS.c.flow).where(OWNED_FLOWS.c.owner == owner, ~is_there)
    missing = connection.execute(of_missing).scalars().all()
    for start in range(0, len(missing), KEYS_AT_ONCE):
        some = missing[start : start + KEYS_AT_ONCE]
        for table in (FLOW_KEYS, OWNED_FLOWS):
            connection.execute(sa.delete(table).where(among(connection, table.c.flow, some)))
