"""An optimistic transaction: read items, change them in Python, and write what has changed under the condition that
nobody else has changed it meanwhile. A step whose condition does not hold is done again, from its reads on.

A step with one changed item is one conditional write; more are one TransactWriteItems, of at most MOST_ITEMS.

Two things follow from what a step writes, whatever it does, and are done here: the marks of the agenda are set before,
and references to bodies are counted in the step itself.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from pinlater.backends.dynamodb.agenda import Agenda, mark_of_job
from pinlater.backends.dynamodb.client import Answer, ConditionFailed, TransactionCanceled
from pinlater.backends.dynamodb.items import (
    MARK,
    ORDER_KEY,
    Item,
    ItemKey,
    read_item,
    write_item,
    write_key,
    write_value,
)
from pinlater.backends.dynamodb.stored_job import IN_PROGRESS, StoredJob
from pinlater.backends.dynamodb.table import JobTable
from pinlater.errors import OutcomeUnknown, StoreConflict
from pinlater.model.body_reference import BodyReference

T = TypeVar("T")
NotePriorities = Callable[[set[tuple[str, int]]], Awaitable[None]]
"""`Queues.note_priorities`: awaited before the first job of a priority is written."""

MOST_ITEMS = 100
MOST_TRIES = 12
LONGEST_PAUSE_S = 0.2
SPOTS = 1 << 31


class Lost(Exception):
    """Somebody else has changed what a step has read: nothing of it is written."""


class TooLarge(Exception):
    """The step would write more than one transaction can."""


class Step:
    """What is read once is not read again, and what is given out may be changed: `commit` sees what has changed."""

    def __init__(
        self,
        table: JobTable,
        agenda: Agenda,
        note_priorities: NotePriorities,
        known: Mapping[ItemKey, Item] | None = None,
    ) -> None:
        self.table, self.places = table, table.places
        self._agenda, self._note_priorities = agenda, note_priorities
        self._before: dict[ItemKey, Item | None] = {}
        self._now: dict[ItemKey, Item | None] = {}
        self._jobs: dict[ItemKey, StoredJob] = {}
        self._required: set[ItemKey] = set()
        self._touched: set[ItemKey] = set()
        self._replaced: set[bytes] = set()
        for key, item in (known or {}).items():
            self._take(key, item)
        self.freed: dict[str, list[int]] = {}
        """The run_afters, by queue, of jobs that became the first of their serialize keys."""

    # -- reading and changing ----------------------------------------------------------------------------------------

    def _take(self, key: ItemKey, item: Item | None) -> None:
        self._before[key] = item
        self._now[key] = None if item is None else dict(item)

    async def read(self, keys: Iterable[ItemKey]) -> None:
        """Have these at hand."""
        missing = [key for key in dict.fromkeys(keys) if key not in self._now]
        if missing:
            found = await self.table.read_all(missing)
            for key in missing:
                self._take(key, found.get(key))

    async def item(self, key: ItemKey) -> Item | None:
        await self.read((key,))
        return self._now[key]

    async def job(self, qid: str, priority: int, job_id: int) -> StoredJob | None:
        return await self.job_at(self.places.job(qid, priority, job_id))

    async def job_at(self, key: ItemKey) -> StoredJob | None:
        await self.read((key,))
        return self.known_job(key)

    def known_job(self, key: ItemKey) -> StoredJob | None:
        """One that was read, or made."""
        if key not in self._jobs:
            item = self._now.get(key)
            if item is None:
                return None
            self._jobs[key] = StoredJob.of_item(item)
        return self._jobs[key]

    def add(self, key: ItemKey, item: Item) -> Item:
        """A new item, or another one in its place. What was not read must not be there."""
        self._before.setdefault(key, None)
        self._now[key] = made = {"pk": key.pk, "sk": key.sk, **item}
        return made

    def add_job(self, job: StoredJob) -> None:
        key = self.places.job(job.qid, job.priority, job.id)
        self.add(key, {})
        self._jobs[key] = job

    def remove(self, key: ItemKey) -> None:
        self._now[key] = None
        self._jobs.pop(key, None)

    def remove_job(self, job: StoredJob) -> None:
        self.remove(self.places.job(job.qid, job.priority, job.id))

    def replace_body(self, job: StoredJob, body: bytes) -> None:
        """A reference that came in with this very step is dropped too."""
        if isinstance(job.body, BodyReference):
            self._replaced.add(bytes(job.body))
        job.body = body

    def require(self, key: ItemKey) -> None:
        """It must be as it was read, although it is not changed."""
        self._required.add(key)

    def touch(self, key: ItemKey) -> None:
        """It counts as changed: of two steps at once that touch it one is done again."""
        self._touched.add(key)

    def claims_ended(self) -> int:
        """How many jobs were in progress when they were read, and are not any more."""
        return sum(
            item is not None and item.get("st") == IN_PROGRESS and not self._is_in_progress(key)
            for key, item in self._before.items()
        )

    def _is_in_progress(self, key: ItemKey) -> bool:
        now = self._now[key]
        if key in self._jobs:
            return self._jobs[key].state == IN_PROGRESS
        return now is not None and now.get("st") == IN_PROGRESS

    @property
    def changed_jobs(self) -> list[StoredJob]:
        """The jobs that were read or made in this step and are not removed."""
        return list(self._jobs.values())

    # -- writing -----------------------------------------------------------------------------------------------------

    async def commit(self) -> None:
        """Lost; TooLarge; OutcomeUnknown and the other errors of the client."""
        for key, job in self._jobs.items():
            self._now[key] = job.item(self.places)
        changed = self._changed()
        await self._count_references(changed)
        changed = self._changed()
        if not changed:
            return
        jobs = [(key, self._jobs[key]) for key in changed if key in self._jobs]
        marks = [mark for key, job in jobs if (mark := mark_of_job(job, key.pk)) is not None]
        await asyncio.gather(
            self._agenda.note(marks),
            self._note_priorities({(job.qid, job.priority) for key, job in jobs if self._before[key] is None}),
        )
        token = self.table.new_mark()
        writes = [self._write(key, token) for key in changed]
        checks = [self._check(key) for key in sorted(self._required.difference(changed))]
        if len(writes) + len(checks) > MOST_ITEMS:
            raise TooLarge
        if len(writes) == 1 and not checks:
            await self._write_one(*writes[0], token)
            return
        items = [{operation: request} for operation, request in (*writes, *checks)]
        try:
            await self.table.client.call(
                "TransactWriteItems", {"TransactItems": items, "ClientRequestToken": token}, writes=True
            )
        except TransactionCanceled as canceled:
            raise Lost from canceled

    def _changed(self) -> list[ItemKey]:
        found = []
        for key, now in self._now.items():
            before = self._before.get(key)
            if key in self._touched or (now is None) != (before is None):
                if now is not None or before is not None:
                    found.append(key)
            elif now is not None and before is not None and _without_mark(now) != _without_mark(before):
                found.append(key)
        return found

    def _write(self, key: ItemKey, mark: str) -> tuple[str, Answer]:
        before, now = self._before.get(key), self._now[key]
        names: dict[str, str] = {}
        values: Answer = {}
        request: Answer = {"TableName": self.table.name}
        if before is None:
            request["ConditionExpression"] = "attribute_not_exists(pk)"
        else:
            names["#v"], values[":v"] = MARK, write_value(before.get(MARK, ""))
            request["ConditionExpression"] = "#v = :v"
        operation = "Put"
        if now is None:
            operation, request["Key"] = "Delete", write_key(key)
        elif before is None:
            request["Item"] = write_item({**now, MARK: mark})
        else:
            operation, request["Key"] = "Update", write_key(key)
            request["UpdateExpression"] = _update(before, {**now, MARK: mark}, names, values)
        if names:
            request["ExpressionAttributeNames"], request["ExpressionAttributeValues"] = names, values
        return operation, request

    def _check(self, key: ItemKey) -> tuple[str, Answer]:
        before = self._before.get(key)
        request: Answer = {"TableName": self.table.name, "Key": write_key(key)}
        if before is None:
            return "ConditionCheck", request | {"ConditionExpression": "attribute_not_exists(pk)"}
        return "ConditionCheck", request | {
            "ConditionExpression": "#v = :v",
            "ExpressionAttributeNames": {"#v": MARK},
            "ExpressionAttributeValues": {":v": write_value(before.get(MARK, ""))},
        }

    async def _write_one(self, operation: str, request: Answer, mark: str) -> None:
        request["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        try:
            await self.table.client.call(f"{operation}Item", request, writes=True)
        except ConditionFailed as failed:
            if not failed.was_unknown:
                raise Lost from failed
            if failed.item is not None and read_item(failed.item).get(MARK) == mark:
                return  # the first copy had arrived
            if operation == "Delete" and failed.item is None:
                raise OutcomeUnknown("an answer of DynamoDB was lost, and the item is gone") from failed
            raise Lost from failed
        except TransactionCanceled as canceled:
            raise Lost from canceled

    # -- references to bodies ----------------------------------------------------------------------------------------

    async def _count_references(self, changed: Iterable[ItemKey]) -> None:
        """Change the counts of who holds a reference; one that nobody holds any more is listed as dropped."""
        change: Counter[bytes] = Counter()
        for key in changed:
            for item, more in ((self._before.get(key), -1), (self._now[key], 1)):
                if item is not None and item.get("t"):
                    change[bytes(item["b"])] += more
        counts = {**dict.fromkeys(self._replaced, 0), **change}
        keys = {
            self.places.reference(each): (each, more)
            for each, more in counts.items()
            if more or (each in self._replaced and each not in change)
        }
        await self.read(keys)
        for key, (reference, more) in keys.items():
            found = self._now[key]
            held = (0 if found is None else int(found["held"])) + more
            counted: Item = {"held": held, "b": reference}
            if held <= 0:
                counted[ORDER_KEY] = f"{random.randrange(SPOTS):010d}"
            self.add(key, counted)


def _without_mark(item: Item) -> Item:
    return {name: value for name, value in item.items() if name != MARK}


def _update(before: Item, now: Item, names: dict[str, str], values: Answer) -> str:
    """What makes one item of the other."""
    sets, gone = [], []
    for place, (name, value) in enumerate(now.items()):
        if name not in before or before[name] != value:
            names[f"#n{place}"], values[f":n{place}"] = name, write_value(value)
            sets.append(f"#n{place} = :n{place}")
    for place, name in enumerate(name for name in before if name not in now):
        names[f"#g{place}"] = name
        gone.append(f"#g{place}")
    return " ".join([f"SET {', '.join(sets)}"] + ([f"REMOVE {', '.join(gone)}"] if gone else []))


class Steps:
    """Makes steps, and does them again where they lose."""

    def __init__(self, table: JobTable, agenda: Agenda, note_priorities: NotePriorities) -> None:
        self.table, self._agenda, self._note_priorities = table, agenda, note_priorities

    def new(self, known: Mapping[ItemKey, Item] | None = None) -> Step:
        return Step(self.table, self._agenda, self._note_priorities, known)

    async def run(
        self,
        work: Callable[[Step], Awaitable[T]],
        *,
        known: Mapping[ItemKey, Item] | None = None,
        tries: int = MOST_TRIES,
        done: Callable[[Step], None] | None = None,
    ) -> T:
        """The answer of `work`, whose changes are written. `known`: items that were read just before. StoreConflict."""
        for number in range(tries):
            if number:
                await asyncio.sleep(random.uniform(0, min(LONGEST_PAUSE_S, 0.002 * 2**number)))
            step = self.new(None if number else known)
            try:
                answer = await work(step)
                await step.commit()
            except Lost:
                continue
            if done is not None:
                done(step)
            return answer
        raise StoreConflict("others go on changing the same items of the table: try again")
