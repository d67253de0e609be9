"""The watch over a worker's event loop, in its heartbeat process: what blocks it is named, and where a job goes on with
that beyond its time limit the worker is ended, for nothing in it can end the job.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

from pinlater.log_guard import GuardedLogger
from pinlater_workers.child_sockets import LoopSocket
from pinlater_workers.heartbeat.heartbeat_loop import HeartbeatLoop
from pinlater_workers.heartbeat.messages import (
    AskBlocked,
    BlockedBy,
    RunningEntry,
    read_from_witness,
    written,
)
from pinlater_workers.heartbeat.reports import MAX_RUNNING

BLOCKED_S = 5.0
"""A loop that has not gone round for so long is held up by something."""

STUCK_S = 2.0
"""So long a job may be over its time limit, as one in a thread may."""

ANSWER_S = 1.0
LOOK_S = 0.5
NAMED = 20

_log = GuardedLogger("pinlater_workers.heartbeat")


class BlockedLoop:
    """The watch over the process `worker`, of which `beats` knows when it last said anything, and what it runs.
    `ends_worker`: it may be ended.
    """

    def __init__(self, witness: socket.socket, worker: int, beats: HeartbeatLoop, *, ends_worker: bool) -> None:
        self._witness = LoopSocket(witness, read_from_witness, self._answered, lambda: None)
        self._worker = worker
        self._beats = beats
        self._ends_worker = ends_worker
        self._answer: BlockedBy | None = None
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Until it is cancelled."""
        reported_s = 0.0
        try:
            while True:
                silent_s = monotonic() - self._beats.spoke_s
                if silent_s < BLOCKED_S:
                    if reported_s:
                        _log.warning("the worker's event loop goes round again, after %.1f s", monotonic() - reported_s)
                        reported_s = 0.0
                    await asyncio.sleep(max(LOOK_S, BLOCKED_S - silent_s))
                    continue
                blocked = await self._request()
                if monotonic() - self._beats.spoke_s < BLOCKED_S or self._is_stopped():
                    await asyncio.sleep(LOOK_S)
                    continue
                if not reported_s:
                    reported_s = self._beats.spoke_s
                    self._report(blocked, silent_s)
                over = self._over(blocked)
                if over and self._ends_worker:
                    self._end(over)
                await asyncio.sleep(LOOK_S)
        finally:
            self._witness.close()

    async def _request(self) -> BlockedBy | None:
        """None: no answer, as the interpreter is held too."""
        self._answer = None
        self._news.clear()
        self._witness.send(written(AskBlocked()))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                await self._news.wait()
        return self._answer

    def _answered(self, answer: BlockedBy) -> None:
        self._answer = answer
        self._news.set()

    def _is_stopped(self) -> bool:
        """By a signal or a debugger: nothing is wrong with its jobs."""
        try:
            return Path(f"/proc/{self._worker}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
        except (OSError, IndexError):
            return False

    def _report(self, blocked: BlockedBy | None, silent_s: float) -> None:
        if blocked is not None and blocked.descriptor:
            what = f"by job {_named(blocked.type, blocked.descriptor)} at {blocked.where}"
        elif blocked is not None:
            what = f"by no job's own coroutine{f', at {blocked.where}' if blocked.where else ''}"
        else:
            what = f"by what holds the interpreter too; it runs {_all_named(self._beats.running()) or 'no job'}"
        _log.warning(
            "the worker's event loop has been blocked for %.1f s %s; meanwhile no other coroutine goes on, no job "
            "begins and no time limit ends one: await what waits, or run such jobs in threads or processes (pool=)",
            silent_s,
            what,
        )

    def _over(self, blocked: BlockedBy | None) -> Sequence[RunningEntry]:
        """The jobs for which the worker is to end: the one that blocks it, where that is known; else those that run
        over their limits, where they hold half of the slots, or are all that run.
        """
        late_s = monotonic() - STUCK_S
        if blocked is not None and blocked.descriptor:
            entry = RunningEntry(blocked.descriptor, blocked.type, 0.0, blocked.until_s)
            return [entry] if entry.until_s <= late_s else ()
        running = self._beats.running()
        over = [each for each in running if each.until_s <= late_s]
        are_all = len(over) == len(running) < MAX_RUNNING  # of more, some are not known by name
        return over if len(over) * 2 >= self._beats.slots or are_all else ()

    def _end(self, over: Sequence[RunningEntry]) -> None:
        _log.error(
            "the worker is ended (SIGKILL), as its event loop stays blocked and what runs is over its time limit: %s; "
            "its jobs run again within seconds, here once the worker is started again",
            _all_named(over),
        )
        os.kill(self._worker, signal.SIGKILL)


def _named(job_type: str, descriptor: str) -> str:
    return f"{job_type} {descriptor}" if job_type else descriptor


def _all_named(jobs: Sequence[RunningEntry]) -> str:
    named = ", ".join(_named(each.type, each.descriptor) for each in jobs[:NAMED])
    return named + (f" and {len(jobs) - NAMED} more" if len(jobs) > NAMED else "")
