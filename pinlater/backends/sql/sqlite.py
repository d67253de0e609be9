"""A shard in one SQLite file (WAL, every commit flushed to the disk), or in memory: the standard library alone.

One thread writes, with one connection: small calls that wait for it share a transaction, and so one flush to the disk.
Another thread reads, so that a long scan keeps no job waiting. A second process may have the same file open, as two
servers have during a restart: they wait for each other's transactions. Subscribers are notified of its changes by
watching the file's data version.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import structlog

from pinlater.backends.base import UNKNOWN_CHANGE, ConfigPage, OnNotification, StoreStatus
from pinlater.backends.sql.coordination import establish_identity
from pinlater.backends.sql.session import Session
from pinlater.backends.sql.shard import SqlShard
from pinlater.backends.sql.sqlite_connection import SqliteConnection, lacking_room
from pinlater.data_folder.private_files import make_private_database, make_private_folder
from pinlater.errors import NothingStored, PinLaterError, StoreRefused, StoreReplaced

Result = TypeVar("Result")

OLDEST_SQLITE = (3, 35, 0)
BUSY_TIMEOUT_MS = 5_000
IN_MEMORY = ":memory:"


class SqliteShard(SqlShard):
    """A shard in SQLite. `place` is a path, `sqlite:///path` (four slashes before an absolute one), or `sqlite://` for
    one in memory.

    `busy_timeout_ms`: how long to wait for another process's transaction before StoreConflict.
    """

    keeps_order = True  # one writer
    has_own_clock = False

    def __init__(self, place: str, shard_id: str = "", *, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> None:
        super().__init__(shard_id)
        self.path = path_of(place)
        self._busy_timeout_ms = busy_timeout_ms
        self._file: tuple[int, int] | None = None
        self._writer: SqliteConnection | None = None
        self._reader: SqliteConnection | None = None
        self._watch = FileWatch(lambda: self.read(data_version))

    async def open(self) -> str:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise StoreRefused(f"this Python comes with SQLite {sqlite3.sqlite_version}; 3.35 or newer is needed")
        if self.path != IN_MEMORY:
            self._make_folder()
        try:
            self._writer = await self._connect("BEGIN IMMEDIATE")
            self._identity = await self.write(establish_identity, self.shard_id, self.opens_marked)
            # A second connection would see another database in memory.
            self._reader = self._writer if self.path == IN_MEMORY else await self._connect("BEGIN")
        except BaseException:
            await self.close()
            raise
        self.shard_id = self._identity.shard_id
        self._file = self._found_file()
        return self._identity.store_id

    async def close(self) -> None:
        await self._watch.close()
        reader, writer = self._reader, self._writer
        self._reader = self._writer = None
        if reader is not None and reader is not writer:
            await reader.close()
        if writer is not None:
            await writer.close()

    async def ping(self) -> StoreStatus:
        """Checks the path too: a file that was deleted under an open connection still takes jobs, and loses them."""
        self._check_file()
        status = await super().ping()
        return status if self.path == IN_MEMORY else status._replace(full=await self.read(lacking_room))

    async def subscribe(self, queue: str, on_event: OnNotification | None) -> bool:
        """See Shard.subscribe. False in memory, where all that happens is this process's own doing."""
        return self.path != IN_MEMORY and await self._watch.subscribe(queue, on_event)

    async def list_config(self, since: int, limit: int) -> ConfigPage:
        self._check_file()
        return await super().list_config(since, limit)

    def _check_file(self) -> None:
        if self._found_file() != self._file:
            raise StoreReplaced(f"{self.path}: the file was deleted or replaced since it was opened")

    def write(self, transaction: Callable[..., Result], *arguments: Any) -> Awaitable[Result]:
        if self._writer is None:
            raise NothingStored(f"{self.path}: the shard is closed")
        return self._writer.call(self.shard_id, transaction, arguments)

    def read(self, transaction: Callable[..., Result], *arguments: Any) -> Awaitable[Result]:
        if self._reader is None:
            raise NothingStored(f"{self.path}: the shard is closed")
        return self._reader.call(self.shard_id, transaction, arguments)

    async def _connect(self, begin: str) -> SqliteConnection:
        connection = SqliteConnection(self.path, begin, self._busy_timeout_ms)
        try:
            await connection.open()
        except BaseException:
            await connection.close()
            raise
        return connection

    def _make_folder(self) -> None:
        """Not for a store whose record has to decide: there has to be one already."""
        path = Path(self.path)
        if not self.shard_id and not path.exists():
            raise StoreRefused(
                f"{path}: there is no store here yet; open it with a shard id once (ID=sqlite:///{path})"
            )
        try:
            make_private_folder(path.parent)
        except OSError as error:
            why = f"{error.filename} is no folder" if isinstance(error, FileExistsError) else error.strerror
            raise NothingStored(
                f"{path}: its folder cannot be made: {why}; make it for this user, or choose another (--data, or the "
                "store's URL)"
            ) from error
        with suppress(OSError):  # SQLite says what is wrong
            make_private_database(path)

    def _found_file(self) -> tuple[int, int] | None:
        with suppress(OSError):
            found = os.stat(self.path)
            return found.st_dev, found.st_ino
        return None


def path_of(place: str) -> str:
    """
    >>> path_of("sqlite:////data/a.db"), path_of("sqlite:///a.db"), path_of("a.db"), path_of("sqlite://")
    ('/data/a.db', 'a.db', 'a.db', ':memory:')
    """
    if place in ("sqlite://", "sqlite:///"):
        return IN_MEMORY
    return place.removeprefix("sqlite:///")


_log = structlog.get_logger("pinlater.sqlite")

EVERY_S = 0.04


def data_version(session: Session) -> int:
    """Another one after every commit of another connection that changed something (https://sqlite.org/pragma.html)."""
    session.cursor.execute("PRAGMA data_version")
    return int(session.cursor.fetchone()[0])


class FileWatch:
    """Watches a file for changes by other processes. `version` asks for the data version, on a connection that changes
    nothing itself. It asks only while somebody subscribes.
    """

    def __init__(self, version: Callable[[], Awaitable[int]]) -> None:
        self._version = version
        self._listeners: dict[str, OnNotification] = {}
        self._task: asyncio.Task[None] | None = None
        self._began = asyncio.Event()

    async def subscribe(self, queue: str, on_event: OnNotification | None) -> bool:
        """See Shard.subscribe."""
        if on_event is None:
            self._listeners.pop(queue, None)
            if not self._listeners:
                await self._stop()
            return False
        self._listeners[queue] = on_event
        if self._task is None:
            self._began = asyncio.Event()
            self._task = asyncio.get_running_loop().create_task(self._watch(self._began))
        await self._began.wait()
        return self._listeners.get(queue) is on_event

    async def close(self) -> None:
        """Stop watching the file, and notify nobody any more."""
        self._listeners.clear()
        await self._stop()

    async def _stop(self) -> None:
        task, self._task = self._task, None
        self._began.set()  # a task that is cancelled before it has begun does not
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _watch(self, began: asyncio.Event) -> None:
        try:
            seen = await self._version()
            began.set()
            while True:
                await asyncio.sleep(EVERY_S)
                version = await self._version()
                if version != seen:
                    seen = version
                    for on_event in list(self._listeners.values()):
                        on_event(UNKNOWN_CHANGE)
        except Exception as error:
            if not isinstance(error, PinLaterError):
                _log.error("watch_failed", exc_info=error)
            self._task = None
            listeners, self._listeners = self._listeners, {}
            for on_event in listeners.values():
                on_event(None)
        finally:
            began.set()
