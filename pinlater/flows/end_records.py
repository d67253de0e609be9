"""The recording of ends: what results and failures of items come to, in one transaction for many."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from pinlater.errors import LimitReached
from pinlater.flows.applets import AppletFailed, children_of, make_children
from pinlater.flows.budgets import Budget
from pinlater.flows.ends import EndOutcome, ItemEnd, MadeChildren, Recorded, RecordedEnd, UnmadeChildren
from pinlater.flows.many_rows import among, change_items
from pinlater.flows.owned_flows import OwnerRoom
from pinlater.flows.rows import APPLET_SUFFIX, StageRow, complete, count, for_update, insert_items, lock_stages
from pinlater.flows.tables import FAILURES, FLOWS, ITEMS, STAGES
from pinlater.model.flow_words import AppletKind, ItemState, NewItem, OnFailure

STOPPED = "stopped: another item of the flow failed"

MAX_REASON_CHARS, MAX_WORKER_CHARS, MAX_ERROR_CHARS, MAX_CLAIM_CHARS = 2_000, 255, 2_000, 1_000
MAX_END_STEPS, MAX_TRANSACTION_STEPS = 100, 20_000
"""Of expressions, within a transaction: 50 microseconds for one end, and 10 milliseconds for all of them. What takes
more is made outside, before the end is recorded.
"""

MAX_TRANSACTION_BYTES = 2 * 1024 * 1024
"""Of payloads that are read for children, and of children that are written, within a transaction; of one end it may be
more.
"""

_MADE_KINDS = AppletKind.MAP, AppletKind.LIST

_SMALL_BYTES = 4_096
"""A payload of no more is read with its item."""

_READ = [ITEMS.c[name] for name in ("number", "flow", "place", "job", "state", "failures", "retry_ms", "is_queued")]

_PAYLOAD = [
    sa.literal_column("length(payload)", sa.Integer).label("size"),
    sa.literal_column(f"CASE WHEN length(payload) <= {_SMALL_BYTES} THEN payload END", ITEMS.c.payload.type).label(
        "payload"
    ),
]
"""In words that cost no time: each end reads them."""


def record(connection: sa.Connection, ends: Sequence[ItemEnd], now_ms: int, room: OwnerRoom) -> Recorded:
    """See FlowDatabase.record."""
    items = _items(connection, ends)
    if not items:
        return Recorded([RecordedEnd(EndOutcome.NO_ITEM)] * len(ends), False, [], [])
    flows = {item["flow"] for item in items.values()}
    stages = lock_stages(connection, flows)
    room.expect(flows)
    recording = _Recording(now_ms, stages, _counted(connection, ends, items), room)
    named = [(end, items.get(end.number or end.job)) for end in ends]
    is_later = recording.postpone(named)
    _read_payloads(connection, [item for (_, item), later in zip(named, is_later, strict=True) if item and not later])
    outcomes = [
        RecordedEnd(EndOutcome.LATER) if later else recording.end(end, item)
        for (end, item), later in zip(named, is_later, strict=True)
    ]
    stopping = recording.write(connection)
    over: list[str] = []
    if recording.counts:
        over = complete(connection, flows, now_ms, stages)
    room.write()
    return Recorded(outcomes, any(recording.children.values()), over, [each for each in stopping if each not in over])


def _items(connection: sa.Connection, ends: Sequence[ItemEnd]) -> dict[int | str, dict[str, Any]]:
    """The items meant, locked in the order of their numbers; each by its number, or by its job where no number was
    said.
    """
    jobs = list({end.job for end in ends if not end.number})
    numbers = list({end.number for end in ends if end.number})
    needs_payload = any(end.result is not None for end in ends)
    named = among(connection, ITEMS.c.job, jobs)
    if numbers:  # by two conditions at once no index is found everywhere
        numbers += connection.execute(sa.select(ITEMS.c.number).where(named)).scalars()
        named = among(connection, ITEMS.c.number, numbers)
    wanted = sa.select(*_READ, *(_PAYLOAD if needs_payload else [])).where(named)
    found: dict[int | str, dict[str, Any]] = {}
    for row in connection.execute(for_update(connection, wanted).order_by(ITEMS.c.number)).mappings():
        item = dict(row)
        found[item["number"]] = item
        if item["job"]:
            found[item["job"]] = item
    return found


def _read_payloads(connection: sa.Connection, items: Sequence[dict[str, Any]]) -> None:
    """Those that children are to be made of, as far as they were too large to be read with their items."""
    missing = {item["number"]: item for item in items if item.get("has_children") and item["payload"] is None}
    if missing:
        of_these = among(connection, ITEMS.c.number, sorted(missing))
        for number, payload in connection.execute(sa.select(ITEMS.c.number, ITEMS.c.payload).where(of_these)):
            missing[number]["payload"] = payload


def _counted(
    connection: sa.Connection, ends: Sequence[ItemEnd], items: Mapping[int | str, dict[str, Any]]
) -> set[tuple[int, str]]:
    """The claims among these that were counted as failures before, each with its item."""
    failed = {
        item["number"]
        for end in ends
        if end.result is None and end.claim and (item := items.get(end.number or end.job)) and item["failures"]
    }
    if not failed:
        return set()
    of_these = sa.select(FAILURES.c.item, FAILURES.c.claim).where(among(connection, FAILURES.c.item, sorted(failed)))
    return {(item, claim) for item, claim in connection.execute(of_these)}


class _Recording:
    """What the ends come to, before it is written."""

    def __init__(
        self,
        now_ms: int,
        stages: Mapping[tuple[int, int], StageRow],
        counted: set[tuple[int, str]],
        room: OwnerRoom,
    ) -> None:
        self._now_ms = now_ms
        self._room = room
        self._stages = stages
        self._counted = counted
        self._steps = MAX_TRANSACTION_STEPS
        self._below: dict[tuple[int, int], list[StageRow]] = defaultdict(list)
        for row in stages.values():
            if row.parent is not None:
                self._below[row.flow, row.parent].append(row)
        self._ended: list[dict[str, Any]] = []
        self._retried: dict[int, dict[str, Any]] = {}
        self._failures: list[dict[str, Any]] = []
        self._applet_errors: list[dict[str, Any]] = []
        self._failed_stages: set[tuple[int, int]] = set()
        self._failed_makers: dict[int, tuple[StageRow, str]] = {}
        """Jobs that were to make items, by the numbers of their own: of which hidden stage, and why they failed."""
        self.children: dict[tuple[int, int], list[NewItem]] = defaultdict(list)
        self.counts: dict[tuple[int, int], dict[str, int]] = defaultdict(lambda: defaultdict(int))

    def postpone(self, ends: Sequence[tuple[ItemEnd, dict[str, Any] | None]]) -> list[bool]:
        """Whether each is left for another transaction, as it and those before it come to too many bytes."""
        is_later: list[bool] = []
        read_bytes = 0
        if not self._below:
            return [False] * len(ends)
        for end, item in ends:
            size = 0
            if item is not None and end.result is not None and item["state"] == ItemState.PENDING:
                below = self._open_below(item)
                item["has_children"] = bool(below)
                if below:
                    size = bytes_of(item["size"], end.result, end.made, below)
            is_later.append(bool(size and read_bytes and read_bytes + size > MAX_TRANSACTION_BYTES))
            read_bytes += 0 if is_later[-1] else size
        return is_later

    def _open_below(self, item: Mapping[str, Any]) -> list[StageRow]:
        below = self._below.get((item["flow"], item["place"]))
        return [row for row in below if row.stop_reason is None] if below else []

    def end(self, end: ItemEnd, item: dict[str, Any] | None) -> RecordedEnd:
        if item is None:
            return RecordedEnd(EndOutcome.NO_ITEM)
        is_pending = item["state"] == ItemState.PENDING
        if end.result is not None:
            if not is_pending:
                return RecordedEnd(EndOutcome.ENDED)
            below = self._open_below(item)
            made, unmade = end.made, unmade_children(below, item["payload"], end.result, end.made)
            if unmade is not None:
                more = self._made_here(unmade)
                if more is None:
                    return RecordedEnd(EndOutcome.UNMADE, unmade=unmade)
                made = (*made, *more)
            self._over(item, ItemState.SUCCEEDED, end.result)
            self._begin_children(item, below, end.result, made)
            return RecordedEnd(EndOutcome.SUCCEEDED)
        if not is_pending:
            has_failed = item["state"] == ItemState.FAILED
            return RecordedEnd(EndOutcome.FAILED if has_failed else EndOutcome.ENDED)
        if end.claim and (item["number"], _claim(end)) in self._counted:
            return RecordedEnd(EndOutcome.RETRY, item["retry_ms"] or 0)
        return self._fail(end, item)

    def _made_here(self, unmade: UnmadeChildren) -> list[MadeChildren] | None:
        """None: they take more than the few steps that cost no more than the writing of this end, or than all ends of a
        transaction have.
        """
        budget = Budget(min(MAX_END_STEPS, self._steps))
        made, is_too_dear = make_children(unmade, budget)
        self._steps -= budget.spent
        return None if is_too_dear else made

    def _fail(self, end: ItemEnd, item: dict[str, Any]) -> RecordedEnd:
        row = self._stages[item["flow"], item["place"]]
        stage, round_failures = row.stage, item["failures"] % (row.stage.max_failures + 1)  # `resume` begins a round
        item["failures"] += 1
        self._counted.add((item["number"], _claim(end)))
        self._failures.append(
            {
                "item": item["number"],
                "attempt": item["failures"],
                "at_ms": self._now_ms,
                "worker": _text(end.worker, MAX_WORKER_CHARS),
                "reason": _text(end.reason, MAX_REASON_CHARS),
                "claim": _claim(end),
            }
        )
        if end.is_final or round_failures == stage.max_failures:
            self._over(item, ItemState.FAILED, None)
            self._failed_stages.add(row.where)
            if row.is_hidden:
                self._failed_makers[item["number"]] = row, end.reason
            return RecordedEnd(EndOutcome.FAILED)
        backoff_ms = min(stage.backoff_ms << min(round_failures, 40), stage.max_backoff_ms)
        item["retry_ms"] = self._now_ms + backoff_ms
        retried = {"number": item["number"], "failures": item["failures"], "retry_ms": item["retry_ms"]}
        self._retried[item["number"]] = retried
        return RecordedEnd(EndOutcome.RETRY, item["retry_ms"])

    def _over(self, item: dict[str, Any], state: ItemState, result: bytes | None) -> None:
        item["state"] = state
        self._retried.pop(item["number"], None)
        self._ended.append({"number": item["number"], "state": state, "result": result, "failures": item["failures"]})
        counts = self.counts[item["flow"], item["place"]]
        counts["pending"] -= 1
        counts["queued"] -= item["is_queued"]
        counts["succeeded" if state is ItemState.SUCCEEDED else "failed"] += 1

    def _begin_children(
        self, item: dict[str, Any], below: Sequence[StageRow], result: bytes, made: Sequence[MadeChildren]
    ) -> None:
        where = item["flow"], item["place"]
        errors = []
        for row in below:
            try:
                children = new_children(row, item["number"], item["payload"], result, made)
                self._room.reserve(row.flow, len(children))
                self.children[row.where] += children
            except (AppletFailed, LimitReached) as error:
                errors.append(f"{row.stage.name}: {error}")
        if errors:
            self._applet_errors.append(
                {"number": item["number"], "applet_error": _text("; ".join(errors), MAX_ERROR_CHARS)}
            )
            self.counts[where]["applet_errors"] += 1

    def write(self, connection: sa.Connection) -> list[str]:
        """The ids of flows of which something is to be stopped now."""
        if self._ended:
            change_items(connection, self._ended, {"ended_ms": self._now_ms, "is_queued": 0, "retry_ms": None})
        if self._retried:
            change_items(connection, list(self._retried.values()), {})
        if self._failures:
            connection.execute(sa.insert(FAILURES), self._failures)
        for where, children in sorted(self.children.items()):
            _, added = insert_items(connection, self._stages[where], children, self._now_ms)
            self._room.added(where[0], added)
            self.counts[where]["items"] += added
            self.counts[where]["pending"] += added
        if self._failed_makers:
            self._note_unmade(connection)
        if self._applet_errors:
            change_items(connection, self._applet_errors, {})
        count(connection, self.counts)
        for where, changes in self.counts.items():
            self._stages[where].pending += changes["pending"]
            self._stages[where].applet_errors += changes["applet_errors"]
        return self._stop(connection) if self._failed_stages else []

    def _note_unmade(self, connection: sa.Connection) -> None:
        """What a job was to make is missing, as where an expression fails: at the item that it was to make it of. That
        one is locked behind its stage here, against the order: where another one waits for it, one of both begins anew.
        """
        of_makers = among(connection, ITEMS.c.number, sorted(self._failed_makers))
        keys = connection.execute(sa.select(ITEMS.c.number, ITEMS.c.dedupe_key).where(of_makers))
        parents = {number: maker_of(key) for number, key in keys}
        of_parents = among(connection, ITEMS.c.number, sorted(set(parents.values())))
        wanted = sa.select(ITEMS.c.number, ITEMS.c.applet_error).where(of_parents).order_by(ITEMS.c.number)
        errors = {number: error or "" for number, error in connection.execute(for_update(connection, wanted))}
        is_new = {number for number, error in errors.items() if not error}
        for number, (row, reason) in sorted(self._failed_makers.items()):
            parent = parents[number]
            if parent in errors:
                child = row.stage.name.removesuffix(APPLET_SUFFIX)
                errors[parent] += f"{'; ' if errors[parent] else ''}{child}: its job {row.stage.job} failed: {reason}"
                if parent in is_new and row.parent is not None:
                    is_new.remove(parent)
                    self.counts[row.flow, row.parent]["applet_errors"] += 1
        self._applet_errors += [
            {"number": number, "applet_error": _text(error, MAX_ERROR_CHARS)} for number, error in errors.items()
        ]

    def _stop(self, connection: sa.Connection) -> list[str]:
        """Say of what a failure stops that it is to be stopped. One of a job that makes items stops a flow, and no
        stage: what it was to make can still be made.
        """
        flows = sorted({flow for flow, _ in self._failed_stages})
        of_these = sa.select(FLOWS.c.number, FLOWS.c.id, FLOWS.c.on_failure).where(
            FLOWS.c.number.in_(flows), FLOWS.c.on_failure != OnFailure.GO_ON, FLOWS.c.completed_ms.is_(None)
        )
        flow_ids = []
        for number, flow_id, on_failure in connection.execute(of_these).all():
            stopped = [
                row
                for row in self._stages.values()
                if row.flow == number
                and row.stop_reason is None
                and (on_failure == OnFailure.STOP_FLOW or (row.where in self._failed_stages and not row.is_hidden))
            ]
            if stopped:
                stop_stages(connection, number, stopped, STOPPED, self._now_ms)
                flow_ids.append(flow_id)
        return flow_ids


def stop_stages(connection: sa.Connection, flow: int, rows: Sequence[StageRow], reason: str, now_ms: int) -> None:
    """From now on no items come into these stages, and those that are pending are to fail."""
    for row in rows:
        row.stop_reason = reason
        values: dict[str, Any] = {"stop_reason": reason}
        if row.sealed_ms is None:
            values["sealed_ms"] = row.sealed_ms = now_ms
        of_stage = sa.and_(STAGES.c.flow == row.flow, STAGES.c.place == row.place)
        connection.execute(sa.update(STAGES).where(of_stage).values(**values))
    connection.execute(sa.update(FLOWS).where(FLOWS.c.number == flow).values(stopping_ms=now_ms))


def bytes_of(payload_bytes: int, result: bytes, made: Sequence[MadeChildren], below: Sequence[StageRow]) -> int:
    """What the children of an item have a transaction read and write: its payload, once more and with its result for
    each stage that both are passed to, and what was made.
    """
    passed = sum(row.stage.applet.kind not in _MADE_KINDS for row in below)
    return payload_bytes + passed * (payload_bytes + len(result)) + sum(each.size for each in made)


def unmade_children(
    below: Sequence[StageRow], payload: bytes, result: bytes, made: Sequence[MadeChildren]
) -> UnmadeChildren | None:
    """What is to be made of an item for these stages before anything of it is written; None: nothing more is."""
    known = [(each.place, each.applet) for each in made]
    applets = [
        (row.place, row.stage.applet)
        for row in below
        if row.stage.applet.kind in _MADE_KINDS and (row.place, row.stage.applet) not in known
    ]
    return UnmadeChildren(below[0].flow, payload, result, applets) if applets else None


def new_children(
    row: StageRow, number: int, payload: bytes, result: bytes, made: Sequence[MadeChildren]
) -> list[NewItem]:
    """The items of a child stage that an item of its parent makes, each with a key by which it is made once. They are
    among what was made, where it takes steps to make them. AppletFailed.
    """
    found = next((each for each in made if each.place == row.place and each.applet == row.stage.applet), None)
    if found is None:
        payloads: Sequence[bytes] = children_of(row.stage.applet, payload, result, Budget())
    elif found.error:
        raise AppletFailed(found.error)
    else:
        payloads = found.payloads
    return [NewItem(each, f"@{number}:{index}") for index, each in enumerate(payloads)]


def maker_of(dedupe_key: str | None) -> int:
    """The item that has made the one with this key; 0: a caller has."""
    number = (dedupe_key or "").removeprefix("@").partition(":")[0]
    return int(number) if (dedupe_key or "").startswith("@") and number.isdecimal() else 0


def _claim(end: ItemEnd) -> str:
    """As it is kept: callers may say what they like."""
    return _text(end.claim, MAX_CLAIM_CHARS)


def _text(text: str, most: int) -> str:
    """As every database takes it."""
    return text[:most].replace("\0", "")
