"""The protocol of a pool, and what the pools share. docs/workers.md says which pool promises what."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context, copy_context
from itertools import zip_longest
from types import FrameType
from typing import Any, Protocol

from pinlater.model import Checkpoint
from pinlater_workers.errors import ClaimLost, ConfigurationError
from pinlater_workers.execution.decision import decide, decide_stopped, log_outcome
from pinlater_workers.execution.failure_text import stack_trace
from pinlater_workers.jobs.attempt_record import AttemptRecord
from pinlater_workers.jobs.batch import BatchContext, BatchJob, MemberOutcomes
from pinlater_workers.jobs.context import CURRENT, JobContext, StopReason, cancelled_text
from pinlater_workers.jobs.outcome import SUCCEEDED, Action, Outcome
from pinlater_workers.jobs.progress_report import TakeProgress
from pinlater_workers.jobs.running_job import RunningBatch, RunningJob

JobsEnded = Callable[[Sequence[tuple[RunningJob, Outcome]]], None]
"""Told on the event loop, once for each job that was submitted: what became of it. As many at a time as there are."""

SaveCheckpoint = Callable[[RunningJob, Checkpoint], Awaitable[None]]
"""Carries out a checkpoint that a running job asks for. Raises ClaimLost, or an error of pinlater.errors."""

NoteProgress = Callable[[RunningJob, TakeProgress], None]
"""Told on the event loop: the job, or the one of a batch, has new progress, to be taken when it is to be sent."""

PoolFailed = Callable[[ConfigurationError], None]
"""Told on the event loop, once: the pool can run no job any more, however often it tries."""

Done = Callable[[BaseException | None], None]
"""Told once how the checkpoint went: None is well."""


class JobPool(Protocol):
    """Runs jobs. All calls are made on the worker's event loop, and none of them blocks it."""

    @property
    def stuck(self) -> int:
        """Slots of jobs that have ended for the worker, but go on: threads and coroutines that do not stop."""

    def stuck_jobs(self) -> Sequence[RunningJob]:
        """The jobs in those slots."""

    async def open(self) -> None:
        """Ready to run. ConfigurationError where it cannot."""

    def submit(self, running: RunningJob) -> None:
        """Run the job; there is a slot free. `JobsEnded` is told of it once, sooner or later."""

    def stop(self, running: RunningJob, reason: StopReason) -> None:
        """The job, which has not ended, is told; and it is ended as far as this pool can.

        TIME_LIMIT and CLAIM_LOST: a process is killed, a coroutine cancelled, a thread's result dropped; `JobsEnded`
        is called soon, with an outcome that names the reason. CANCELLED: a coroutine is cancelled, a process killed
        where it has not ended after the worker's `cancel_grace`, a thread is asked; its own outcome counts if it comes
        first. STOPPING, OUT_OF_TOUCH: it is only asked to stop, and goes on.
        """

    def stop_member(self, batch: RunningBatch, index: int) -> None:
        """One job of a batch, counted from 0, is told its `stop_reason`; the batch goes on."""

    async def close(self) -> None:
        """End all at once: what still runs is killed or left behind. Nothing that ends later is told."""


def outcome_on_error(running: RunningJob, error: BaseException) -> Outcome:
    """By the retry rules of its type. Of a batch the outcomes of its jobs, by their own attempts."""
    if isinstance(running, RunningBatch):
        return MemberOutcomes(Action.RETRY, members=tuple(outcome_on_error(each, error) for each in running.members))
    assert running.type is not None
    record = AttemptRecord.since(running.began_s)
    return _logged(running, decide(running.type.settings, running.job, error, record=record))


def stopped_outcome(
    running: RunningJob, reason: StopReason, context: JobContext | None = None, frames: Sequence[FrameType] = ()
) -> Outcome:
    """The outcome of a job that was ended because of `reason`, one of ENDING_REASONS. `frames`: where it stood, from
    the outermost on. Jobs of a batch may have outcomes of their own by then.
    """
    if isinstance(running, RunningBatch):
        jobs = context.jobs if isinstance(context, BatchContext) else ()
        ended = [
            _stopped_member(each, job, reason, context, frames) for each, job in zip_longest(running.members, jobs)
        ]
        return MemberOutcomes(Action.RETRY, members=tuple(ended))
    assert running.type is not None
    record, trace = AttemptRecord.since(running.began_s), stack_trace(frames)
    settings, text = running.type.settings, cancelled_text(running.cancelled_by or "")
    outcome = decide_stopped(settings, running.job, reason, record=record, trace=trace, text=text)
    return _logged(running, outcome)


def never_began(running: RunningJob) -> Outcome:
    """That of a job which was cancelled before it began."""
    return Outcome(Action.CANCEL, status=f"{cancelled_text(running.cancelled_by or '')}, before it began\n")


def tell_member(context: JobContext, batch: RunningBatch, index: int) -> None:
    """To the context of a batch: why that job is to stop."""
    assert isinstance(context, BatchContext)
    member = batch.members[index]
    assert member.stop_reason is not None
    context.stop_member(index, member.stop_reason, member.cancelled_by or "")


def member_of(running: RunningJob, descriptor: str) -> RunningJob:
    """The job of a batch with that descriptor, or what is none."""
    if not isinstance(running, RunningBatch):
        return running
    return next((each for each in running.members if each.job.descriptor == descriptor), running)


def _stopped_member(
    running: RunningJob,
    job: BatchJob[Any] | None,
    reason: StopReason,
    context: JobContext | None,
    frames: Sequence[FrameType],
) -> Outcome:
    if job is None or not job.settled:
        return stopped_outcome(running, reason, context, frames)
    return SUCCEEDED if job.error is None else outcome_on_error(running, job.error)


def has_ended() -> ClaimLost:
    """For what still calls for a checkpoint of a job that has ended as far as its worker is concerned."""
    return ClaimLost("the job has ended")


def _logged(running: RunningJob, outcome: Outcome) -> Outcome:
    Context().run(_log, running.context(_Nobody()), outcome)
    return outcome


def _log(context: JobContext, outcome: Outcome) -> None:
    CURRENT.set(context)
    log_outcome(context, outcome)


class _Nobody:
    """The host of a job that has ended."""

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        raise has_ended()

    async def checkpoint_async(self, checkpoint: Checkpoint) -> None:
        raise has_ended()

    def progress_made(self, context: JobContext) -> None:
        """Nobody is told."""


class CompletionBatch:
    """For the loop's own thread alone. What follows an end, later jobs included, follows in the context in which this
    was made, and not in the one of the job that ended.
    """

    def __init__(self, ended: JobsEnded) -> None:
        self._ended = ended
        self._context = copy_context()
        self._jobs: list[tuple[RunningJob, Outcome]] = []
        self._closed = False

    def add(self, running: RunningJob, outcome: Outcome) -> None:
        if not self._jobs:
            asyncio.get_running_loop().call_soon(self._complete, context=self._context)
        self._jobs.append((running, outcome))

    def close(self) -> None:
        """What has ended is told now, and nothing after it."""
        self._complete()
        self._closed = True

    def _complete(self) -> None:
        jobs, self._jobs = self._jobs, []
        if jobs and not self._closed:
            self._ended(jobs)


class CheckpointRequests:
    """For the loop's own thread alone."""

    def __init__(self, save: SaveCheckpoint) -> None:
        self._save = save
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def start(self, running: RunningJob, checkpoint: Checkpoint, done: Done) -> None:
        if self._closed:
            done(ClaimLost("the worker has ended"))
            return
        task = asyncio.get_running_loop().create_task(self._carry_out(running, checkpoint, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """What is under way ends as ClaimLost, so that no thread waits for it for ever."""
        self._closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry_out(self, running: RunningJob, checkpoint: Checkpoint, done: Done) -> None:
        error: BaseException | None = ClaimLost("the worker has ended")
        try:
            await self._save(running, checkpoint)
            error = None
        except Exception as raised:
            error = raised
        finally:
            done(error)
