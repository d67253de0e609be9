"""One process of the pool, as its worker sees it: a child that runs one job after another."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Protocol

from pinlater.child_process import signal_name
from pinlater_workers.child_sockets import LoopSocket, start_child
from pinlater_workers.jobs.context import RunningJob, StopReason
from pinlater_workers.pools.messages import FromProcess, Message, StartApp, read_by_worker, written

START_S = 60.0
"""How long it may take to import the app."""
LEAVE_S = 5.0
"""How long an idle process may take to end by itself."""
CLOSED_S = 1.0
"""How long one that has closed its connection is waited for, before it is killed."""

_PAGE_BYTES: int = os.sysconf("SC_PAGE_SIZE")


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
