"""Single enqueues of one queue, joined into one call. Self-clocking: low load pays no wait, high load makes batches.

With nothing in flight a job leaves at the end of the event loop's turn, with all others enqueued in that turn. While a
batch is in flight the next one gathers; it leaves when that one returns, when it is full, or after LONGEST_WAIT_S.
Every caller has its own answer.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from pinlater.errors import BodyTooLarge, Overloaded, PinLaterError, PriorityNotSupported, RequestInvalid
from pinlater.model import Job

LONGEST_WAIT_S = 0.05
"""How long a slow batch in flight holds back the next one."""

JOB_OVERHEAD_BYTES = 64
"""What a job weighs in a batch beside its body."""

OF_ONE_MEMBER = (RequestInvalid, BodyTooLarge, PriorityNotSupported)
"""Refusals that one job of a batch can cause for all; after these surely nothing is stored."""

Send = Callable[[Sequence[Job], float], Awaitable[list[str]]]
"""Stores jobs, all or none, in one call before a deadline (seconds of the loop's clock); a descriptor per job."""


@dataclass(frozen=True, slots=True)
class JoiningLimits:
    """Bounds on one batch, on the batches in flight, and on the full ones waiting behind these."""

    batch_jobs: int = 1_000
    batch_bytes: int = 1024 * 1024
    batches_in_flight: int = 8
    batches_waiting: int = 32


class Batch:
    """Jobs that leave together, and who waits for each."""

    __slots__ = ("bytes", "deadline_s", "futures", "jobs")

    def __init__(self, deadline_s: float) -> None:
        self.jobs: list[Job] = []
        self.futures: list[asyncio.Future[str]] = []
        self.bytes = 0
        self.deadline_s = deadline_s


class Joiner:
    """Joins the enqueues of one queue that have the same time-out; `on_idle` is called when nothing is left in it."""

    def __init__(self, send: Send, timeout_s: float, limits: JoiningLimits, on_idle: Callable[[], object]) -> None:
        self._send = send
        self._timeout_s = timeout_s
        self._limits = limits
        self._on_idle = on_idle
        self._loop = asyncio.get_running_loop()
        self._gathering: Batch | None = None
        self._full: deque[Batch] = deque()
        self._in_flight: set[asyncio.Task[None]] = set()
        self._slow_timer: asyncio.TimerHandle | None = None

    def add(self, job: Job) -> asyncio.Future[str]:
        """The job's descriptor, to come. Overloaded: too many batches wait already."""
        weight = len(job.body) + JOB_OVERHEAD_BYTES
        batch = self._gathering
        if batch is None or batch.bytes + weight > self._limits.batch_bytes:
            batch = self._open_batch()
        future = self._loop.create_future()
        batch.jobs.append(job)
        batch.futures.append(future)
        batch.bytes += weight
        if len(batch.jobs) >= self._limits.batch_jobs:
            self._close_batch()
        return future

    async def close(self, error: Exception) -> None:
        """Everyone still waiting gets `error`; calls in flight are given up."""
        self._stop_timer()
        for batch in [*self._full, *([self._gathering] if self._gathering else [])]:
            _fail(batch.futures, error)
        self._full.clear()
        self._gathering = None
        for task in self._in_flight:
            task.cancel(str(error))
        await asyncio.gather(*self._in_flight, return_exceptions=True)

    # -- batches ---------------------------------------------------------------------------------------------------

    def _open_batch(self) -> Batch:
        if len(self._full) >= self._limits.batches_waiting:
            raise Overloaded(f"{len(self._full)} batches of enqueues are waiting in this client already")
        self._close_batch()
        batch = self._gathering = Batch(self._loop.time() + self._timeout_s)
        if self._in_flight:
            self._slow_timer = self._loop.call_later(LONGEST_WAIT_S, self._leave_anyway)
        else:
            self._loop.call_soon(self._leave)
        return batch

    def _close_batch(self) -> None:
        """Takes no more jobs into the batch that gathers; it leaves at once where a place in flight is free."""
        if self._gathering is not None:
            self._stop_timer()
            self._full.append(self._gathering)
            self._gathering = None
            self._leave_anyway()

    def _leave(self) -> None:
        """One batch leaves, if nothing is in flight."""
        if not self._in_flight:
            self._leave_anyway()

    def _leave_anyway(self) -> None:
        """One batch leaves, if there is one and a place in flight is free."""
        if len(self._in_flight) >= self._limits.batches_in_flight:
            return
        if self._full:
            self._fly(self._full.popleft())
        elif self._gathering is not None:
            self._stop_timer()
            batch, self._gathering = self._gathering, None
            self._fly(batch)

    def _fly(self, batch: Batch) -> None:
        task = self._loop.create_task(self._store(batch.jobs, batch.futures, batch.deadline_s))
        self._in_flight.add(task)
        task.add_done_callback(self._landed)

    def _landed(self, task: asyncio.Task[None]) -> None:
        """The next batch leaves. The callers of this one have run by now, so what they enqueued next is in it."""
        self._in_flight.discard(task)
        if self._full or self._gathering is not None:
            self._leave_anyway()
        elif not self._in_flight:
            self._on_idle()

    def _stop_timer(self) -> None:
        if self._slow_timer is not None:
            self._slow_timer.cancel()
            self._slow_timer = None

    # -- answers ---------------------------------------------------------------------------------------------------

    async def _store(self, jobs: list[Job], futures: list[asyncio.Future[str]], deadline_s: float) -> None:
        """Sends one batch and answers its callers; refused for one member's sake, it is sent again in halves."""
        try:
            descriptors = await self._send(jobs, deadline_s)
        except OF_ONE_MEMBER as error:
            if len(jobs) == 1:
                _fail(futures, error)
                return
            half = len(jobs) // 2
            await asyncio.gather(
                self._store(jobs[:half], futures[:half], deadline_s),
                self._store(jobs[half:], futures[half:], deadline_s),
            )
        except Exception as error:
            _fail(futures, error)
        except asyncio.CancelledError as cancelled:
            _fail(futures, RuntimeError(*cancelled.args))
        else:
            for future, descriptor in zip(futures, descriptors, strict=True):
                if not future.done():
                    future.set_result(descriptor)


def _fail(futures: list[asyncio.Future[str]], error: Exception) -> None:
    """Each caller gets an exception of its own: one raised in many tasks would gather all their tracebacks."""
    for future in futures:
        if not future.done():
            own = copy.copy(error)
            if isinstance(own, PinLaterError):
                own.__cause__ = error.__cause__
            future.set_exception(own)
