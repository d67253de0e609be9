"""Enqueues of a client: lists as calls of their own, single jobs of one queue joined into one call.

Jobs with keys are joined only where that is nobody's loss: with a dedupe key each, and without a wish to hear of a
duplicate, or to change it. They are not joined with jobs that have no keys, which go another way in the server.

Batches clock themselves: low load pays no wait, high load makes batches. With nothing in flight a job leaves at the end
of the event loop's turn, with all others enqueued in that turn. While a batch is in flight the next one gathers; it
leaves when that one returns, when it is full, or after LONGEST_WAIT_S. Every caller has its own answer.
"""

from __future__ import annotations

import asyncio
import copy
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Literal

from pinlater.client.capabilities import GROUPS, KEYS
from pinlater.client.dispatcher import CallSpec, CallTransport, FirstAttempt
from pinlater.client.token import CallerContext
from pinlater.errors import (
    ArgumentInvalid,
    BodyTooLarge,
    EnqueueRejected,
    Overloaded,
    PinLaterError,
    PriorityNotSupported,
    ProtocolError,
    RequestInvalid,
)
from pinlater.model import EnqueuedJobs, EnqueueOutcome, ExtendedJob, Job, OnDuplicate, RequestContext
from pinlater.model.jobs import Shown
from pinlater.wire.convert import enqueued_from_wire
from pinlater.wire.methods import ENQUEUE, Idempotency

LONGEST_WAIT_S = 0.05
"""How long a slow batch in flight holds back the next one."""

JOB_OVERHEAD_BYTES = 64
"""What a job weighs in a batch beside its body."""

MAX_IDLE = 100
"""Batchers that are kept though nothing is in them; with more, all of these are dropped."""

OF_ONE_MEMBER = (RequestInvalid, BodyTooLarge, PriorityNotSupported)
"""Refusals that one job of a batch can cause for all; after these surely nothing is stored."""

DUPLICATE = "DUPLICATE"
_JOB_FIELDS = tuple(each.name for each in fields(Job))

_Who = tuple[str, Shown]
"""What of a context tells one caller from another: its source, and what it shows."""

Send = Callable[[Sequence[Job], float], Awaitable[list[str]]]
"""Stores jobs, all or none, in one call before a deadline (seconds of the loop's clock); a descriptor per job."""

Outcome = list[str] | Callable[[], Awaitable[list[str]]]
"""The descriptors; or what is still to be done, where they did not come at the first attempt."""

Begin = Callable[[Sequence[Job], float, Callable[[Outcome], None]], bool]
"""As `Send`, but without a task: whether the call has been sent at once; its outcome is told in the very moment."""


@dataclass(frozen=True, slots=True)
class EnqueueBatchLimits:
    """Bounds on one batch, on the batches in flight, and on the full ones waiting behind these."""

    batch_jobs: int = 1_000
    batch_bytes: int = 1024 * 1024
    batches_in_flight: int = 8
    batches_waiting: int = 32


class EnqueueBatch:
    """Jobs that leave together, and who waits for each."""

    __slots__ = ("bytes", "deadline_s", "futures", "jobs")

    def __init__(self, deadline_s: float) -> None:
        self.jobs: list[Job] = []
        self.futures: list[asyncio.Future[str]] = []
        self.bytes = 0
        self.deadline_s = deadline_s


class EnqueueBatcher:
    """Joins the enqueues of one queue that have the same time-out; `is_idle` where nothing is left in it."""

    def __init__(self, begin: Begin, send: Send, timeout_s: float, limits: EnqueueBatchLimits) -> None:
        self._begin = begin
        self._send = send
        self._timeout_s = timeout_s
        self._batch_jobs = limits.batch_jobs
        self._batch_bytes = limits.batch_bytes
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._gathering: EnqueueBatch | None = None
        self._full: deque[EnqueueBatch] = deque()
        self._in_flight: dict[EnqueueBatch, asyncio.Task[None] | None] = {}
        self._slow_timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        return self._gathering is None and not self._full and not self._in_flight

    def add(self, job: Job) -> asyncio.Future[str]:
        """The job's descriptor, to come. Overloaded: too many batches wait already."""
        weight = len(job.body) + JOB_OVERHEAD_BYTES
        batch = self._gathering
        if batch is None or batch.bytes + weight > self._batch_bytes:
            batch = self._open_batch()
        future = self._loop.create_future()
        batch.jobs.append(job)
        batch.futures.append(future)
        batch.bytes += weight
        if len(batch.jobs) >= self._batch_jobs:
            self._close_batch()
        return future

    async def close(self, error: Exception) -> None:
        """Everyone still waiting gets `error`; calls in flight are given up."""
        if self._slow_timer is not None:
            self._slow_timer.cancel()
        gathering = [] if self._gathering is None else [self._gathering]
        for batch in (*self._in_flight, *self._full, *gathering):
            _fail(batch.futures, error)
        tasks = [task for task in self._in_flight.values() if task is not None]
        self._in_flight.clear()
        self._full.clear()
        self._gathering = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- batches ---------------------------------------------------------------------------------------------------

    def _open_batch(self) -> EnqueueBatch:
        if len(self._full) >= self._limits.batches_waiting:
            raise Overloaded(f"{len(self._full)} batches of enqueues are waiting in this client already")
        if self._gathering is not None:
            self._close_batch()
        batch = self._gathering = EnqueueBatch(self._loop.time() + self._timeout_s)
        if not self._in_flight:
            self._loop.call_soon(self._leave)
        elif self._slow_timer is None:
            self._slow_timer = self._loop.call_later(LONGEST_WAIT_S, self._leave_slowly)
        return batch

    def _close_batch(self) -> None:
        """Takes no more jobs into the batch that gathers; it leaves at once where a place in flight is free."""
        if self._gathering is not None:
            self._full.append(self._gathering)
            self._gathering = None
            self._leave_anyway()

    def _leave(self) -> None:
        """One batch leaves, if nothing is in flight."""
        if not self._in_flight:
            self._leave_anyway()

    def _leave_slowly(self) -> None:
        """A batch that has gathered for long leaves; the timer may have been set for one before it."""
        self._slow_timer = None
        if self._gathering is not None:
            left_s = self._gathering.deadline_s - self._timeout_s + LONGEST_WAIT_S - self._loop.time()
            if left_s > 0.001:
                self._slow_timer = self._loop.call_later(left_s, self._leave_slowly)
            else:
                self._leave_anyway()

    def _leave_anyway(self) -> None:
        """One batch leaves, if there is one and a place in flight is free."""
        if len(self._in_flight) >= self._limits.batches_in_flight:
            return
        if self._full:
            self._fly(self._full.popleft())
        elif self._gathering is not None:
            batch, self._gathering = self._gathering, None
            self._fly(batch)

    def _fly(self, batch: EnqueueBatch) -> None:
        self._in_flight[batch] = None
        try:
            has_begun = self._begin(batch.jobs, batch.deadline_s, partial(self._ended, batch))
        except Exception:  # the other way meets it too, and tells the callers
            has_begun = False
        if not has_begun:
            self._go_on(batch, partial(self._send, batch.jobs, batch.deadline_s))

    def _ended(self, batch: EnqueueBatch, outcome: Outcome) -> None:
        """The first attempt is over."""
        if batch not in self._in_flight:  # closed meanwhile
            return
        if isinstance(outcome, list):
            _settle(batch.futures, outcome)
            self._loop.call_soon(self._landed, batch)
        else:
            self._go_on(batch, outcome)

    def _go_on(self, batch: EnqueueBatch, send: Callable[[], Awaitable[list[str]]]) -> None:
        task = self._loop.create_task(self._store(batch.jobs, batch.futures, batch.deadline_s, send))
        self._in_flight[batch] = task
        task.add_done_callback(lambda _: self._landed(batch))

    def _landed(self, batch: EnqueueBatch) -> None:
        """The next batch leaves. The callers of this one have run by now, so what they enqueued next is in it."""
        self._in_flight.pop(batch, None)
        self._leave_anyway()

    # -- answers ---------------------------------------------------------------------------------------------------

    async def _store(
        self,
        jobs: list[Job],
        futures: list[asyncio.Future[str]],
        deadline_s: float,
        send: Callable[[], Awaitable[list[str]]],
    ) -> None:
        """Awaits the answer to one batch for its callers; refused for one member's sake, it is sent again in halves."""
        try:
            descriptors = await send()
        except OF_ONE_MEMBER as error:
            if len(jobs) == 1:
                _fail(futures, error)
                return
            half = len(jobs) // 2
            await asyncio.gather(
                *(
                    self._store(jobs[part], futures[part], deadline_s, partial(self._send, jobs[part], deadline_s))
                    for part in (slice(half), slice(half, None))
                )
            )
        except Exception as error:
            _fail(futures, error)
        else:
            _settle(futures, descriptors)


Joins = Literal["plain", "unkeyed", "deduped"]
"""Which jobs travel together; "unkeyed" are extended, but without keys. An enum would be slow as part of a key."""


def joins(job: Job) -> Joins | None:
    """None: it travels alone."""
    if not isinstance(job, ExtendedJob):
        return "plain"
    if job.send_id or job.on_duplicate is not OnDuplicate.KEEP:
        return None
    if job.dedupe_key:
        return "deduped"
    return None if job.serialize_key else "unkeyed"


class Enqueuer:
    """Enqueues as calls. It has a batcher for each queue, kind of job, time-out and caller in use.

    `resend`: all jobs of a call that have no send id get one, the same for all, so that it can be sent again.
    """

    def __init__(self, dispatcher: CallTransport, caller: CallerContext, limits: EnqueueBatchLimits) -> None:
        self._dispatcher = dispatcher
        self.caller = caller
        self.limits = limits
        self._batchers: dict[tuple[str, float, Joins, bool, _Who | None], EnqueueBatcher] = {}

    def join(
        self,
        queue: str,
        job: Job,
        timeout_s: float,
        kind: Joins = "plain",
        resend: bool = False,
        context: RequestContext | None = None,
    ) -> Awaitable[str]:
        """The descriptor of one job, to come; it travels with others of its queue and caller. RequestInvalid,
        Overloaded.
        """
        if type(job.body) is not bytes:
            raise ArgumentInvalid.of_kind("body", job.body, "bytes")
        who = None if context is None else (context.source, context.shown)
        batcher = self._batchers.get((queue, timeout_s, kind, resend, who))
        if batcher is None:
            batcher = self._batcher(queue, timeout_s, kind, resend, who)
        return batcher.add(job)

    async def send(
        self,
        queue: str,
        jobs: Sequence[Job],
        deadline_s: float,
        context: RequestContext,
        resend: bool,
        *,
        has_extended: bool,
    ) -> list[str]:
        """The descriptors of jobs that travel alone, all or none, in one call; `has_extended`: see `any_extended`.
        EnqueueRejected, DUPLICATE: one job that is not to be kept is there already.
        """
        for job in jobs:
            if type(job.body) is not bytes:
                raise ArgumentInvalid.of_kind("body", job.body, "bytes")
        rejects = rejecting(jobs) if has_extended else None
        if rejects is None:
            return await self._end(self._call(queue, jobs, deadline_s, context, resend, has_extended), jobs)
        kept = [replace(rejects, on_duplicate=OnDuplicate.KEEP)]
        descriptors = await self._end(self._call(queue, kept, deadline_s, context, resend, has_extended), kept)
        if isinstance(descriptors, EnqueuedJobs) and EnqueueOutcome.KEPT in descriptors.outcomes:
            raise duplicate(queue, rejects, descriptors[0])
        return descriptors

    async def close(self, error: Exception) -> None:
        """All that still wait get `error`."""
        for batcher in list(self._batchers.values()):
            await batcher.close(error)
        self._batchers.clear()

    def _batcher(self, queue: str, timeout_s: float, kind: Joins, resend: bool, who: _Who | None) -> EnqueueBatcher:
        if len(self._batchers) >= MAX_IDLE:
            self._batchers = {key: batcher for key, batcher in self._batchers.items() if not batcher.is_idle}
        has_extended = kind != "plain"
        own = None if who is None else RequestContext(who[0], "", None, None, *who[1])

        def call_for(jobs: Sequence[Job], deadline_s: float) -> CallSpec:
            return self._call(queue, jobs, deadline_s, own or self.caller.context, resend, has_extended)

        def begin(jobs: Sequence[Job], deadline_s: float, on_end: Callable[[Outcome], None]) -> bool:
            call = call_for(jobs, deadline_s)
            return self._dispatcher.begin(call, lambda first: on_end(self._outcome(call, jobs, first)))

        def send(jobs: Sequence[Job], deadline_s: float) -> Awaitable[list[str]]:
            return self._end(call_for(jobs, deadline_s), jobs)

        batcher = self._batchers[queue, timeout_s, kind, resend, who] = EnqueueBatcher(
            begin, send, timeout_s, self.limits
        )
        return batcher

    def _call(
        self,
        queue: str,
        jobs: Sequence[Job],
        deadline_s: float,
        context: RequestContext,
        resend: bool,
        has_extended: bool,
    ) -> CallSpec:
        if not (resend or has_extended):
            return CallSpec(ENQUEUE, ENQUEUE.arguments(context, queue, jobs, False), Idempotency.ONCE, deadline_s)
        if resend:
            jobs = with_send_ids(jobs)
        safe = bool(jobs) and all(isinstance(job, ExtendedJob) and job.send_id for job in jobs)
        idempotency = Idempotency.REPEAT if safe else Idempotency.ONCE
        has_groups = any(isinstance(job, ExtendedJob) and job.group for job in jobs)
        needs = GROUPS if has_groups else KEYS if jobs else None
        return CallSpec(ENQUEUE, ENQUEUE.arguments(context, queue, jobs), idempotency, deadline_s, needs=needs)

    def _outcome(self, call: CallSpec, jobs: Sequence[Job], first: FirstAttempt) -> Outcome:
        if first.error is None and len(first.success.job_descriptors) == len(jobs):
            return enqueued_from_wire(first.success)
        return lambda: self._end(call, jobs, first)

    async def _end(self, call: CallSpec, jobs: Sequence[Job], first: FirstAttempt | None = None) -> list[str]:
        """With `first`, that was the first attempt."""
        if first is not None and first.error is None:
            response = first.success
        else:
            response = await self._dispatcher.call(call, first)
        descriptors = enqueued_from_wire(response)
        if len(descriptors) != len(jobs):
            raise ProtocolError(f"{len(descriptors)} descriptors came for {len(jobs)} jobs")
        return descriptors


def rejecting(jobs: Sequence[Job]) -> ExtendedJob | None:
    """The job of a call that is not to be kept where it is there already. RequestInvalid: it is one of several. One
    without a dedupe key is none: the server refuses it.
    """
    reject = OnDuplicate.REJECT
    found = next(
        (job for job in jobs if isinstance(job, ExtendedJob) and job.dedupe_key and job.on_duplicate is reject), None
    )
    if found is not None and len(jobs) > 1:
        raise RequestInvalid.of("on_duplicate", "REJECT", "KEEP or REPLACE in an enqueue of several jobs")
    return found


def duplicate(queue: str, job: ExtendedJob, descriptor: str) -> EnqueueRejected:
    """The error for such a job; `descriptor` is that of the one that stands."""
    message = f"queue {queue!r} has a job with the dedupe key {job.dedupe_key!r} already: {descriptor}"
    return EnqueueRejected(message, reason=DUPLICATE, retryable=False, job_descriptors=[descriptor])


def with_send_ids(jobs: Sequence[Job]) -> list[Job]:
    """The same jobs, all of which can be sent again."""
    send_id = secrets.token_hex(8)
    return [_with_send_id(job, send_id) for job in jobs]


def _with_send_id(job: Job, send_id: str) -> Job:
    if not isinstance(job, ExtendedJob):
        plain = {name: getattr(job, name) for name in _JOB_FIELDS}
        return ExtendedJob(**plain, send_id=send_id)
    return job if job.send_id else replace(job, send_id=send_id)


def _settle(futures: list[asyncio.Future[str]], descriptors: list[str]) -> None:
    for future, descriptor in zip(futures, descriptors, strict=True):
        if not future.done():
            future.set_result(descriptor)


def _fail(futures: list[asyncio.Future[str]], error: Exception) -> None:
    """Each caller gets an exception of its own: one raised in many tasks would gather all their tracebacks. Those whose
    jobs are stored nevertheless get their descriptors.
    """
    stored: Sequence[str] | None = error.job_descriptors if isinstance(error, PinLaterError) else None
    if stored is None or len(stored) != len(futures):
        stored = [""] * len(futures)
    for future, descriptor in zip(futures, stored, strict=True):
        if future.done():
            continue
        if descriptor:
            future.set_result(descriptor)
        else:
            own = copy.copy(error)
            if isinstance(own, PinLaterError):
                own.__cause__ = error.__cause__
                own.job_descriptors = None
            future.set_exception(own)
