"""A session: one transaction on one connection, and the named statements it runs. Each dialect fills in what differs.

A transaction is written as a function `(session, arguments) -> result`, which runs on a thread. What one that writes
has selected of jobs is locked: nobody else changes it before the commit. So a guard stands once, in that select, and
the change goes by primary key. Rows are locked in the order of their ids.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, TypeVar

from pinlater.backends.base import ClaimRequest
from pinlater.errors import QueueNotFound
from pinlater.model import Job
from pinlater.model.body_reference import body_length

UNENCODABLE = (OverflowError, UnicodeError)
"""What drivers raise of a value that they cannot write, beside errors of their own."""

Item = TypeVar("Item")
Row = tuple[Any, ...]

KEYS_PER_STATEMENT = 128
ROWS_PER_STATEMENT = 64
IDS_PER_STATEMENT = 500
"""MariaDB turns lists of 1,000 and more into a join with a temporary table."""


NewJob = tuple[Any, ...]
"""A row to insert: a value for each of `records.NEW_JOB` but the state."""


class Session(ABC):
    """Statements by name, on a DBAPI cursor. Values are bound in the order of the text, a list of ids last."""

    def __init__(self, cursor: Any, statements: Mapping[str, str], shard_id: str) -> None:
        self.shard_id = shard_id
        self.cursor = cursor
        self.statements = statements

    def rows(self, name: str, values: Sequence[object] = ()) -> list[Row]:
        self.cursor.execute(self.statements[name], values)
        return list(self.cursor.fetchall())

    def run(self, name: str, values: Sequence[object] = ()) -> int:
        """Carry it out; how many rows it touched."""
        self.cursor.execute(self.statements[name], values)
        return int(self.cursor.rowcount)

    def rows_of(self, name: str, values: Sequence[object], ids: Sequence[int]) -> list[Row]:
        """Rows of the ids that are there, in slices."""
        return [
            row for some in in_slices(ids, IDS_PER_STATEMENT) for row in self.rows(name, (*values, self.bound(some)))
        ]

    def run_of(self, name: str, values: Sequence[object], ids: Sequence[int]) -> int:
        """Change the rows of the ids, in slices; how many."""
        return sum(self.run(name, (*values, self.bound(some))) for some in in_slices(ids, IDS_PER_STATEMENT))

    def queue_id(self, queue: str, statement: str = "queue_id") -> int:
        """QueueNotFound where there is none."""
        rows = self.rows(statement, (queue,))
        if not rows:
            raise QueueNotFound.of(queue)
        return int(rows[0][0])

    def queue_for_claim(
        self, queue: str, requests: Sequence[ClaimRequest], now_ms: int
    ) -> tuple[int | None, str | None]:
        """As `queue_with_groups`; a subclass may give None for the id of a queue that has nothing eligible."""
        return self.queue_with_groups(queue)

    def queue_with_groups(self, queue: str) -> tuple[int, str | None]:
        """The queue's id, and where its jobs have groups the version of the rules for these, "" for none.
        QueueNotFound.
        """
        rows = self.rows("queue_with_groups", (queue,))
        if not rows:
            raise QueueNotFound.of(queue)
        queue_id, rules_version = rows[0]
        return queue_id, rules_version

    def remove(self, ids: Sequence[int]) -> int:
        """Remove jobs that this transaction has locked, with their links; how many."""
        self.run_of("remove", (), ids)
        return len(ids)

    def replace_body(self, job_id: int, body: bytes) -> None:
        self.run("replace_body", (body_length(body), body, job_id))

    @abstractmethod
    def bound(self, ids: Sequence[int]) -> object:
        """A list of ids as one value to bind."""

    @abstractmethod
    def bound_texts(self, texts: Sequence[str]) -> object:
        """A list of texts, at least one, as one value to bind."""

    def begins_ms(self, queue: str, priority: int) -> tuple[int, ...]:
        """The run_after from which a count of what is ready reads, where the store's statement takes one."""
        return ()

    def bound_queues(self, queues: Sequence[str], priority: int) -> tuple[object, ...]:
        """Queues of which the next due job is looked for, as values to bind."""
        return (self.bound_texts(queues),)

    def note_freed(self, queue_id: int) -> None:  # noqa: B027 (a dialect that notifies nobody has nothing to do)
        """Jobs of this queue may be handed out that could not before."""

    @abstractmethod
    def schema_lock(self) -> AbstractContextManager[None]:
        """Keeps other servers from making or changing tables. NothingStored where one does for too long."""

    @abstractmethod
    def make_tables(self) -> None:
        """Make the tables and indexes that are missing; those of older versions become those of this one."""

    def allocate_revisions(self, count: int) -> int:
        """Take `count` revisions that follow each other; the first. Others wait until the commit."""
        return int(self.rows("allocate_revisions", (count,))[0][0]) - count + 1

    def allocate_ids(self, count: int, floor: int) -> int:
        """Take `count` ids that follow each other, none under the floor; the first. Others wait until the commit."""
        return int(self.rows("allocate_ids", (floor, count))[0][0]) - count

    @abstractmethod
    def insert_jobs(self, jobs: Sequence[NewJob], statement: str = "insert_jobs") -> None: ...

    def store_at_once(self, queue: str, jobs: Sequence[Job], floor: int, now_ms: int) -> int | None:
        """Insert plain jobs whose ids follow each other, none under the floor; the first. QueueNotFound. None: these
        are not inserted by one statement here, and nothing was done.
        """
        return None

    def store_in_groups(
        self, queue: str, jobs: Sequence[Job], job_keys: Sequence[bytes], floor: int, now_ms: int
    ) -> tuple[int, int] | None:
        """The same of jobs that have a group, and nothing else of what few jobs have; those that are due are IN_LINE.
        The queue's id, and the first of theirs.
        """
        return None

    def enter_lines(self, queue_id: int, priorities: Sequence[int], entries: Sequence[Row]) -> bool:
        """Put jobs that are IN_LINE into the lines of their groups, which wait for turns then, with one statement: id,
        run_after, group and priority of each. False: some of these priorities have no virtual time, or groups are
        taken off, or this store has no such statement; then nothing was done.
        """
        return False

    def first_in_lines(
        self, queue_id: int, priority: int, counts: Mapping[bytes, int]
    ) -> Iterable[tuple[bytes, Sequence[int]]]:
        """The ids of the first jobs in the lines of groups, so many of each at most; a group may come in parts."""
        wanted = list(counts.items())
        if self.prepares:
            wanted += [(wanted[-1][0], 0)] * (power_of_two(len(wanted)) - len(wanted))
        text = "\nUNION ALL\n".join([self.statements["first_in_line"]] * len(wanted))
        self.cursor.execute(text, [value for group, count in wanted for value in (queue_id, priority, group, count)])
        lines = groupby(sorted(self.cursor.fetchall()), itemgetter(0))
        return [(bytes(group), [job_id for _, _, job_id in line]) for group, line in lines]

    def leave_lines(
        self,
        queue_id: int,
        priority: int,
        ids: Sequence[int],
        turns: Sequence[tuple[bytes, float, int]],
        over: Collection[bytes],
        time: float,
    ) -> None:
        """Jobs that were handed out leave their lines. The turns of groups from now on, those that are over, and the
        virtual time.
        """
        self.run_of("remove_lines", (), ids)
        self.put("put_turns", [(queue_id, priority, *each) for each in turns])
        self.run("set_virtual_time", (time, queue_id, priority))
        self.run_in("remove_turns", (queue_id, priority), over)

    def exported_jobs(self, ids: Sequence[int]) -> list[Row]:
        """The jobs behind one id, up to another: EXPORTED_NUMBERS and EXPORTED_REST of each."""
        return self.rows("export_jobs", ids)

    mark: str
    """What stands for a value in a statement."""

    prepares: bool = True
    """Whether statements stay prepared, so that lists had better have few lengths."""

    def rows_at_once(self, rows: int) -> int:
        """How many of so many rows go into one statement; powers of two stay prepared."""
        return min(ROWS_PER_STATEMENT, 1 << rows.bit_length() - 1)

    def put(self, name: str, rows: Sequence[Row]) -> int:
        """Insert rows, many in a statement; how many it touched."""
        start = count = 0
        while start < len(rows):
            some = rows[start : start + self.rows_at_once(len(rows) - start)]
            row = f"({','.join([self.mark] * len(some[0]))})"
            text = self.statements[name].replace("/*rows*/", ",".join([row] * len(some)))
            self.cursor.execute(text, list(chain.from_iterable(some)))
            count += int(self.cursor.rowcount)
            start += len(some)
        return count

    def put_new(self, name: str, rows: Sequence[Row]) -> None:
        """The same of any number of rows that are not there, and whose table nobody else uses."""
        self.put(name, rows)

    def rows_in(self, name: str, values: Sequence[object], keys: Iterable[bytes], ids: object = None) -> list[Row]:
        """Rows of the keys that are there, in slices; they are locked in the order of the keys."""
        found: list[Row] = []
        for _ in self._execute_in(name, values, keys, ids):
            found += self.cursor.fetchall()
        return found

    def run_in(self, name: str, values: Sequence[object], keys: Iterable[bytes], ids: object = None) -> int:
        """Change the rows of the keys, in slices; how many."""
        return sum(int(self.cursor.rowcount) for _ in self._execute_in(name, values, keys, ids))

    def _execute_in(self, name: str, values: Sequence[object], keys: Iterable[bytes], ids: object) -> Iterator[None]:
        left, behind = sorted(set(keys)), () if ids is None else (ids,)
        while left:
            some, left = left[:KEYS_PER_STATEMENT], left[KEYS_PER_STATEMENT:]
            padded = some + some[-1:] * (power_of_two(len(some)) - len(some)) if self.prepares else some
            text = self.statements[name].replace("/*keys*/", ",".join([self.mark] * len(padded)))
            text = text.replace("/*key_rows*/", " UNION ALL ".join([f"SELECT {self.mark} AS k"] * len(padded)))
            self.cursor.execute(text, (*values, *padded, *behind))
            yield

    @abstractmethod
    def candidates(self, queue_id: int, priorities: Sequence[int], limit: int, now_ms: int) -> list[Row]:
        """Up to `limit` eligible jobs in the order of the claim; one that writes locks them and skips locked ones."""

    def claim(self, claims: Sequence[tuple[str, int, list[int]]], from_ms: int) -> None:
        """Put jobs under claims that begin then: (claim descriptor, time-out, ids) each. Those of one time-out that
        follow each other go together.
        """
        for timeout_ms, alike in groupby(claims, key=lambda claim: claim[1]):
            times = (from_ms, timeout_ms, from_ms + timeout_ms, from_ms)
            same = list(alike)
            if len(same) == 1:
                claim_descriptor, _, ids = same[0]
                self.run_of("claim", (claim_descriptor, *times), sorted(ids))
            else:
                self.claim_several([(job_id, claim[0]) for claim in same for job_id in claim[2]], times)

    @abstractmethod
    def claim_several(self, jobs: Sequence[tuple[int, str]], times: tuple[int, ...]) -> None:
        """Put each job under its claim descriptor. `times`: claimed at, time-out, expires at, updated at."""

    @abstractmethod
    def snapshot(self) -> None:
        """First in a session that reads: all that follows sees one and the same moment."""


def power_of_two(length: int) -> int:
    """The next one."""
    return 1 << (length - 1).bit_length()


_INSERT = re.compile(r"INSERT INTO (\w+) \(([\w\s,]+)\)\s+(.*)", re.DOTALL)


@cache
def insert_parts(statement: str) -> tuple[str, list[str], str]:
    """The table of an INSERT, its columns, and what follows.

    >>> insert_parts("INSERT INTO t (a, b) VALUES /*rows*/")
    ('t', ['a', 'b'], 'VALUES /*rows*/')
    """
    found = _INSERT.match(statement)
    assert found is not None, statement
    table, columns, rest = found.groups()
    return table, [column.strip() for column in columns.split(",")], rest


def in_slices(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """
    >>> list(in_slices([1, 2, 3], 2))
    [[1, 2], [3]]
    """
    if len(items) <= size:
        if items:
            yield items
        return
    for start in range(0, len(items), size):
        yield items[start : start + size]
