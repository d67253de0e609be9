"""One process of the pool, as its worker sees it: started, spoken to, watched, ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from pinlater_workers.jobs.context import RunningJob, StopReason
from pinlater_workers.pools.channel import LoopSocket
from pinlater_workers.pools.messages import FromProcess, Message, StartApp

START_S = 60.0
"""How long it may take to import the app."""
LEAVE_S = 5.0
"""How long an idle process may take to end by itself."""
CLOSED_S = 1.0
"""How long one that has closed its connection is waited for, before it is killed."""

_PAGE_BYTES: int = os.sysconf("SC_PAGE_SIZE")


class Owner(Protocol):
    """The pool. Called on the loop."""

    def received(self, process: JobProcess, message: FromProcess) -> None:
        """In order; the last of them before `died`."""

    def died(self, process: JobProcess, reason: str) -> None:
        """It has ended for sure, and so have the programs it left in its process group. Told once."""


class JobProcess:
    """Started when made, by the thread whose end it does not outlive. OSError: the system can start no more.

    `running` is its job, `jobs` counts those it was given, `ready` that it has loaded the app. `last`: it gets no
    further job. `why` and `broken`: for what reason it was killed, and what it said of its failure to start. `shot`:
    somebody else killed it, most likely the kernel, as memory was short.
    """

    def __init__(self, owner: Owner, start: StartApp) -> None:
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
        self._leaving = False
        with contextlib.ExitStack() as stack:
            ours, theirs = _pairs(stack)
            self._process = _spawn(theirs)
            stack.callback(self._process.wait)
            stack.callback(self._process.kill)
            self._pidfd = os.pidfd_open(self._process.pid)
            stack.pop_all()
        for connection in theirs:
            connection.close()
        self._jobs, self._control = (LoopSocket(connection, self._received, self._closed) for connection in ours)
        self._loop.add_reader(self._pidfd, self._died)
        self._timer = self._loop.call_later(START_S, self.kill, f"did not load the app within {START_S:g} s")
        self._jobs.send(start)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ending(self) -> bool:
        """It is killed, leaves, or is dead: no job for it."""
        return self._ending

    def send(self, message: Message) -> None:
        """A job."""
        self._jobs.send(message)

    def send_control(self, message: Message) -> None:
        """Something for the job that runs."""
        self._control.send(message)

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
        """It is idle, and ends by itself; killed where that takes long."""
        self._ending = self._leaving = True
        self._timer.cancel()
        self._timer = self._loop.call_later(LEAVE_S, self.kill, "did not end")
        self._jobs.finish()

    def kill(self, reason: str = "") -> None:
        """With the programs it has started, but for those that left its process group. `died` follows."""
        self._ending = True
        self._killed_for = self._killed_for or reason
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def _received(self, message: FromProcess) -> None:
        self._owner.received(self, message)

    def _closed(self) -> None:
        """Most likely it has just ended; else a job has closed what is not its own, and no verdict can come."""
        if not self._ending:
            self._ending = True
            self._timer.cancel()
            self._timer = self._loop.call_later(CLOSED_S, self.kill, "closed its connection to the worker")

    def _died(self) -> None:
        """The process has ended and is not waited for yet, so that its id still is its own."""
        self._ending = True
        for channel in (self._jobs, self._control):
            channel.close()
        self._timer.cancel()
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        if not self._leaving:
            self.kill()  # the programs that its job has started
        code = self._process.wait()
        self.oom_killed = code == -signal.SIGKILL and not self._killed_for
        self._owner.died(self, self._reason(code))

    def _reason(self, code: int) -> str:
        if self._killed_for:
            return f"process {self.pid} was killed: it {self._killed_for}"
        if code < 0:
            return f"process {self.pid} was killed by signal {-code} ({_signal_name(-code)})"
        return f"process {self.pid} ended with exit code {code}"


def _pairs(stack: contextlib.ExitStack) -> tuple[Sequence[socket.socket], Sequence[socket.socket]]:
    """Two connections, by their ends; closed by `stack`."""
    pairs = [socket.socketpair() for _ in range(2)]
    for pair in pairs:
        for connection in pair:
            stack.callback(connection.close)
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _spawn(connections: Sequence[socket.socket]) -> subprocess.Popen[bytes]:
    """By exec, in a process group of its own, so that it can be killed with what it started."""
    descriptors = [connection.fileno() for connection in connections]
    command = [sys.executable, "-P", "-m", "pinlater_workers.pools.child", *map(str, descriptors), str(os.getpid())]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=descriptors, process_group=0)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "a real-time signal"
