"""Jobs in processes of their own, one at a time in each: what a job does to its process, it does to nothing else."""

from __future__ import annotations

import functools
import logging
from collections import deque
from collections.abc import Sequence

from pinlater_workers.app.settings import WorkerSettings
from pinlater_workers.errors import ProcessDied
from pinlater_workers.jobs.context import ENDS, Running, Why
from pinlater_workers.jobs.outcome import Action, Outcome
from pinlater_workers.pools.base import Ended, Report, SaveCheckpoint, Saving, cut_short, has_ended, verdict_on
from pinlater_workers.pools.job_process import Spawned
from pinlater_workers.pools.messages import Answer, Ask, FromProcess, Run, Tell
from pinlater_workers.pools.messages import Ended as EndedThere
from pinlater_workers.pools.process_set import Crew

CLOSE_S = 2.0

_log = logging.getLogger("pinlater_workers.pools")


class ProcessPool:
    """A job that is ended is reported when its process is gone for sure: no other attempt of it runs beside it here.

    Without `open`, the first job starts the processes. A job that no process is ready for waits here.
    """

    stuck = 0

    def __init__(self, app_spec: str, settings: WorkerSettings, ended: Ended, save: SaveCheckpoint) -> None:
        self._settings = settings
        self._report = Report(ended)
        self._saving = Saving(save)
        self._crew = Crew(self, app_spec, settings.concurrency)
        self._idle: list[Spawned] = []
        self._waiting: deque[Running] = deque()
        self._where: dict[Running, Spawned] = {}
        self._closed = False

    def stuck_jobs(self) -> Sequence[Running]:
        return ()

    async def open(self) -> None:
        await self._crew.open()

    def submit(self, running: Running) -> None:
        while self._idle:
            process = self._idle.pop()
            if not process.ending:
                self._give(process, running)
                return
        self._waiting.append(running)
        self._crew.need(len(self._where) + len(self._waiting))

    def stop(self, running: Running, why: Why) -> None:
        process = self._where.get(running)
        if process is None:
            if why is not Why.OUT_OF_TOUCH and running in self._waiting:
                self._waiting.remove(running)
                self._report.add(running, Outcome(Action.GIVE_BACK))  # it has not begun: no attempt is spent
        elif why in ENDS:
            process.why = process.why or why
            process.kill()
        else:
            process.send_control(Tell(process.jobs, why))

    async def close(self) -> None:
        """A verdict that is on its way is taken."""
        self._closed = True
        self._waiting.clear()
        await self._crew.close(CLOSE_S)
        self._report.close()
        await self._saving.close()

    def ready(self, process: Spawned) -> None:
        if self._waiting:
            self._give(process, self._waiting.popleft())
        else:
            self._idle.append(process)

    def received(self, process: Spawned, message: FromProcess) -> None:
        running = process.running
        if isinstance(message, Ask):
            done = functools.partial(self._answer, process, message.ask)
            if running is not None and message.number == process.jobs:
                self._saving.start(running, message.checkpoint, done)
            else:
                done(has_ended())
        elif isinstance(message, EndedThere) and running is not None:
            self._end(process, message.verdict)
            if not process.ending:
                self._next(process)

    def died(self, process: Spawned, reason: str) -> None:
        if process in self._idle and not self._closed:
            self._idle.remove(process)
            _log.warning("A process of the pool ended between two jobs: %s", reason)
        running = process.running
        if running is not None and not self._closed:
            if process.why is None:
                self._end(process, verdict_on(running, ProcessDied(reason)))
            else:
                self._end(process, cut_short(running, process.why))

    def _give(self, process: Spawned, running: Running) -> None:
        assert running.type is not None
        process.running = running
        process.jobs += 1
        self._where[running] = process
        name = "" if running.type.settings.raw else running.type.name
        delay_ms = int(self._settings.unknown_delay_s * 1000)
        process.send(Run(process.jobs, name, running.queue, running.job, running.deadline_ms, delay_ms))
        if running.told is not None:
            process.send_control(Tell(process.jobs, running.told))
        if process.jobs == self._settings.recycle_jobs:
            process.last = True
            self._crew.fill()

    def _end(self, process: Spawned, verdict: Outcome) -> None:
        running = process.running
        assert running is not None
        process.running = None
        del self._where[running]
        self._report.add(running, verdict)

    def _next(self, process: Spawned) -> None:
        limit = self._settings.recycle_mib << 20
        if process.last or (limit and process.resident_bytes() > limit):
            process.leave()
            self._crew.fill()
        else:
            self.ready(process)

    def _answer(self, process: Spawned, ask: int, error: BaseException | None) -> None:
        process.send_control(Answer.of(ask, error))
