"""The store of the history in one process: the file, on a thread of its own, and the minutes of the last hours.

Of the processes that have a file one writes, by a lock; the others read, and try to become the one. A file that is
torn, or another program's, is set aside; where there can be none the history is kept in memory.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import structlog

from pinlater.dashboard.history_file import HOUR, MAX_BYTES, HistoryFile, Minutes, NotOurs, is_torn, set_aside
from pinlater.dashboard.queue_record import UNREADABLE, pack
from pinlater.data_folder.file_locks import FileInUse, FileLocks

_log = structlog.get_logger("pinlater.history")
T = TypeVar("T")
HOURS_AT_HAND = 1
"""Before the current one, in memory."""


class HistoryStore:
    """`path` None: in memory. `recent` are the packed records of the last minutes."""

    def __init__(self, path: Path | None, max_bytes: int = MAX_BYTES) -> None:
        self.path = path
        self.is_writer = False
        self.problem = ""
        """Why it is not kept in its file."""
        self.recent: dict[int, Minutes] = {}
        self._max_bytes = max_bytes
        self._locks = FileLocks()
        self._file: HistoryFile | None = None
        self._thread = ThreadPoolExecutor(1, "history")

    async def open(self) -> None:
        """To read, and to write where no other process does."""
        if not await self.claim():
            await self.follow()

    async def close(self) -> None:
        await self.call(self._release)
        self._thread.shutdown()

    async def call(self, work: Callable[[], T]) -> T:
        """On the thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def read(self, work: Callable[[HistoryFile], T], otherwise: T) -> T:
        """What the file says; `otherwise` where there is none, or it cannot be read."""

        def on_thread() -> T:
            if self._file is None:
                return otherwise
            try:
                return work(self._file)
            except (sqlite3.Error, *UNREADABLE) as error:
                _log.warning("history_not_read", error=str(error))
                return otherwise

        return await self.call(on_thread)

    # -- who writes ----------------------------------------------------------------------------------------------------

    async def claim(self) -> bool:
        """Become the one that writes; False: another process is."""
        return self.is_writer or await self.call(self._claim)

    def _claim(self) -> bool:
        if self.path is not None:
            try:
                self._locks.take([self.path])
            except FileInUse:
                return False
        self._close_file()
        try:
            self._file = self._opened(self.path)
        except (OSError, sqlite3.Error) as error:
            self._locks.keep([])
            if self._file is None or not self.problem:
                self.problem = f"{self.path} cannot be written ({error})"
                _log.error("history_in_memory", path=str(self.path), error=str(error), hint="choose another --history")
            self._file = HistoryFile(None, is_writer=True, max_bytes=self._max_bytes)
        self.is_writer = True
        self._load()
        return True

    def _opened(self, path: Path | None) -> HistoryFile:
        """OSError, sqlite3.Error."""
        try:
            return HistoryFile(path, is_writer=True, max_bytes=self._max_bytes)
        except NotOurs as error:
            assert path is not None
            set_aside(path, str(error))
            return HistoryFile(path, is_writer=True, max_bytes=self._max_bytes)

    async def release(self) -> None:
        """Write no more; another process may."""
        await self.call(self._release)

    def _release(self) -> None:
        self._close_file()
        self._locks.keep([])
        self.is_writer = False

    async def follow(self) -> None:
        """Learn what the process that writes has written."""
        await self.call(self._follow)

    def _follow(self) -> None:
        try:
            if self._file is None:
                self._file = HistoryFile(self.path, is_writer=False)
            self._load()
        except (OSError, sqlite3.Error, NotOurs):  # there is none yet, or it is set aside
            self._close_file()

    # -- minutes -------------------------------------------------------------------------------------------------------

    async def facts(self) -> dict[str, bytes]:
        return await self.read(lambda file: file.facts(), {})

    async def write(self, minutes: Mapping[int, Minutes], facts: Mapping[str, bytes]) -> bool:
        """These minutes are over. False: they could not be written, and are only here until they are put away."""
        self.recent = {**self.recent, **minutes}
        return await self._change(lambda file: file.write_minutes(minutes, facts))

    async def put_away(self, hour: int) -> None:
        """The hours before that one are over."""
        self.recent = {minute: each for minute, each in self.recent.items() if minute >= (hour - HOURS_AT_HAND) * HOUR}
        await self._change(lambda file: file.put_away(hour))

    async def forget_after(self, minute: int) -> None:
        """The clock was set back."""
        self.recent = {each: records for each, records in self.recent.items() if each <= minute}
        await self._change(lambda file: file.forget_after(minute))

    async def _change(self, work: Callable[[HistoryFile], object]) -> bool:
        return await self.call(lambda: self._changed(work))

    def _changed(self, work: Callable[[HistoryFile], object]) -> bool:
        assert self._file is not None
        try:
            work(self._file)
        except (sqlite3.Error, *UNREADABLE) as error:
            _log.error("history_not_written", path=str(self.path), error=str(error))
            if self.path is None or not (is_torn(error) or isinstance(error, UNREADABLE)):
                return False
            self._close_file()
            try:
                set_aside(self.path, str(error))
                self._file = self._opened(self.path)
            except (OSError, sqlite3.Error) as failure:
                self.problem = f"{self.path} cannot be written ({failure})"
                self._file = HistoryFile(None, is_writer=True, max_bytes=self._max_bytes)
            return False
        return True

    def _load(self) -> None:
        """The minutes of the last hours into memory: another process may have written them."""
        assert self._file is not None
        found: dict[int, Minutes] = dict(self.recent)
        found |= self._file.recent(-1 if self.is_writer else max(found, default=-1))
        if not self.recent:
            before = max(found) // HOUR - HOURS_AT_HAND if found else self._file.last_hour()
            for minute, records in ({} if before is None else self._file.hour_of_all(before)).items():
                found[minute] = {queue: pack(record) for queue, record in records.items()}
        oldest = (max(found, default=0) // HOUR - HOURS_AT_HAND) * HOUR
        self.recent = {minute: found[minute] for minute in sorted(found) if minute >= oldest}

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
