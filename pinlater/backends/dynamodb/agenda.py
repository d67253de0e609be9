"""The agenda: which partitions have claims that expire, jobs that have ended or dead letters to copy, and about when.

An index of DynamoDB lies within one partition, and a shard has many. A mark of the agenda says that a partition has
something of a kind in a span of time. It is written before what it tells of, once per process; so most writes of jobs
write no mark. Maintenance reads the marks that are due, looks at their partitions alone, and removes a mark when its
span is over by LEFT_MS and nothing of it is left. Clocks of servers differ by less than that. Nobody writes a mark of a
span that is over: what has ended long ago, and is to be pruned only from now on, has a mark of now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from pinlater.backends.dynamodb.items import DUE, LAST, MARK, ORDER, ItemKey, at, qid_of, write_item, write_key
from pinlater.backends.dynamodb.stored_job import DEAD_LETTER, IN_PROGRESS, STATES_OF, SUCCEEDED, StoredJob
from pinlater.backends.dynamodb.table import JobTable
from pinlater.model import JobState

CLAIMS, LETTERS, SUCCEEDED_JOBS, FAILED_JOBS = "C", "D", "S", "F"
SPAN_MS = {CLAIMS: 10_000, LETTERS: 60_000, SUCCEEDED_JOBS: 60_000, FAILED_JOBS: 60_000}
PER_QUEUE = (SUCCEEDED_JOBS, FAILED_JOBS)
"""Kinds whose marks each queue has by itself, as each has its own time to live."""

LEFT_MS = 60_000
MOST_KNOWN = 20_000


class AgendaMark(NamedTuple):
    """Something of this kind is due in that partition between `end_ms` - SPAN_MS and `end_ms`."""

    kind: str
    partition: str
    end_ms: int

    @property
    def key(self) -> ItemKey:
        return ItemKey(agenda_of(self.kind, qid_of(self.partition)), f"{at(self.end_ms)}#{self.partition}")


def agenda_of(kind: str, qid: str) -> str:
    return f"a{kind}#{qid}" if kind in PER_QUEUE else f"a{kind}"


def mark_of(kind: str, partition: str, time_ms: int) -> AgendaMark:
    span_ms = SPAN_MS[kind]
    return AgendaMark(kind, partition, (time_ms // span_ms + 1) * span_ms)


def mark_of_job(job: StoredJob, partition: str) -> AgendaMark | None:
    """What has to stand in the agenda before the job is as it is now."""
    if job.state == IN_PROGRESS:
        return mark_of(CLAIMS, partition, job.expires_at_ms or 0)
    if job.is_live:
        return None
    if job.is_dead_letter_pending:
        return mark_of(LETTERS, partition, job.updated_at_ms)
    return mark_of(SUCCEEDED_JOBS if job.state == SUCCEEDED else FAILED_JOBS, partition, job.updated_at_ms)


WHERE = {
    CLAIMS: [(ORDER, str(IN_PROGRESS))],
    LETTERS: [(DUE, DEAD_LETTER)],
    SUCCEEDED_JOBS: [(DUE, str(SUCCEEDED))],
    FAILED_JOBS: [(DUE, str(state)) for state in STATES_OF[JobState.FAILED]],
}
"""The index in which the jobs of a kind are, and with what they begin there; a time follows."""


class Agenda:
    def __init__(self, table: JobTable) -> None:
        self._table = table
        self._known: dict[AgendaMark, None] = {}

    async def note(self, marks: Iterable[AgendaMark]) -> None:
        """Store these marks, where this process has not done so: they stand for as long as they are needed."""
        new = [mark for mark in set(marks) if mark not in self._known]
        if not new:
            return
        await asyncio.gather(*[self._put(mark) for mark in new])
        for mark in new:
            self._known[mark] = None
        while len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]

    async def _put(self, mark: AgendaMark) -> None:
        pk, sk = mark.key
        item = write_item({"pk": pk, "sk": sk, MARK: ""})
        await self._table.client.call("PutItem", {"TableName": self._table.name, "Item": item}, writes=True)

    async def due(self, kind: str, before_ms: int, qid: str = "", limit: int = 1_000) -> list[AgendaMark]:
        """The marks of spans that begin before then, the first to end first."""
        last = f"{at(before_ms + SPAN_MS[kind])}{LAST}"
        items = await self._table.first(agenda_of(kind, qid), limit, at(0), last)
        found = (item["sk"].partition("#") for item in items)
        return [AgendaMark(kind, partition, int(end_ms)) for end_ms, _, partition in found]

    def is_over(self, mark: AgendaMark, now_ms: int) -> bool:
        return mark.end_ms + LEFT_MS < now_ms

    async def drop(self, marks: Iterable[AgendaMark]) -> None:
        """Remove marks of spans that are over, and of which nothing is left."""
        for mark in marks:
            self._known.pop(mark, None)
            request = {"TableName": self._table.name, "Key": write_key(mark.key)}
            await self._table.client.call("DeleteItem", request, writes=True)
