"""A type of job: a function, its settings, and the ways to enqueue it, one job or many."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from pinlater.clock import Clock
from pinlater.model import Job
from pinlater_workers.envelope import Envelope, write_envelope
from pinlater_workers.errors import ArgumentsInvalid, ConfigurationError, WorkerError
from pinlater_workers.jobs.arguments import Arguments
from pinlater_workers.jobs.outcome import Delay, seconds
from pinlater_workers.jobs.settings import JobSettings

P = ParamSpec("P")
ResultT = TypeVar("ResultT", covariant=True)
Call = tuple[Any, ...] | list[Any] | Mapping[str, Any]
"""One call of many: the arguments by position, or by name."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
JOBS_PER_CALL = 500
BYTES_PER_CALL = 4 * 1024 * 1024


class Producer(Protocol):
    """The app, as its job types see it."""

    clock: Clock
    sink: JobSink

    def headers(self, job: str) -> dict[str, str]:
        """What travels with a job that is enqueued now."""


class JobType:
    """Called, it is the plain function. `settings` may be changed by a file after it was made, never while it runs."""

    def __init__(self, producer: Producer, function: Callable[..., Any], name: str, settings: JobSettings) -> None:
        """ConfigurationError: a function that cannot be a job."""
        functools.update_wrapper(self, function)
        self._producer = producer
        self.function: Callable[..., Any] = function.function if isinstance(function, JobType) else function
        self.name = name
        self.settings = settings
        self.is_coroutine = inspect.iscoroutinefunction(self.function)
        self._arguments = Arguments(self.function, name)
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigurationError(f"job {name!r} is a generator; allowed: a plain or a coroutine function")

    @property
    def app(self) -> Producer:
        """The one that it was declared with."""
        return self._producer

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<job {self.name!r} of queue {self.settings.queue!r}>"

    def enqueue(
        self,
        *args: Any,
        delay: Delay | None = None,
        run_after: datetime | int | None = None,
        priority: int | None = None,
        **kwargs: Any,
    ) -> str:
        """Store a job for these arguments; its descriptor.

        `delay`: seconds or a timedelta; `run_after`: an aware datetime, or milliseconds since the epoch.
        ArgumentsInvalid, ValueError: nothing was sent. Else the errors of Client.enqueue.
        """
        (job,) = self._jobs([self._body(args, kwargs)], delay, run_after, priority)
        return self._producer.sink.send(self.settings.queue, [job])[0]

    def enqueue_many(
        self,
        calls: Iterable[Call],
        *,
        delay: Delay | None = None,
        run_after: datetime | int | None = None,
        priority: int | None = None,
    ) -> list[str]:
        """Store a job for each call, in calls of up to 500; the descriptors in order.

        A call is a tuple (or list) of arguments, or a dict of them by name. ArgumentsInvalid, ValueError: nothing was
        sent. EnqueuedInPart: the first are stored, and says which.
        """
        jobs = self._jobs(self._bodies(calls), delay, run_after, priority)
        return send_all(self._producer.sink, self.settings.queue, jobs)

    async def enqueue_async(
        self,
        *args: Any,
        delay: Delay | None = None,
        run_after: datetime | int | None = None,
        priority: int | None = None,
        **kwargs: Any,
    ) -> str:
        """`enqueue` for an event loop."""
        (job,) = self._jobs([self._body(args, kwargs)], delay, run_after, priority)
        return (await self._producer.sink.send_async(self.settings.queue, [job]))[0]

    async def enqueue_many_async(
        self,
        calls: Iterable[Call],
        *,
        delay: Delay | None = None,
        run_after: datetime | int | None = None,
        priority: int | None = None,
    ) -> list[str]:
        """`enqueue_many` for an event loop."""
        jobs = self._jobs(self._bodies(calls), delay, run_after, priority)
        return await send_all_async(self._producer.sink, self.settings.queue, jobs)

    def body(self, *args: Any, **kwargs: Any) -> bytes:
        """The body of a job for these arguments, without headers. ArgumentsInvalid."""
        return self._body(args, kwargs, {})

    def arguments(self, envelope: Envelope) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments in a body, as the function's annotations want them. ArgumentsInvalid: it does not take them."""
        return self._arguments.read(envelope.args, envelope.kwargs, envelope.encoding)

    def _bodies(self, calls: Iterable[Call]) -> list[bytes]:
        headers = self._producer.headers(self.name)
        bodies: list[bytes] = []
        try:
            for call in calls:
                args, kwargs = ((), call) if isinstance(call, Mapping) else (self._listed(call), {})
                bodies.append(self._body(args, kwargs, headers))
        except ArgumentsInvalid as error:
            raise ArgumentsInvalid(f"call {len(bodies)}, counted from 0: {error}") from error
        return bodies

    def _listed(self, call: object) -> Sequence[Any]:
        """A text is a sequence too, but surely not meant as one argument for each letter."""
        if not isinstance(call, tuple | list):
            raise ArgumentsInvalid(f"job {self.name!r}: a call {call!r:.100}; allowed: a tuple, a list or a dict")
        return call

    def _body(self, args: Sequence[Any], kwargs: Mapping[str, Any], headers: dict[str, str] | None = None) -> bytes:
        if self.settings.raw:
            return self._raw_body(args, kwargs)
        encoding = self.settings.encoding
        self._arguments.check(args, kwargs, encoding)
        headers = self._producer.headers(self.name) if headers is None else headers
        try:
            return write_envelope(Envelope(self.name, list(args), dict(kwargs), headers, 0, encoding))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            self._arguments.check_written(args, kwargs, encoding)
            raise ArgumentsInvalid(f"job {self.name!r}: {error}") from error

    def _raw_body(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        if len(args) != 1 or kwargs or not isinstance(args[0], bytes):
            raise ArgumentsInvalid(f"job {self.name!r}: it is raw; allowed: one argument, the body as bytes")
        return args[0]

    def _jobs(
        self, bodies: Sequence[bytes], delay: Delay | None, run_after: datetime | int | None, priority: int | None
    ) -> list[Job]:
        at_ms = run_after_ms(delay, run_after, self._producer.clock.now_ms())
        level = self.settings.priority if priority is None else priority
        attempts = self.settings.attempts_allowed
        return [Job(body, priority=level, run_after_ms=at_ms, attempts_allowed=attempts) for body in bodies]


class JobFunction(JobType, Generic[P, ResultT]):
    """A job type whose calls are checked by a type checker as those of its function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> ResultT:
        result: ResultT = self.function(*args, **kwargs)
        return result

    def body(self, *args: P.args, **kwargs: P.kwargs) -> bytes:
        return self._body(args, kwargs, {})


class EnqueuedInPart(WorkerError):
    """Some of many jobs were enqueued: the first are stored, `enqueued` has their descriptors in order; then a call
    failed.

    `__cause__` is its error. Where that is OutcomeUnknown, the jobs of that call, up to 500 of those that follow, may
    be stored as well; of the rest surely none is.
    """

    def __init__(self, enqueued: list[str], wanted: int, why: str) -> None:
        super().__init__(f"{len(enqueued)} of {wanted} jobs are enqueued; then: {why}")
        self.enqueued = enqueued
        self.wanted = wanted


class JobSink(Protocol):
    """Where jobs go. Each call stores all of its jobs or none, and answers with their descriptors in order."""

    def send(self, queue: str, jobs: Sequence[Job]) -> list[str]: ...

    async def send_async(self, queue: str, jobs: Sequence[Job]) -> list[str]: ...


def run_after_ms(delay: Delay | None, run_after: datetime | int | None, now_ms: int) -> int | None:
    """The time a job waits for; None: at once. ValueError: both are given, a negative delay, a naive time."""
    if delay is not None:
        if run_after is not None:
            raise ValueError("either delay or run_after can be given, not both")
        return now_ms + round(seconds(delay) * 1000)
    if isinstance(run_after, datetime):
        if run_after.tzinfo is None:
            raise ValueError(f"run_after is {run_after}, without a time zone; allowed: as in datetime.now(UTC)")
        return -((_EPOCH - run_after) // timedelta(milliseconds=1))  # rounded up: not before the time that was named
    if run_after is not None and (isinstance(run_after, bool) or not isinstance(run_after, int)):
        raise ValueError(f"run_after is {run_after!r}; allowed: an aware datetime, or milliseconds as an int")
    return run_after


def slices(jobs: Sequence[Job]) -> Iterator[Sequence[Job]]:
    """The jobs in order, in as few calls as the bounds of a call allow."""
    start, size = 0, 0
    for index, job in enumerate(jobs):
        if index > start and (index - start == JOBS_PER_CALL or size + len(job.body) > BYTES_PER_CALL):
            yield jobs[start:index]
            start, size = index, 0
        size += len(job.body)
    if start < len(jobs):
        yield jobs[start:]


def send_all(sink: JobSink, queue: str, jobs: Sequence[Job]) -> list[str]:
    """EnqueuedInPart: a call after the first one failed. The error of the first is raised as it is."""
    enqueued: list[str] = []
    for some in slices(jobs):
        try:
            enqueued += sink.send(queue, some)
        except Exception as error:
            if not enqueued:
                raise
            raise EnqueuedInPart(enqueued, len(jobs), str(error)) from error
    return enqueued


async def send_all_async(sink: JobSink, queue: str, jobs: Sequence[Job]) -> list[str]:
    """`send_all` for an event loop."""
    enqueued: list[str] = []
    for some in slices(jobs):
        try:
            enqueued += await sink.send_async(queue, some)
        except Exception as error:
            if not enqueued:
                raise
            raise EnqueuedInPart(enqueued, len(jobs), str(error)) from error
    return enqueued
