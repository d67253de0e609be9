"""Watches an SQLite file, and says that something in it has changed, by whichever process; a look tells what."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from pinlater.backends.base import UNKNOWN_CHANGE, Listener
from pinlater.backends.sql.session import Session
from pinlater.errors import PinLaterError

_log = structlog.get_logger("pinlater.sqlite")

EVERY_S = 0.04


def data_version(session: Session) -> int:
    """Another one after every commit of another connection that changed something (https://sqlite.org/pragma.html)."""
    session.cursor.execute("PRAGMA data_version")
    return int(session.cursor.fetchone()[0])


class Watch:
    """`version` asks for the data version, on a connection that changes nothing itself. Asked only while followed."""

    def __init__(self, version: Callable[[], Awaitable[int]]) -> None:
        self._version = version
        self._hears: dict[str, Listener] = {}
        self._task: asyncio.Task[None] | None = None
        self._began = asyncio.Event()

    async def subscribe(self, queue: str, on_event: Listener | None) -> bool:
        """See Shard.subscribe."""
        if on_event is None:
            self._hears.pop(queue, None)
            if not self._hears:
                await self._stop()
            return False
        self._hears[queue] = on_event
        if self._task is None:
            self._began = asyncio.Event()
            self._task = asyncio.get_running_loop().create_task(self._watch(self._began))
        await self._began.wait()
        return self._hears.get(queue) is on_event

    async def close(self) -> None:
        """Nobody is told anything more."""
        self._hears.clear()
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
                    for on_event in list(self._hears.values()):
                        on_event(UNKNOWN_CHANGE)
        except Exception as error:
            if not isinstance(error, PinLaterError):
                _log.error("watch_failed", exc_info=error)
            self._task = None
            hears, self._hears = self._hears, {}
            for on_event in hears.values():
                on_event(None)
        finally:
            began.set()
