"""Jobs in processes of their own, one at a time in each: what a job does to its process, it does to nothing else."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Sequence

from pinlater.log_guard import GuardedLogger
from pinlater_workers.app.settings import WorkerSettings
from pinlater_workers.errors import ProcessDied
from pinlater_workers.jobs.batch import MemberOutcomes
from pinlater_workers.jobs.context import ENDING_REASONS, StopReason
from pinlater_workers.jobs.outcome import Action, Outcome
from pinlater_workers.jobs.progress_report import ProgressReport
from pinlater_workers.jobs.running_job import RunningBatch, RunningJob
from pinlater_workers.pools.base import (
    CheckpointRequests,
    CompletionBatch,
    JobsEnded,
    NoteProgress,
    PoolFailed,
    SaveCheckpoint,
    has_ended,
    member_of,
    never_began,
    outcome_on_error,
    stopped_outcome,
)
from pinlater_workers.pools.messages import (
    BatchEnded,
    FromProcess,
    JobEnded,
    ProgressMade,
    RunBatch,
    RunJob,
    SaveAnswer,
    SaveRequest,
    StopJob,
    StopMember,
)
from pinlater_workers.pools.process_set import JobProcess, ProcessSet

CLOSE_S = 2.0

_log = GuardedLogger("pinlater_workers.pools")


class ProcessPool:
    """A job that is ended is reported when its process is gone for sure: no other attempt of it runs beside it here.

    Without `open`, the first job starts the processes. A job that no process is ready for waits here.
    """

    stuck = 0

    def __init__(
        self,
        app_spec: str,
        settings: WorkerSettings,
        ended: JobsEnded,
        save: SaveCheckpoint,
        progress: NoteProgress,
        failed: PoolFailed = lambda error: None,
        job_types: Sequence[str] = (),
    ) -> None:
        self._settings = settings
        self._note_progress = progress
        self._completed = CompletionBatch(ended)
        self._checkpoints = CheckpointRequests(save)
        self._crew = ProcessSet(self, app_spec, settings.concurrency, failed, job_types)
        self._idle: list[JobProcess] = []
        self._waiting: deque[RunningJob] = deque()
        self._where: dict[RunningJob, JobProcess] = {}
        self._closed = False

    def stuck_jobs(self) -> Sequence[RunningJob]:
        return ()

    async def open(self) -> None:
        await self._crew.open()

    def submit(self, running: RunningJob) -> None:
        while self._idle:
            process = self._idle.pop()
            if not process.ending:
                self._give(process, running)
                return
        self._waiting.append(running)
        self._crew.need(len(self._where) + len(self._waiting))

    def stop(self, running: RunningJob, reason: StopReason) -> None:
        process = self._where.get(running)
        if process is None:
            if reason is not StopReason.OUT_OF_TOUCH and running in self._waiting:
                self._waiting.remove(running)
                self._completed.add(running, self._not_begun(running, reason))
        elif reason in ENDING_REASONS:
            process.reason = process.reason or reason
            process.kill()
        else:
            process.send_control(StopJob(process.jobs, reason, running.cancelled_by or ""))
            if reason is StopReason.CANCELLED:
                grace_s, loop = self._settings.cancel_grace_s, asyncio.get_running_loop()
                loop.call_later(grace_s, self._kill_cancelled, process, running)

    def _kill_cancelled(self, process: JobProcess, running: RunningJob) -> None:
        if process.running is running and process.reason is None:
            process.reason = StopReason.CANCELLED
            process.kill()

    def _not_begun(self, running: RunningJob, reason: StopReason) -> Outcome:
        """No attempt is spent."""
        if reason is not StopReason.CANCELLED:
            return Outcome(Action.GIVE_BACK)
        if isinstance(running, RunningBatch):
            members = tuple(never_began(each) for each in running.members)
            return MemberOutcomes(Action.CANCEL, members=members)
        return never_began(running)

    def stop_member(self, batch: RunningBatch, index: int) -> None:
        process = self._where.get(batch)
        if process is not None:
            process.send_control(self._stop_member(process, batch, index))

    def _stop_member(self, process: JobProcess, batch: RunningBatch, index: int) -> StopMember:
        member = batch.members[index]
        assert member.stop_reason is not None
        return StopMember(process.jobs, index, member.stop_reason, member.cancelled_by or "")

    async def close(self) -> None:
        """An outcome that is on its way is taken."""
        self._closed = True
        self._waiting.clear()
        await self._crew.close(CLOSE_S)
        self._completed.close()
        await self._checkpoints.close()

    def ready(self, process: JobProcess) -> None:
        if self._waiting:
            self._give(process, self._waiting.popleft())
        else:
            self._idle.append(process)

    def received(self, process: JobProcess, message: FromProcess) -> None:
        running = process.running
        if isinstance(message, SaveRequest):
            done = functools.partial(self._answer, process, message.ask)
            if running is not None and message.number == process.jobs:
                self._checkpoints.start(running, message.checkpoint, done)
            else:
                done(has_ended())
        elif isinstance(message, ProgressMade):
            if running is not None and message.number == process.jobs:
                member = member_of(running, message.descriptor)
                member.say(ProgressReport(message.fraction, message.text, message.log_lines))
                self._note_progress(member, member.take_untaken)
        elif isinstance(message, JobEnded | BatchEnded) and running is not None:
            self._end(process, message.outcome if isinstance(message, JobEnded) else message.whole())
            if not process.ending:
                self._next(process)

    def died(self, process: JobProcess, reason: str) -> None:
        if process in self._idle and not self._closed:
            self._idle.remove(process)
            _log.warning("A process of the pool ended between two jobs: %s", reason)
        running = process.running
        if running is not None and not self._closed:
            if process.reason is None:
                self._end(process, outcome_on_error(running, ProcessDied(reason)))
            else:
                self._end(process, stopped_outcome(running, process.reason))

    def _give(self, process: JobProcess, running: RunningJob) -> None:
        assert running.type is not None
        process.running = running
        process.jobs += 1
        self._where[running] = process
        name = "" if running.type.is_raw else running.type.name
        delay_ms = int(self._settings.unknown_delay_s * 1000)
        if isinstance(running, RunningBatch):
            jobs = [member.job for member in running.members]
            process.send(RunBatch(process.jobs, name, running.queue, jobs, running.deadline_ms, delay_ms))
            for index, member in enumerate(running.members):
                if member.stop_reason is not None:
                    process.send_control(self._stop_member(process, running, index))
        else:
            process.send(RunJob(process.jobs, name, running.queue, running.job, running.deadline_ms, delay_ms))
        if running.stop_reason is not None:
            process.send_control(StopJob(process.jobs, running.stop_reason, running.cancelled_by or ""))
        if process.jobs == self._settings.recycle_jobs:
            process.last = True
            self._crew.fill()

    def _end(self, process: JobProcess, outcome: Outcome) -> None:
        running = process.running
        assert running is not None
        process.running = None
        del self._where[running]
        self._completed.add(running, outcome)

    def _next(self, process: JobProcess) -> None:
        limit = self._settings.recycle_mib << 20
        if process.last or (limit and process.resident_bytes() > limit):
            process.leave()
            self._crew.fill()
        else:
            self.ready(process)

    def _answer(self, process: JobProcess, ask: int, error: BaseException | None) -> None:
        process.send_control(SaveAnswer.of(ask, error))
