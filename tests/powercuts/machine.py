"""One machine whose power is cut: a disk, a store on it and a server of PinLater, ended and started at once."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.faults.recorded_run import now_ms
from tests.powercuts.disk import Disk
from tests.powercuts.stores_on_disk import killed, processes_of
from tests.server.running import WITHIN_S, RunningServer, lives
from tests.stores.process import StoreServer, free_port

STARTS = 3


@dataclass(frozen=True)
class Cut:
    """`at_ms`: the moment. `held`: how much had not been synced. `seed`: what survived of it was chosen by this."""

    seed: int
    at_ms: float
    held: dict[str, int]

    def __str__(self) -> str:
        return f"seed {self.seed} at {self.at_ms:.0f}, held back {self.held}"


class Machine:
    """`arguments`: of `pinlater serve`, which needs `store` where there is one."""

    def __init__(self, folder: Path, disk: Disk, store: StoreServer | None, arguments: Callable[[], list[str]]) -> None:
        self.port = free_port()
        self.disk = disk
        self.store = store
        self._folder = folder
        self._arguments = arguments
        self._server: RunningServer | None = None

    def start(self) -> None:
        """All of it, as it finds the disk. RuntimeError: store or server do not start.

        A server that finds no store within seconds ends, and what started it tries again, as on any busy machine.
        """
        if self.store is not None and not self.store.is_running:
            self.store.start()
        for _ in range(STARTS):
            server = RunningServer(self._folder, *self._arguments(), port=self.port)
            if self._listens(server):
                self._server = server
                return
            server.clean_up()
        raise RuntimeError(f"the server did not start: {server.events[-5:]}")

    def _listens(self, server: RunningServer) -> bool:
        """Whether it does soon, and has not ended."""
        deadline = time.monotonic() + WITHIN_S
        while server.process.poll() is None and time.monotonic() < deadline:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
                return True
            time.sleep(0.02)
        return False

    async def cut(self, seed: int) -> Cut:
        """The power goes, and the disk is as it would be found afterwards."""
        return await asyncio.to_thread(self._cut, seed)

    def _cut(self, seed: int) -> Cut:
        server, store = self._server, self.store
        assert server is not None
        children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
        self.disk.hold()
        at_ms = now_ms()
        pids = [server.process.pid, *map(int, children), *(processes_of(store) if store is not None else ())]
        killed(pids, signal.SIGKILL)
        self.disk.off()
        self._reap(pids)
        return Cut(seed, at_ms, self.disk.cut(seed))

    def _reap(self, pids: list[int]) -> None:
        if self.store is not None and self.store.is_running:
            self.store.kill()
        self._clean_up()
        deadline = time.monotonic() + 60
        while any(map(lives, pids)):
            assert time.monotonic() < deadline, "a killed process goes on"
            time.sleep(0.005)

    def _clean_up(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.clean_up()

    def stop(self) -> None:
        """In order, at the end of a test."""
        self._clean_up()
        if self.store is not None:
            self.store.stop()

    def what_was_said(self) -> str:
        """The last of it, by the server and by its store."""
        events = [] if self._server is None else self._server.events[-30:]
        store = self.store.log() if self.store is not None and self.store.is_running else ""
        return "\n".join([*map(str, events), store])
