"""A transaction on a connection to PostgreSQL."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple, cast

from pinlater.backends.base import ClaimRequest
from pinlater.backends.deferred_notifications import MOST_JOBS
from pinlater.backends.sql.low_water import LowWaterMarks
from pinlater.backends.sql.records import NEW_JOB, SHOWN, parts
from pinlater.backends.sql.session import NewJob, Row, Session, in_slices, insert_parts
from pinlater.errors import QueueNotFound
from pinlater.model import MAX_STATUS_CHARS, Job

MOST_ROWS_INSERTED = 8
"""More new jobs at once are copied in: that begins with a round trip, and is planned for no row."""

JOBS_PER_COPY = 10_000

MOST_AT_ONCE, MOST_BYTES_AT_ONCE = 1_000, 2**23
"""More new jobs, or larger ones, are not sent as the values of one statement."""

_STORED = [column for column in NEW_JOB if column != "state"]
_ID_AT = _STORED.index("id")
_QUEUE_AT = {"insert_jobs": _STORED.index("queue_id"), "insert_extended_jobs": 2 + NEW_JOB.index("queue_id")}
_RUN_AFTER_AT = {
    "insert_jobs": _STORED.index("run_after_ms"),
    "insert_extended_jobs": 2 + NEW_JOB.index("run_after_ms"),
}
_TABLE = r"CREATE TABLE IF NOT EXISTS {} \((.*?)\n\)"
_COLUMN = re.compile(r"^ +(\w+) (BIGINT|INTEGER|SMALLINT|TEXT|BYTEA|DOUBLE PRECISION)", re.MULTILINE)


@cache
def copied(insert: str, schema: str) -> tuple[str, list[str]]:
    """The COPY of what an INSERT of rows puts in, and the types of its columns.

    >>> table = "CREATE TABLE IF NOT EXISTS t (\\n    b TEXT,\\n    a BIGINT PRIMARY KEY\\n)"
    >>> copied("INSERT INTO t (a, b) VALUES ...", table)
    ('COPY t (a, b) FROM STDIN (FORMAT BINARY)', ['bigint', 'text'])
    """
    table, columns, _ = insert_parts(insert)
    (body,) = re.findall(_TABLE.format(table), schema, re.DOTALL)
    types = dict(_COLUMN.findall(body))
    text = f"COPY {table} ({', '.join(columns)}) FROM STDIN (FORMAT BINARY)"
    return text, [types[column].lower() for column in columns]


class _Look(NamedTuple):
    """A look of a claim at what is ready. `all_until_ms`: it found all that is ready until then; None: its limit."""

    queue_id: int
    priorities: Sequence[int]
    rows: Sequence[Row]
    all_until_ms: int | None

    def passed_ms(self, claimed: Collection[int]) -> dict[int, int]:
        """Of each priority the run_after before which nothing is ready any more, once these jobs are claimed."""
        passed = {} if self.all_until_ms is None else dict.fromkeys(self.priorities, self.all_until_ms)
        left: set[int] = set()
        for job_id, priority, run_after_ms, *_ in self.rows:
            if priority not in left and (job_id not in claimed or self.all_until_ms is None):
                passed[priority] = run_after_ms
            if job_id not in claimed:
                left.add(priority)
        return passed


MAKE_PENDING = frozenset({"retry", "requeue", "retry_failed", "reschedule", "free_waiting"})
"""These tell of which queues the jobs are."""


class PostgresSession(Session):
    """A session on PostgreSQL. `locking`: it writes. `enqueued` and `freed` are the ids of queues in which jobs became
    pending; `stored` has those of few new jobs, by their own ids, and `claimed` the ids of jobs that were claimed.
    """

    mark = "%s"

    def __init__(
        self, cursor: Any, statements: Mapping[str, str], shard_id: str, marks: LowWaterMarks, *, locking: bool
    ) -> None:
        super().__init__(cursor, statements, shard_id)
        self._marks = marks
        self._locking = locking
        self._looks: list[_Look] = []
        self.enqueued: set[int] = set()
        self.freed: set[int] = set()
        self.stored: dict[int, int] = {}
        self.claimed: list[int] = []
        self._earliest_ms: dict[int, int] = {}
        """The run_after of what became pending here, by queue id; 0: it is not known."""

    def committed(self) -> None:
        """Note for the claims to come how far these came, and what is pending before that."""
        for look in self._looks:
            self._marks.passed(look.queue_id, look.passed_ms(set(self.claimed)))
        for queue_id, run_after_ms in self._earliest_ms.items():
            self._marks.pending_again(queue_id, run_after_ms)

    def note_freed(self, queue_id: int) -> None:
        self.freed.add(queue_id)

    def _note_pending(self, queue_id: int, run_after_ms: int = 0) -> None:
        if self._marks:
            self._earliest_ms[queue_id] = min(run_after_ms, self._earliest_ms.get(queue_id, run_after_ms))

    def run(self, name: str, values: Sequence[object] = ()) -> int:
        if name == "copy_job":
            self.freed.add(cast(int, values[1]))
            self._note_pending(cast(int, values[1]))
        return super().run(name, values)

    def run_of(self, name: str, values: Sequence[object], ids: Sequence[int]) -> int:
        if name not in MAKE_PENDING:
            return super().run_of(name, values, ids)
        rows = self.rows_of(name, values, ids)
        queue_ids = {queue_id for (queue_id,) in rows}
        self.freed |= queue_ids
        if name != "retry":  # which is ready from now on
            for queue_id in queue_ids:
                self._note_pending(queue_id)
        return len(rows)

    def rows(self, name: str, values: Sequence[object] = ()) -> list[Row]:
        if name in _LOCKED_FIRST:
            self.cursor.execute(self.statements[f"lock_{name}"])
        return super().rows(name, values)

    def rows_in(self, name: str, values: Sequence[object], keys: Iterable[bytes], ids: object = None) -> list[Row]:
        if name in _KEYS_LOCKED_FIRST:
            keys = sorted(set(keys))
            super().rows_in(f"lock_{name}", (), keys)
        return super().rows_in(name, values, keys, ids)

    def bound(self, ids: Sequence[int]) -> list[int]:
        return list(ids)

    def bound_texts(self, texts: Sequence[str]) -> list[str]:
        return list(texts)

    @contextmanager
    def schema_lock(self) -> Iterator[None]:
        self.cursor.execute(self.statements["lock_tables"])
        yield

    def make_tables(self) -> None:
        for statement in parts(self.statements["schema"]):
            self.cursor.execute(statement)

    def insert_jobs(self, jobs: Sequence[NewJob], statement: str = "insert_jobs") -> None:
        queue_at, run_after_at = _QUEUE_AT[statement], _RUN_AFTER_AT[statement]
        if statement == "insert_jobs" and len(jobs) <= MOST_JOBS:
            self.stored |= {job[_ID_AT]: job[queue_at] for job in jobs}
        else:
            self.enqueued.update([job[queue_at] for job in jobs])
        if self._marks:
            for job in jobs:
                self._note_pending(job[queue_at], job[run_after_at])
        if len(jobs) <= MOST_ROWS_INSERTED:
            self.put(statement, jobs)
            return
        self._copy(statement, jobs)

    def store_at_once(self, queue: str, jobs: Sequence[Job], floor: int, now_ms: int) -> int | None:
        """One round trip in place of three, and of four where there are more than MOST_ROWS_INSERTED."""
        count = len(jobs)
        if not 0 < count <= MOST_AT_ONCE or sum([len(job.body) for job in jobs]) > MOST_BYTES_AT_ONCE:
            return None
        run_after_ms = [now_ms if job.run_after_ms is None else job.run_after_ms for job in jobs]
        columns = _columns(jobs, run_after_ms)
        values: Iterable[object] = columns
        shape = "new_jobs"
        if count == 1:  # each use is planned, which takes twice as long where there are arrays
            values, shape = (value for (value,) in columns), "one_new_job"
        text = self.statements["store_jobs"].replace("/*jobs*/", self.statements[shape])
        self.cursor.execute(text, (queue, floor, count, count, *values, now_ms, now_ms))
        found = self.cursor.fetchone()
        if found is None:
            raise QueueNotFound.of(queue)
        queue_id, first_id = found
        if count <= MOST_JOBS:
            self.stored |= dict.fromkeys(range(first_id, first_id + count), queue_id)
        else:
            self.enqueued.add(queue_id)
        if self._marks:
            self._note_pending(queue_id, min(run_after_ms))
        return int(first_id)

    def store_in_groups(
        self, queue: str, jobs: Sequence[Job], job_keys: Sequence[bytes], floor: int, now_ms: int
    ) -> tuple[int, int] | None:
        """As store_at_once."""
        count = len(jobs)
        if count > MOST_AT_ONCE or sum([len(job.body) for job in jobs]) > MOST_BYTES_AT_ONCE:
            return None
        run_after_ms = [now_ms if job.run_after_ms is None else job.run_after_ms for job in jobs]
        columns = (*_columns(jobs, run_after_ms), job_keys)
        rows = self.rows("store_in_groups", (queue, floor, count, count, *columns, SHOWN, now_ms, now_ms, now_ms))
        if not rows:
            raise QueueNotFound.of(queue)
        ((queue_id, first_id),) = rows
        self.enqueued.add(queue_id)
        self._note_pending(queue_id, min(run_after_ms))
        return queue_id, int(first_id)

    def enter_lines(self, queue_id: int, priorities: Sequence[int], entries: Sequence[Row]) -> bool:
        groups = sorted({(priority, group) for *_, group, priority in entries})
        columns = [list(column) for column in zip(*entries, strict=True)]
        values = (queue_id, [0, *priorities], priorities, queue_id, *map(list, zip(*groups, strict=True)))
        return self.run("enter_lines", (*values, queue_id, *columns)) == len(entries)

    def first_in_lines(self, queue_id: int, priority: int, counts: Mapping[bytes, int]) -> list[Row]:
        return self.rows("first_in_lines", (queue_id, priority, list(counts), list(counts.values())))

    def leave_lines(
        self,
        queue_id: int,
        priority: int,
        ids: Sequence[int],
        turns: Sequence[tuple[bytes, float, int]],
        over: Collection[bytes],
        time: float,
    ) -> None:
        """One statement."""
        columns = [list(column) for column in zip(*turns, strict=True)] or [[], [], []]
        which = queue_id, priority
        self.run("leave_lines", (list(ids), *columns, *which, *which, list(over), time, *which))

    def put(self, name: str, rows: Sequence[Row]) -> int:
        """Several rows as arrays: one statement, whatever their number, which stays prepared."""
        if len(rows) < 2:
            return super().put(name, rows)
        insert = self.statements[name]
        types = copied(insert, self.statements["schema"])[1]
        arrays = ", ".join([f"%b::{each}[]" for each in types])
        text = insert.replace("VALUES /*rows*/", f"SELECT * FROM unnest({arrays})")
        count = 0
        for some in in_slices(rows, JOBS_PER_COPY):
            self.cursor.execute(text, [list(column) for column in zip(*some, strict=True)])
            count += int(self.cursor.rowcount)
        return count

    def put_new(self, name: str, rows: Sequence[Row]) -> None:
        if len(rows) <= MOST_ROWS_INSERTED:
            self.put(name, rows)
        else:
            self._copy(name, rows)

    def _copy(self, statement: str, rows: Sequence[Row]) -> None:
        text, types = copied(self.statements[statement], self.statements["schema"])
        for some in in_slices(rows, JOBS_PER_COPY):
            with self.cursor.copy(text) as copy:
                copy.set_types(types)
                for row in some:
                    copy.write_row(row)

    def candidates(self, queue_id: int, priorities: Sequence[int], limit: int, now_ms: int) -> list[Row]:
        if not self._locking:
            return self._candidates(queue_id, priorities, [0] * len(priorities), limit, now_ms)
        begins_ms = self._marks.for_claim_ms(queue_id, priorities, now_ms)
        began_s = time.perf_counter()
        rows = self._candidates(queue_id, priorities, begins_ms, limit, now_ms, "FOR UPDATE SKIP LOCKED")
        if not any(begins_ms):
            self._marks.note_look(queue_id, time.perf_counter() - began_s, self._dead_rows)
        if self._marks:
            self._looks.append(_Look(queue_id, priorities, rows, now_ms if len(rows) < limit else None))
        return rows

    def _candidates(
        self,
        queue_id: int,
        priorities: Sequence[int],
        begins_ms: Sequence[int],
        limit: int,
        now_ms: int,
        lock: str = "",
    ) -> list[Row]:
        text = self.statements["candidates"].replace("/*lock*/", lock)
        self.cursor.execute(text, (list(priorities), list(begins_ms), queue_id, now_ms, limit, limit))
        return list(self.cursor.fetchall())

    def _dead_rows(self) -> int:
        """As of the last second."""
        return int(self.rows("dead_rows")[0][0])

    def queue_for_claim(
        self, queue: str, requests: Sequence[ClaimRequest], now_ms: int
    ) -> tuple[int | None, str | None]:
        queue_id, rules_version = super().queue_for_claim(queue, requests, now_ms)
        if self._marks and queue_id is not None:
            self._marks.named(queue, queue_id)
        return queue_id, rules_version

    def begins_ms(self, queue: str, priority: int) -> tuple[int, ...]:
        return (self._marks.begins_of_name_ms(queue, priority),)

    def bound_queues(self, queues: Sequence[str], priority: int) -> tuple[object, ...]:
        return list(queues), [self._marks.begins_of_name_ms(queue, priority) for queue in queues]

    def claim(self, claims: Sequence[tuple[str, int, list[int]]], from_ms: int) -> None:
        super().claim(claims, from_ms)
        for _, _, ids in claims:
            self.claimed += ids
            for job_id in ids:  # of this very transaction: nobody is to hear of them
                self.stored.pop(job_id, None)

    def claim_several(self, jobs: Sequence[tuple[int, str]], times: tuple[int, ...]) -> None:
        ids, descriptors = zip(*sorted(jobs), strict=True)
        self.run("claim_several", (*times, list(ids), list(descriptors)))

    def snapshot(self) -> None:
        self.run("snapshot")


_LOCKED_FIRST = frozenset({"queue_id_by_homes"})
_KEYS_LOCKED_FIRST = frozenset({"chains"})
"""Statements that others go before, to lock: what stands in a statement that waits is as it was before the wait."""


def _columns(jobs: Sequence[Job], run_after_ms: Sequence[int]) -> tuple[Sequence[object], ...]:
    """What the statements that store jobs at once take of them, an array each."""
    return (
        [job.priority for job in jobs],
        run_after_ms,
        [job.attempts_allowed for job in jobs],
        [job.custom_status[:MAX_STATUS_CHARS] for job in jobs],
        [job.body for job in jobs],
    )
