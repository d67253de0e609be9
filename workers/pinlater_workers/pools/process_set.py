"""The processes of a pool: as many as are needed, replaced when they end, ever slower where none can start."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import Protocol

from pinlater_workers.errors import ConfigurationError
from pinlater_workers.pools.job_process import JobProcess
from pinlater_workers.pools.messages import FromProcess, Ready, StartApp, StartFailed

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 10.0
AT_ONCE = max(2, os.cpu_count() or 1)
"""How many are started at a time, once one has shown that it can be done."""

_log = logging.getLogger("pinlater_workers.pools")


class ProcessSetOwner(Protocol):
    """The pool. Called on the loop."""

    def ready(self, process: JobProcess) -> None:
        """It can take its first job."""

    def received(self, process: JobProcess, message: FromProcess) -> None:
        """Something of the job that runs in it."""

    def died(self, process: JobProcess, reason: str) -> None:
        """It has ended for sure, and has no part in anything any more."""


class ProcessSet:
    """The processes that live: one, and from when so many jobs were there at once as many as these, up to `limit`.

    The first is started alone, as where it cannot load the app no other one can.
    """

    def __init__(self, owner: ProcessSetOwner, app_spec: str, limit: int) -> None:
        self._owner = owner
        self._app_spec = app_spec
        self._limit = limit
        self._wanted = 1
        self._processes: set[JobProcess] = set()
        self._proven = False
        self._pause_s = FIRST_PAUSE_S
        self._pausing: asyncio.TimerHandle | None = None
        self._said = ""
        self._first: asyncio.Future[None] | None = None
        self._empty = asyncio.Event()
        self._closed = False

    async def open(self) -> None:
        """Returns when one is ready. ConfigurationError: the first one could not start."""
        self._first = asyncio.get_running_loop().create_future()
        self.fill()
        await self._first

    def need(self, jobs: int) -> None:
        """So many jobs are there."""
        self._wanted = min(max(self._wanted, jobs), self._limit)
        self.fill()

    def fill(self) -> None:
        """StartApp what is missing; one with its last job is missing already."""
        while not self._closed and self._pausing is None:
            starting = sum(not process.ready for process in self._processes)
            staying = sum(not (process.last or process.ending) for process in self._processes)
            if staying >= self._wanted or starting >= (AT_ONCE if self._proven else 1):
                return
            try:
                self._processes.add(JobProcess(self, StartApp(self._app_spec, sys.path)))
            except OSError as error:
                self._failed(f"no process could be started: {error}")

    async def close(self, patience_s: float) -> None:
        """Those that run a job or still start are killed, idle ones end by themselves, within so many seconds."""
        self._closed = True
        if self._pausing is not None:
            self._pausing.cancel()
        for process in self._processes:
            if process.ready and process.running is None and not process.ending:
                process.leave()
            else:
                process.kill()
        if self._processes and not await self._gone(patience_s):
            for process in self._processes:
                process.kill()
            await self._gone(patience_s)

    def received(self, process: JobProcess, message: FromProcess) -> None:
        if isinstance(message, Ready):
            self._started(process)
        elif isinstance(message, StartFailed):
            process.broken = message.error
        else:
            self._pause_s, self._said = FIRST_PAUSE_S, ""
            self._owner.received(process, message)

    def died(self, process: JobProcess, reason: str) -> None:
        self._processes.discard(process)
        if process.jobs == 0 and not self._closed:
            self._failed(process.broken or f"{reason} before it had a job", may_pass=process.oom_killed)
        self._owner.died(process, reason)
        if not self._processes:
            self._empty.set()
        self.fill()

    def _started(self, process: JobProcess) -> None:
        process.started()
        self._proven = True
        if self._first is not None and not self._first.done():
            self._first.set_result(None)
        self.fill()
        if not process.ending:
            self._owner.ready(process)

    def _failed(self, reason: str, *, may_pass: bool = False) -> None:
        """Before the first was ready: for good, unless it may pass. Else again, ever later until a job has run."""
        self._proven = False
        if self._first is not None and not self._first.done() and not may_pass:
            self._closed = True
            self._first.set_exception(ConfigurationError(f"a process of the pool cannot start: {reason}"))
            return
        if reason != self._said:
            _log.error("A process of the pool does not start, and is tried again: %s", reason)
            self._said = reason
        if self._pausing is not None:
            return
        self._pausing = asyncio.get_running_loop().call_later(self._pause_s, self._again)
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)

    def _again(self) -> None:
        self._pausing = None
        self.fill()

    async def _gone(self, seconds: float) -> bool:
        self._empty.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True
