"""The processes of a pool: as many as are needed, replaced when they end, ever slower where none can start."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from pinlater.child_process import Restarts, signal_name
from pinlater.log_guard import GuardedLogger
from pinlater_workers.child_sockets import LoopSocket, start_child
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.jobs.context import StopReason
from pinlater_workers.jobs.running_job import RunningJob
from pinlater_workers.pools.base import PoolFailed
from pinlater_workers.pools.messages import FromProcess, Message, Ready, StartApp, StartFailed, read_by_worker, written

AT_ONCE = max(2, os.cpu_count() or 1)
"""How many are started at a time, once one has shown that it can be done."""

START_S = 60.0
"""How long it may take to import the app."""
LEAVE_S = 5.0
"""How long an idle process may take to end by itself."""
CLOSED_S = 1.0
"""How long one that has closed its connection is waited for, before it is killed."""
_PAGE_BYTES: int = os.sysconf("SC_PAGE_SIZE")
_log = GuardedLogger("pinlater_workers.pools")


class ProcessSetOwner(Protocol):
    """The pool. Called on the loop."""

    def ready(self, process: JobProcess) -> None:
        """It can take its first job."""

    def received(self, process: JobProcess, message: FromProcess) -> None:
        """Something of the job that runs in it."""

    def died(self, process: JobProcess, reason: str) -> None:
        """It has ended for sure, and has no part in anything any more."""


class ProcessSet:
    """The living processes of a pool. Starts with one; grows to the largest number of simultaneous jobs, up to `limit`.

    The first is started alone, as where it cannot load the app no other one can.
    """

    def __init__(
        self,
        owner: ProcessSetOwner,
        app_spec: str,
        limit: int,
        failed: PoolFailed = lambda error: None,
        job_types: Sequence[str] = (),
    ) -> None:
        self._owner = owner
        self._app_spec = app_spec
        self._job_types = list(job_types)
        self._limit = limit
        self._wanted = 1
        self._processes: set[JobProcess] = set()
        self._proven = False
        self._restarts = Restarts()
        self._on_failed = failed
        self._pausing: asyncio.TimerHandle | None = None
        self._logged = ""
        self._first: asyncio.Future[None] | None = None
        self._empty = asyncio.Event()
        self._closed = False

    async def open(self) -> None:
        """Returns when one is ready. ConfigurationError: the first one could not start."""
        self._first = asyncio.get_running_loop().create_future()
        self.fill()
        await self._first

    def need(self, jobs: int) -> None:
        """Grow to this number of jobs."""
        self._wanted = min(max(self._wanted, jobs), self._limit)
        self.fill()

    def fill(self) -> None:
        """Start the processes that are missing; one with its last job is missing already."""
        while not self._closed and self._pausing is None:
            starting = sum(not process.ready for process in self._processes)
            staying = sum(not (process.last or process.ending) for process in self._processes)
            if staying >= self._wanted or starting >= (AT_ONCE if self._proven else 1):
                return
            try:
                self._processes.add(
                    JobProcess(self, StartApp(self._app_spec, sys.path, takes_progress=True, job_types=self._job_types))
                )
            except OSError as error:
                self._failed(f"no process could be started: {error}", is_lack=True)

    async def close(self, patience_s: float) -> None:
        """Processes that run a job or still start are killed, idle ones end by themselves, within so many seconds."""
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
            self._logged = ""
            self._restarts.served()
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

    def _failed(self, reason: str, *, may_pass: bool = False, is_lack: bool = False) -> None:
        """Before the first was ready: for good, unless it may pass. Else again, ever later until a job has run, and for
        good after so many. `is_lack`: the system had no process to give.
        """
        self._proven = False
        if self._first is not None and not self._first.done() and not may_pass:
            self._closed = True
            self._first.set_exception(ConfigurationError(f"a process of the pool cannot start: {reason}"))
            return
        if reason != self._logged:
            _log.error("A process of the pool does not start, and is tried again: %s", reason)
            self._logged = reason
        if self._pausing is not None:
            return
        was_over = self._restarts.is_over
        self._restarts.failed(may_pass=may_pass or is_lack)
        if self._restarts.is_over and not was_over and not any(process.ready for process in self._processes):
            self._on_failed(ConfigurationError(f"no process of the pool starts any more: {reason}"))
        self._pausing = asyncio.get_running_loop().call_later(self._restarts.pause_s, self._again)

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


class ProcessOwner(Protocol):
    """The pool. Called on the loop."""

    def received(self, process: JobProcess, message: FromProcess) -> None:
        """In order; the last of them before `died`."""

    def died(self, process: JobProcess, reason: str) -> None:
        """It has ended for sure, and so have the programs it left in its process group. Told once."""


class JobProcess:
    """Started when made, by the thread whose end it does not outlive. OSError: the system can start no more.

    `running` is its job, `jobs` counts those it was given, `ready` that it has loaded the app. `last`: it gets no
    further job. `reason` and `broken`: for what reason it was killed, and what it said of its failure to start.
    `oom_killed`: somebody else killed it, most likely the kernel, as memory was short.
    """

    def __init__(self, owner: ProcessOwner, start: StartApp) -> None:
        self.running: RunningJob | None = None
        self.jobs = 0
        self.ready = False
        self.last = False
        self.reason: StopReason | None = None
        self.broken = ""
        self.oom_killed = False
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._killed_for = ""
        self._ending = False
        self._child, sockets = start_child("pinlater_workers.pools.child", 2, self._exited)
        self._jobs, self._control = (
            LoopSocket(socket, read_by_worker, self._received, self._closed) for socket in sockets
        )
        self._timer = self._loop.call_later(START_S, self.kill, f"did not load the app within {START_S:g} s")
        self._jobs.send(written(start))

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def ending(self) -> bool:
        """It is killed, leaves, or is dead: no job for it."""
        return self._ending

    def send(self, message: Message) -> None:
        """A job."""
        self._jobs.send(written(message))

    def send_control(self, message: Message) -> None:
        """Something for the job that runs."""
        self._control.send(written(message))

    def started(self) -> None:
        self.ready = True
        self._timer.cancel()

    def resident_bytes(self) -> int:
        """How much memory it holds; 0 when it is gone."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_bytes().split()[1])
        except (OSError, IndexError):
            return 0
        return pages * _PAGE_BYTES

    def leave(self) -> None:
        """It is idle, and ends by itself; killed where that takes long. Programs that its jobs have started go on."""
        self._ending = self._child.spares_group = True
        self._timer.cancel()
        self._timer = self._loop.call_later(LEAVE_S, self.kill, "did not end")
        self._jobs.finish()

    def kill(self, reason: str = "") -> None:
        """With the programs it has started, but for those that left its process group. `died` follows."""
        self._ending = True
        self._killed_for = self._killed_for or reason
        self._child.kill()

    def _received(self, message: FromProcess) -> None:
        self._owner.received(self, message)

    def _closed(self) -> None:
        """Most likely it has just ended; else a job has closed what is not its own, and no outcome can come."""
        if not self._ending:
            self._ending = True
            self._timer.cancel()
            self._timer = self._loop.call_later(CLOSED_S, self.kill, "closed its connection to the worker")

    def _exited(self, code: int) -> None:
        self._ending = True
        for each in (self._jobs, self._control):
            each.read_rest()
            each.close()
        self._timer.cancel()
        self.oom_killed = code == -signal.SIGKILL and not self._killed_for
        self._owner.died(self, self._death(code))

    def _death(self, code: int) -> str:
        if self._killed_for:
            return f"process {self.pid} was killed: it {self._killed_for}"
        if code < 0:
            return f"process {self.pid} was killed by signal {-code} ({signal_name(-code)})"
        return f"process {self.pid} ended with exit code {code}"
