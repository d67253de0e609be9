"""Handles of jobs that were enqueued: the descriptor, a text, with methods that read and change the job.

The calls of a `JobHandle` are for threads, those of an `AsyncJobHandle` are awaited. Written or pickled, as an argument
of another job too, a handle is its descriptor and no more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from pinlater.clock import Clock
from pinlater.log_guard import GuardedLogger
from pinlater.model import CancelOutcome, EnqueuedJobs, EnqueueOutcome, JobInfo, JobState, RescheduleOutcome
from pinlater.model import RescheduleJob as JobChange
from pinlater.schedule import Delay, delay_seconds, moment_ms
from pinlater_workers.errors import JobCancelled, JobFailed, ResultGone
from pinlater_workers.jobs.context import CURRENT, refuse_on_loop

if TYPE_CHECKING:
    from pinlater_workers.jobs.job_type import JobType

ResultT = TypeVar("ResultT")

_log = GuardedLogger("pinlater_workers.jobs")

WAIT_MS = 20_000
"""The most that one call waits for the end of a job."""

HINT_AFTER_MS = 2_000
"""The same in a job, until it was said that it may wait for its own slot."""

ENDED = (JobState.SUCCEEDED, JobState.FAILED)

SOON_S = 0.05
LATER_S = 2.0
"""Between looks at a job of a server that answers at once."""

_NOT_KEPT = (
    "job %s: result() of %s is None, whatever its function returned, as that is not kept: say keep_result=True in "
    "@app.job, or in options(...) of this enqueue (logged once for each type of job)"
)


class _Handle(str):
    """`outcome`: whether the enqueue stored this job, kept the one that stood, or replaced what that was to do."""

    __slots__ = ("_job_type", "outcome")
    _job_type: JobType
    outcome: EnqueueOutcome

    @classmethod
    def of(cls, descriptor: str, job_type: JobType, outcome: EnqueueOutcome = EnqueueOutcome.STORED) -> Self:
        handle = cls(descriptor)
        handle._job_type = job_type
        handle.outcome = outcome
        return handle

    @classmethod
    def each(cls, descriptors: Sequence[str], job_type: JobType) -> list[Self]:
        """Those of an enqueue, as a client answers it."""
        outcomes = descriptors.outcomes if isinstance(descriptors, EnqueuedJobs) else ()
        if outcomes:
            return [cls.of(each, job_type, outcome) for each, outcome in zip(descriptors, outcomes, strict=True)]
        handles, stored = list(map(cls, descriptors)), EnqueueOutcome.STORED
        for handle in handles:
            handle._job_type = job_type
            handle.outcome = stored
        return handles

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)

    @property
    def _queue(self) -> str:
        return self.partition(":")[0]

    def _patience(self, timeout: Delay | None) -> tuple[SlotHint, Patience]:
        clock = self._job_type.app.clock
        hint = SlotHint(str(self), self._queue, clock)
        return hint, Patience(timeout, clock, hint)

    def _result(self, info: JobInfo | None) -> Any:
        """JobFailed, JobCancelled, ResultGone."""
        if info is None:
            raise ResultGone(
                f"there is no job {self}: it was cancelled before it began, or deleted, or ended longer ago than its "
                "queue keeps jobs and results"
            )
        if info.state is JobState.FAILED:
            raise (JobCancelled if info.cancelled else JobFailed)(str(self), info.custom_status)
        if info.result is not None:
            return self._job_type.read_result(info.result)
        if self._job_type.settings.keep_result:
            raise ResultGone(f"job {self} has succeeded, and its result is not kept, or no longer: see result_ttl")
        job_type = self._job_type
        if not job_type.warned_of_dropped:
            job_type.warned_of_dropped = True
            if job_type.promises_result:
                _log.warning(_NOT_KEPT, job_type.name, self)
        return None

    def _change(
        self, delay: Delay | None, run_after: datetime | int | None, body: bytes | None, attempts: int | None
    ) -> JobChange:
        if delay is not None and run_after is not None:
            raise ValueError("either delay or run_after can be given, not both")
        at_ms = None if run_after is None else moment_ms(run_after)
        if delay is not None:
            at_ms = self._job_type.app.clock.now_ms() + round(delay_seconds(delay) * 1000)
        return JobChange(str(self), run_after_ms=at_ms, body=body, attempts_allowed=attempts)


class SlotHint:
    """What to say of a job that waits for another one: it keeps its slot, which that one may need."""

    def __init__(self, job: str, queue: str, clock: Clock) -> None:
        self._job = job
        self._queue = queue
        self._clock = clock
        self._context = CURRENT.get(None)
        self._is_to_come = self._context is not None
        self._text = ""

    @property
    def poll_ms(self) -> int:
        """The most that a look may wait: one who is to say something looks soon."""
        return HINT_AFTER_MS if self._is_to_come else WAIT_MS

    def checked(self, info: JobInfo) -> None:
        """The other job, as it is after a look. Said once, where it is due and nobody has begun it."""
        self._text = ""
        if self._context is None or info.state is not JobState.PENDING:
            self._is_to_come = False
            return
        if (info.run_after_ms or 0) > self._clock.now_ms():
            return
        self._text = (
            f"it has not begun. A job that waits keeps its slot: where all workers of queue {self._queue} are full of "
            "such jobs, none of them ends. More slots, a worker for that queue alone, or a flow mend that"
        )
        if self._is_to_come:
            self._is_to_come = False
            _log.warning("job %s waits for the result of job %s: %s", self._context.descriptor, self._job, self._text)

    def timed_out(self, timeout: Delay | None) -> TimeoutError:
        return TimeoutError(f"job {self._job} has not ended within {timeout}{self._text and ': '}{self._text}")


class Patience:
    """How long each look at a job may wait, until `timeout` is over. A server of an earlier version does not wait."""

    def __init__(self, timeout: Delay | None, clock: Clock, hint: SlotHint | None = None) -> None:
        self._clock = clock
        self._hint = hint
        self._until_ms = None if timeout is None else clock.now_ms() + round(delay_seconds(timeout) * 1000)
        self._pause_s = SOON_S

    def waits_ms(self) -> Iterator[int]:
        """Of one look after the other: at least one."""
        while True:
            began_ms = self._clock.now_ms()
            left_ms = WAIT_MS if self._until_ms is None else self._until_ms - began_ms
            self._waited = began_ms, max(1, min(left_ms, self._hint.poll_ms if self._hint else WAIT_MS))
            yield self._waited[1]
            if self._until_ms is not None and self._clock.now_ms() >= self._until_ms:
                return

    def pause_s(self) -> float:
        """Before the next look, after one that found the job not ended."""
        began_ms, wait_ms = self._waited
        took_ms = self._clock.now_ms() - began_ms
        if took_ms >= wait_ms / 2:
            return 0.0
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * 2, LATER_S)
        return max(0.0, min(pause_s, (wait_ms - took_ms) / 1000))


class JobHandle(_Handle, Generic[ResultT]):
    """The handle of a job, for threads: its descriptor, with calls. Further errors are those of Client."""

    __slots__ = ()

    def result(self, timeout: Delay | None = None) -> ResultT:
        """Wait until the job has ended, and return what its function returned.

        Without keep_result that is None; a warning is logged once for a function that is annotated to return something.

        JobFailed: with the job's status. JobCancelled: it was to stop. ResultGone: the job or its result is no longer
        kept. TimeoutError: it has not ended within `timeout`.
        """
        refuse_on_loop("enqueue_async(...)'s handle, and its result")
        hint, patience = self._patience(timeout)
        for wait_ms in patience.waits_ms():
            info = self._lookup(wait_ms)
            if info is None or info.state in ENDED:
                return self._result(info)  # type: ignore[no-any-return]
            hint.checked(info)
            time.sleep(patience.pause_s())
        raise hint.timed_out(timeout)

    def info(self) -> JobInfo | None:
        """Return all that a server knows of the job; None: it is not there any more."""
        return self._lookup(0)

    def state(self) -> JobState | None:
        """Return the state of the job; None: it is not there any more."""
        info = self._lookup(0)
        return None if info is None else info.state

    def cancel(self, *, running: bool = False) -> CancelOutcome:
        """Remove the job if it is pending. `running`: if it runs, request it to stop: REQUESTED."""
        client = self._job_type.app.client
        return client.cancel(self._queue, [str(self)], running=running)[str(self)]

    def reschedule(
        self,
        *,
        delay: Delay | None = None,
        run_after: datetime | int | None = None,
        body: bytes | None = None,
        attempts: int | None = None,
    ) -> RescheduleOutcome:
        """Give the job, if it is pending, another time, another body (of `job_type.body(...)`) or other attempts."""
        client = self._job_type.app.client
        return client.reschedule(self._queue, [self._change(delay, run_after, body, attempts)])[0]

    def _lookup(self, wait_ms: int) -> JobInfo | None:
        found = self._job_type.app.client.lookup([str(self)], include_result=True, wait_ms=wait_ms)
        return found.get(str(self))


class AsyncJobHandle(_Handle, Generic[ResultT]):
    """The handle of a job, for the event loop. The calls are those of JobHandle, and awaited."""

    __slots__ = ()

    async def result(self, timeout: Delay | None = None) -> ResultT:
        hint, patience = self._patience(timeout)
        for wait_ms in patience.waits_ms():
            info = await self._lookup(wait_ms)
            if info is None or info.state in ENDED:
                return self._result(info)  # type: ignore[no-any-return]
            hint.checked(info)
            await asyncio.sleep(patience.pause_s())
        raise hint.timed_out(timeout)

    async def info(self) -> JobInfo | None:
        return await self._lookup(0)

    async def state(self) -> JobState | None:
        info = await self._lookup(0)
        return None if info is None else info.state

    async def cancel(self, *, running: bool = False) -> CancelOutcome:
        client = self._job_type.app.async_client()
        return (await client.cancel(self._queue, [str(self)], running=running))[str(self)]

    async def reschedule(
        self,
        *,
        delay: Delay | None = None,
        run_after: datetime | int | None = None,
        body: bytes | None = None,
        attempts: int | None = None,
    ) -> RescheduleOutcome:
        client = self._job_type.app.async_client()
        return (await client.reschedule(self._queue, [self._change(delay, run_after, body, attempts)]))[0]

    async def _lookup(self, wait_ms: int) -> JobInfo | None:
        client = self._job_type.app.async_client()
        found = await client.lookup([str(self)], include_result=True, wait_ms=wait_ms)
        return found.get(str(self))
