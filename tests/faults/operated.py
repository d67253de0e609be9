"""A server and stores that are killed and started again, as one round of a test after the other wants it."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from tests.server.running import RunningServer
from tests.stores.process import StoreServer, children_of, free_port


class Operated:
    """A server that is killed and started again on its port. `before` and `variables` as of RunningServer."""

    def __init__(self, folder: Path, arguments: list[str], *, before: Sequence[str] = (), **variables: str) -> None:
        self.port = free_port()
        self._folder = folder
        self._arguments = arguments
        self._start: dict[str, Any] = {"before": before, **variables}
        self._said: list[dict[str, Any]] = []
        self._server = self._started()

    def _started(self, *more: str) -> RunningServer:
        return RunningServer(self._folder, *self._arguments, *more, port=self.port, **self._start)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """That of the supervisor."""
        return self._server.process.pid

    @property
    def pids(self) -> set[int]:
        return {self.pid, *self._children()}

    @property
    def said(self) -> list[dict[str, Any]]:
        """What it has logged, before restarts too."""
        return [*self._said, *self._server.events]

    def _children(self) -> list[int]:
        """None of a server that has ended by itself, as one does that starts while its store was lost."""
        return children_of(self.pid)

    async def kill_a_worker(self) -> None:
        """kill -9 of one process; the supervisor replaces it."""
        for child in random.sample(self._children(), 1):
            os.kill(child, signal.SIGKILL)

    async def kill_all(self, *more: str) -> None:
        """kill -9 of the whole server, and a new start, with further arguments this once."""
        children = self._children()
        self._server.process.kill()
        for child in children:
            os.kill(child, signal.SIGKILL)
        await self._again(*more)

    async def restart(self) -> None:
        """SIGTERM, and a new start."""
        self._server.process.terminate()
        await self._again()

    async def roll(self) -> None:
        """SIGHUP: new processes take the connections over."""
        self._server.process.send_signal(signal.SIGHUP)

    async def _again(self, *more: str) -> None:
        await asyncio.to_thread(self._server.process.wait, 30)
        self._server.clean_up()
        self._said += self._server.events
        self._server = self._started(*more)

    def stop(self) -> None:
        self._server.clean_up()


def store_steps(store: StoreServer) -> list[Callable[[], Awaitable[None]]]:
    async def kill() -> None:
        await asyncio.to_thread(store.kill)
        await asyncio.to_thread(store.start)

    async def restart() -> None:
        await asyncio.to_thread(store.terminate)
        await asyncio.to_thread(store.start)

    return [kill, restart]
