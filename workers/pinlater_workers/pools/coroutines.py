"""Jobs as coroutines on the worker's own loop. One that is ended is cancelled, and again while it swallows that."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Sequence
from types import FrameType

import msgspec

from pinlater.model import Checkpoint
from pinlater_workers.app.settings import WorkerSettings
from pinlater_workers.execution.attempt import HasMiddleware, run_attempt_async
from pinlater_workers.execution.batch_attempt import run_batch_async
from pinlater_workers.execution.failure_text import frames_of_coroutine, frames_of_stack, place_text, stack_trace
from pinlater_workers.execution.start_context import StartContext
from pinlater_workers.jobs.context import ENDING_REASONS, JobContext, StopReason
from pinlater_workers.jobs.outcome import Outcome
from pinlater_workers.jobs.running_job import RunningBatch, RunningJob
from pinlater_workers.pools.base import (
    CompletionBatch,
    JobsEnded,
    NoteProgress,
    SaveCheckpoint,
    has_ended,
    member_of,
    outcome_on_error,
    stopped_outcome,
    tell_member,
)

CANCEL_AGAIN_S = 1.0
CLOSE_S = 1.0
"""How long close() waits for cancelled jobs."""


class _Host(msgspec.Struct, eq=False):
    """That of a job on the loop. It does not know its context: without a circle both are gone when the job ends.

    `ended`: the worker was told of its end.
    """

    running: RunningJob
    pool: AsyncPool
    ended: bool = False

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        raise RuntimeError("a coroutine cannot wait for its own loop: await the context's async twin of this call")

    async def checkpoint_async(self, checkpoint: Checkpoint) -> None:
        if self.ended:
            raise has_ended()
        await self.pool.save(self.running, checkpoint)

    def progress_made(self, context: JobContext) -> None:
        self.pool.progress_made(self.running, context)


class _Task(msgspec.Struct, eq=False):
    """One job on the loop. `reason` is set when it is cancelled, and `frames`: where it stood."""

    running: RunningJob
    host: _Host
    context: JobContext
    asyncio_task: asyncio.Task[None] | None = None
    reason: StopReason | None = None
    frames: Sequence[FrameType] = ()


class AsyncPool:
    """Runs jobs that are coroutines. A cancelled job is reported when it has ended, or after CANCEL_AGAIN_S, or the
    worker's `cancel_grace` where somebody asked for that; from then on it counts as stuck.
    """

    def __init__(
        self,
        app: HasMiddleware,
        settings: WorkerSettings,
        ended: JobsEnded,
        save: SaveCheckpoint,
        progress: NoteProgress,
    ) -> None:
        self._app = app
        self._cancel_grace_s = settings.cancel_grace_s
        self._start = StartContext()
        self._completed = CompletionBatch(ended)
        self._save = save
        self._note_progress = progress
        self._tasks: dict[RunningJob, _Task] = {}
        self._stuck: set[_Task] = set()
        self._closed = False

    @property
    def stuck(self) -> int:
        return len(self._stuck)

    def stuck_jobs(self) -> Sequence[RunningJob]:
        return [task.running for task in self._stuck]

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def on_loop(self) -> tuple[RunningJob | None, str]:
        """From another thread: the job whose coroutine runs at this moment, and where. None: the task is no job's, or
        no task runs.
        """
        task = asyncio.current_task(self._loop)
        if task is None:
            return None, ""
        where = place_text(stack_trace(frames_of_stack(sys._current_frames().get(self._thread))))
        running = next(
            (each.running for each in [*self._tasks.values(), *self._stuck] if each.asyncio_task is task), None
        )
        return running, where

    def submit(self, running: RunningJob) -> None:
        host = _Host(running, self)
        task = self._tasks[running] = _Task(running, host, running.context(host))
        task.asyncio_task = self._loop.create_task(self._run(task), context=self._start.fresh())

    def stop(self, running: RunningJob, reason: StopReason) -> None:
        task = self._tasks.get(running)
        if task is None:
            return
        task.context.request_stop(reason, running.cancelled_by or "")
        if (reason in ENDING_REASONS or reason is StopReason.CANCELLED) and task.reason is None:
            task.reason = reason
            assert task.asyncio_task is not None
            task.frames = frames_of_coroutine(task.asyncio_task.get_coro())
            task.asyncio_task.add_done_callback(lambda _: self._report_stopped(task, reason))
            self._cancel(task)

    def stop_member(self, batch: RunningBatch, index: int) -> None:
        task = self._tasks.get(batch)
        if task is not None:
            tell_member(task.context, batch, index)

    async def save(self, running: RunningJob, checkpoint: Checkpoint) -> None:
        """In a task of the pool's: a connection that it opens outlives the job, and its context."""
        await self._loop.create_task(self._carry_out(running, checkpoint), context=self._start.kept)

    async def _carry_out(self, running: RunningJob, checkpoint: Checkpoint) -> None:
        await self._save(running, checkpoint)

    def progress_made(self, running: RunningJob, context: JobContext) -> None:
        """Of a job, from any thread."""
        member = member_of(running, context.descriptor)
        with contextlib.suppress(RuntimeError):  # the loop is closed: the worker has ended
            self._loop.call_soon_threadsafe(
                self._note_progress, member, context.take_progress, context=self._start.kept
            )

    async def close(self) -> None:
        self._closed = True
        self._completed.close()
        tasks = {task.asyncio_task for task in (*self._tasks.values(), *self._stuck) if task.asyncio_task is not None}
        for coroutine in tasks:
            coroutine.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S)

    async def _run(self, task: _Task) -> None:
        running = task.running
        assert running.type is not None
        try:
            if running.type.is_batch:
                outcome: Outcome = await run_batch_async(self._app, running.type, task.context, start=self._start)
            else:
                outcome = await run_attempt_async(self._app, running.type, running.job, task.context)
        except BaseException as error:  # KeyboardInterrupt is the job's own: that of the terminal comes as a signal
            if self._closed or task.reason is not None:
                return
            outcome = outcome_on_error(running, error)
        finally:
            self._stuck.discard(task)
        if task.reason is None or (task.reason is StopReason.CANCELLED and not task.host.ended):
            self._end(task, outcome)  # what a cancelled one returned in time counts

    def _cancel(self, task: _Task) -> None:
        assert task.asyncio_task is not None
        if self._closed or task.asyncio_task.done():
            return
        task.asyncio_task.cancel()
        again_s = self._cancel_grace_s if task.reason is StopReason.CANCELLED else CANCEL_AGAIN_S
        self._loop.call_later(again_s, self._again, task)

    def _again(self, task: _Task) -> None:
        """The job swallows its cancellation or takes its time to clean up: it is reported now."""
        assert task.asyncio_task is not None
        assert task.reason is not None
        if not self._closed and not task.asyncio_task.done():
            self._stuck.add(task)
            self._report_stopped(task, task.reason)
            self._cancel(task)

    def _report_stopped(self, task: _Task, reason: StopReason) -> None:
        """Told once, here or when it has ended."""
        if not task.host.ended:
            frames, task.frames = task.frames, ()
            self._end(task, stopped_outcome(task.running, reason, task.context, frames))

    def _end(self, task: _Task, outcome: Outcome) -> None:
        task.host.ended = True
        del self._tasks[task.running]
        self._completed.add(task.running, outcome)
