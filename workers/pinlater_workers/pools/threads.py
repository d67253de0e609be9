"""Jobs in threads of this process. A thread cannot be stopped: a job over its limit is notified, and its result
dropped. A thread cannot be stopped: a job over its limit is told, and its result dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import sys
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from time import monotonic
from types import FrameType

import msgspec

from pinlater.log_guard import GuardedLogger
from pinlater.model import Checkpoint
from pinlater_workers.app.settings import WorkerSettings
from pinlater_workers.execution.attempt import HasMiddleware, close_loop, run_attempt
from pinlater_workers.execution.batch_attempt import run_batch
from pinlater_workers.execution.failure_text import frames_of_stack
from pinlater_workers.execution.start_context import StartContext
from pinlater_workers.jobs.context import ENDING_REASONS, JobContext, StopReason
from pinlater_workers.jobs.outcome import Action, Outcome
from pinlater_workers.jobs.running_job import RunningBatch, RunningJob
from pinlater_workers.pools.base import (
    CheckpointRequests,
    CompletionBatch,
    Done,
    JobsEnded,
    NoteProgress,
    SaveCheckpoint,
    has_ended,
    member_of,
    outcome_on_error,
    stopped_outcome,
    tell_member,
)

_log = GuardedLogger("pinlater_workers.pools")


class _Host(msgspec.Struct, eq=False):
    """That of a job in a thread. It does not know its context: without a circle both are gone when the job ends."""

    pool: ThreadPool
    running: RunningJob

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        self.pool.ask(self.running, checkpoint).result()

    async def checkpoint_async(self, checkpoint: Checkpoint) -> None:
        await asyncio.wrap_future(self.pool.ask(self.running, checkpoint))

    def progress_made(self, context: JobContext) -> None:
        self.pool.progress_made(self.running, context)


class _Task(msgspec.Struct, eq=False):
    """One job in a thread.

    `thread` and `finished` are set by the thread, `dropped` by the loop: its outcome was told before the thread
    returned.
    """

    running: RunningJob
    context: JobContext
    thread: int = 0
    finished: bool = False
    dropped: bool = False


class ThreadPool:
    """Threads are started when they are needed, at most `concurrency` of them, and kept.

    They are daemons: one that never returns does not hold up the end of the process.

    One thread at a time is called out of its sleep, and calls the next where jobs are left: those that end at once are
    run by the few that are awake, instead of waking a thread each.
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
        self._settings = settings
        self._note_progress = progress
        self._ended = ended
        self._start = StartContext()
        self._completed = CompletionBatch(ended)
        self._checkpoints = CheckpointRequests(save)
        self._pending: deque[_Task] = deque()
        self._wakeups: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._wakeup_sent = False
        self._tasks: dict[RunningJob, _Task] = {}
        self._finished: deque[tuple[_Task, Outcome]] = deque()
        self._waking = False
        self._closed = False
        self._threads = 0
        self._process = os.getpid()
        self._stuck: set[_Task] = set()

    @property
    def stuck(self) -> int:
        return len(self._stuck)

    def stuck_jobs(self) -> Sequence[RunningJob]:
        return [task.running for task in self._stuck]

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()

    def submit(self, running: RunningJob) -> None:
        task = self._tasks[running] = _Task(running, running.context(_Host(self, running)))
        if self._threads < self._settings.concurrency and self._threads < len(self._tasks) + len(self._stuck):
            try:
                threading.Thread(target=self._work, name=f"job-{self._threads + 1}", daemon=True).start()
            except RuntimeError as error:
                self._give_back(running, error)
                return
            self._threads += 1
        self._pending.append(task)
        if not self._wakeup_sent:
            self._wake_thread()

    def withdraw(self) -> list[RunningJob]:
        """Takes those back that no thread has begun, in order: they do not begin, and nothing is told of them."""
        withdrawn: list[RunningJob] = []
        while True:
            try:
                task = self._pending.pop()
            except IndexError:
                break
            del self._tasks[task.running]
            withdrawn.append(task.running)
        withdrawn.reverse()
        return withdrawn

    def stop(self, running: RunningJob, reason: StopReason) -> None:
        task = self._tasks.get(running)
        if task is None or task.finished:
            return
        task.context.request_stop(reason, running.cancelled_by or "")
        if reason in ENDING_REASONS:
            task.dropped = True
            self._stuck.add(task)
            del self._tasks[running]
            self._completed.add(running, stopped_outcome(running, reason, task.context, _frames(task)))

    def stop_member(self, batch: RunningBatch, index: int) -> None:
        task = self._tasks.get(batch)
        if task is not None:
            tell_member(task.context, batch, index)

    async def close(self) -> None:
        self._deliver()
        self._closed = True
        self._completed.close()
        for task in self._tasks.values():
            task.context.request_stop(StopReason.STOPPING)
        for _ in range(self._threads):
            self._wakeups.put(None)
        await self._checkpoints.close()

    def ask(self, running: RunningJob, checkpoint: Checkpoint) -> Future[None]:
        """From the thread of a job: the checkpoint under way."""
        saved: Future[None] = Future()
        saved.set_running_or_notify_cancel()  # a coroutine that gives up waiting does not cancel it

        def done(error: BaseException | None) -> None:
            if error is None:
                saved.set_result(None)
            else:
                saved.set_exception(error)

        self._loop.call_soon_threadsafe(self._save, running, checkpoint, done, context=self._start.kept)
        return saved

    def progress_made(self, running: RunningJob, context: JobContext) -> None:
        """From the thread of a job."""
        member = member_of(running, context.descriptor)
        with contextlib.suppress(RuntimeError):  # the loop is closed: the worker has ended
            self._loop.call_soon_threadsafe(
                self._note_progress, member, context.take_progress, context=self._start.kept
            )

    def _save(self, running: RunningJob, checkpoint: Checkpoint, done: Done) -> None:
        if running in self._tasks:
            self._checkpoints.start(running, checkpoint, done)
        else:
            done(has_ended())

    def _give_back(self, running: RunningJob, error: RuntimeError) -> None:
        """The system has no further thread for this process: another worker may have one."""
        _log.error("A job is requeued, as no thread could be started for it: %s", error)
        del self._tasks[running]
        self._completed.add(running, Outcome(Action.GIVE_BACK, int(self._settings.unknown_delay_s * 1000)))

    def _wake_thread(self) -> None:
        """Wakes a thread. Not where one is on its way: a job would cost a call more."""
        self._wakeup_sent = True
        self._wakeups.put(None)

    def _next(self) -> _Task | None:
        """In a thread: the next job, as long as it takes; None: there are no more. The flag goes before the look: what
        is put in line after that wakes a thread again.
        """
        while True:
            try:
                task = self._pending.popleft()
            except IndexError:
                self._wakeups.get()
                if self._closed:
                    return None
                self._wakeup_sent = False
            else:
                if self._pending and not self._wakeup_sent:
                    self._wake_thread()
                return task

    def _work(self) -> None:
        thread = threading.get_ident()
        while (task := self._next()) is not None:
            running = task.running
            task.thread = thread
            assert running.type is not None
            if running.ahead:
                running.begin(monotonic())
                task.context.move_deadline(running.deadline_ms)
            try:
                if running.type.is_batch:
                    outcome: Outcome = run_batch(self._app, running.type, task.context, start=self._start)
                else:
                    outcome = run_attempt(self._app, running.type, running.job, task.context, start=self._start)
            except BaseException as error:  # KeyboardInterrupt too, which a thread can only have raised by itself
                outcome = outcome_on_error(running, error)
            if os.getpid() != self._process:
                os._exit(0)  # the job has forked, and this is the other one
            task.finished = True
            self._finished.append((task, outcome))
            del task, running, outcome  # nothing of a job is kept while the thread waits for the next
            if not self._waking:
                self._waking = True
                try:
                    self._loop.call_soon_threadsafe(self._deliver, context=self._start.kept)
                except RuntimeError:
                    break  # the loop is closed: the worker has ended, and this job is reported to nobody
        close_loop()

    def _deliver(self) -> None:
        """On the loop. The flag goes first: what is appended after the last look wakes the loop again."""
        self._waking = False
        ended: list[tuple[RunningJob, Outcome]] = []
        while self._finished:
            task, outcome = self._finished.popleft()
            if task.dropped:
                self._stuck.discard(task)
            else:
                del self._tasks[task.running]
                ended.append((task.running, outcome))
        if ended and not self._closed:
            self._ended(ended)


def _frames(task: _Task) -> Sequence[FrameType]:
    """Where the job stands, if it has begun."""
    return frames_of_stack(sys._current_frames().get(task.thread)) if task.thread else ()
