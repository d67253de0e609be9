"""One attempt at each job of a batch: one call of the function, and the outcome of each.

Middleware is called for each job, in a context of its own, so that a span or a timer of one does not meet the others;
`around_batch` is called once, where the function runs. A job whose arguments or middleware fail is not in the batch.

Nothing that a batch raises leaves these functions, but what may leave those of `attempt`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from random import Random
from typing import Any

from pinlater.model import DequeuedJob
from pinlater_workers.errors import ResultInvalid
from pinlater_workers.execution.attempt import (
    HasMiddleware,
    after,
    before,
    failed,
    is_cancelled,
    prepare,
    refuse_too_large,
    returned,
    run_on_kept_loop,
    stopped,
    tell_error,
)
from pinlater_workers.execution.decision import RANDOM, log_outcome
from pinlater_workers.execution.start_context import StartContext
from pinlater_workers.jobs.batch import BATCH_SIZE, Batch, BatchContext, BatchJob, MemberOutcomes
from pinlater_workers.jobs.context import CURRENT, JobContext, StopReason
from pinlater_workers.jobs.job_type import JobType
from pinlater_workers.jobs.outcome import SUCCEEDED, Outcome
from pinlater_workers.jobs.results import MAX_RESULT_BYTES
from pinlater_workers.middleware import Middleware


def run_batch(
    app: HasMiddleware,
    job_type: JobType,
    context: JobContext,
    rng: Random | None = RANDOM,
    start: StartContext | None = None,
) -> MemberOutcomes:
    """Run it in this thread, as `run_attempt` runs one job."""
    start = start or StartContext()
    apart = start.fresh()
    attempts = BatchAttempts(app.middleware, job_type, context, rng, start)
    if not job_type.is_coroutine:
        return apart.run(_run, attempts)
    try:
        return run_on_kept_loop(_run_async(attempts), apart, context)
    except SystemExit as error:  # of a task that the function made: asyncio lets it through all that awaits it
        return attempts.end(error)
    except asyncio.CancelledError:  # middleware has been told
        if context.cancel_reason is not StopReason.CANCELLED:
            raise
        return attempts.stopped()


async def run_batch_async(
    app: HasMiddleware,
    job_type: JobType,
    context: JobContext,
    rng: Random | None = RANDOM,
    start: StartContext | None = None,
) -> MemberOutcomes:
    """Run a coroutine function on this loop, as `run_attempt_async` runs one job."""
    return await _run_async(BatchAttempts(app.middleware, job_type, context, rng, start or StartContext()))


def _run(attempts: BatchAttempts) -> MemberOutcomes:
    error: BaseException | None = None
    result: object = None
    try:
        with attempts.begun() as batch:
            if batch:
                result = attempts.job_type.call(batch)
    except KeyboardInterrupt:
        raise
    except BaseException as raised:
        error = raised
    return attempts.end(error, result)


async def _run_async(attempts: BatchAttempts) -> MemberOutcomes:
    error: BaseException | None = None
    result: object = None
    try:
        with attempts.begun() as batch:
            if batch:
                result = await attempts.job_type.call(batch)
        await attempts.learn_result_bound()
    except KeyboardInterrupt:
        raise
    except BaseException as raised:
        if isinstance(raised, asyncio.CancelledError) and is_cancelled():
            attempts.cancelled(raised)
            raise
        error = raised
    return attempts.end(error, result)


class BatchAttempts:
    """The attempts of one batch, from the bodies to the outcomes."""

    def __init__(
        self,
        middleware: Sequence[Middleware],
        job_type: JobType,
        context: JobContext,
        rng: Random | None,
        start: StartContext,
    ) -> None:
        assert isinstance(context, BatchContext)
        self.job_type = job_type
        self._middleware = middleware
        self._context = context
        self._attempts = [_MemberAttempt(job_type, job, each, rng, start) for job, each in context.members]

    @contextmanager
    def begun(self) -> Iterator[Batch[Any]]:
        """The jobs whose arguments and middleware are well, with the middleware of the whole around them."""
        jobs = [each.begin(self._middleware) for each in self._attempts]
        self._context.jobs = jobs
        batch: Batch[Any] = Batch([job for job in jobs if job is not None], self._context)
        token = BATCH_SIZE.set((self.job_type.name, len(batch)))
        try:
            with ExitStack() as stack:
                for each in self._middleware if batch else ():
                    stack.enter_context(each.around_batch(batch))
                yield batch
        finally:
            BATCH_SIZE.reset(token)

    async def learn_result_bound(self) -> None:
        """Where a job has a result, before `end` judges by it: that runs on the event loop, and asks nobody."""
        exceeded, queue = self.job_type.app.exceeded_result_bound, self._context.queue
        if (
            any(each is not None and each.result is not None for each in self._context.jobs)
            and exceeded(queue, MAX_RESULT_BYTES, may_ask=False) is None  # nothing of late
        ):
            with suppress(asyncio.CancelledError):  # the function has returned, and its jobs are to count
                await asyncio.to_thread(exceeded, queue, MAX_RESULT_BYTES)

    def end(self, error: BaseException | None, result: object = None) -> MemberOutcomes:
        """`error`: what the function raised, which counts for the jobs without an outcome of their own."""
        return MemberOutcomes(SUCCEEDED.action, members=tuple([each.end(error, result) for each in self._attempts]))

    def stopped(self) -> MemberOutcomes:
        """The batch was ended by request, and middleware knows."""
        return MemberOutcomes(SUCCEEDED.action, members=tuple([each.stopped() for each in self._attempts]))

    def cancelled(self, error: BaseException) -> None:
        """The batch is ended: middleware hears so, as the pool says the outcomes."""
        if self._context.cancel_reason is not None:
            for each in self._attempts:
                each.cancelled(error)


class _MemberAttempt:
    """The attempt of one job. `_outcome` is set where it never came to the function."""

    __slots__ = ("_apart", "_batch_job", "_begun", "_context", "_outcome", "_rng", "_type", "job")

    def __init__(
        self, job_type: JobType, job: DequeuedJob, context: JobContext, rng: Random | None, start: StartContext
    ) -> None:
        self.job = job
        self._type = job_type
        self._context = context
        self._rng = rng
        self._apart = start.fresh()
        self._begun: list[Middleware] = []
        self._batch_job: BatchJob[Any] | None = None
        self._outcome: Outcome | None = None

    def begin(self, middleware: Sequence[Middleware]) -> BatchJob[Any] | None:
        return self._apart.run(self._begin, middleware)

    def end(self, error: BaseException | None, result: object) -> Outcome:
        return self._apart.run(self._end, error, result)

    def stopped(self) -> Outcome:
        if self._outcome is not None:
            return self._outcome
        if self._batch_job is not None and self._batch_job.settled:
            return self.end(None, None)
        return stopped(self._type, self.job, self._context)

    def cancelled(self, error: BaseException) -> None:
        if self._outcome is None and not (self._batch_job is not None and self._batch_job.settled):
            outcome = stopped(self._type, self.job, self._context)
            self._apart.run(tell_error, self._begun, self._context, error, outcome)

    def _begin(self, middleware: Sequence[Middleware]) -> BatchJob[Any] | None:
        try:
            (arguments,), _ = prepare(self._type, self.job, self._context)
            before(middleware, self._begun, self._context)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._outcome = self._failed(error)
            return None
        self._batch_job = BatchJob(arguments, self._context)
        return self._batch_job

    def _end(self, error: BaseException | None, result: object) -> Outcome:
        if self._outcome is not None:
            return self._outcome
        if self._batch_job is not None and self._batch_job.settled:
            error = self._batch_job.error
        if error is not None:
            return self._failed(error)
        try:
            after(self._begun, self._context, result)
        except KeyboardInterrupt:
            raise
        except BaseException as raised:
            return self._failed(raised)
        try:
            outcome = self._returned(result)
            refuse_too_large(self._type, self._context, outcome, may_ask=not self._type.is_coroutine)
        except ResultInvalid as invalid:
            return self._failed(invalid)
        log_outcome(self._context, outcome)
        return outcome

    def _returned(self, result: object) -> Outcome:
        """Results are those of each job; what the function returns is nobody's. ResultInvalid."""
        own = None if self._batch_job is None else self._batch_job.result
        if self._type.keeps_result(self._context.headers):
            return returned(self._type, self._begun, self._context, own)
        dropped = result if own is None else own
        return SUCCEEDED if dropped is None else returned(self._type, self._begun, self._context, dropped)

    def _failed(self, error: BaseException) -> Outcome:
        CURRENT.set(self._context)
        return failed(self._begun, self._type, self.job, self._context, error, self._rng)
