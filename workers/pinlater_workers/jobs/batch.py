"""Batches: what a function with `batch=` takes, one call for many jobs of its type, each with its own outcome.

    @app.job(queue="search", batch=100, wait="200ms")
    def index(batch: Batch[Document]) -> None: ...

    index.enqueue(Document(7, "..."))       # one job; its argument is what the brackets say

Jobs without an outcome of their own succeed when the function returns, and fail together with what it raises.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, overload

from pinlater.model import DequeuedJob
from pinlater.schedule import Delay
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.jobs.context import CURRENT, Host, JobContext, StopReason
from pinlater_workers.jobs.outcome import Outcome, Retry, Snooze
from pinlater_workers.tracing import Trace, read_trace, use_trace

ArgumentT = TypeVar("ArgumentT")

BATCH_SIZE: ContextVar[tuple[str, int]] = ContextVar("pinlater_batch")
"""The type and the size of the batch that runs here, for logs."""


class BatchJob(Generic[ArgumentT]):
    """One job of a batch. An outcome that was set stays, whatever the function raises or returns later; the last
    one counts. May be used from any thread.

    `with job:` makes the job the current one, for `current()`, logs and the trace of what is enqueued. What is raised
    in the block is the outcome of this job alone, and goes no further. A block that ends well sets no outcome.
    """

    __slots__ = ("_context", "_current", "_error", "_settled", "_trace", "arguments", "result")

    def __init__(self, arguments: ArgumentT, context: JobContext | None) -> None:
        self.arguments = arguments
        self._context = context
        self._settled = False
        self._error: BaseException | None = None
        self.result: object = None
        """What `succeed` was given."""
        self._current: Token[JobContext] | None = None
        self._trace: AbstractContextManager[None] | None = None

    @property
    def context(self) -> JobContext:
        """The context of this job. LookupError: the function was called by hand, and there is no job."""
        if self._context is None:
            raise LookupError("no job runs: the function was called without one")
        return self._context

    @property
    def settled(self) -> bool:
        """Whether it has an outcome of its own."""
        return self._settled

    @property
    def error(self) -> BaseException | None:
        """The exception that it failed with or was put off by. None: it has succeeded, or has no outcome of its own."""
        return self._error

    def succeed(self, result: object = None) -> None:
        """End this job as a success, whatever becomes of the others. Call it when its work is stored. `result`: of this
        job, kept if its type of job has keep_result.
        """
        self._error, self._settled, self.result = None, True, result

    def fail(self, error: BaseException) -> None:
        """End the attempt of this job as if it had raised `error`: the retry policy decides; Fail, Snooze and the like
        work.
        """
        if not isinstance(error, BaseException):
            raise TypeError(f"fail({error!r:.100}); allowed: an exception; for good: fail(Fail('why'))")
        self._error, self._settled = error, True

    def retry(self, message: str = "", *, after: Delay | None = None) -> None:
        """Fail this attempt. `after`: when the next one comes; None leaves that to the retry policy."""
        self.fail(Retry(message, after=after))

    def snooze(self, after: Delay, message: str = "") -> None:
        """Put this job off: it comes again after `after` seconds, and no attempt is spent."""
        self.fail(Snooze(after, message))

    def __enter__(self) -> Self:
        if self._context is not None:
            self._current = CURRENT.set(self._context)
            self._trace = use_trace(_trace_of(self._context))
            self._trace.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._trace is not None and self._current is not None:
            self._trace.__exit__(None, None, None)
            CURRENT.reset(self._current)
            self._trace = self._current = None
        if not isinstance(error, Exception | SystemExit):
            return False
        self.fail(error)
        return True

    def __repr__(self) -> str:
        return f"<job {self.arguments!r:.100}>"


class Batch(Sequence[BatchJob[ArgumentT]]):
    """The jobs of one call of a function, of one type: those of a higher priority first."""

    def __init__(self, jobs: Sequence[BatchJob[ArgumentT]], context: BatchContext | None = None) -> None:
        self._jobs = jobs
        self._context = context

    @property
    def arguments(self) -> list[ArgumentT]:
        """The arguments of all jobs, in order."""
        return [job.arguments for job in self._jobs]

    @overload
    def __getitem__(self, index: int) -> BatchJob[ArgumentT]: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[BatchJob[ArgumentT]]: ...

    def __getitem__(self, index: int | slice) -> BatchJob[ArgumentT] | Sequence[BatchJob[ArgumentT]]:
        return self._jobs[index]

    def __iter__(self) -> Iterator[BatchJob[ArgumentT]]:
        return iter(self._jobs)

    def __len__(self) -> int:
        return len(self._jobs)

    def __repr__(self) -> str:
        return f"<batch of {len(self._jobs)}>"

    # -- being told to stop: all of it. One job's claim alone may be lost: see its context --------------------------

    @property
    def cancelled(self) -> bool:
        """Whether it should stop; `cancel_reason` is why. Cheap enough for a tight loop."""
        return self._context is not None and self._context.cancelled

    @property
    def cancel_reason(self) -> StopReason | None:
        return None if self._context is None else self._context.cancel_reason

    def raise_if_cancelled(self) -> None:
        """Raise JobStopped if all of it should stop."""
        if self._context is not None:
            self._context.raise_if_cancelled()

    @property
    def deadline(self) -> datetime:
        """The end of this call's time limit, in UTC. LookupError: it was called by hand."""
        return self._here.deadline

    def wait(self, seconds: float) -> bool:
        """Wait for that time. Returns True, at once, when the batch is or becomes cancelled. Not on an event loop."""
        return self._here.wait(seconds)

    async def wait_async(self, seconds: float) -> bool:
        """`wait` for coroutines."""
        return await self._here.wait_async(seconds)

    @property
    def _here(self) -> BatchContext:
        if self._context is None:
            raise LookupError("no job runs: the function was called without one")
        return self._context


Member = tuple[DequeuedJob, JobContext]


class BatchContext(JobContext):
    """The context of a batch, as its pool has it: told to stop, it tells all of its jobs. Programs see its `Batch`.

    Where it is asked what it is, it is its first job. `jobs` has None for jobs that never came to the function; it is
    empty until the function is about to be called.
    """

    __slots__ = ("jobs", "members")

    def __init__(self, members: Sequence[Member], host: Host, deadline_ms: int) -> None:
        job, context = members[0]
        super().__init__(context.job, context.queue, job, host, deadline_ms, context.envelope)
        self.members = members
        self.jobs: Sequence[BatchJob[Any] | None] = ()

    def request_stop(self, reason: StopReason, by: str = "") -> None:
        super().request_stop(reason, by)
        for _, context in self.members:
            context.request_stop(reason, by)

    def stop_member(self, index: int, reason: StopReason, by: str = "") -> None:
        """That job alone should stop: its claim is lost, or it is cancelled."""
        self.members[index][1].request_stop(reason, by)


@dataclass(frozen=True, slots=True)
class MemberOutcomes(Outcome):
    """The outcomes of the jobs of a batch, in order. Any other Outcome of a batch is that of each of its jobs."""

    members: tuple[Outcome, ...] = ()


def call_alone(function: Callable[..., Any], arguments: object) -> Any:
    """Call it with a batch of one, without a job: what that job failed with is raised."""
    job: BatchJob[Any] = BatchJob(arguments, None)
    result = function(Batch([job]))
    if inspect.isawaitable(result):
        return _awaited(job, result)
    if job.error is not None:
        raise job.error
    return result


async def _awaited(job: BatchJob[Any], result: Awaitable[Any]) -> Any:
    awaited = await result
    if job.error is not None:
        raise job.error
    return awaited


def takes_batch(function: Callable[..., Any]) -> bool:
    """Some parameter is annotated as a Batch."""
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # what cannot be resolved is told where arguments are looked at
        return False
    return any(_is_batch(hint) for hint in hints.values())


def call_signature(function: Callable[..., Any], job: str) -> Callable[..., None]:
    """A function of one argument, annotated with what a job of the batch has. ConfigurationError: no such function."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception as error:
        raise ConfigurationError(f"job {job!r}: its parameters cannot be read: {error}") from error
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    hint = hints.get(parameters[0].name, Any) if len(parameters) == 1 else None
    if len(parameters) != 1 or parameters[0].kind not in by_position or not (hint is Any or _is_batch(hint)):
        raise ConfigurationError(
            f"job {job!r} has batch= and takes {inspect.signature(function)}; allowed: one parameter, as in "
            "(batch: Batch[Document]): what a job is enqueued with stands in the brackets"
        )

    def one(arguments: Any, /) -> None: ...

    (one.__annotations__["arguments"],) = typing.get_args(hint) or (Any,)
    return one


def _is_batch(hint: object) -> bool:
    return hint is Batch or typing.get_origin(hint) is Batch


def _trace_of(context: JobContext) -> Trace | None:
    return read_trace(context.headers)
