"""The flow of a name and dedupe key: the same for all who may fill it, and another one for those who may not.

So nobody learns by a name that a flow of others is there, and nobody takes a name away from others. The first flow of a
name and key has the key in its own row, where it is unique; those of other callers have it in a row of FLOW_KEYS.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from typing import NamedTuple

import sqlalchemy as sa

from pinlater.flows.rows import for_update
from pinlater.flows.tables import FLOW_KEYS, FLOWS, STAGES

Sees = Callable[[Collection[str]], bool]
"""Whether what is on these queues is there for a caller. Where none is given, everything is."""


class KeyedFlow(NamedTuple):
    """The `id` of the flow that a caller means by a name and key; "": there is none. `is_taken`: a flow that this
    caller may not fill has them in its own row.
    """

    id: str
    is_taken: bool = False


def find_keyed(
    connection: sa.Connection, name: str, dedupe_key: str, queues: Collection[str], may_fill: Sees | None
) -> KeyedFlow:
    """Of several the one on the same queues, else the oldest. Two callers that make one of a taken key at the same
    time come one after the other.
    """
    first = sa.select(FLOWS.c.number).where(FLOWS.c.name == name, FLOWS.c.dedupe_key == dedupe_key)
    holder = connection.execute(first).scalar()
    may_fill = may_fill or _always
    if holder is not None and not may_fill(queues_of_flows(connection, [holder])[holder]):
        holder = connection.execute(for_update(connection, first)).scalar()
    of_key = (FLOW_KEYS.c.name == name, FLOW_KEYS.c.dedupe_key == dedupe_key)
    numbers = {*connection.execute(sa.select(FLOW_KEYS.c.flow).where(*of_key)).scalars()}
    there = queues_of_flows(connection, numbers if holder is None else {*numbers, holder})
    meant = sorted((found != set(queues), number) for number, found in there.items() if may_fill(found))
    if not meant:
        return KeyedFlow("", holder is not None)
    found_id = connection.execute(sa.select(FLOWS.c.id).where(FLOWS.c.number == meant[0][1])).scalar_one()
    return KeyedFlow(found_id)


def _always(_queues: Collection[str]) -> bool:
    return True


def queues_of_flows(connection: sa.Connection, numbers: Collection[int]) -> dict[int, set[str]]:
    """The queues of the stages of these flows, hidden ones too."""
    queues: dict[int, set[str]] = defaultdict(set)
    if numbers:
        of_these = sa.select(STAGES.c.flow, STAGES.c.queue).where(STAGES.c.flow.in_(sorted(numbers)))
        for row in connection.execute(of_these):
            queues[row.flow].add(row.queue)
    return queues


def keys_of(connection: sa.Connection, numbers: Collection[int]) -> dict[int, str]:
    """The dedupe keys of those of these flows that do not have it in their own rows."""
    if not numbers:
        return {}
    of_these = sa.select(FLOW_KEYS.c.flow, FLOW_KEYS.c.dedupe_key).where(FLOW_KEYS.c.flow.in_(sorted(numbers)))
    return {row.flow: row.dedupe_key for row in connection.execute(of_these)}


def numbers_of_key(dedupe_key: str, name: str) -> sa.Subquery:
    """The `number` of each flow of a key; of whichever name where that is ""."""
    runs = [
        sa.select(number.label("number")).where(key == dedupe_key, *([named == name] if name else []))
        for number, key, named in (
            (FLOWS.c.number, FLOWS.c.dedupe_key, FLOWS.c.name),
            (FLOW_KEYS.c.flow, FLOW_KEYS.c.dedupe_key, FLOW_KEYS.c.name),
        )
    ]
    return sa.union_all(*runs).subquery()
