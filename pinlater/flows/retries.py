"""Retries of items that have ended: a flow that is over opens again, the items wait for another round of tries, and
what had followed from them is removed, where that is wanted.

A plain retry takes nothing back: it refuses an item where a caller has sealed a stage below, where its stage or one
below was stopped, and where the item has succeeded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from pinlater.errors import FlowNotFound, RequestInvalid
from pinlater.flows.ends import QueuedJob, RetriedItems, WantedItems
from pinlater.flows.many_rows import among
from pinlater.flows.owned_flows import OwnerRoom
from pinlater.flows.rows import (
    APPLET_SUFFIX,
    KEYS_AT_ONCE,
    StageRow,
    count,
    find_flow,
    for_update,
    is_stage,
    lock_stages,
    reopen,
    stage_row,
)
from pinlater.flows.stops import another_round
from pinlater.flows.tables import FAILURES, FLOWS, ITEMS, STAGES
from pinlater.model.flow_words import ItemState, RefusedItems

AT_ONCE = 10_000
"""Items of one transaction, of those that have failed."""

MOST_REMOVED = 50_000
"""Items that follow from those of one call."""

MAX_NAMED = 100
"""Numbers that are named with one reason."""

_CHILD_RUNS = ((0, 1), (1, 10), (10, 100), (100, 1_000))
"""An item has up to 1,000 children in a stage, numbered from 0: those of one run are there only if all before are."""

_READ = [
    ITEMS.c[name] for name in ("number", "place", "state", "job", "is_queued", "applet_error", "ended_ms", "failures")
]
_GONE = "the flow has no such item (any more)"
_PENDING = "it has not ended: it waits, or runs"
_STOPPING = "the flow is still being stopped: send it again in a moment"


@dataclass(slots=True)
class _Refusals:
    """By their reasons."""

    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    numbers: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def add(self, reason: str, number: int) -> None:
        self.counts[reason] += 1
        if len(self.numbers[reason]) < MAX_NAMED:
            self.numbers[reason].append(number)

    def all(self) -> list[RefusedItems]:
        return [RefusedItems(reason, amount, self.numbers[reason]) for reason, amount in self.counts.items()]


def retry(connection: sa.Connection, flow_id: str, wanted: WantedItems, now_ms: int, room: OwnerRoom) -> RetriedItems:
    """See FlowDatabase.retry."""
    flow = find_flow(connection, flow_id)["number"]
    tree = _StageTree(_stages(connection, flow))
    numbers, is_last = list(wanted.numbers), True
    if not numbers:
        numbers, is_last = _failed(connection, tree, wanted)
    rows, below = _lock(connection, flow, tree, numbers, wanted.and_follows and bool(wanted.numbers))
    tree = _StageTree(lock_stages(connection, [flow]))
    found = connection.execute(for_update(connection, sa.select(FLOWS).where(FLOWS.c.number == flow)))
    flow_row = found.mappings().one_or_none()
    if flow_row is None or (flow_row["reap_ms"] is not None and flow_row["reap_ms"] <= now_ms):
        raise FlowNotFound.named(flow_id)

    refused, taken, broken = _Refusals(), list[sa.Row[Any]](), list[int]()
    for number in numbers:
        row = rows.get(number)
        if row is None or (wanted.numbers and tree.by_place[row.place].is_hidden):
            refused.add(_GONE, number)
            continue
        is_known = not wanted.numbers and row.state == ItemState.PENDING  # another call has just retried it
        if is_known or number in below:  # or it goes with the one that it follows from
            continue
        reason = _STOPPING if flow_row["stopping_ms"] is not None else _refusal(tree, row, wanted)
        if reason:
            refused.add(reason, number)
        elif row.state == ItemState.SUCCEEDED and not (wanted.and_follows and wanted.numbers):
            broken.append(number)
        else:
            taken.append(row)
    if not wanted.numbers and is_last:
        _note_unseen(connection, tree, wanted, refused)

    removed = {number: rows[number] for number in below if number in rows} if taken else {}
    jobs = [
        QueuedJob(number, tree.by_place[each.place].stage.queue, each.job)
        for number, each in removed.items()
        if each.state == ItemState.PENDING and each.job
    ]
    if taken or broken:
        places = {each.place for each in taken} | {rows[number].place for number in broken}
        _open(connection, tree, places)
        if flow_row["completed_ms"] is not None:
            reopen(connection, flow_row)
        counts: dict[tuple[int, int], dict[str, int]] = defaultdict(lambda: defaultdict(int))
        _remove(connection, tree, removed, counts)
        _begin_again(connection, tree, taken, counts)
        count(connection, counts)
        if removed:
            room.added(flow, -len(removed))
            room.write()
    return RetriedItems(len(taken) + len(broken), len(removed), refused.all(), broken, jobs, is_last)


class _StageTree:
    """The stages of a flow, and what is below each."""

    def __init__(self, rows: Mapping[tuple[int, int], StageRow]) -> None:
        self.by_place = {row.place: row for row in rows.values()}
        self.children: dict[int, list[StageRow]] = defaultdict(list)
        for row in self.by_place.values():
            if row.parent is not None:
                self.children[row.parent].append(row)

    def below(self, place: int) -> Iterator[StageRow]:
        """All stages below it, parents first."""
        for row in self.children[place]:
            yield row
            yield from self.below(row.place)

    def obstacle(self, place: int) -> str:
        """Why items of this stage may not be retried by themselves; "" if they may."""
        for row in (self.by_place[place], *self.below(place)):
            name = row.stage.name.removesuffix(APPLET_SUFFIX)
            if row.stop_reason is not None:
                return f"stage {name} is stopped ({row.stop_reason}): retry it with what follows, which lets it go on"
            if row.place != place and row.sealed_ms is not None and row.stage.keeps_open:
                return f"stage {name}, into which its items come, was sealed: retry it with what follows"
        return ""

    def ended_with_parents(self, places: Collection[int]) -> list[StageRow]:
        """Of the stages below these, those that were sealed because all above them was complete."""
        found = {row.place: row for place in places for row in self.below(place)}
        return [row for row in found.values() if row.sealed_ms is not None and self._is_sealed_by_parent(row)]

    def _is_sealed_by_parent(self, row: StageRow) -> bool:
        if row.parent is None or row.stage.keeps_open:
            return False
        above = self.by_place[row.parent]
        makers_of = above if above.parent is None or not above.is_hidden else self.by_place[above.parent]
        return above.is_complete and makers_of.is_complete


def _stages(connection: sa.Connection, flow: int) -> dict[tuple[int, int], StageRow]:
    """As they are now, without locks."""
    rows = connection.execute(sa.select(STAGES).where(STAGES.c.flow == flow).order_by(STAGES.c.place)).mappings()
    return {(row["flow"], row["place"]): stage_row(row) for row in rows}


def _refusal(tree: _StageTree, row: sa.Row[Any], wanted: WantedItems) -> str:
    """Why this item is not retried; "" if it is."""
    if row.state == ItemState.PENDING:
        return _PENDING
    if row.state == ItemState.SUCCEEDED and row.applet_error is None and not wanted.and_follows:
        has_below = bool(tree.children[row.place])
        what = "it has succeeded, and its children are there" if has_below else "it has succeeded"
        return f"{what}: retry it with what follows, which removes its result{' and these' if has_below else ''} first"
    return "" if wanted.and_follows else tree.obstacle(row.place)


def _failed(connection: sa.Connection, tree: _StageTree, wanted: WantedItems) -> tuple[list[int], bool]:
    """The first items that have failed, or whose children could not be made, and may be retried; and whether these are
    all. RequestInvalid: there is no such stage.
    """
    names = {row.stage.name for row in tree.by_place.values() if not row.is_hidden}
    if wanted.stage and wanted.stage not in names:
        raise RequestInvalid.of("the name of a stage", wanted.stage, f"one of the flow: {', '.join(sorted(names))}")
    numbers: list[int] = []
    failed = ITEMS.c.state == ItemState.FAILED, ITEMS.c.is_queued == 0, ITEMS.c.ended_ms <= wanted.until_ms
    broken = ITEMS.c.state == ItemState.SUCCEEDED, ITEMS.c.is_queued == 0, ITEMS.c.applet_error.is_not(None)
    for stage in _meant(tree, wanted):
        if not wanted.and_follows and tree.obstacle(stage.place):
            continue
        makers = [row for row in tree.children[stage.place] if row.is_hidden]
        unmade = [(row, broken) for row in (stage, *makers) if row.applet_errors]
        for row, meant in [(stage, failed), *unmade]:
            of_stage = ITEMS.c.flow == row.flow, ITEMS.c.place == row.place
            some = sa.select(ITEMS.c.number).where(*of_stage, *meant).order_by(ITEMS.c.number)
            numbers += connection.execute(some.limit(AT_ONCE + 1 - len(numbers))).scalars()
    return sorted(numbers[:AT_ONCE]), len(numbers) <= AT_ONCE


def _meant(tree: _StageTree, wanted: WantedItems) -> list[StageRow]:
    return [row for row in tree.by_place.values() if not row.is_hidden and wanted.stage in ("", row.stage.name)]


def _note_unseen(connection: sa.Connection, tree: _StageTree, wanted: WantedItems, refused: _Refusals) -> None:
    """The failed items of stages that were passed over."""
    if wanted.and_follows:
        return
    for row in _meant(tree, wanted):
        reason = tree.obstacle(row.place)
        failed = connection.execute(sa.select(STAGES.c.failed).where(is_stage(row))).scalar_one() if reason else 0
        if failed:
            refused.counts[reason] += failed


def _lock(
    connection: sa.Connection, flow: int, tree: _StageTree, numbers: Sequence[int], and_follows: bool
) -> tuple[dict[int, sa.Row[Any]], set[int]]:
    """The rows of these items, and of those that follow from them, which are named too. Whoever makes children of a
    locked item waits, so what follows is all there is when looking again finds nothing more.
    """
    rows: dict[int, sa.Row[Any]] = {}
    below: set[int] = set()
    fresh = set(numbers)
    while fresh:
        in_order = sorted(fresh)
        for start in range(0, len(in_order), KEYS_AT_ONCE):
            some = among(connection, ITEMS.c.number, in_order[start : start + KEYS_AT_ONCE])
            of_flow = sa.select(*_READ).where(some, ITEMS.c.flow == flow)
            locked = for_update(connection, of_flow).order_by(ITEMS.c.number)
            rows.update((row.number, row) for row in connection.execute(locked))
        if not and_follows:
            break
        found = _followers(connection, tree, {number: rows[number].place for number in numbers if number in rows})
        below |= found
        fresh = found - rows.keys()
    return rows, below


def _followers(connection: sa.Connection, tree: _StageTree, places: Mapping[int, int]) -> set[int]:
    """The items that were made of these, whose places are said, and of those, and so on. RequestInvalid: too many."""
    found: set[int] = set()
    level = dict(places)
    while level:
        level = _children(connection, tree, level)
        found |= level.keys()
        if len(found) > MOST_REMOVED:
            raise RequestInvalid(f"more than {MOST_REMOVED:,} items follow from these: retry fewer at once")
    return found


def _children(connection: sa.Connection, tree: _StageTree, places: Mapping[int, int]) -> dict[int, int]:
    """The places of those that were made of these."""
    found: dict[int, int] = {}
    for parent in sorted(set(places.values())):
        for row in tree.children[parent]:
            whole = [number for number, place in places.items() if place == parent]
            for first, behind in _CHILD_RUNS:
                keys = {f"@{number}:{index}": number for number in whole for index in range(first, behind)}
                made: dict[int, int] = defaultdict(int)
                names = list(keys)
                for start in range(0, len(names), KEYS_AT_ONCE):
                    of_keys = among(connection, ITEMS.c.dedupe_key, names[start : start + KEYS_AT_ONCE])
                    some = sa.select(ITEMS.c.number, ITEMS.c.dedupe_key).where(
                        ITEMS.c.flow == row.flow, ITEMS.c.place == row.place, of_keys
                    )
                    for number, key in connection.execute(some):
                        found[number] = row.place
                        made[keys[key]] += 1
                whole = [number for number, amount in made.items() if amount == behind - first]
    return found


def _open(connection: sa.Connection, tree: _StageTree, places: Collection[int]) -> None:
    """Items come into these stages and those below again: what only the end of all above it had sealed is open."""
    for row in tree.ended_with_parents(places):
        row.sealed_ms = None
        connection.execute(sa.update(STAGES).where(is_stage(row)).values(sealed_ms=None))
    stopped = {row.place: row for place in places for row in (tree.by_place[place], *tree.below(place))}
    for row in stopped.values():
        if row.stop_reason is not None:
            row.stop_reason = None
            connection.execute(sa.update(STAGES).where(is_stage(row)).values({"stop_reason": None}))


def _remove(
    connection: sa.Connection,
    tree: _StageTree,
    rows: Mapping[int, sa.Row[Any]],
    counts: dict[tuple[int, int], dict[str, int]],
) -> None:
    numbers = sorted(rows)
    for start in range(0, len(numbers), KEYS_AT_ONCE):
        some = numbers[start : start + KEYS_AT_ONCE]
        connection.execute(sa.delete(FAILURES).where(among(connection, FAILURES.c.item, some)))
        connection.execute(sa.delete(ITEMS).where(among(connection, ITEMS.c.number, some)))
    for each in rows.values():
        _uncount(counts[tree.by_place[each.place].where], each)["items"] -= 1


def _begin_again(
    connection: sa.Connection,
    tree: _StageTree,
    rows: Sequence[sa.Row[Any]],
    counts: dict[tuple[int, int], dict[str, int]],
) -> None:
    by_place: dict[int, list[int]] = defaultdict(list)
    for each in rows:
        by_place[each.place].append(each.number)
        _uncount(counts[tree.by_place[each.place].where], each)["pending"] += 1
    for place, numbers in sorted(by_place.items()):
        values = another_round(tree.by_place[place])
        for start in range(0, len(numbers), KEYS_AT_ONCE):
            some = among(connection, ITEMS.c.number, numbers[start : start + KEYS_AT_ONCE])
            connection.execute(sa.update(ITEMS).where(some).values(**values, result=None, applet_error=None))


def _uncount(counts: dict[str, int], row: sa.Row[Any]) -> dict[str, int]:
    """Without what this item counts for, but as one of all."""
    counts[ItemState(row.state).name.lower()] -= 1
    counts["queued"] -= row.is_queued
    counts["applet_errors"] -= row.applet_error is not None
    return counts
