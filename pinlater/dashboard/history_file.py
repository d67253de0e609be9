"""The file of the history: an SQLite database of bounded size, for one process that writes and others that read.

    queues   the id of each queue's name; 1 is all of them together, whose name is ""
    recent   a row for each minute of the current hour: the records of all queues
    minutes  a row for each queue and hour: its minutes
    hours    a row for each queue and day: its hours
    facts    what the recorder goes on with: its ledger, and until when it has counted

A minute is one transaction, together with the ledger: after a crash the next process goes on where this one was. When
an hour is over its minutes are put into rows by queue, in steps that can be made again. Near the bound rows are
removed: older ones of less busy queues first. Blocking: to be called on one thread.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import structlog

from pinlater.dashboard.queue_record import (
    UNREADABLE,
    QueueRecord,
    expanded,
    fewer_words,
    pack_series,
    unpack,
    unpack_series,
)
from pinlater.data_folder.private_files import make_private_database

_log = structlog.get_logger("pinlater.history")
_MIB = 2**20
MAX_BYTES = 64 * _MIB
"""Of all files together."""

_LOG_BYTES = 8 * _MIB
"""Of the write-ahead log, at most."""

_PAGE_BYTES = 8192
_FULL, _ENOUGH = 0.92, 0.85
"""Of its room: rows are removed from the first on, until the second."""

_APPLICATION = 0x504C4831
VERSION = 1
HOUR, DAY = 60, 24
"""Minutes, hours."""

MINUTES_KEPT, HOURS_KEPT = 24 * HOUR, 30 * DAY
_SHIFT = 1 << 32
"""A row's key is its queue's id times this, and its hour or day."""

ALL = 1
_STEP = 50
"""Queues whose hour is put away in one transaction."""

_ROWS = 100
"""Rows that are removed in one transaction: each is some pages of the log."""

_SCHEMA = """
CREATE TABLE queues (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE recent (minute INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE minutes (key INTEGER PRIMARY KEY, busy INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE hours (key INTEGER PRIMARY KEY, busy INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE facts (name TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE removed (queue INTEGER PRIMARY KEY, minute INTEGER NOT NULL, hour INTEGER NOT NULL);
INSERT INTO queues (id, name) VALUES (1, '');
"""


class NotOurs(Exception):
    """The file is torn, or is none of a history; the message says why."""


class Kept(NamedTuple):
    """From which minute and hour on the history of a queue is whole, as far as any was recorded."""

    minute: int
    hour: int


Minutes = Mapping[str, bytes]
"""The packed records of a minute, by queue; "" is all of them."""


class HistoryFile:
    """`path` None: in memory, for as long as the process runs."""

    def __init__(self, path: Path | None, *, is_writer: bool, max_bytes: int = MAX_BYTES) -> None:
        """OSError, sqlite3.Error, NotOurs. A reader finds no file before a writer has made one: FileNotFoundError."""
        self._ids: dict[str, int] = {}
        self._max_pages = (max_bytes - (_LOG_BYTES if path else 0)) // _PAGE_BYTES
        if path is not None and is_writer:
            make_private_database(path)
        if path is not None and not path.exists():
            raise FileNotFoundError(path)
        self._db = sqlite3.connect(
            ":memory:" if path is None else path, timeout=5, isolation_level=None, check_same_thread=False
        )
        try:
            self._open(is_writer, path is not None)
        except BaseException as error:
            self._db.close()
            if is_torn(error):
                raise NotOurs(str(error)) from error
            raise

    def _open(self, is_writer: bool, is_file: bool) -> None:
        run = self._db.execute
        (is_new,) = run("SELECT count(*) = 0 FROM sqlite_master").fetchone()
        (application,), (version,) = run("PRAGMA application_id").fetchone(), run("PRAGMA user_version").fetchone()
        if is_new and is_writer:
            run(f"PRAGMA page_size = {_PAGE_BYTES}")
            if is_file:
                run("PRAGMA journal_mode = WAL")
            run("BEGIN")
            for statement in _SCHEMA.split(";"):
                run(statement)
            run(f"PRAGMA application_id = {_APPLICATION}")
            run(f"PRAGMA user_version = {VERSION}")
            run("COMMIT")
        elif is_new:
            raise NotOurs("it is empty")
        elif application != _APPLICATION:
            raise NotOurs("it is another program's")
        elif version != VERSION:
            raise NotOurs(f"it is of version {version} of the history, and this is version {VERSION}")
        elif is_writer:
            (verdict,) = run("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise NotOurs(verdict)
        run("PRAGMA synchronous = NORMAL")
        if is_writer:
            run(f"PRAGMA max_page_count = {self._max_pages}")
            run(f"PRAGMA journal_size_limit = {_LOG_BYTES // 2}")
            run(f"PRAGMA wal_autocheckpoint = {_LOG_BYTES // 4 // _PAGE_BYTES}")
        self._learn()

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self._db.close()

    def _learn(self) -> None:
        self._ids = {name: id_ for id_, name in self._db.execute("SELECT id, name FROM queues")}

    def _id(self, queue: str) -> int:
        found = self._ids.get(queue)
        if found is None:
            self._db.execute("INSERT OR IGNORE INTO queues (name) VALUES (?)", (queue,))
            (found,) = self._db.execute("SELECT id FROM queues WHERE name = ?", (queue,)).fetchone()
            self._ids[queue] = found
        return found

    # -- what a recorder goes on with ----------------------------------------------------------------------------------

    def facts(self) -> dict[str, bytes]:
        return dict(self._db.execute("SELECT name, data FROM facts"))

    def write_minutes(self, minutes: Mapping[int, Minutes], facts: Mapping[str, bytes]) -> None:
        """These minutes are over. All or nothing."""

        def write() -> None:
            packed = {minute: zlib.compress(msgspec.msgpack.encode(each), 1) for minute, each in minutes.items()}
            self._db.executemany("INSERT OR REPLACE INTO recent (minute, data) VALUES (?, ?)", packed.items())
            self._db.executemany("INSERT OR REPLACE INTO facts (name, data) VALUES (?, ?)", facts.items())

        self._within_bound(write)

    def recent(self, after_minute: int = -1) -> dict[int, dict[str, bytes]]:
        """The minutes that are not put away yet. One of UNREADABLE."""
        rows = self._db.execute("SELECT minute, data FROM recent WHERE minute > ? ORDER BY minute", (after_minute,))
        return {
            minute: msgspec.msgpack.decode(zlib.decompress(data), type=dict[str, bytes])
            for minute, data in rows.fetchall()
        }

    def forget_after(self, minute: int) -> None:
        """The clock was set back: what was recorded of later times counts no more."""
        self._transaction(
            lambda: [
                self._db.execute("DELETE FROM recent WHERE minute > ?", (minute,)),
                self._db.execute(f"DELETE FROM minutes WHERE key % {_SHIFT} > ?", (minute // HOUR,)),
                self._db.execute(f"DELETE FROM hours WHERE key % {_SHIFT} > ?", (minute // HOUR // DAY,)),
            ]
        )

    # -- an hour that is over ------------------------------------------------------------------------------------------

    def put_away(self, before_hour: int) -> None:
        """Put the minutes of all hours before that one into rows by queue, and remove what is too old."""
        recent = self.recent()
        for hour in sorted({minute // HOUR for minute in recent if minute // HOUR < before_hour}):
            minutes = {minute: records for minute, records in recent.items() if minute // HOUR == hour}
            queues = sorted(set().union(*minutes.values()))
            for start in range(0, len(queues), _STEP):
                some = {queue: _hour_of(queue, minutes) for queue in queues[start : start + _STEP]}
                self._within_bound(partial(self._put, hour, some))
            self._transaction(partial(self._db.execute, "DELETE FROM recent WHERE minute < ?", ((hour + 1) * HOUR,)))
        self._expire(before_hour)
        self._make_room()
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def _put(self, hour: int, queues: Mapping[str, tuple[list[tuple[int, QueueRecord]], QueueRecord]]) -> None:
        run = self._db.execute
        for queue, (minutes, whole) in queues.items():
            key = self._id(queue) * _SHIFT
            run(
                "INSERT OR REPLACE INTO minutes (key, busy, data) VALUES (?, ?, ?)",
                (key + hour, whole.events.bit_length() + 1, pack_series(minutes)),
            )
            day, place = divmod(hour, DAY)
            hours = [each for each in self._unpacked("hours", key + day) if each[0] != place]
            hours.append((place, whole))
            busy = max(record.events for _, record in hours).bit_length() + 1
            run(
                "INSERT OR REPLACE INTO hours (key, busy, data) VALUES (?, ?, ?)",
                (key + day, busy, pack_series(sorted(hours, key=lambda each: each[0]))),
            )

    def _expire(self, hour: int) -> None:
        for table, before in (("minutes", hour - MINUTES_KEPT // HOUR), ("hours", (hour - HOURS_KEPT) // DAY)):
            old = [key for (key,) in self._db.execute(f"SELECT key FROM {table} WHERE key % {_SHIFT} < ?", (before,))]
            for start in range(0, len(old), _ROWS):
                self._delete(table, old[start : start + _ROWS])
        self._transaction(self._forget_queues)

    def _delete(self, table: str, keys: Sequence[int]) -> None:
        self._transaction(lambda: self._db.executemany(f"DELETE FROM {table} WHERE key = ?", [(key,) for key in keys]))

    def _forget_queues(self) -> None:
        """Those of which nothing is kept."""
        run = self._db.execute
        gone = (
            f"SELECT id FROM queues WHERE id <> {ALL} AND NOT EXISTS "
            f"(SELECT 1 FROM hours WHERE key BETWEEN id * {_SHIFT} AND id * {_SHIFT} + {_SHIFT - 1})"
        )
        ids = [id_ for (id_,) in run(gone).fetchall()]
        for id_ in ids:
            run("DELETE FROM queues WHERE id = ?", (id_,))
            run("DELETE FROM removed WHERE queue = ?", (id_,))
        if ids:
            self._learn()

    # -- what is shown -------------------------------------------------------------------------------------------------

    def minutes(self, queue: str, first_hour: int, last_hour: int) -> dict[int, QueueRecord]:
        """The records of minutes that are put away."""
        return self._range("minutes", queue, first_hour, last_hour, HOUR)

    def hours(self, queue: str, first_day: int, last_day: int) -> dict[int, QueueRecord]:
        return self._range("hours", queue, first_day, last_day, DAY)

    def hour_of_all(self, hour: int) -> dict[int, dict[str, QueueRecord]]:
        """The minutes of one hour that is put away, of every queue."""
        names = {id_: name for name, id_ in self._names().items()}
        found: dict[int, dict[str, QueueRecord]] = {}
        for key, data in self._db.execute(f"SELECT key, data FROM minutes WHERE key % {_SHIFT} = ?", (hour,)):
            for place, record in _readable(data, "minutes", key):
                found.setdefault(hour * HOUR + place, {})[names[key // _SHIFT]] = record
        return found

    def kept(self, queue: str) -> Kept:
        """Rows of earlier times were removed to make room; Kept(0, 0): none were."""
        found = self._db.execute(
            "SELECT minute, hour FROM removed WHERE queue = (SELECT id FROM queues WHERE name = ?)", (queue,)
        ).fetchone()
        return Kept(0, 0) if found is None else Kept(*found)

    def first_hour(self) -> int | None:
        """Of which anything was recorded."""
        return min(self.hours("", 0, _SHIFT - 1), default=None)

    def last_hour(self) -> int | None:
        """That is put away."""
        return max(self.hours("", 0, _SHIFT - 1), default=None)

    def _names(self) -> dict[str, int]:
        self._learn()  # another process may write
        return self._ids

    def _range(self, table: str, queue: str, first: int, last: int, size: int) -> dict[int, QueueRecord]:
        id_ = self._ids.get(queue) or self._names().get(queue)
        if id_ is None:
            return {}
        key = id_ * _SHIFT
        rows = self._db.execute(
            f"SELECT key, data FROM {table} WHERE key BETWEEN ? AND ? ORDER BY key", (key + first, key + last)
        )
        return {
            key % _SHIFT * size + place: record
            for key, data in rows.fetchall()
            for place, record in _readable(data, table, key)
        }

    def _unpacked(self, table: str, key: int) -> list[tuple[int, QueueRecord]]:
        row = self._db.execute(f"SELECT data FROM {table} WHERE key = ?", (key,)).fetchone()
        return [] if row is None else _readable(row[0], table, key)

    # -- its bound -----------------------------------------------------------------------------------------------------

    def used(self) -> float:
        """The part of its room that is used."""
        (pages,) = self._db.execute("PRAGMA page_count").fetchone()
        (free,) = self._db.execute("PRAGMA freelist_count").fetchone()
        return float((pages - free) / self._max_pages)

    def _within_bound(self, work: Callable[[], object]) -> None:
        """In a transaction, and again where there was no room."""
        try:
            self._transaction(work)
        except sqlite3.OperationalError as error:
            if "full" not in str(error):
                raise
            self._make_room(is_full=True)
            self._transaction(work)

    def _transaction(self, work: Callable[[], object]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            work()
            self._db.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            self._learn()  # ids of this transaction are gone
            raise

    def _make_room(self, is_full: bool = False) -> None:
        if not is_full and self.used() < _FULL:
            return
        removed = 0
        while self.used() > _ENOUGH:
            some = self._remove(_ROWS)
            removed += some
            if not some:
                break
        _log.info("history_shortened", rows=removed, used=round(self.used(), 2))

    def _remove(self, limit: int) -> int:
        """The rows that are missed least: by their age as a part of the time that they are kept for, and by how busy
        their queue was. Those of all queues together stay.
        """
        worst = []
        for table, kept in (("minutes", MINUTES_KEPT // HOUR), ("hours", HOURS_KEPT // DAY)):
            rows = self._db.execute(
                f"SELECT (1 + (SELECT max(key % {_SHIFT}) FROM {table}) - key % {_SHIFT}) * 1.0 / {kept} / busy AS age,"
                f" key FROM {table} WHERE key >= {2 * _SHIFT} ORDER BY age DESC LIMIT ?",
                (limit,),
            )
            worst += [(age, table, key) for age, key in rows.fetchall()]
        chosen = sorted(worst, reverse=True)[:limit]

        def remove() -> None:
            for _, table, key in chosen:
                self._remove_row(table, key)

        self._transaction(remove)
        return len(chosen)

    def _remove_row(self, table: str, key: int) -> None:
        queue, unit = divmod(key, _SHIFT)
        minute, hour = ((unit + 1) * HOUR, 0) if table == "minutes" else (0, (unit + 1) * DAY)
        self._db.execute(f"DELETE FROM {table} WHERE key = ?", (key,))
        self._db.execute(
            "INSERT INTO removed (queue, minute, hour) VALUES (?1, ?2, ?3) ON CONFLICT (queue) DO UPDATE SET "
            "minute = max(minute, ?2), hour = max(hour, ?3)",
            (queue, minute, hour),
        )


def _readable(data: bytes, table: str, key: int) -> list[tuple[int, QueueRecord]]:
    """One row that is torn costs itself alone."""
    try:
        return unpack_series(data)
    except UNREADABLE as error:
        _log.warning("history_row_unreadable", table=table, key=key, error=str(error))
        return []


def _hour_of(queue: str, minutes: Mapping[int, Minutes]) -> tuple[list[tuple[int, QueueRecord]], QueueRecord]:
    """The records of a queue's minutes by their place, and what they are together."""
    series = [(minute % HOUR, unpack(records[queue])) for minute, records in minutes.items() if queue in records]
    whole = QueueRecord()
    for _, record in expanded(series, sorted(minute % HOUR for minute in minutes)):
        whole.merge(record)
    whole.reasons, whole.types = fewer_words(whole.reasons), fewer_words(whole.types)
    if not queue:
        whole.minutes = len(minutes)
    return series, whole


def is_torn(error: BaseException) -> bool:
    """What SQLite says of the content of a file; not of a disk, a lock or a right."""
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(
        error, sqlite3.OperationalError | sqlite3.ProgrammingError | sqlite3.IntegrityError
    )


def set_aside(path: Path, why: str) -> None:
    """Give a file that is not ours, or torn, another name; with its neighbours. OSError."""
    number = 1
    while (aside := path.with_name(f"{path.name}.broken-{number}")).exists():
        number += 1
    os.replace(path, aside)
    for suffix in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.replace(path.with_name(path.name + suffix), aside.with_name(aside.name + suffix))
    _log.warning(
        "history_set_aside", path=str(path), moved_to=str(aside), reason=why, hint="a new one is begun; remove it"
    )


def files_of(path: Path) -> Sequence[Path]:
    """All that belong to it."""
    return [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm")]


def bytes_of(path: Path) -> int:
    return sum(file.stat().st_size for file in files_of(path) if file.exists())
