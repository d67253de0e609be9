"""One attempt: its arguments, its context, the middleware, the call, and the outcome.

Nothing that a job raises leaves these functions, SystemExit and MemoryError included: it ends the attempt, not the
worker. Only KeyboardInterrupt passes, which is for the process; and the CancelledError of a task that its pool cancels.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Sequence
from contextvars import Context
from random import Random
from typing import Any, Protocol, TypeVar

from pinlater.log_guard import GuardedLogger, guard_loop
from pinlater.model import DequeuedJob
from pinlater_workers.envelope import read_envelope
from pinlater_workers.errors import BodyInvalid, JobStopped, ResultInvalid
from pinlater_workers.execution.decision import RANDOM, decide, decide_cancelled, decide_stopped, log_outcome
from pinlater_workers.execution.failure_text import MAX_TYPE_CHARS, loggable
from pinlater_workers.execution.start_context import StartContext
from pinlater_workers.jobs.context import CURRENT, JobContext, StopReason
from pinlater_workers.jobs.job_type import JobType
from pinlater_workers.jobs.outcome import SUCCEEDED, Action, Outcome
from pinlater_workers.jobs.results import TOO_LARGE, UNASKED_BYTES
from pinlater_workers.middleware import Middleware
from pinlater_workers.tracing import set_trace

_log = GuardedLogger("pinlater_workers.execution")
_of_thread = threading.local()
OutcomeT = TypeVar("OutcomeT", bound=Outcome)


class HasMiddleware(Protocol):
    """An app, as far as it matters here."""

    @property
    def middleware(self) -> Sequence[Middleware]: ...


def run_attempt(
    app: HasMiddleware,
    job_type: JobType,
    job: DequeuedJob,
    context: JobContext,
    rng: Random | None = RANDOM,
    start: StartContext | None = None,
) -> Outcome:
    """Run it in this thread; a coroutine function on an event loop that this thread keeps for them (`close_loop`).

    It begins in the context of `start`, unless given that of the caller, and what it sets there is gone afterwards.
    `rng` None: retry delays without jitter.
    """
    apart = (start or StartContext()).fresh()
    if not job_type.is_coroutine:
        return apart.run(_attempt, app.middleware, job_type, job, context, rng)
    try:
        return run_on_kept_loop(run_attempt_async(app, job_type, job, context, rng), apart, context)
    except SystemExit as error:  # of a task that the job made: asyncio lets it through all that awaits it
        return apart.run(failed, (), job_type, job, context, error, rng)
    except asyncio.CancelledError:  # middleware has been told
        if context.cancel_reason is not StopReason.CANCELLED:
            raise
        outcome = stopped(job_type, job, context)
        apart.run(log_outcome, context, outcome)
        return outcome


def run_on_kept_loop(attempt: Coroutine[Any, Any, OutcomeT], apart: Context, context: JobContext) -> OutcomeT:
    """On the event loop that this thread keeps for coroutines. Tasks that it leaves behind end with it, and so do the
    handlers that it gives the loop. It is cancelled, in the sense of asyncio too, when somebody cancels its job.
    """
    runner = _runner()
    loop = runner.get_loop()
    task: list[asyncio.Task[Any]] = []

    async def attempt_in_task() -> OutcomeT:
        task.append(asyncio.current_task())  # type: ignore[arg-type]
        return await attempt

    def cancel() -> None:
        if context.cancel_reason is StopReason.CANCELLED and task:
            task[0].cancel()

    def stop() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: it has ended
            loop.call_soon_threadsafe(cancel)

    no_more = context.on_stop(stop)
    try:
        return runner.run(attempt_in_task(), context=apart)
    finally:
        no_more()
        _end_tasks(runner)
        _reset(loop)


async def run_attempt_async(
    app: HasMiddleware, job_type: JobType, job: DequeuedJob, context: JobContext, rng: Random | None = RANDOM
) -> Outcome:
    """Run a coroutine function on this loop. The caller's task is the attempt's own, begun in a fresh context."""
    begun: list[Middleware] = []
    try:
        args, kwargs = prepare(job_type, job, context)
        if app.middleware:
            before(app.middleware, begun, context)
        result = await job_type.call(*args, **kwargs)
        if begun:
            after(begun, context, result)
        outcome = SUCCEEDED if result is None and not job_type.keeps else returned(job_type, begun, context, result)
        if outcome.result is not None and len(outcome.result) > UNASKED_BYTES:
            with contextlib.suppress(asyncio.CancelledError):  # the job has succeeded, and middleware knows
                await asyncio.to_thread(refuse_too_large, job_type, context, outcome)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and is_cancelled():
            if begun and context.cancel_reason is not None:
                tell_error(begun, context, error, stopped(job_type, job, context))
            raise
        return failed(begun, job_type, job, context, error, rng)
    log_outcome(context, outcome)
    return outcome


def run_apart(work: Coroutine[Any, Any, None]) -> None:
    """Run it on the event loop that this thread keeps for coroutine jobs: what it makes there, they can use."""
    _runner().run(work)


def close_loop() -> None:
    """For a thread that has run jobs and ends: close the event loop that it kept for coroutines, if it did."""
    runner: asyncio.Runner | None = getattr(_of_thread, "runner", None)
    if runner is not None:
        _of_thread.runner = None
        runner.close()


def _attempt(
    middleware: Sequence[Middleware], job_type: JobType, job: DequeuedJob, context: JobContext, rng: Random | None
) -> Outcome:
    begun: list[Middleware] = []
    try:
        args, kwargs = prepare(job_type, job, context)
        if middleware:
            before(middleware, begun, context)
        result = job_type.call(*args, **kwargs)
        if begun:
            after(begun, context, result)
        outcome = SUCCEEDED if result is None and not job_type.keeps else returned(job_type, begun, context, result)
        refuse_too_large(job_type, context, outcome)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return failed(begun, job_type, job, context, error, rng)
    log_outcome(context, outcome)
    return outcome


def prepare(job_type: JobType, job: DequeuedJob, context: JobContext) -> tuple[Sequence[Any], dict[str, Any]]:
    """The arguments. ArgumentsInvalid: the function takes others, as code and producer differ. BodyInvalid."""
    CURRENT.set(context)
    context.begin()
    if job_type.is_raw:
        set_trace({})
        return (job.body,), {}
    envelope = context.envelope
    if envelope is None:
        envelope = context.envelope = read_envelope(job.body)
        if envelope is None:
            raise BodyInvalid(f"job {job_type.name} takes bodies with an envelope, and this one has none")
    set_trace(envelope.headers)
    return job_type.arguments(envelope)


def before(middleware: Sequence[Middleware], begun: list[Middleware], context: JobContext) -> None:
    for each in middleware:
        each.before(context)
        begun.append(each)


def after(begun: Sequence[Middleware], context: JobContext, result: Any) -> None:
    for each in reversed(begun):
        each.after(context, result)


def returned(job_type: JobType, begun: Sequence[Middleware], context: JobContext, result: Any) -> Outcome:
    """A success, with its result where that is kept. ResultInvalid: it cannot be. Else the first attempt of a type that
    returned something says so, unless middleware has it.
    """
    if job_type.keeps_result(context.headers):
        return Outcome(Action.SUCCEED, result=job_type.write_result(result, context.headers))
    if result is None or job_type.result_noted:
        return SUCCEEDED
    job_type.result_noted = True
    if any(type(each).after is not Middleware.after for each in begun):
        return SUCCEEDED
    return Outcome(Action.SUCCEED, error=type(result).__qualname__[:MAX_TYPE_CHARS])


def refuse_too_large(job_type: JobType, context: JobContext, outcome: Outcome, *, may_ask: bool = True) -> None:
    """ResultInvalid: its result is beyond what the queue keeps. May ask a server, and wait for it."""
    size = 0 if outcome.result is None else len(outcome.result)
    if size <= UNASKED_BYTES:
        return
    bound = job_type.app.exceeded_result_bound(context.queue, size, may_ask=may_ask)
    if bound is not None:
        allowed = f"at most {bound}, the max_result of queue {context.queue}"
        raise ResultInvalid(f"{TOO_LARGE}: {size} bytes; allowed: {allowed}")


def stopped(job_type: JobType, job: DequeuedJob, context: JobContext) -> Outcome:
    """Its outcome, when it has been told why it is ended."""
    assert context.cancel_reason is not None
    reason, text = context.cancel_reason, context.cancel_text
    return decide_stopped(job_type.settings, job, reason, record=context.record(), text=text)


def failed(
    begun: Sequence[Middleware],
    job_type: JobType,
    job: DequeuedJob,
    context: JobContext,
    error: BaseException,
    rng: Random | None,
) -> Outcome:
    reason = context.cancel_reason
    if reason is None or (reason is not StopReason.CANCELLED and not isinstance(error, JobStopped)):
        outcome = decide(job_type.settings, job, error, rng, body=context.body, record=context.record())
    elif isinstance(error, JobStopped | asyncio.CancelledError):
        outcome = stopped(job_type, job, context)
    else:
        outcome = decide_cancelled(job, context.cancel_text, error, context.record())
    tell_error(begun, context, error, outcome)
    log_outcome(context, outcome, error)
    return outcome


def tell_error(begun: Sequence[Middleware], context: JobContext, error: BaseException, outcome: Outcome) -> None:
    for each in reversed(begun):
        try:
            each.error(context, error, outcome)
        except Exception as raised:
            text = "Middleware %s failed when notified of a failure"
            _log.error(text, type(each).__qualname__, exc_info=loggable(raised))


def is_cancelled() -> bool:
    """Somebody cancelled this very task, rather than a job raising CancelledError by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _runner() -> asyncio.Runner:
    runner: asyncio.Runner | None = getattr(_of_thread, "runner", None)
    if runner is None:
        runner = _of_thread.runner = asyncio.Runner()
        _of_thread.debug = runner.get_loop().get_debug()
        guard_loop(runner.get_loop())
    return runner


def _reset(loop: asyncio.AbstractEventLoop) -> None:
    """What a job has told the loop that its thread keeps is not for the next one."""
    guard_loop(loop)
    loop.set_task_factory(None)
    loop.set_debug(_of_thread.debug)


def _end_tasks(runner: asyncio.Runner) -> None:
    """Tasks that a job left behind end with it, as under asyncio.run."""
    loop = runner.get_loop()
    tasks = asyncio.all_tasks(loop)
    if tasks:
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
