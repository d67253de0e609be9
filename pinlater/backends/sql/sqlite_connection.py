"""One connection to an SQLite file, the thread that alone uses it, and what SQLite's errors mean."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import chain
from typing import Any, TypeVar

from pinlater.backends.sql.attempts import ack, checkpoint, heartbeat
from pinlater.backends.sql.group_permits import end_permits, take_permits
from pinlater.backends.sql.keyed_jobs import enqueue_extended
from pinlater.backends.sql.ready_jobs import ack_and_claim, claim, enqueue, requeue
from pinlater.backends.sql.records import load_statements, parts
from pinlater.backends.sql.session import (
    ROWS_PER_STATEMENT,
    UNENCODABLE,
    NewJob,
    Row,
    Session,
    in_slices,
    power_of_two,
)
from pinlater.backends.sql.threads import CallResult, GroupCommitThread, ThreadCall
from pinlater.errors import (
    NothingStored,
    OutcomeUnknown,
    PinLaterError,
    StoreConflict,
    StoreFull,
    StoreRefused,
    ValueNotStorable,
)
from pinlater.model.status_text import append_status, prepend_status

Result = TypeVar("Result")

_WAL = "PRAGMA journal_mode = WAL"
_WAL_PAUSE_S = 0.01
_PRAGMAS = (
    "PRAGMA synchronous = FULL",  # in WAL: every commit is flushed to the disk before it is answered
    "PRAGMA cache_size = -65536",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA secure_delete = OFF",
    "PRAGMA journal_size_limit = 67108864",
)
_STATEMENTS = load_statements("sqlite.sql")
SMALL_TRANSACTIONS = frozenset(
    {enqueue, enqueue_extended, claim, ack, ack_and_claim, checkpoint, heartbeat, requeue, take_permits, end_permits}
)
"""Steps that take but a moment: where several wait, they share a transaction."""

CLAIMS_PER_STATEMENT = 64
"""At most: it stays prepared for each power of two."""

PREPARED_STATEMENTS = 512
_INSERTS = {
    (name, 1 << power): f"{_STATEMENTS[name]} {','.join([_STATEMENTS[f'{name}_row']] * (1 << power))}"
    for name in ("insert_jobs", "insert_extended_jobs")
    for power in range(ROWS_PER_STATEMENT.bit_length())
}


RESERVE_BYTES = 64 << 20
RESERVE_PART = 4
"""A store takes no new jobs with less than 64 MiB of its disk left, or than a quarter of a small one: to hand out, ack
and remove the jobs that are there takes room too, since every change goes through the log first.
"""

DISK_CHECK_S = 0.02
"""New jobs rely on a check of the disk that is younger than this."""


class SqliteSession(Session):
    """A transaction on an SQLite connection. `path` is the file, "" for a database in memory."""

    mark = "?"

    def __init__(self, path: str) -> None:
        super().__init__(None, _STATEMENTS, "")
        self.path = path
        self._checked_at_s = 0.0

    def check_room(self) -> None:
        """StoreFull: the disk has no room for new jobs. SQLite itself would go on until nothing could be done."""
        now_s = time.monotonic()
        if now_s - self._checked_at_s >= DISK_CHECK_S:
            self._checked_at_s = now_s
            full = lacking_room(self)
            if full:
                self._checked_at_s = 0.0  # a full disk is checked by each call: room may come at any time
                raise StoreFull(full)

    def bound(self, ids: Sequence[int]) -> str:
        return f"[{','.join(map(str, ids))}]"

    def bound_texts(self, texts: Sequence[str]) -> str:
        return json.dumps(texts)

    def schema_lock(self) -> AbstractContextManager[None]:
        """Every transaction that writes is alone."""
        return nullcontext()

    def make_tables(self) -> None:
        for statement in parts(self.statements["schema"]) + parts(self.statements["upgrade"]):
            self.cursor.execute(statement)
        lacks_links, lacks_extended, lacks_trails, _, lacks_tags = self.rows("lacks_columns")[0]
        for is_lacking, name in (
            (lacks_links, "add_columns"),
            (lacks_extended, "add_extended"),
            (lacks_trails, "add_trails"),
            (lacks_tags, "add_tags"),
        ):
            for statement in parts(self.statements[name]) if is_lacking else ():
                self.cursor.execute(statement)

    def remove(self, ids: Sequence[int]) -> int:
        self.run_of("remove_links", (), ids)
        return super().remove(ids)

    def insert_jobs(self, jobs: Sequence[NewJob], statement: str = "insert_jobs") -> None:
        """Many rows in a statement, since between two statements a busy event loop takes the interpreter for a while.

        Sizes are powers of two, so that a few statements serve any number of jobs and stay prepared.
        """
        if self.path:
            self.check_room()
        start = 0
        while start < len(jobs):
            rows = self.rows_at_once(len(jobs) - start)
            values = chain.from_iterable(jobs[start : start + rows])
            self.cursor.execute(_INSERTS[statement, rows], list(values))
            start += rows

    def candidates(self, queue_id: int, priorities: Sequence[int], limit: int, now_ms: int) -> list[Row]:
        found: list[Row] = []
        for priority in priorities:
            if len(found) < limit:
                found += self.rows("candidates", (queue_id, priority, now_ms, limit - len(found)))
        return found

    def claim_several(self, jobs: Sequence[tuple[int, str]], times: tuple[int, ...]) -> None:
        """One statement for many, as `insert_jobs` has it. Not as JSON, in which SQLite ends a text at a NUL."""
        for some in in_slices(sorted(jobs), CLAIMS_PER_STATEMENT):
            padded = [*some, *[some[-1]] * (power_of_two(len(some)) - len(some))]
            text = self.statements["claim_several"].replace("/*rows*/", ",".join(["(?,?)"] * len(padded)))
            self.cursor.execute(text, (*times, *chain.from_iterable(padded)))

    def snapshot(self) -> None:
        """A transaction of SQLite is one already."""


class SqliteConnection:
    """`begin` is BEGIN IMMEDIATE for one that writes (it takes the file's lock at once), BEGIN for one that reads."""

    def __init__(self, path: str, begin: str, busy_timeout_ms: int) -> None:
        self._path = path
        self._begin = begin
        self._busy_timeout_s = busy_timeout_ms / 1000
        self._thread = GroupCommitThread("pinlater-sqlite", self._transact)
        self._connection: sqlite3.Connection | None = None
        self._session = SqliteSession("" if path == ":memory:" else path)

    async def open(self) -> None:
        await self._thread.call(self._open)

    def call(
        self, shard_id: str, transaction: Callable[..., Result], arguments: Sequence[Any]
    ) -> asyncio.Future[Result]:
        """Run a transaction. One comes after the other; small ones that wait are committed together."""
        return self._thread.group_call(transaction in SMALL_TRANSACTIONS, self._run, shard_id, transaction, arguments)

    async def close(self) -> None:
        self._thread.call(self._close)
        await self._thread.close()

    def _open(self) -> None:
        try:
            self._connection = self._connect()
        except sqlite3.Error as error:
            raise shard_error(error, self._path, committing=False) from error
        self._session.cursor = self._connection.cursor()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=self._busy_timeout_s, isolation_level=None, cached_statements=PREPARED_STATEMENTS
        )
        try:
            self._use_wal(connection)
            for pragma in _PRAGMAS:
                connection.execute(pragma)
            connection.create_function("append_status", 3, append_status, deterministic=True)
            connection.create_function("prepend_status", 2, prepend_status, deterministic=True)
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        """SQLite does not wait for its busy time-out here when several processes make a new file at once; we do."""
        ends_at = time.monotonic() + self._busy_timeout_s
        while True:
            try:
                connection.execute(_WAL)
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= ends_at:
                    raise
            time.sleep(_WAL_PAUSE_S)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _run(self, shard_id: str, transaction: Callable[..., Result], arguments: Sequence[Any]) -> Result:
        self._session.shard_id = shard_id
        return transaction(self._session, *arguments)

    def _transact(self, calls: Sequence[ThreadCall]) -> list[CallResult]:
        outcomes = self._transacted(calls)
        if any(isinstance(outcome.error, StoreFull) for outcome in outcomes):
            with suppress(sqlite3.Error):  # the log may begin anew then, and take what changes next where it lies
                self._session.cursor.execute("PRAGMA wal_checkpoint")
        return outcomes

    def _transacted(self, calls: Sequence[ThreadCall]) -> list[CallResult]:
        """Several calls in one transaction, flushed to the disk once. Of each all is kept or nothing.

        What loses the transaction is the outcome of all.
        """
        execute = self._session.cursor.execute
        committing = False
        try:
            execute(self._begin)
            outcomes = [self._outcome(call, is_alone=len(calls) == 1) for call in calls]
            committing = True
            if self._in_transaction():
                execute("COMMIT")
        except BaseException as error:
            self._roll_back()
            return [CallResult(error=self._mapped(error, committing)) for _ in calls]
        return outcomes

    def _outcome(self, call: ThreadCall, *, is_alone: bool) -> CallResult:
        """The result or error of one call, which is undone where it fails. Raises where the transaction is lost."""
        execute = self._session.cursor.execute
        if not is_alone:
            execute("SAVEPOINT step")
        outcome = call.carry_out()
        if outcome.error is not None:
            if not self._in_transaction():
                raise outcome.error
            execute("ROLLBACK" if is_alone else "ROLLBACK TO step")
            outcome = CallResult(error=self._mapped(outcome.error, committing=False))
        if not is_alone:
            execute("RELEASE step")
        return outcome

    def _mapped(self, error: BaseException, committing: bool) -> BaseException:
        """An error of SQLite as ours; any other as it is."""
        if isinstance(error, UNENCODABLE):
            ours: PinLaterError = ValueNotStorable.at(self._path, error)
        elif isinstance(error, sqlite3.Error):
            ours = shard_error(error, self._path, committing=committing)
        else:
            return error
        ours.__cause__ = error
        return ours

    def _in_transaction(self) -> bool:
        return self._connection is not None and self._connection.in_transaction

    def _roll_back(self) -> None:
        if self._connection is not None and self._connection.in_transaction:
            with suppress(sqlite3.Error):
                self._connection.rollback()


def lacking_room(session: SqliteSession) -> str:
    """Why a file has no room for new jobs; "" where it has. Pages that jobs have left are room too."""
    try:
        disk = os.statvfs(session.path)
    except OSError:  # a ping reports a file that is gone
        return ""
    reserve = min(RESERVE_BYTES, disk.f_blocks * disk.f_frsize // RESERVE_PART)
    free = disk.f_bavail * disk.f_frsize
    if free < reserve:
        execute = session.cursor.execute
        free += execute("PRAGMA freelist_count").fetchone()[0] * execute("PRAGMA page_size").fetchone()[0]
    if free >= reserve:
        return ""
    room = f"{free >> 10:,} KiB left, of which {reserve >> 10:,} KiB are kept for work on the jobs that are there"
    return f"{session.path}: its disk is full ({room}): free some space, or let jobs end and be removed"


_ADVICE = {
    sqlite3.SQLITE_FULL: "the disk is full (or the quota is used up): free some space",
    sqlite3.SQLITE_READONLY: "it cannot be written: check the permissions of the file and its folder",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: check that the folder exists and may be read and written",
    sqlite3.SQLITE_PERM: "permission denied: check the permissions of the file and its folder",
    sqlite3.SQLITE_AUTH: "permission denied: check the permissions of the file and its folder",
    sqlite3.SQLITE_IOERR: "the disk could not be read or written: look into the system's log",
    sqlite3.SQLITE_NOMEM: "out of memory",
}
_REFUSED = {
    sqlite3.SQLITE_NOTADB: "this file is not an SQLite database: give another path",
    sqlite3.SQLITE_CORRUPT: "this file is damaged: restore a backup (`sqlite3 FILE .recover` saves what is left)",
}
_OF_A_VALUE = {sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE}
_CONDITIONS = {sqlite3.SQLITE_CONSTRAINT_CHECK, sqlite3.SQLITE_CONSTRAINT_NOTNULL}
"""The errors of a value that is larger than SQLite takes (1 GB), or wrong for its column."""

_CONFLICTS = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def shard_error(error: sqlite3.Error, place: str, *, committing: bool) -> PinLaterError:
    """Before the commit nothing is stored, whatever happened; a commit that fails may have reached the disk."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    primary = code & 0xFF
    if primary in _CONFLICTS:
        return StoreConflict(f"{place}: locked by another process for longer than the time-out")
    if primary in _REFUSED:
        return StoreRefused(f"{place}: {_REFUSED[primary]}")
    if primary in _OF_A_VALUE or code in _CONDITIONS or isinstance(error, sqlite3.DataError | sqlite3.InterfaceError):
        return ValueNotStorable.at(place, error)
    message = f"{place}: {_ADVICE.get(primary, 'SQLite refused the call')} ({error})"
    if committing and primary == sqlite3.SQLITE_IOERR:
        return OutcomeUnknown(message)
    return StoreFull(message) if primary == sqlite3.SQLITE_FULL else NothingStored(message)
