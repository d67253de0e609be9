"""A transaction on a connection to MySQL or MariaDB, through either driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

from pinlater.backends.aged_levels import split_levels
from pinlater.backends.base import ClaimRequest
from pinlater.backends.sql.records import parts
from pinlater.backends.sql.session import Item, NewJob, Row, Session, in_slices, insert_parts
from pinlater.errors import NothingStored, QueueNotFound

ROWS_PER_INSERT = 500
BYTES_PER_INSERT = 4 << 20
WAIT_FOR_TABLES_S = 10
MOST_IDS_IN_TEXT = 60
"""Of 16 digits and a comma each, in 1,024 bytes, to which MySQL cuts such a text by default."""

CASES_PER_STATEMENT = 100
"""Claims in one statement: the server looks through all cases for each row."""

_ROW_BYTES = 256
"""More than the numbers of a row take as text."""


class MysqlSession(Session):
    """A session on MySQL or MariaDB. `locking`: it writes; `max_packet`: the largest statement the server takes, in
    bytes.
    """

    mark = "%s"
    prepares = False

    def __init__(
        self, cursor: Any, statements: Mapping[str, str], shard_id: str, *, locking: bool, max_packet: int
    ) -> None:
        super().__init__(cursor, statements, shard_id)
        self._locking = locking
        self._max_packet = max_packet

    def bound(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Both drivers write a tuple as (1, 2, 3)."""
        return tuple(ids)

    def bound_texts(self, texts: Sequence[str]) -> tuple[str, ...]:
        return tuple(texts)

    @contextmanager
    def schema_lock(self) -> Iterator[None]:
        if self.rows("lock_tables", (WAIT_FOR_TABLES_S,)) != [(1,)]:
            raise NothingStored("another server is making or upgrading the tables of this store; it is tried again")
        try:
            yield
        finally:
            self.rows("unlock_tables")

    def make_tables(self) -> None:
        for statement in parts(self.statements["schema"]):
            self.cursor.execute(statement)
        if self.rows("has_old_index")[0][0]:
            self.run("upgrade")
        lacks_links, lacks_extended, lacks_trails, _, lacks_tags = self.rows("lacks_columns")[0]
        if lacks_links:
            self.run("add_columns")
        if lacks_extended:
            self.run("add_extended")
        if lacks_trails:
            self.run("add_trails")
        if lacks_tags:
            self.run("add_tags")

    def allocate_revisions(self, count: int) -> int:
        self.run("allocate_revisions", (count,))
        return int(self.cursor.lastrowid) + 1

    def queue_for_claim(
        self, queue: str, requests: Sequence[ClaimRequest], now_ms: int
    ) -> tuple[int | None, str | None]:
        priorities = {each for request in requests for each in split_levels(request.priorities)[0]}
        rows = self.rows("queue_id_if_eligible", (tuple(priorities or {0}), now_ms, queue))
        if not rows:
            raise QueueNotFound.of(queue)
        queue_id, rules_version, eligible = rows[0]
        return (queue_id if eligible or rules_version is not None else None), rules_version

    def allocate_ids(self, count: int, floor: int) -> int:
        self.run("allocate_ids", (floor, count))
        return int(self.cursor.lastrowid)

    def rows_at_once(self, rows: int) -> int:
        return min(rows, ROWS_PER_INSERT)

    def put(self, name: str, rows: Sequence[Row]) -> int:
        return self._put(self.statements[name], rows)

    def put_new(self, name: str, rows: Sequence[Row]) -> None:
        """Columns in which no row has a value are left out: the server reads each of each row."""
        used = [at for at, column in enumerate(zip(*rows, strict=True)) if column.count(None) < len(rows)]
        if rows and len(used) < len(rows[0]):
            table, columns, rest = insert_parts(self.statements[name])
            text = f"INSERT INTO {table} ({', '.join([columns[at] for at in used])}) {rest}"
            self._put(text, list(map(itemgetter(*used), rows)))
        else:
            self.put(name, rows)

    def _put(self, text: str, rows: Sequence[Row]) -> int:
        """Python writes the values: that the driver looks at each costs more than the server's part."""
        head, _, tail = text.partition("/*rows*/")
        count = 0
        for some in self._packets(_written_rows(rows), _written_bytes):
            values = [value for _, large in some for value in large]
            self.cursor.execute(f"{head}{','.join([text for text, _ in some])}{tail}", values)
            count += int(self.cursor.rowcount)
        return count

    def exported_jobs(self, ids: Sequence[int]) -> list[Row]:
        """The server packs the numbers of a row."""
        return [(*map(int, row[0].split()), *row[1:]) for row in self.rows("export_jobs", ids)]

    def insert_jobs(self, jobs: Sequence[NewJob], statement: str = "insert_jobs") -> None:
        """Rows of many statements where they are large, in this one transaction."""
        head, row = self.statements[statement], self.statements[f"{statement}_row"]
        has_keys = statement == "insert_extended_jobs"
        for some in self._packets(jobs, _row_bytes):
            keys = {job[0]: literal(job[0]) for job in some} if has_keys else {}
            rows = [row % ((keys[job[0]], *job[1:-3], job[-2]) if has_keys else (*job[:-3], job[-2])) for job in some]
            values = [value for job in some for value in (job[-3], job[-1])]
            self.cursor.execute(f"{head} {','.join(rows)}", values)

    def candidates(self, queue_id: int, priorities: Sequence[int], limit: int, now_ms: int) -> list[Row]:
        if not priorities:
            return []
        text = self.statements["candidates"]
        if self._locking:
            text = f"{text} {self.statements['lock_and_skip']}"
        self.cursor.execute(text, (queue_id, tuple(priorities), now_ms, limit))
        return list(self.cursor.fetchall())

    def first_in_lines(
        self, queue_id: int, priority: int, counts: Mapping[bytes, int]
    ) -> Iterable[tuple[bytes, Sequence[int]]]:
        """The server writes the ids of a group as one text, where that is not cut (group_concat_max_len)."""
        if max(counts.values()) > MOST_IDS_IN_TEXT:
            return super().first_in_lines(queue_id, priority, counts)
        groups = list(counts)
        text = "\nUNION ALL\n".join([self.statements["ids_in_line"]] * len(groups))
        values = [value for at, group in enumerate(groups) for value in (at, queue_id, priority, group, counts[group])]
        self.cursor.execute(text, values)
        return [(groups[at], list(map(int, ids.split()))) for at, ids in self.cursor.fetchall() if ids]

    def claim_several(self, jobs: Sequence[tuple[int, str]], times: tuple[int, ...]) -> None:
        for some in in_slices(sorted(jobs), CASES_PER_STATEMENT):
            ids = [job_id for job_id, _ in some]
            places = ",".join(["%s"] * len(some))
            text = self.statements["claim_several"].replace("/*ids*/", places).replace("/*claims*/", places)
            self.cursor.execute(text, (*ids, *(claim for _, claim in some), *times, tuple(ids)))

    def snapshot(self) -> None:
        self.run("snapshot")

    def _packets(self, rows: Sequence[Item], size_of: Callable[[Item], int]) -> Iterator[Sequence[Item]]:
        """The rows in statements that the server takes whole, as far as none is too large by itself. `size_of`: of a
        row in a statement, at most.
        """
        limit = min(BYTES_PER_INSERT, self._max_packet) - 2 * _ROW_BYTES
        start = size = 0
        for at, row in enumerate(rows):
            row_bytes = size_of(row) + 1  # a comma
            if at > start and (size + row_bytes > limit or at - start == ROWS_PER_INSERT):
                yield rows[start:at]
                start, size = at, 0
            size += row_bytes
        if rows:
            yield rows[start:]


def _written_rows(rows: Sequence[Row]) -> list[tuple[str, Sequence[bytes | str]]]:
    """Each row as text, and the values that the driver writes into it."""
    texts = zip(*map(_written_column, zip(*rows, strict=True)), strict=True)
    written = [f"({','.join(row)})" for row in texts]
    return [
        (text, [value for value in row if literal(value) == _LARGE] if _LARGE in text else ())
        for text, row in zip(written, rows, strict=True)
    ]


def _written_column(values: Sequence[object]) -> list[str]:
    """Values of many rows, of which each is written once."""
    kinds = set(map(type, values))
    if kinds == {int}:
        return list(map(str, values))
    if kinds <= {bytes, str}:
        texts = {value: literal(value) for value in set(values)}
        return [texts[value] for value in values]
    return list(map(literal, values))


def _written_bytes(written: tuple[str, Sequence[bytes | str]]) -> int:
    text, large = written
    return len(text) + sum(map(most_bytes, large))


_LARGE = "%s"
_LARGE_BYTES = 64 << 10


def literal(value: object) -> str:
    """A value in a statement, in ASCII: bytes and texts as hexadecimal, which both sides are fast at. Large ones, which
    would take twice their size, are left to the driver.

    >>> list(map(literal, (7, None, b"a'", "\u00e9", 0.5, True, bytes(10**6))))
    ['7', 'NULL', "x'6127'", "_utf8mb4 x'c3a9'", '5.00000000000000000e-01', '1', '%s']
    """
    if value is None:
        return "NULL"
    if isinstance(value, bytes | str):
        if len(value) > _LARGE_BYTES:
            return _LARGE
        return f"x'{value.hex()}'" if isinstance(value, bytes) else f"_utf8mb4 x'{value.encode().hex()}'"
    return f"{value:.17e}" if isinstance(value, float) else f"{value:d}"


def _row_bytes(row: Row) -> int:
    """More than a row takes in a statement."""
    return _ROW_BYTES + sum([most_bytes(value) for value in row if type(value) is not int])


def most_bytes(value: object) -> int:
    """More than a value takes in a statement: bytes are written as hexadecimal or with escapes, and a character as
    four bytes or with an escape.
    """
    if isinstance(value, bytes):
        return 2 * len(value) + 16
    return 4 * len(value) + 2 if isinstance(value, str) else 32
