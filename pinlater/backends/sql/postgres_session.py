"""A transaction on a connection to PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

from pinlater.backends.sql.records import NEW_JOB, parts
from pinlater.backends.sql.session import NewJob, Row, Session, in_slices, insert_parts

MOST_ROWS_INSERTED = 8
"""More new jobs at once are copied in: that begins with a round trip, and is planned for no row."""

JOBS_PER_COPY = 10_000

_QUEUE_AT = {
    "insert_jobs": [column for column in NEW_JOB if column != "state"].index("queue_id"),
    "insert_extended_jobs": 2 + NEW_JOB.index("queue_id"),
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


MAKE_PENDING = frozenset({"retry", "requeue", "retry_failed", "reschedule", "free_waiting"})
"""These tell of which queues the jobs are."""


class PostgresSession(Session):
    """A session on PostgreSQL. `locking`: it writes. `enqueued` and `freed` are the ids of queues in which jobs became
    pending.
    """

    mark = "%s"

    def __init__(self, cursor: Any, statements: Mapping[str, str], shard_id: str, *, locking: bool) -> None:
        super().__init__(cursor, statements, shard_id)
        self._locking = locking
        self.enqueued: set[int] = set()
        self.freed: set[int] = set()

    def run(self, name: str, values: Sequence[object] = ()) -> int:
        if name == "copy_job":
            self.freed.add(cast(int, values[1]))
        return super().run(name, values)

    def run_of(self, name: str, values: Sequence[object], ids: Sequence[int]) -> int:
        if name not in MAKE_PENDING:
            return super().run_of(name, values, ids)
        rows = self.rows_of(name, values, ids)
        self.freed.update([queue_id for (queue_id,) in rows])
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
        self.enqueued.update([job[_QUEUE_AT[statement]] for job in jobs])
        if len(jobs) <= MOST_ROWS_INSERTED:
            self.put(statement, jobs)
            return
        self._copy(statement, jobs)

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
        lock = "FOR UPDATE SKIP LOCKED" if self._locking else ""
        text = self.statements["candidates"].replace("/*lock*/", lock)
        self.cursor.execute(text, (list(priorities), queue_id, now_ms, limit, limit))
        return list(self.cursor.fetchall())

    def claim_several(self, jobs: Sequence[tuple[int, str]], times: tuple[int, ...]) -> None:
        ids, descriptors = zip(*sorted(jobs), strict=True)
        self.run("claim_several", (*times, list(ids), list(descriptors)))

    def snapshot(self) -> None:
        self.run("snapshot")


_LOCKED_FIRST = frozenset({"queue_id_by_homes"})
_KEYS_LOCKED_FIRST = frozenset({"chains"})
"""Statements that others go before, to lock: what stands in a statement that waits is as it was before the wait."""
